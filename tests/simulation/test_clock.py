"""Virtual time of runs that keep rounds: nothing but time is added, and it adds up; deadlines skip stragglers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import CrashError, config, differing, files, simulate, world

from sagefl.clock import Script
from sagefl.clock.network import NetworkError
from sagefl.errors import UsageError
from sagefl.runs.columns import BYTES, columns
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.timing import RoundClock

Reference = Callable[..., Path]
TIMED = {"network": "phones"}
STRICT = {"network": "phones", "schedule": "deadline", "deadline": 0.3}
BOUND = ("choco", "dfedpgp", "dispfl", "da-dpfl", "dfca", "federico", "average-all")


def table(directory: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(directory / f"{name}.parquet")


@pytest.mark.parametrize("method", ["sage-os", "epidemic"])
def test_a_clock_adds_time_and_changes_nothing_else(method: str, reference: Reference) -> None:
    plain, timed = reference(config(method)), reference(config(method, clock=TIMED))
    for name in ("metrics", "decisions", "clients"):
        without, with_ = table(plain, name), table(timed, name)
        added = {c.name for c in columns(name, "clock")} - {c.name for c in columns(name)}
        assert set(with_.columns) - set(without.columns) == added
        assert with_.select(without.columns).equals(without)
    last = "checkpoint/round-00004/params-0000.safetensors"
    assert (plain / last).read_bytes() == (timed / last).read_bytes()


@pytest.mark.parametrize(
    "method",
    ["sage-os", "fedfomo", "epidemic", "sage-m:outside=home"]
    + [pytest.param(m, marks=pytest.mark.slow) for m in ("gossip-learning", "median", "choco", "sage-os:kind=latents")],
)
def test_what_takes_time_is_what_is_accounted_for(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of the scripts against the audit, samples of the trainings against the metrics."""
    moved: list[dict[int, float]] = []
    end = RoundClock.end

    def noted(self: RoundClock, scripts: dict[int, Script], missing: Any) -> Any:
        moved.append({k: s.bytes for k, s in scripts.items()})
        return end(self, scripts, missing)

    monkeypatch.setattr(RoundClock, "end", noted)
    settings = config(method, rounds=2, clock=TIMED)
    simulate(tmp_path / "run", settings)
    audit = table(tmp_path / "run", "decisions").select("client", total=pl.sum_horizontal(BYTES))
    assert [k for by in moved for k in by] == audit["client"].to_list()
    assert [size for by in moved for size in by.values()] == pytest.approx(audit["total"].to_list())
    own = world(settings)
    assert set(table(tmp_path / "run", "metrics")["samples"]) == {sum(map(own.workload, range(own.clients)))}


def test_times_of_a_decision_follow_each_other_and_rounds_wait_for_all(reference: Reference) -> None:
    run = reference(config("sage-os", clock=TIMED))
    audit, minutes = table(run, "decisions"), table(run, "metrics")["minutes"].to_list()
    assert audit.filter(~(pl.col("began_at") < pl.col("trained_at"))).is_empty()
    assert audit.filter(~(pl.col("trained_at") <= pl.col("decided_at"))).is_empty()
    assert audit.filter(~(pl.col("decided_at") <= pl.col("ended_at"))).is_empty()
    rounds = audit.group_by("round").agg(pl.col("began_at").unique(), pl.col("ended_at").max()).sort("round")
    assert [60 * m for m in minutes] == pytest.approx(rounds["ended_at"].to_list())
    assert rounds["began_at"].list.len().to_list() == [1] * 4
    assert rounds["began_at"].list.first().to_list()[1:] == pytest.approx([60 * m for m in minutes[:-1]])
    waiting = audit.filter(pl.col("waited") > 0)
    assert waiting.height
    assert all(row["awaited"] in row["peers"] for row in waiting.iter_rows(named=True))


def test_rules_that_look_more_often_take_longer(reference: Reference) -> None:
    taken = {
        rule: table(reference(config(rule, clock={"network": "wan"})), "metrics")["minutes"][-1]
        for rule in ("local", "rg", "aq-128", "sage-nf")
    }
    assert taken["local"] < taken["rg"] < taken["aq-128"] < taken["sage-nf"]


