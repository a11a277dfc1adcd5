"""Samples as tensors: what a model is given, and arrays that stay in their files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from sagefl.data import DataError, Dataset, load
from sagefl.data.inputs import as_inputs
from sagefl.learning.corpus import Corpus, InputForm, model_input


def test_pixels_are_scaled_and_whole_numbers_are_not() -> None:
    images = np.full((2, 1, 2, 2), 255, np.uint8)
    assert torch.equal(model_input(images), torch.ones(2, 1, 2, 2))
    letters = np.full((2, 5), 200, np.uint8)
    assert torch.equal(model_input(letters), torch.full((2, 5), 200))
    assert model_input(letters.astype(np.int32)).dtype == torch.int32


def test_several_arrays_come_apart_again_also_for_many_clients_at_once() -> None:
    ids, mask = np.arange(24).reshape(6, 4), np.arange(24).reshape(6, 4) % 3 == 0
    where = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    x = as_inputs("x", {"ids": ids, "mask": mask, "where": where})
    form = InputForm.of(x)
    index = torch.tensor([[0, 1, 2], [5, 4, 3]])
    given = form.inputs(form.rows(x)[index])
    for name, array in (("ids", ids), ("mask", mask), ("where", where)):
        assert np.array_equal(given[name].numpy(), array[index.numpy()])
    placed = model_input(as_inputs("x", (ids, where)))
    assert isinstance(placed, tuple)
    assert np.array_equal(placed[1].numpy(), where)


def test_arrays_in_files_are_mapped_by_whoever_gets_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(size=(2000, 500)).astype(np.float32), "y_train": np.arange(2000) % 3}
    arrays |= {"x_test": arrays["x_train"][:20], "y_test": arrays["y_train"][:20]}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    data = load(str(tmp_path))
    corpus = Corpus.of((data.train_x, data.train_y, data.test_x, data.test_y), 3, [], shared_memory=True)
    assert set(corpus.files) == {"train_x", "test_x", "train_y", "test_y"}
    assert not corpus.train_x.is_shared()
    sent = pickle.dumps(corpus)
    assert len(sent) < 10_000  # 4 MB of samples stay in their file
    again = pickle.loads(sent)
    assert torch.equal(again.train_x, torch.from_numpy(arrays["x_train"]))
    assert torch.equal(again.test_y, torch.from_numpy(arrays["y_test"]))
    again.train_x[0] = 0  # a private page, not the file
    assert np.array_equal(np.load(tmp_path / "x_train.npy"), arrays["x_train"])


@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_floats_of_another_width_stay_in_their_files_and_come_to_the_same(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(size=(5000, 7)).astype(kind), "y_train": np.arange(5000) % 3}
    arrays |= {"x_test": arrays["x_train"][:20], "y_test": arrays["y_train"][:20]}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "all.npz", **arrays)
    mapped, read = load(str(tmp_path)), load(str(tmp_path / "all.npz"))
    assert mapped.train_x.dtype == kind
    assert read.train_x.dtype == np.float32
    assert mapped.digest == read.digest
    assert torch.equal(model_input(mapped.train_x), model_input(read.train_x))
    corpora = [Corpus.of((d.train_x, d.train_y, d.test_x, d.test_y), 3, []) for d in (mapped, read)]
    assert set(corpora[0].files) == {"train_x", "test_x", "train_y", "test_y"}
    again = pickle.loads(pickle.dumps(corpora[0]))
    assert torch.equal(again.form.inputs(again.train_x[3:9]), corpora[1].form.inputs(corpora[1].train_x[3:9]))


def test_a_number_too_large_for_float32_is_refused_in_a_file_as_in_memory(tmp_path: Path) -> None:
    x, y = np.ones((4, 2)), np.arange(4) % 2
    x[2, 1] = 1e300
    for name, array in {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2]}.items():
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(DataError, match="train_x holds NaN or infinity, first in sample 2"):
        load(str(tmp_path))


def test_training_samples_in_a_file_go_with_test_samples_in_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(6, 2)))
    x, y = np.load(tmp_path / "x.npy", mmap_mode="c"), np.arange(6) % 2
    data = Dataset.from_arrays("d", x, y, np.array(x[:2]), y[:2])
    assert data.train_x.dtype == data.test_x.dtype == np.float32
    assert np.array_equal(data.train_x, x.astype(np.float32))
