"""`sagefl bench`: it measures the engines for real and recommends the fastest; the rule behind it, on given times."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import Result

from sagefl.errors import SageflError
from sagefl.runs.config import RunConfig
from sagefl.simulation import crowding, racing
from sagefl.simulation.benching import BenchReport, EngineChoice, Timing, bench, recommended, ways
from sagefl.simulation.crowding import Load, Others, look
from sagefl.simulation.racing import OURS, Laps

TINY = [
    "--set", "clients=6", "--set", "model.name=mlp", "--set", "training.max_batches=1", "--rounds", "2",
]  # fmt: skip


def test_it_measures_every_engine_and_recommends_one(sagefl: Callable[..., Result]) -> None:
    out = sagefl("bench", *TINY, "--workers", "2").stdout
    assert out.startswith("fmnist-mini, mlp, 6 clients, 2 rounds each\n")
    rows = re.findall(r"^(sequential|processes|stacked) +(\d) +(cpu) +(\d+\.\d+) +([\d,]+) +(\d+\.\d+) x$", out, re.M)
    assert [(row[0], row[1]) for row in rows] == [("sequential", "1"), ("processes", "2"), ("stacked", "2")]
    assert rows[0][5] == "1.00"
    found = re.search(r"^Recommended here: --engine (\w+) --workers (\d)( --device cpu)?$", out, re.M)
    assert found is not None
    fastest = {row[0]: float(row[3]) for row in rows}
    assert fastest[found[1]] <= 1.2 * min(fastest.values())  # printed figures are rounded
    assert re.search(r"^Probing changes the time of a round by [+-]\d+\.\d% \(sage-os against rg\)\.$", out, re.M)
    assert list(Path.cwd().iterdir()) == []  # nothing is left behind


def test_a_config_of_ones_own_is_measured_and_mistakes_are_named(sagefl: Callable[..., Result]) -> None:
    Path("own.toml").write_text('clients = 3\n[model]\nname = "mlp"\n[training]\nmax_batches = 1\n')
    out = sagefl("bench", "--config", "own.toml", "--rounds", "2", "--workers", "1").stdout
    assert "fmnist-mini, mlp, 3 clients, 2 rounds each" in out
    assert "processes" not in out  # one worker is one process
    assert "there is no device 'tpu' here" in sagefl("bench", *TINY, "--device", "tpu", code=2).output
    assert "unknown key 'client'" in sagefl("bench", "--set", "client=3", code=2).output


def test_what_is_tried_fits_the_machine_and_the_run() -> None:
    def tried(cores: int, clients: int) -> list[tuple[str, int]]:
        return [(way.engine, way.workers) for way in ways(cores, clients, "cpu")]

    assert tried(1, 9) == [("sequential", 1), ("stacked", 1)]
    assert tried(2, 9) == [("sequential", 1), ("processes", 2), ("stacked", 2)]
    assert tried(12, 50) == [("sequential", 1), *(("processes", n) for n in (2, 4, 8, 12)), ("stacked", 12)]
    assert tried(64, 6) == [("sequential", 1), *(("processes", n) for n in (2, 4, 6)), ("stacked", 64)]
    assert tried(8, 1) == [("sequential", 1), ("stacked", 8)]


def timing(engine: str, seconds: float | None) -> Timing:
    return Timing(EngineChoice(engine, 2), "rg", seconds, 100, None if seconds else "it broke")


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ((3.0, 2.0, 2.5), "processes"),
        ((3.0, 2.0, 1.0), "stacked"),
        ((3.0, 2.0, 1.9), "processes"),  # not worth giving up results that are equal bit for bit
        ((3.0, None, 3.1), "sequential"),
        ((None, None, 9.0), "stacked"),
    ],
)
def test_the_fastest_wins_but_rounding_must_pay(seconds: tuple[float | None, ...], best: str) -> None:
    engines = ("sequential", "processes", "stacked")
    found = [timing(engine, s) for engine, s in zip(engines, seconds, strict=True)]
    assert recommended(found).way.engine == best


def test_overhead_and_failures_are_said() -> None:
    report = BenchReport((timing("sequential", 2.0),), Timing(EngineChoice("sequential", 1), "sage-os", 2.5, 100))
    assert report.overhead == pytest.approx(0.25)
    with pytest.raises(SageflError, match="no engine works here: it broke"):
        recommended([timing("sequential", None)])


def test_an_engine_that_does_not_work_here_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shared memory to speak of: the pool is refused, the others are measured."""
    monkeypatch.setattr(
        "sagefl.simulation.engines.processes.lacking_shared_memory", lambda world, extras: "there is no room"
    )
    settings = RunConfig.parse({"clients": 3, "model": {"name": "mlp"}, "training": {"max_batches": 1}})
    told: list[Timing] = []
    report = bench(settings, 2, rounds=2, device="cpu", told=told.append)
    assert [t.seconds is None for t in report.plain] == [False, True, False]
    assert "there is no room" in str(report.plain[1].problem)
    assert [t.method for t in told] == ["rg", "rg", "rg", "sage-os"]
    assert report.probing.way == report.best.way


