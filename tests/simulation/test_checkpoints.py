"""Checkpoints are whole or not there: torn and foreign ones are refused, the one before is used, nothing is lost."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors import SafetensorError
from small_runs import ROUGH, CrashAfter, CrashError, altered, config, differing, files, mini, simulate, world

from sagefl.data import Federation
from sagefl.learning.population import Population
from sagefl.runs import checkpoint
from sagefl.runs.checkpoint import CheckpointError
from sagefl.runs.files import RunError
from sagefl.runs.rundir import RunDirectory

Reference = Callable[..., Path]
SETTINGS = config("sage-os")


@pytest.fixture(scope="module")
def crashed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("crashed") / "run"
    with pytest.raises(CrashError):
        simulate(run, SETTINGS, every=1, callbacks=[CrashAfter(2)])
    assert stored(run) == ["round-00001", "round-00002"]
    return run


@pytest.fixture
def crashed(crashed_once: Path, tmp_path: Path) -> Path:
    """A run that crashed after three of four rounds: checkpoints of rounds 1 and 2, the third was not reached."""
    shutil.copytree(crashed_once, tmp_path / "run")
    return tmp_path / "run"


def stored(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoint").iterdir())


def tear(path: Path, how: str) -> None:
    chunk, manifest = path / "params-0000.safetensors", path / "manifest.json"
    if how == "truncated chunk":
        chunk.write_bytes(chunk.read_bytes()[:-100])
    elif how == "flipped bit":
        content = bytearray(chunk.read_bytes())
        content[-200] ^= 1
        chunk.write_bytes(bytes(content))
    elif how == "missing chunk":
        (path / "second-0000.safetensors").unlink()
    elif how == "no manifest":
        manifest.unlink()
    elif how == "garbage manifest":
        manifest.write_bytes(b"\x00\xff garbage")
    elif how == "half a manifest":
        manifest.write_text(manifest.read_text()[: manifest.stat().st_size // 2])
    elif how == "altered manifest":
        manifest.write_text(manifest.read_text().replace('"round": 2', '"round": 3'))
    elif how == "another JSON":
        manifest.write_text("[1, 2]")


TEARS = [
    "truncated chunk", "flipped bit", "missing chunk", "no manifest", "garbage manifest", "half a manifest",
    "altered manifest", "another JSON",
]  # fmt: skip


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_checkpoint_is_told_from_a_whole_one(how: str, crashed: Path) -> None:
    identity = json.loads((crashed / "checkpoint/round-00002/manifest.json").read_text())["content"]["identity"]
    whole, refused = checkpoint.latest(crashed, identity)
    assert whole is not None
    assert (whole.round, refused) == (2, [])
    tear(crashed / "checkpoint" / "round-00002", how)
    before, refused = checkpoint.latest(crashed, identity)
    assert before is not None
    assert before.round == 1
    assert len(refused) == 1
    assert refused[0].startswith("checkpoint round-00002 is torn")


@pytest.mark.parametrize("how", ["truncated chunk", "garbage manifest"])
def test_it_is_refused_aloud_and_the_one_before_used(
    how: str, crashed: Path, reference: Reference, caplog: pytest.LogCaptureFixture
) -> None:
    tear(crashed / "checkpoint" / "round-00002", how)
    simulate(crashed, SETTINGS, every=1)
    assert "checkpoint round-00002 is torn" in caplog.text
    events = [json.loads(line) for line in (crashed / "events.log").read_text().splitlines()]
    assert [e["event"] for e in events] == ["started", "refused-checkpoint", "resumed", "finished"]
    assert events[2]["round"] == 1
    assert differing(files(crashed), files(reference(SETTINGS, 1))) == []


def test_when_none_is_good_nothing_is_touched(crashed: Path) -> None:
    for name in stored(crashed):
        tear(crashed / "checkpoint" / name, "flipped bit")
    before = files(crashed)
    with pytest.raises(CheckpointError, match=r"no good checkpoint is left in .*: start in another --out"):
        simulate(crashed, SETTINGS, every=1)
    assert files(crashed) == before


def test_a_checkpoint_of_another_config_is_refused(crashed: Path, tmp_path: Path) -> None:
    other = config("sage-os", seed=2)
    simulate(tmp_path / "other", other, every=1)
    shutil.rmtree(crashed / "checkpoint")
    shutil.copytree(tmp_path / "other" / "checkpoint", crashed / "checkpoint")
    with pytest.raises(CheckpointError, match="no good checkpoint"):
        simulate(crashed, SETTINGS, every=1)
    log = (crashed / "events.log").read_text()
    assert "belongs to another run" in log


def test_a_foreign_newest_does_not_hide_the_good_one(
    crashed: Path, tmp_path: Path, reference: Reference, caplog: pytest.LogCaptureFixture
) -> None:
    simulate(tmp_path / "other", config("sage-os", seed=2), every=1)
    shutil.copytree(tmp_path / "other" / "checkpoint" / "round-00004", crashed / "checkpoint" / "round-00004")
    simulate(crashed, SETTINGS, every=1)
    assert "round-00004 belongs to another run" in caplog.text
    assert differing(files(crashed), files(reference(SETTINGS, 1))) == []


@pytest.mark.parametrize("what", ["data", "graph", "first weights"])
def test_a_checkpoint_belongs_to_its_world_not_only_to_its_config(crashed: Path, what: str) -> None:
    """The same config can name a file or a module that has changed since."""
    own = world(SETTINGS)
    if what == "data":
        changed = altered(mini(), own.federation.roles[0].train[:1], labels=False)
        own = replace(own, federation=Federation(changed, own.federation.roles, own.federation.seed))
    elif what == "graph":
        own = replace(own, graph=world(config(topology={"kind": "ring", "p": None})).graph)
    else:
        own = replace(own, initial=own.initial + 1)
    with pytest.raises(CheckpointError, match="no good checkpoint"):
        simulate(crashed, SETTINGS, every=1, within=own)
    assert "belongs to another run" in (crashed / "events.log").read_text()


def test_a_changed_trace_is_another_world(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("1 1 1 1 1 1 1 1\n")
    settings = config(network={"trace": str(trace)})
    first = world(settings).digest
    trace.write_text("1 1 1 1 1 1 1 0\n")
    assert replace(world(settings), availability=type(world(settings).availability)(trace)).digest != first


def test_the_two_newest_are_kept(reference: Reference) -> None:
    """While a run goes on; a finished one keeps its last, from which it can go on."""
    assert stored(reference(SETTINGS, 1)) == stored(reference(SETTINGS)) == ["round-00004"]


def test_a_refused_newer_one_does_not_crowd_out_good_ones(crashed: Path) -> None:
    shutil.copytree(crashed / "checkpoint" / "round-00002", crashed / "checkpoint" / "round-00009")
    tear(crashed / "checkpoint" / "round-00009", "flipped bit")
    simulate(crashed, SETTINGS, every=1)
    assert stored(crashed) == ["round-00004", "round-00009"]  # the run is finished: one good one is enough


# Inside a write -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 3, 5])
def test_dying_inside_a_checkpoint_write_costs_only_that_checkpoint(
    at: int, tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is gone between two chunks, before the manifest (5): whatever was written stays as it was then."""
    run, real, writes = tmp_path / "run", checkpoint.save_file, iter(range(1, 100))
    left = tmp_path / "left"

    def dying(tensors: Any, path: Path) -> None:
        number = next(writes)
        if number == 4 + at:  # four chunks a checkpoint: inside the second one
            shutil.copytree(run, left)  # what a killed process would leave behind
            raise CrashError
        real(tensors, path)
        if number == 8 and at == 5:
            shutil.copytree(run, left)
            raise CrashError

    monkeypatch.setattr(checkpoint, "save_file", dying)
    with pytest.raises(CrashError):
        simulate(run, SETTINGS, every=1)
    monkeypatch.undo()
    assert stored(left) == [".round-00002.partial", "round-00001"]
    simulate(left, SETTINGS, every=1)
    assert differing(files(left), files(reference(SETTINGS, 1))) == []


