"""Hugging Face datasets, with a stand-in for the library (and the library itself where it is installed)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sagefl.data import DataError, load


class Image:
    pass


class ClassLabel:
    num_classes = 5


class Split(dict[str, Any]):
    """Columns by name, with `features` beside them, as the library has it."""

    features: dict[str, Any]

    def __init__(self, size: int, features: dict[str, Any], shape: tuple[int, ...] = (6, 4, 3)) -> None:
        rng = np.random.default_rng(size)
        self.features = features
        for column, feature in features.items():
            images = isinstance(feature, Image)
            self[column] = [rng.integers(256, size=shape, dtype=np.uint8) if images else i % 3 for i in range(size)]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A hub with one dataset per test: set `hub.splits`; what was asked for is in `hub.asked`."""
    features = {"img": Image(), "id": int, "label": ClassLabel()}
    fake = SimpleNamespace(splits={"train": Split(8, features), "test": Split(4, features)}, asked=None)

    def load_dataset(name: str, config: str | None = None, *, revision: str | None = None) -> dict[str, Split]:
        fake.asked = (name, config, revision)
        if name == "no/such":
            raise FileNotFoundError("not on the hub")
        return dict(fake.splits)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return fake


def test_columns_are_found_by_their_kind(hub: SimpleNamespace) -> None:
    data = load("hf:some/name")
    assert hub.asked == ("some/name", None, None)
    assert (data.name, data.input_shape, data.classes) == ("hf:some/name", (3, 6, 4), 5)
    assert data.train_x[3, 2, 5, 1] == hub.splits["train"]["img"][3][5, 1, 2]
    assert data.test_y.tolist() == [0, 1, 2, 0]


def test_options_choose_configuration_split_and_columns(hub: SimpleNamespace) -> None:
    features = {"a": Image(), "b": Image(), "fine": ClassLabel(), "coarse": ClassLabel()}
    hub.splits = {"train": Split(8, features), "validation": Split(6, features)}
    data = load("hf:some/name?config=v2&revision=4a1&test=validation&image=b&label=coarse")
    assert hub.asked == ("some/name", "v2", "4a1")
    assert len(data.test_y) == 6
    assert data.train_x[0, 0, 0, 0] == hub.splits["train"]["b"][0][0, 0, 0]
    with pytest.raises(DataError, match=r"2 candidate columns for image \(a, b\).*\?image=COLUMN"):
        load("hf:some/name?test=validation")


def test_a_column_says_whose_the_samples_are(hub: SimpleNamespace) -> None:
    hub.splits["train"]["id"] = ["w2", "w2", "w1", "w1", "w1", "w3", "w3", "w3"]
    data = load("hf:some/name?owner=id")
    assert data.owners is not None
    assert data.owners.tolist() == [1, 1, 0, 0, 0, 2, 2, 2]
    assert load("hf:some/name").owners is None


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("hf:some/name?owner=writer", "no column 'writer' for owner; it has img, id, label"),
        ("hf:no/such", "cannot load 'no/such' from the Hugging Face hub: FileNotFoundError: not on the hub"),
        ("hf:", "names no dataset"),
        ("hf:some/name?lable=x", "unknown option 'lable'.*config, revision, train, test, image, label"),
        ("hf:some/name?test=dev", r"no split 'dev'; it has train, test. Choose one with \?test=SPLIT"),
        ("hf:some/name?label=klass", "no column 'klass' for label; it has img, id, label"),
    ],
)
def test_what_is_wrong_is_said(hub: SimpleNamespace, reference: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        load(reference)


def test_images_of_several_sizes_and_unlabelled_samples_are_refused(hub: SimpleNamespace) -> None:
    hub.splits["train"]["img"][1] = np.zeros((9, 9, 3), np.uint8)
    with pytest.raises(DataError, match="2 different shapes"):
        load("hf:some/name")
    hub.splits["train"]["img"].pop(1)
    hub.splits["train"]["label"] = [-1] * 7
    with pytest.raises(DataError, match="unlabelled"):
        load("hf:some/name")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install .*'\.\[hf\]'"):
        load("hf:ylecun/mnist")


def test_with_the_real_library_on_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    pytest.importorskip("datasets", reason="the extra `hf` is not installed")
    pil = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    image = np.random.default_rng(0).integers(256, size=(8, 6, 3), dtype=np.uint8)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "pets" / split / name
            folder.mkdir(parents=True)
            pil.fromarray(image).save(folder / "0.png")
    data = load(f"hf:{tmp_path / 'pets'}")
    assert data.train_y.tolist() == [0, 1]
    np.testing.assert_array_equal(data.train_x[1], image.transpose(2, 0, 1))
