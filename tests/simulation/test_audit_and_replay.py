"""Every decision can be replayed from what a run has recorded, and other rules on the same evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from small_runs import CORE, KINDS, ROUGH, config, files, simulate

from sagefl.methods import Method
from sagefl.runs.config import method_config
from sagefl.runs.files import RunError
from sagefl.runs.losses import Recorded, losses_path, read_losses, write_losses
from sagefl.runs.replaying import recorded_decisions, replay_one, replay_run
from sagefl.runs.rundir import RunDirectory
from sagefl.selection import Exchange, Hood, Probe, Reason, Selector, make
from sagefl.selection.options import option
from sagefl.selection.outcome import State
from sagefl.selection.scoring import LABEL_ERRORS, Scoring
from sagefl.selection.selector import Deciding, Draws
from sagefl.streams import stream

Reference = Callable[..., Path]


def rule(spec: str) -> Selector:
    section = method_config(spec)
    return make(section["id"], **section["options"])


# The audit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "network"),
    [*((m, {}) for m in CORE), *((m, ROUGH) for m in (*CORE, *KINDS))],
    ids=lambda v: v if isinstance(v, str) else ("rough" if v else "plain"),
)
def test_every_audited_decision_is_what_a_replay_of_its_losses_decides(
    method: str, network: dict[str, Any], reference: Reference
) -> None:
    run = RunDirectory(reference(config(method, **network)))
    paths = sorted((run.path / "losses").glob("*"))
    assert bool(paths) == (method not in ("local", "rg"))
    recorded = {(t, r.client): r for t, path in enumerate(paths) for r in read_losses(path)}
    replayed = 0
    for row in run.table("decisions").filter(pl.col("degree") > 0).iter_rows(named=True):
        round, client = row["round"], row["client"]
        unasked = Recorded(client, np.array(row["peers"], dtype=np.int32), row["pool"], np.zeros((row["degree"], 0)))
        record = recorded.get((round, client), unasked)
        outcome = replay_one(rule(method), record, (1, round, client), round, 4)
        assert outcome is not None, "a decision asks for no more than it asked for"
        stage = outcome.trace[-1] if outcome.trace else None
        replayed += 1
        assert list(outcome.peers) == row["chosen"]
        assert (outcome.reason, outcome.selected, outcome.anchors, outcome.evaluations, len(outcome.trace)) == (
            row["reason"], row["selected"], row["anchors"], row["evaluations"], row["stages"],
        )  # fmt: skip
        if stage is not None:
            assert row["risks"] == list(stage.risks or ())
            for name in ("advantage", "gap", "radius", "width", "next_cost", "test"):
                assert row[name] == getattr(stage, name), name
    assert replayed > 20


@pytest.mark.parametrize("method", ["sage-m", "sage-m:outside=home", "sage-m:kind=labels:recheck=0.5"])
@pytest.mark.parametrize("network", [{}, ROUGH], ids=["plain", "rough"])
def test_a_rule_that_remembers_replays_from_its_record(
    method: str, network: dict[str, Any], reference: Reference
) -> None:
    """Round after round from what the audit says it was told; what it tried is on record, too."""
    run = RunDirectory(reference(config(method, **network)))
    rows = run.table("decisions").filter(pl.col("degree") > 0).to_dicts()
    states: dict[int, Any] = {}
    for row, (number, record) in zip(rows, recorded_decisions(run), strict=True):
        client = row["client"]
        outcome = replay_one(rule(method), record, (1, number, client), number, 4, states.get(client))
        assert outcome is not None
        states[client] = outcome.state
        assert (list(outcome.peers), outcome.reason, outcome.evaluations) == (
            row["chosen"], row["reason"], row["evaluations"],
        )  # fmt: skip
        for name in ("risks", "wealth", "against", "since", "width", "threshold", "trial"):
            found = getattr(outcome.trace[-1], name)
            assert row[name] == (list(found) if isinstance(found, tuple) else found), name
    assert any(row["mine"] for row in rows)
    assert any(row["trial"] for row in rows) == ("home" in method)
    (result,) = replay_run(run, [("again", rule(method))])
    assert result.covered == 1
    assert result.certified == pytest.approx(np.mean([row["reason"] == "certified" for row in rows]))


def test_without_what_was_tried_nothing_later_is_covered(reference: Reference) -> None:
    """Another rule's record has no trials: from the first one on nothing is known of what this rule would remember."""
    run = RunDirectory(reference(config("aq-128")))
    (result,) = replay_run(run, [("home", rule("sage-m:outside=home:kind=labels"))])
    assert result.covered == 0