def test_dying_between_tables_and_checkpoint_or_between_tables(
    tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sagefl.runs.recording import GrowingTable

    real, writes = GrowingTable.write, iter(range(1, 100))

    def dying(table: GrowingTable) -> None:
        real(table)
        if next(writes) == 8:  # metrics and decisions of round 2 are new, clients' are old
            raise CrashError

    monkeypatch.setattr(GrowingTable, "write", dying)
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", SETTINGS, every=1)
    monkeypatch.undo()
    simulate(tmp_path / "run", SETTINGS, every=1)
    assert differing(files(tmp_path / "run"), files(reference(SETTINGS, 1))) == []


def test_what_a_killed_writer_left_half_done_is_swept_up(crashed: Path, reference: Reference) -> None:
    """Also what no later write would replace, such as a checkpoint of a round that gets none this time."""
    for name in (".metrics.parquet.partial", "losses/.round-00009.safetensors.partial", ".run.toml.partial"):
        (crashed / name).write_bytes(b"half")
    (crashed / "checkpoint" / ".round-00001.partial").mkdir()
    (crashed / "checkpoint" / ".round-00001.partial" / "params-0000.safetensors").write_bytes(b"half")
    simulate(crashed, SETTINGS, every=1)
    assert differing(files(crashed), files(reference(SETTINGS, 1))) == []


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_said_and_costs_only_what_was_being_written(
    failure: Exception, crashed: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(crashed)

    def full(tensors: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise failure

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(
        RunError, match=r"checkpoint .*round-00003: the disk is full. What was written before is intact"
    ):
        simulate(crashed, SETTINGS, every=1)
    monkeypatch.undo()
    assert stored(crashed) == before
    simulate(crashed, SETTINGS, every=1)
    assert differing(files(crashed), files(reference(SETTINGS, 1))) == []


def test_a_full_disk_under_tables_losses_and_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polars.exceptions import ComputeError

    def full(*args: Any, **options: Any) -> None:
        raise ComputeError("parquet: underlying IO error: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr(pl.DataFrame, "write_parquet", full)
        with pytest.raises(RunError, match=r"cannot write tables in .*: the disk is full"):
            simulate(tmp_path / "tables", SETTINGS)

    def full_losses(*args: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr("sagefl.runs.losses.save_file", full_losses)
        with pytest.raises(RunError, match="cannot write losses of round 1: the disk is full"):
            simulate(tmp_path / "losses", SETTINGS)


def test_other_library_errors_are_not_dressed_up_as_full_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise SafetensorError("header is nonsense")

    monkeypatch.setattr(checkpoint, "save_file", broken)
    with pytest.raises(SafetensorError, match="nonsense"):
        simulate(tmp_path / "run", SETTINGS)


# What is inside -------------------------------------------------------------------------------------------------------


def test_everything_that_matters_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = world(SETTINGS).layout

    def made() -> Population:
        return Population.allocate(layout, 5, ages=3, two_faced=True, extras={"mask": 10, "replica": 33})

    full, empty = made(), made()
    for _, tensor in full.tensors():
        tensor.copy_(torch.rand_like(tensor))
    monkeypatch.setattr(checkpoint, "CHUNK_BYTES", 2 * 4 * layout.width)  # two rows a chunk
    states = {"clients": {"3": {"dict": [["x", 1.5]]}}, "exchange": {"dict": []}}
    checkpoint.save(tmp_path, 7, full, "me", states)
    found, refused = checkpoint.latest(tmp_path, "me")
    assert refused == []
    assert found is not None
    assert (found.round, found.states) == (7, states)
    assert len(list(found.path.glob("snapshots-*.safetensors"))) == 8
    checkpoint.restore(found, empty)
    names = [name for name, _ in full.tensors()]
    assert names == ["params", "first", "second", "steps", "snapshots", "voices", "extras.mask", "extras.replica"]
    for (_, a), (_, b) in zip(full.tensors(), empty.tensors(), strict=True):
        assert torch.equal(a, b)


def test_a_plain_population_needs_no_snapshots() -> None:
    names = [name for name, _ in Population.allocate(world(SETTINGS).layout, 2).tensors()]
    assert names == ["params", "first", "second", "steps"]


def test_a_checkpoint_of_another_format_or_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = world(SETTINGS).layout
    checkpoint.save(tmp_path, 1, Population.allocate(layout, 2), "me", {})
    found, _ = checkpoint.latest(tmp_path, "me")
    assert found is not None
    with pytest.raises(CheckpointError, match=r"holds \(2, \d+\), the run needs \(3, \d+\)"):
        checkpoint.restore(found, Population.allocate(layout, 3))
    monkeypatch.setattr(checkpoint, "VERSION", 99)
    assert checkpoint.latest(tmp_path, "me")[1] == ["checkpoint round-00001 has format 2, this version reads 99"]


def test_states_of_rules_and_exchanges_survive(tmp_path: Path, reference: Reference) -> None:
    """The delayed world keeps old snapshots; a missing one would show at once."""
    settings = config("rg", **ROUGH)
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, every=1, callbacks=[CrashAfter(2)])
    names = {p.name for p in (tmp_path / "run" / "checkpoint" / "round-00002").iterdir()}
    assert {"snapshots-0000.safetensors", "voices-0000.safetensors"} <= names


# Tables and checkpoints belong together -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metrics", "decisions"])
def test_tables_that_do_not_reach_the_checkpoint_are_noticed(crashed: Path, name: str) -> None:
    (crashed / f"{name}.parquet").unlink()
    with pytest.raises(RunError, match=rf"{name}\.parquet holds 0 of the \d+ rows up to round 2"):
        simulate(crashed, SETTINGS, every=1)


def test_a_table_that_is_no_table_is_said(crashed: Path) -> None:
    (crashed / "metrics.parquet").write_bytes(b"garbage")
    with pytest.raises(RunError, match=r"metrics\.parquet cannot be read"):
        simulate(crashed, SETTINGS, every=1)
    with pytest.raises(RunError, match=r"metrics\.parquet cannot be read"):
        RunDirectory(crashed).table("metrics")
