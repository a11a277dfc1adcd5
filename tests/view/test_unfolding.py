"""Stages recomputed from recorded losses end exactly where the audit record ends."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run

from sagefl.errors import SageflError
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.losses import losses_path, read_losses, write_losses
from sagefl.runs.rundir import RunDirectory
from sagefl.selection import SageE, SageOS, make
from sagefl.selection.own_loss import UNKNOWN_LOSS
from sagefl.selection.private import RandomisedResponse
from sagefl.selection.recorded import RecordedLosses
from sagefl.selection.scoring import Scoring
from sagefl.simulation.simulator import Simulator
from sagefl.view.shelf import Run
from sagefl.view.unfolding import OWN_RISK, RISKS, SOME_RISK, unfold, unfold_losses

NUMBERS = ("risks", "advantage", "gap", "radius", "width", "next_cost", "wealth", "threshold")


def audit(run: Run) -> list[dict[str, Any]]:
    return list(run.table("decisions").iter_rows(named=True))


@pytest.mark.parametrize(
    "method", ["sage-os", "sage-vanilla", "sage-nf", "aq-128", "sage-e", "sage-e-trim", "rg", "local"]
)
def test_the_last_stage_is_the_record(tmp_path: Path, method: str) -> None:
    make_run(tmp_path, method=method, rounds=2)
    run = Run(tmp_path)
    for row in audit(run):
        shown = unfold(run, row["round"], row["client"])
        assert shown["replayed"], shown.get("note")
        assert (shown["reason"], shown["chosen"]) == (row["reason"], row["chosen"])
        assert len(shown["stages"]) == len(shown["sentences"]) == row["stages"]
        if row["stages"]:
            last = shown["stages"][-1]
            assert last["anchors"] == row["anchors"]
            for name in NUMBERS:
                assert last.get(name) == row[name], name


@pytest.fixture(scope="module")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run whose peers perturb their labels."""
    settings = {
        "clients": 6,
        "rounds": 2,
        "topology": {"p": 0.6},
        "model": {"name": "mlp", "options": {"hidden": 8}},
        "training": {"max_batches": 2},
        "evaluation": {"every": 2, "subset": 50, "mechanisms": False},
        "privacy": {"epsilon": 1.0},
        "method": {"id": "sage-os"},
    }
    directory = RunDirectory(tmp_path_factory.mktemp("private") / "run")
    Simulator(RunConfig.parse(settings), directory, Execution(engine="sequential")).run()
    return directory.path


def shown_of(run: Run) -> list[dict[str, Any]]:
    return [unfold(run, row["round"], row["client"]) for row in audit(run)]


def test_decisions_on_private_answers_unfold_at_the_price_they_were_made_at(private_run: Path) -> None:
    shown = shown_of(Run(private_run))
    assert all(each.get("replayed") for each in shown), [each.get("note") for each in shown]
    price = 2e-3 * RandomisedResponse(1.0, 10).contrast
    assert {each["probe_cost"] for each in shown if each["stages"]} == {price}


def test_a_private_run_on_somebodys_code_unfolds_without_running_it(private_run: Path, tmp_path: Path) -> None:
    """The losses say what pricing needs; where they are of an earlier version, the record is shown."""
    shutil.copytree(private_run, tmp_path / "run")
    text = (tmp_path / "run" / "run.toml").read_text()
    (tmp_path / "run" / "run.toml").write_text(text.replace('"fmnist-mini"', '"nobody:runs_this"'))
    assert all(each.get("replayed") for each in shown_of(Run(tmp_path / "run")))
    for path in (tmp_path / "run" / "losses").iterdir():
        write_losses(path, read_losses(path))
    for each in shown_of(Run(tmp_path / "run")):
        if each["peers"]:
            assert "nobody:runs_this is loaded by code" in each["note"]


def test_a_rule_with_memory_is_replayed_from_its_first_round(tmp_path: Path) -> None:
    """Whether the gate is shut depends on what earlier rounds were worth; asked for in any order."""
    make_run(tmp_path, method="sage-e:gate=True:probe_cost=0.02", rounds=6)
    run = Run(tmp_path)
    rows = audit(run)
    assert {"gated", "cost"} <= {row["reason"] for row in rows}
    for row in reversed(rows):
        shown = unfold(run, row["round"], row["client"])
        assert shown["replayed"], (row["round"], row["client"], shown.get("note"))
        assert shown["reason"] == row["reason"]


def test_a_rule_that_carries_capital_is_shown_over_all_rounds_that_asked(tmp_path: Path) -> None:
    make_run(tmp_path, method="sage-m", rounds=4)
    run = Run(tmp_path)
    for row in (row for row in audit(run) if row["degree"] > 1):
        shown = unfold(run, row["round"], row["client"])
        asked = [each for each in audit(run) if each["client"] == row["client"] and each["round"] <= row["round"]]
        asked = [each for each in asked if each["anchors"]]
        assert [stage["anchors"] for stage in shown["stages"]] == list(accumulate(each["anchors"] for each in asked))
        assert shown["stages"][-1]["since"] == [0.0] * len(row["peers"])
        assert shown["sentences"][0].startswith("Round 1. ")
        assert "nobody proven better than a random draw" in shown["sentences"][0]
        assert shown["conclusion"].startswith("Pull ")