def test_losses_of_another_bound_are_recorded_unscaled(reference: Reference) -> None:
    """A rule with M = 1.5 sees losses up to 1.5; what is recorded suits a rule with any M."""
    spec = next(m for m in KINDS if "loss_bound=1.5" in m)
    run = RunDirectory(reference(config(spec, **ROUGH)))
    highest = [np.nanmax(r.losses) for _, r in recorded_decisions(run) if r.losses.size]
    assert 0.9 < max(highest) <= 1
    other = replay_run(run, [("M = 3", rule(spec.replace("1.5", "3.0")))])[0]
    assert other.covered > 0.5


# Replaying other rules ------------------------------------------------------------------------------------------------


def test_a_run_replayed_by_its_own_rule_has_its_own_numbers(reference: Reference) -> None:
    run = RunDirectory(reference(config("sage-os")))
    (same,) = replay_run(run, [("same", rule("sage-os"))])
    summary = run.summary
    assert summary is not None
    assert (same.decisions, same.covered) == (32, 1.0)
    assert same.certified == summary["certified"] > 0
    assert same.cost == summary["cost_rg"] > 0
    assert same.no_anchors == 4 / 32
    assert same.budget == pytest.approx(summary["budget"])
    assert same.evaluations * 32 == pytest.approx(summary["evaluations"])