def test_run_takes_what_is_recommended(run: Callable[..., Result], sagefl: Callable[..., Result]) -> None:
    flags = EngineChoice("stacked", 1, "cpu").flags.split()
    assert re.search(r"\nsage-os +0\.\d{4}", run("-q", *flags).stdout)  # after run's own --engine: the last one counts
    assert '"engine": "stacked"' in (Path("run") / "events.log").read_text()
    assert "there is no device 'tpu' here" in sagefl("run", "--engine", "stacked", "--device", "tpu", code=2).output


def test_a_ratio_is_the_median_of_those_within_a_turn() -> None:
    laps = Laps({OURS: [20.0, 10.0, 30.0], "slow": [5.0, 5.0, 5.0], "fast": [10.0, 10.0, 10.0]})
    assert laps.fastest == "fast"
    assert (laps.lead("fast"), laps.lead("slow")) == (2.0, 4.0)


def test_the_loop_races_on_all_threads_and_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for each other make a small model's loop slow: its ratio would flatter us."""
    way = EngineChoice("sequential", 1)
    monkeypatch.setattr(racing, "measure", lambda *_: Timing(way, "rg", 2.0, samples=6))
    monkeypatch.setattr(racing, "plain_loop", lambda world, rounds, threads, *, fused: 10.0 * (1 + fused) / threads)
    settings = RunConfig.parse({"clients": 3, "model": {"name": "mlp"}})
    laps = racing.race(settings, way, 2, turns=1)
    assert list(laps.speeds.values()) == [[3.0], [5.0], [10.0], [20.0]]
    assert laps.fastest == "plain loop, fused Adam, one thread"
    assert len(racing.race(settings, way, 1, turns=1).speeds) == 3


@pytest.mark.parametrize(
    ("foreign", "share", "idle"),
    [(0.1, 0.99, True), (1.0, 0.99, False), (0.1, 0.5, False), (None, 0.99, True), (None, 0.66, False)],
)
def test_a_busy_machine_is_said_to_be_busy(foreign: float | None, share: float, idle: bool) -> None:
    said = str(Load(2, foreign, share))
    assert ("idle enough" in said) == idle
    assert ("take the ratios as hints" in said) == (not idle)


def machine(proc: Path, cores: dict[int, int], processes: dict[int, tuple[int, int, int]]) -> None:
    """A /proc of busy ticks by core, and of processes: parent, own ticks, those of children that have ended."""
    lines = [
        f"cpu  {sum(cores.values())} 0 0 0 0 0 0 0 0 0",
        *(f"cpu{n} {t} 0 0 9 9 0 0 0 0 0" for n, t in cores.items()),
    ]
    (proc / "stat").write_text("\n".join([*lines, "ctxt 1"]))
    for number, (parent, own, ended) in processes.items():
        (proc / str(number)).mkdir(exist_ok=True)
        fields = ["S", parent, *[0] * 9, own, 0, ended, 0, 0]
        (proc / str(number) / "stat").write_text(f"{number} (a (name) 1) {' '.join(map(str, fields))}")


def test_only_what_others_compute_counts_as_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A race keeps all cores busy: neither its own work nor its workers', living or ended, is foreign."""
    monkeypatch.setattr(crowding, "PROC", tmp_path)
    monkeypatch.setattr(crowding, "TICKS", 100.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(os, "getpid", lambda: 50)
    clock = iter((0.0, 10.0, 20.0))
    monkeypatch.setattr(crowding, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    machine(
        tmp_path,
        {0: 1000, 1: 1000, 2: 0},
        {1: (0, 10, 0), 50: (1, 200, 0), 51: (50, 0, 0), 52: (51, 0, 0), 60: (1, 9, 0)},
    )
    others = Others()
    work = {1: (0, 10, 0), 50: (1, 600, 500), 51: (50, 0, 0), 52: (51, 1100, 0), 60: (1, 9, 0)}
    machine(tmp_path, {0: 2000, 1: 2000, 2: 800}, work)  # ten seconds of two cores, all ours; a third is not for us
    assert others.cores() == 0.0
    machine(tmp_path, {0: 3000, 1: 2500, 2: 900}, work | {60: (1, 1509, 0)})  # 15 s of somebody else in 20 s
    assert others.cores() == pytest.approx(0.75)


def test_where_the_system_does_not_say_what_others_do_our_share_of_the_cores_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowding, "PROC", tmp_path / "nowhere")
    found = look(1, 0.05)
    assert found.foreign is None
    assert 0 < found.share <= 1


@pytest.mark.slow
def test_the_race_says_how_busy_the_machine_is_before_it_prints_a_ratio(sagefl: Callable[..., Result]) -> None:
    out = sagefl("bench", *TINY, "--workers", "1", "--race").stdout
    first, second = (found.start() for found in re.finditer(r"\d cores, \d\.\d of them busy with others' work", out))
    assert first < out.index("The race:") < out.index("Meanwhile: ") < second < out.index("is faster by")
    raced = re.search(r"^The race: (.*) against a plain loop with one thread, at equal precision", out, re.M)
    assert raced is not None
    assert f"Recommended here: {raced[1]}\n" in out
    assert re.search(r"^Against the fastest alternative \(plain loop.*\): \d+\.\d\d x$", out, re.M)