def test_losses_that_do_not_lead_to_the_record_are_not_shown_as_if(tmp_path: Path) -> None:
    make_run(tmp_path, rounds=1)
    text = (tmp_path / "run.toml").read_text()
    (tmp_path / "run.toml").write_text(text.replace("[method.options]", "[method.options]\ndelta = 0.4"))
    run = Run(tmp_path)
    shown = [unfold(run, 0, k) for k in range(8)]
    assert any(not each.get("replayed") for each in shown)
    for each in shown:
        if not each.get("replayed"):
            assert "does not end as recorded" in each["note"]
            assert each["stages"][-1]["advantage"] == each["audit"]["advantage"]


def test_without_losses_the_record_is_shown(tmp_path: Path) -> None:
    make_run(tmp_path, rounds=1)
    for path in (tmp_path / "losses").iterdir():
        path.unlink()
    shown = unfold(Run(tmp_path), 0, 3)
    assert "No losses were recorded" in shown["note"]
    assert len(shown["stages"]) == 1


def test_a_bug_in_a_rule_of_ours_is_not_taken_for_a_rule_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, method="sage-os", rounds=1)

    def bug(self: SageOS) -> None:
        raise TypeError("a bug of ours")

    monkeypatch.setattr(SageOS, "__post_init__", bug)
    with pytest.raises(TypeError, match="a bug of ours"):
        unfold(Run(tmp_path), 0, 0)


def test_torn_losses_are_said(tmp_path: Path) -> None:
    make_run(tmp_path, rounds=1)
    next((tmp_path / "losses").iterdir()).write_bytes(b"torn")
    assert "does not hold recorded losses" in unfold(Run(tmp_path), 0, 3)["note"]


def test_risks_are_called_what_the_answers_were_scored_by(tmp_path: Path) -> None:
    """Of values, say, they are no shares of wrong answers; of an older file nothing is claimed."""
    make_run(tmp_path, rounds=1)
    path = losses_path(tmp_path, 0)

    def told(form: Scoring | None) -> str:
        write_losses(path, [replace(record, scoring=form) for record in read_losses(path)])
        return str(unfold(Run(tmp_path), 0, 3)["risk"])

    forms = list(Scoring.registered.values())
    assert {form.loss: told(form) for form in forms} == RISKS
    assert {told(replace(form, own=UNKNOWN_LOSS)) for form in forms} == {OWN_RISK}
    assert told(None) == SOME_RISK
    drawn = np.random.default_rng(3).random((4, 64))
    for losses, risk in ((drawn, SOME_RISK), (drawn.round(), RISKS["error"])):
        assert unfold_losses(SageOS(), RecordedLosses(tuple("abcd"), losses), 0, "x")["risk"] == risk


@pytest.mark.parametrize(("round", "client"), [(99, 0), (0, 99), (-1, 0)])
def test_a_decision_that_is_not_there(small_runs: Path, round: int, client: int) -> None:
    with pytest.raises(SageflError, match="no decision"):
        unfold(Run(small_runs / "os"), round, client)


def test_intervals_of_radius_rules_are_risk_plus_minus_r() -> None:
    losses = np.random.default_rng(1).integers(0, 2, (4, 128)).astype(float)
    shown = unfold_losses(SageOS(), RecordedLosses(("a", "b", "c", "d"), losses), 0, "x")
    for stage in shown["stages"]:
        for risk, (low, high) in zip(stage["risks"], stage["intervals"], strict=True):
            assert low == pytest.approx(max(0, risk - stage["radius"]))
            assert high == pytest.approx(min(1, risk + stage["radius"]))


def test_betting_intervals_hold_the_risk_and_clear_the_mean_with_a_certificate() -> None:
    losses = np.ones((5, 128))
    losses[0] = 0
    losses[1, ::2] = 0
    shown = unfold_losses(SageE(stop="none"), RecordedLosses(tuple("abcde"), losses), 0, "x")
    last = shown["stages"][-1]
    assert shown["reason"] == "certified"
    for risk, (low, high) in zip(last["risks"], last["intervals"], strict=True):
        assert low <= risk <= high
    assert last["intervals"][0][1] < np.mean(last["risks"])


def test_losses_up_to_another_bound_are_shown_in_its_units() -> None:
    losses = np.random.default_rng(2).integers(0, 2, (3, 64)).astype(float) * 4
    shown = unfold_losses(make("sage-os", loss_bound=4.0), RecordedLosses(tuple("abc"), losses), 0, "x")
    assert shown["bound"] == 4
    assert shown["stages"][0]["risks"] == pytest.approx(losses[:, :16].mean(axis=1).tolist())