def test_what_was_not_recorded_is_reported_as_uncovered(reference: Reference) -> None:
    run = RunDirectory(reference(config("sage-os")))
    told = run.table("decisions")
    dear, free = replay_run(run, [("dear", rule("sage-os:probe_cost=1e9")), ("free", rule("aq-128"))])
    assert dear.covered == 1  # it asks for less
    stopped = sum(1 for row in told.iter_rows(named=True) if row["reason"] == "cost")
    certified = [row for row in told.iter_rows(named=True) if row["reason"] == "certified"]
    early = sum(row["anchors"] < max([m for m in (16, 32, 64, 128) if m <= row["pool"]]) for row in certified)
    assert stopped > 0
    assert free.covered == (32 - stopped - early) / 32 < 1


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Random gossip with everything recorded: it asks for nothing and still serves every rule."""
    path = tmp_path_factory.mktemp("full") / "run"
    simulate(path, config("rg", evaluation={"losses": "full"}))
    return RunDirectory(path)


def test_full_records_cover_every_rule_and_are_charged_to_nobody(full: RunDirectory, reference: Reference) -> None:
    assert full.table("decisions")["evaluations"].sum() == 0
    assert all(r.covered == 1 for r in replay_run(full, [(m, rule(m)) for m in CORE]))
    plain = files(reference(config("rg")))
    params = "checkpoint/round-00004/params-0000.safetensors"
    assert files(full.path)[params] == plain[params]  # and recording changes nothing


def test_full_records_hold_what_a_probing_rule_would_have_been_told(full: RunDirectory, reference: Reference) -> None:
    """In round 0 all methods meet the same models."""
    told = {r.client: r for r in read_losses(losses_path(reference(config("aq-128")), 0))}
    whole = {r.client: r for r in read_losses(losses_path(full.path, 0))}
    assert set(told) < set(whole) == set(range(8))
    for client, record in told.items():
        assert np.array_equal(record.losses, whole[client].losses[:, : record.losses.shape[1]])


@pytest.mark.parametrize("rule", ["sage-os:schedule=(16, 200)", "sage-e:largest=200", "pfeddst:anchors=200"])
def test_full_records_reach_as_far_as_the_rule(rule: str, tmp_path: Path) -> None:
    simulate(tmp_path / "run", config(rule, rounds=1, evaluation={"losses": "full"}))
    records = read_losses(losses_path(tmp_path / "run", 0))
    assert {r.client: r.losses.shape[1] for r in records} == {r.client: min(200, r.pool) for r in records}
    assert max(r.losses.shape[1] for r in records) == 200


@pytest.mark.parametrize("base", ["sage-os", "sage-os:cost=cumulative", "sage-os:radius=tight"])
def test_a_higher_price_never_buys_more_evidence(full: RunDirectory, base: str) -> None:
    prices = (0, 5e-4, 2e-3, 8e-3, 0.1)
    swept = replay_run(full, [(str(p), rule(f"{base}:probe_cost={p}")) for p in prices])
    evaluations = [r.evaluations for r in swept]
    assert evaluations == sorted(evaluations, reverse=True)
    assert evaluations[0] > evaluations[-1]
    assert swept[0].cost == 0 < swept[-1].cost


def test_a_lower_delta_never_certifies_more_with_free_probes(full: RunDirectory) -> None:
    swept = replay_run(full, [(str(d), rule(f"sage-os:probe_cost=0:delta={d}")) for d in (0.9, 0.5, 0.1, 1e-3)])
    certified = [r.certified for r in swept]
    assert certified == sorted(certified, reverse=True)
    assert certified[0] > certified[-1]


@dataclass(frozen=True)
class Counting(Selector):
    """Remembers how often it has decided; probes deeper each time."""

    id: ClassVar[str] = ""
    step: int = option(8, "anchors more each round")

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        times = state.get("times", 0) + 1
        if not hood.peers:
            return Exchange.none(state={"times": times})
        stop = min(hood.anchors, self.step * times)
        losses = yield Probe(hood.peers, 0, stop)
        best = hood.peers[int(losses.sum(axis=1).argmin())]
        return Exchange.select(best, Reason.COMMITTED, state={"times": times})


def test_a_rule_with_a_memory_is_replayed_with_it(full: RunDirectory) -> None:
    (told,) = replay_run(full, [("counting", Counting())])
    records = list(recorded_decisions(full))
    expected = [len(r.peers) * min(r.pool, 8 * (round + 1)) for round, r in records]
    assert told.evaluations == pytest.approx(np.mean(expected))


@dataclass(frozen=True)
class Chancy(Selector):
    """Asks as far as its dice say."""

    id: ClassVar[str] = ""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        yield Probe(hood.peers, 0, 1 + int(rng("dice").random() * min(hood.anchors, 100)))
        return Exchange.gossip(rng.gossip(hood), Reason.UNIFORM)


class Shy(Selector):
    """Opens a probe in which nobody is asked anything."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        if hood.peers and hood.anchors:
            yield Probe(hood.peers, 0, 1, mask=np.zeros((len(hood.peers), 1), dtype=bool))
        yield from ()
        return Exchange.none()


class Shyness(Method):
    rule = Shy


def test_a_probe_that_nobody_is_asked_in_is_a_record_without_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Method.registered, "shy", Shyness)
    simulate(tmp_path / "run", config("shy", rounds=1))
    assert RunDirectory(tmp_path / "run").table("decisions")["evaluations"].sum() == 0


def test_a_replay_draws_what_the_run_would_have_drawn(full: RunDirectory) -> None:
    (told,) = replay_run(full, [("chancy", Chancy())])
    expected = [
        len(r.peers) * (1 + int(stream((1, round, r.client), "dice").random() * min(r.pool, 100)))
        for round, r in recorded_decisions(full)
    ]
    assert told.evaluations == pytest.approx(np.mean(expected))


