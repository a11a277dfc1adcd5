"""Samples as tensors: what a model is given, and arrays that stay in their files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch

from sagefl.data import load
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
