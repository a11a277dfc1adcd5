"""A clock put on a run that is over says what the same run says that had the clock from the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import ROUGH, config, mini, simulate
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.runs.files import RunError
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.retiming import minutes_on

Reference = Callable[..., Path]


def minutes_of(run: Path) -> list[float]:
    found: list[float] = pl.read_parquet(run / "metrics.parquet")["minutes"].to_list()
    return found


@pytest.mark.parametrize("method", ["rg", "d-psgd", "sage-os", "sage-m:outside=home", "epidemic"])
def test_minutes_are_those_of_a_run_with_the_clock(method: str, reference: Reference) -> None:
    plain = RunDirectory(reference(config(method)))
    found = minutes_on(plain, ["phones", "wan"], mini())
    assert list(found) == ["phones", "wan"]
    for network, minutes in found.items():
        assert minutes == minutes_of(reference(config(method, clock={"network": network})))


def test_what_was_told_in_private_replays_too(reference: Reference) -> None:
    plain = RunDirectory(reference(config("sage-e", privacy={"epsilon": 3.0})))
    timed = reference(config("sage-e", privacy={"epsilon": 3.0}, clock={"network": "wan"}))
    assert minutes_on(plain, ["wan"], mini())["wan"] == minutes_of(timed)


@pytest.mark.parametrize("method", ["rg", "sage-os", "sage-e"])
def test_with_absent_peers_and_delayed_links_too(method: str, reference: Reference) -> None:
    plain = RunDirectory(reference(config(method, **ROUGH)))
    timed = reference(config(method, clock={"network": "edge"}, **ROUGH))
    assert minutes_on(plain, ["edge"], mini())["edge"] == minutes_of(timed)


def test_another_clock_may_take_the_place_of_the_run_s_own(reference: Reference) -> None:
    timed = RunDirectory(reference(config("sage-os", clock={"network": "phones"})))
    assert minutes_on(timed, ["wan"], mini())["wan"] == minutes_of(
        reference(config("sage-os", clock={"network": "wan"}))
    )


@pytest.mark.parametrize(
    ("method", "more", "why"),
    [
        ("pens", {}, "asked for what is not recorded"),
        ("aq-128", {"evaluation": {"losses": "none"}}, "no recorded losses"),
        ("rg", {"clock": {"network": "phones", "schedule": "async"}}, "time decides what happens"),
    ],
)
def test_what_cannot_be_replayed_is_refused(method: str, more: dict[str, object], why: str, tmp_path: Path) -> None:
    simulate(tmp_path / "run", config(method, **more))
    with pytest.raises(RunError, match=why):
        minutes_on(RunDirectory(tmp_path / "run"), ["wan"], mini())


@pytest.mark.parametrize(
    ("column", "other", "why"),
    [("chosen", lambda _: [99], "it now takes"), ("probe_input_bytes", lambda n: n + 1000, "not all that it cost")],
)
def test_a_record_that_does_not_fit_is_refused(
    column: str, other: Callable[[Any], Any], why: str, tmp_path: Path
) -> None:
    simulate(tmp_path / "run", config("sage-os"))
    path = tmp_path / "run" / "decisions.parquet"
    audit = pl.read_parquet(path)
    values = audit[column].to_list()
    first = next(i for i, peers in enumerate(audit["peers"]) if len(peers))
    values[first] = other(values[first])
    audit.with_columns(pl.Series(column, values, dtype=audit.schema[column])).write_parquet(path)
    with pytest.raises(RunError, match=why):
        minutes_on(RunDirectory(tmp_path / "run"), ["wan"], mini())


def test_the_command_prints_and_writes_the_minutes(tmp_path: Path) -> None:
    small = ["--clients", "4", "--rounds", "2", "--eval-every", "1", "--set", "model.name=mlp", "--quiet"]
    done = CliRunner().invoke(app, ["compare", "--methods", "rg,sage-os,pens", *small, "--out", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    asked = ["minutes", str(tmp_path / "runs"), "--network", "wan,phones", "--to", "1,99"]
    done = CliRunner().invoke(app, [*asked, "--csv", str(tmp_path / "minutes.csv")])
    assert done.exit_code == 0, done.output
    table = pl.read_csv(tmp_path / "minutes.csv")
    assert table["network"].to_list() == ["wan", "phones"] * 2
    assert sorted(table["method"].unique()) == ["rg", "sage-os"]
    assert (table["to_1"] <= table["minutes"]).all()
    assert table["to_99"].null_count() == 4
    assert "to 99 %" in done.output
    assert "pens asked for what is not recorded" in " ".join(done.output.split())


def test_code_of_strangers_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('model.name = "evil:Model"\n')
    done = CliRunner().invoke(app, ["minutes", str(tmp_path)])
    assert done.exit_code != 0
    assert "--allow-code" in done.output