def test_without_records_it_says_how_to_get_them(tmp_path: Path, reference: Reference) -> None:
    with pytest.raises(RunError, match=r"evaluation\.losses=full"):
        replay_run(RunDirectory(reference(config("rg"))), [("x", rule("sage-os"))])
    simulate(tmp_path / "run", config("sage-os", rounds=1, evaluation={"losses": "none"}))
    with pytest.raises(RunError, match="no recorded losses"):
        replay_run(RunDirectory(tmp_path / "run"), [("x", rule("sage-os"))])
    with pytest.raises(RunError, match="is not a run directory"):
        replay_run(RunDirectory(tmp_path), [("x", rule("sage-os"))])


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ("sage-os", "sage-e:kind=latents"),
        ("sage-e:kind=latents", "sage-e"),
        ("sage-e:kind=latents", "sage-e:kind=latents:loss=ce"),
    ],
)
def test_a_rule_that_scores_other_answers_is_not_replayed(recorded: str, asked: str, reference: Reference) -> None:
    """Errors of labels are no evidence about representations, nor the other way round."""
    run = RunDirectory(reference(config(recorded, evaluation={"every": 2, "losses": "full"})))
    for same in (recorded, "rg"):  # rg asks for nothing
        assert replay_run(run, [("same", rule(same))])[0].covered == 1
    with pytest.raises(RunError, match=r"asks for .* but what was recorded are .*: replay a rule"):
        replay_run(run, [("other", rule(asked))])


def test_losses_that_do_not_say_how_they_were_scored_are_taken_as_asked(tmp_path: Path) -> None:
    """Files of earlier versions."""
    path = losses_path(tmp_path, 0)
    write_losses(path, [Recorded(0, np.arange(3, dtype=np.int32), 64, np.zeros((3, 64)), LABEL_ERRORS)])
    arrays = load_file(path)
    del arrays["scorings"]
    save_file(arrays, path)
    (record,) = read_losses(path)
    assert record.scoring is None
    assert replay_one(rule("sage-e:kind=latents"), record, (1, 0, 0), 0) is not None


# The files ------------------------------------------------------------------------------------------------------------


@st.composite
def recorded(draw: st.DrawFn) -> list[Recorded]:
    binary = draw(st.booleans())
    values = [0.0, 1.0, np.nan] if binary else [0.0, 0.25, float(np.float32(0.1)), 1.0, np.nan]
    records = []
    for client in draw(st.lists(st.integers(0, 10**6), unique=True, max_size=5)):
        degree, width = draw(st.integers(1, 4)), draw(st.integers(0, 20))
        flat = draw(st.lists(st.sampled_from(values), min_size=degree * width, max_size=degree * width))
        peers = np.array(draw(st.lists(st.integers(0, 10**6), min_size=degree, max_size=degree)), dtype=np.int32)
        losses = np.array(flat, dtype=np.float64).reshape(degree, width)
        scoring = draw(st.sampled_from([None, *Scoring.registered.values()]))
        records.append(Recorded(client, peers, draw(st.integers(0, 500)), losses, scoring))
    return records


@settings(max_examples=80)
@given(records=recorded())
def test_packing_and_unpacking_losses_is_lossless(
    tmp_path_factory: pytest.TempPathFactory, records: list[Recorded]
) -> None:
    path = tmp_path_factory.mktemp("losses") / "losses" / "round-00000.safetensors"
    write_losses(path, records)
    back = read_losses(path)
    assert len(back) == len(records)
    for was, now in zip(records, back, strict=True):
        assert (was.client, was.pool, was.scoring) == (now.client, now.pool, now.scoring)
        assert np.array_equal(was.peers, now.peers)
        assert np.array_equal(was.losses, now.losses, equal_nan=True)


def test_errors_of_zero_and_one_take_a_bit_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    losses = (rng.random((50, 1000)) < 0.5).astype(float)
    path = tmp_path / "losses" / "round-00000.safetensors"
    write_losses(path, [Recorded(0, np.arange(50, dtype=np.int32), 1000, losses)])
    assert path.stat().st_size < 50 * 1000 / 8 * 2 + 1500  # a bit for the loss, a bit for having been asked


def test_a_torn_file_of_losses_is_said(tmp_path: Path) -> None:
    path = tmp_path / "losses" / "round-00000.safetensors"
    write_losses(path, [Recorded(0, np.arange(3, dtype=np.int32), 9, np.ones((3, 9)))])
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(RunError, match="does not hold recorded losses"):
        read_losses(path)
