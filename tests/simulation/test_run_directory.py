"""A run directory belongs to one config and one writer at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import polars as pl
import pytest
from small_runs import CrashAfter, CrashError, config, files, simulate

from sagefl.runs.columns import schema
from sagefl.runs.config import RunConfig
from sagefl.runs.files import RunError, atomic_write, write_text
from sagefl.runs.recording import GrowingTable
from sagefl.runs.rundir import RunDirectory

Reference = Callable[..., Path]
SETTINGS = config("rg", rounds=1)
METRICS, DECISIONS, CLIENTS = map(schema, ("metrics", "decisions", "clients"))


def test_it_holds_what_its_description_promises(reference: Reference) -> None:
    run = reference(config("sage-os"))
    named = {p.name for p in run.iterdir()}
    assert named == {
        "run.toml", "metrics.parquet", "decisions.parquet", "clients.parquet", "losses", "timings.parquet",
        "checkpoint", "events.log", "summary.json", "last-round.json", "environment.json", ".lock",
    }  # fmt: skip
    assert RunDirectory(run).config == config("sage-os")
    assert json.loads((run / "summary.json").read_text())["method"] == "sage-os"


def test_the_config_goes_to_toml_and_back(tmp_path: Path) -> None:
    settings = config("sage-os:delta=0.2:schedule=(8, 16)", network={"misbehaviour": "poison", "misbehaving": 0.1})
    path = tmp_path / "run.toml"
    path.write_text(settings.to_toml())
    assert RunConfig.read(path).digest == settings.digest
    assert tomllib.loads(path.read_text())["method"]["options"]["schedule"] == [8, 16]


def test_a_directory_with_another_config_is_refused_untouched(tmp_path: Path) -> None:
    simulate(tmp_path / "run", SETTINGS)
    before = files(tmp_path / "run")
    with pytest.raises(RunError, match=r"another config: seed \(1 there, 2 here\); choose another --out"):
        simulate(tmp_path / "run", config("rg", rounds=1, seed=2))
    assert files(tmp_path / "run") == before


def test_a_directory_that_is_no_run_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not empty and not a run directory"):
        simulate(tmp_path, SETTINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(RunError, match="is a file, not a folder: choose another --out"):
        simulate(tmp_path / "run", SETTINGS)


def test_a_directory_in_which_only_the_config_was_half_written_is_ours(tmp_path: Path) -> None:
    """Also if a study looked meanwhile whether anybody writes there."""
    (tmp_path / "environment.json").write_text("{}")
    (tmp_path / ".run.toml.partial").write_text("clients = ")
    with RunDirectory(tmp_path).locked():
        pass
    simulate(tmp_path, SETTINGS)
    assert not (tmp_path / ".run.toml.partial").exists()


def test_a_finished_run_can_be_run_again_without_changing_it(tmp_path: Path) -> None:
    first = simulate(tmp_path / "run", SETTINGS)
    before = files(tmp_path / "run")
    assert simulate(tmp_path / "run", SETTINGS) == first
    assert files(tmp_path / "run") == before


def test_nobody_else_writes_meanwhile(tmp_path: Path) -> None:
    class Intruder(CrashAfter):
        def round(self, record: object) -> None:
            with pytest.raises(RunError, match="being written by another process"):
                simulate(tmp_path / "run", SETTINGS)
            raise CrashError

    with pytest.raises(CrashError):
        simulate(tmp_path / "run", SETTINGS, callbacks=[Intruder(0)])
    simulate(tmp_path / "run", SETTINGS)  # the lock went with its holder


HOLD = """
import os, sys, time
from pathlib import Path
from sagefl.runs.rundir import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked():
    if not os.fork():  # what a fork brings along is let go before it returns
        print(os.getpid(), flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_s_lock_is_gone_though_its_workers_are_not(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path)
    writer = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    worker = int(writer.stdout.readline())
    try:
        with pytest.raises(RunError, match="being written by another process"), place.locked():
            pytest.fail("two writers at once")
        writer.kill()
        writer.wait()
        os.kill(worker, 0)  # it lives
        with place.locked():
            assert (tmp_path / ".lock").is_file()
    finally:
        writer.kill()
        os.kill(worker, signal.SIGKILL)
        writer.stdout.close()


def test_tables_before_the_first_evaluation(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path / "run")
    place.prepare(SETTINGS)
    with pytest.raises(RunError, match="has not reached its first evaluation"):
        place.table("metrics")
    assert place.summary is None
    with pytest.raises(RunError, match=r"is not a run directory: it has no run\.toml"):
        _ = RunDirectory(tmp_path).config


def test_an_atomic_write_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def failing(partial: Path) -> None:
        partial.write_text("ne")
        assert path.read_text() == "old"
        raise CrashError

    with pytest.raises(CrashError):
        atomic_write(path, failing)
    assert path.read_text() == "old"
    write_text(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]
    assert path.read_text() == "new"


def test_callbacks_hear_the_end_however_it_comes(tmp_path: Path) -> None:
    class Listener(CrashAfter):
        ended: object = "never"

        def end(self, summary: object) -> None:
            self.ended = summary

    crash, finish = Listener(0), Listener(99)
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", SETTINGS, callbacks=[crash])
    summary = simulate(tmp_path / "run", SETTINGS, callbacks=[finish])
    assert crash.ended is None
    assert finish.ended == summary


def test_the_bytes_of_a_table_do_not_tell_how_often_it_was_written(tmp_path: Path) -> None:
    """Parquet pages follow the pieces a frame is made of, once it is large."""
    rows = [{"round": i // 1000, "client": i % 1000, "accuracy": (i * 7919 % 1000) / 1000} for i in range(40_000)]
    whole, pieces = (GrowingTable(tmp_path / name, CLIENTS) for name in ("whole", "pieces"))
    whole.add(rows)
    whole.write()
    for part in (rows[:3000], rows[3000:20_000], rows[20_000:]):
        pieces.add(part)
        pieces.write()
    assert pieces.path.read_bytes() == whole.path.read_bytes()
    pieces.keep_before(20)
    pieces.add(rows[20_000:])
    pieces.write()
    assert pieces.path.read_bytes() == whole.path.read_bytes()


def test_a_table_is_read_whole_while_it_is_replaced(tmp_path: Path) -> None:
    """A page reads a run that goes on: never the rows of one file by the footer of another."""
    tables = [GrowingTable(tmp_path / "clients.parquet", CLIENTS) for _ in range(2)]
    for table, count in zip(tables, (3, 3000), strict=True):
        table.add([{"round": 0, "client": i, "accuracy": i % 7 / 7} for i in range(count)])
        table.write()
    enough = Event()

    def replace() -> None:
        while not enough.is_set():
            for table in tables:
                table.write()

    writer = Thread(target=replace, daemon=True)
    writer.start()
    heights, reads = set(), 0
    try:
        while reads < 600 or len(heights) < 2:  # however seldom a busy machine lets the writer write
            heights.add(RunDirectory(tmp_path).table("clients").height)
            reads += 1
            assert reads < 200_000
    finally:
        enough.set()
        writer.join()
    assert heights == {3, 3000}


def test_a_run_begun_before_a_column_was_known_goes_on(tmp_path: Path) -> None:
    older = pl.Schema({name: kind for name, kind in DECISIONS.items() if name != "eval_risks"})
    begun = GrowingTable(tmp_path / "decisions.parquet", older)
    begun.add([{"round": 0, "client": 3}, {"round": 1, "client": 3}])
    begun.write()
    resumed = GrowingTable(tmp_path / "decisions.parquet", DECISIONS)
    resumed.keep_before(1)
    resumed.add([{"round": 1, "client": 3, "eval_risks": [0.5]}])
    assert resumed.frame().schema == DECISIONS
    assert resumed.frame().select("round", "eval_risks").rows() == [(0, None), (1, [0.5])]


def test_a_run_begun_when_a_column_was_still_kept_goes_on(tmp_path: Path) -> None:
    begun = GrowingTable(tmp_path / "metrics.parquet", pl.Schema({**METRICS, "anchor_degree": pl.Int64()}))
    begun.add([{"round": 0, "anchor_degree": 7}])
    begun.write()
    resumed = GrowingTable(tmp_path / "metrics.parquet", METRICS)
    resumed.keep_before(1)
    resumed.add([{"round": 1}])
    assert resumed.frame().schema == METRICS
    assert resumed.frame()["round"].to_list() == [0, 1]