# Deadlines ------------------------------------------------------------------------------------------------------------


def test_who_is_late_is_skipped_and_comes_back_when_it_has_trained(reference: Reference) -> None:
    settings = config("sage-os", clock=STRICT)
    own, audit = world(settings), table(reference(settings), "decisions")
    assert own.machines is not None
    seconds = [own.machines.training(k, own.workload(k)) for k in range(own.clients)]
    late = {k for k, s in enumerate(seconds) if s > 0.3}
    assert 0 < len(late) < own.clients
    first = audit.filter(pl.col("round") == 0)
    absent = first.filter(pl.col("ended_at").is_null())
    assert set(absent["client"]) == late
    assert set(absent["degree"]) == {0}
    assert not {p for peers in first["peers"] for p in peers} & late
    second = audit.filter(pl.col("round") == 1)
    back = second.filter(pl.col("client").is_in(list(late)) & pl.col("ended_at").is_not_null())
    assert back.height
    assert set(back["began_at"]) == {0.0}
    assert second.filter(pl.col("decided_at") < first["ended_at"].max()).is_empty()


def test_a_deadline_that_all_meet_changes_nothing(reference: Reference) -> None:
    clock = {"network": "phones", "schedule": "deadline", "deadline": 100.0}
    plain, timed = reference(config("sage-os", clock=TIMED)), reference(config("sage-os", clock=clock))
    for name in ("metrics", "decisions"):
        assert table(plain, name).equals(table(timed, name))


def test_who_misses_a_neighbour_waits_for_the_deadline(reference: Reference) -> None:
    settings = config("rg", clock=STRICT)
    own, audit = world(settings), table(reference(settings), "decisions").filter(pl.col("round") == 0)
    for row in audit.drop_nulls("ended_at").iter_rows(named=True):
        misses = row["degree"] < own.graph.degrees[row["client"]]
        assert (row["decided_at"] >= 0.3) == misses


def test_a_deadline_nobody_can_meet_is_refused() -> None:
    settings = config("rg", clock={**STRICT, "deadline": 0.001})
    with pytest.raises(NetworkError, match=r"clock.deadline is 0.001 s, but the fastest client trains for"):
        Simulator(settings, None, world=world(settings))  # type: ignore[arg-type]


def test_a_client_that_will_be_late_in_all_rounds_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machines = tmp_path / "machines.txt"
    machines.write_text("1000 inf 100 100 1\n" * 7 + "0.001 inf 100 100 1\n")
    settings = config("rg", clock={"network": str(machines), "schedule": "deadline", "deadline": 1.0})
    simulate(tmp_path / "run", settings)
    (said,) = [record.getMessage() for record in caplog.records if "client 7" in record.getMessage()]
    assert re.match(r"client 7 trains for .* s, and all rounds are over after about .* it takes part in none", said)
    assert set(table(tmp_path / "run", "decisions").drop_nulls("ended_at")["client"]) == set(range(7))


@pytest.mark.parametrize("method", BOUND)
def test_methods_that_need_everybody_in_the_same_round_are_refused_without_rounds(method: str) -> None:
    settings = config(method, clock={"network": "wan", "schedule": "async"})
    with pytest.raises(
        UsageError, match=rf"{method} exchanges in rounds that all clients keep .* use schedule = rounds"
    ):
        Simulator(settings, None, world=world(settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("clock", [TIMED, STRICT], ids=["rounds", "deadline"])
def test_time_goes_on_after_a_crash_as_if_nothing_had_happened(
    clock: dict[str, Any], reference: Reference, tmp_path: Path
) -> None:
    class Crash:
        def start(self, *_: Any) -> None: ...
        def end(self, *_: Any) -> None: ...
        def round(self, record: Any) -> None:
            if record["round"] == 2:
                raise CrashError

    settings = config("sage-os", clock=clock)
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, callbacks=[Crash()])
    simulate(tmp_path / "run", settings)
    assert not differing(files(tmp_path / "run"), files(reference(settings)))
