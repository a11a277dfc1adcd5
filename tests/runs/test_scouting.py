"""From what a pilot saw to a verdict: every verdict there is, its sentence, and the figures behind it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_kinship import CLIENTS, SAMPLES, planted

from sagefl.runs.findings import ScoutFinding, known
from sagefl.runs.kinship import find_kin, nanmean
from sagefl.runs.scouting import CALIBRATION, Cost, Pilot, Scouted, judge, judge_answers
from sagefl.selection.registry import RECOMMENDED


def pilot(local: float, within: float, gossip: float, groups: int = 1, samples: int = SAMPLES) -> Pilot:
    """A pilot that saw these accuracies, a little different for every client."""
    gaps = planted(np.arange(CLIENTS) % groups, 0.3 if groups > 1 else 0, 1)[:, :, :samples]
    noise = np.random.default_rng(2).normal(0, 0.02, (3, CLIENTS))
    arms = (local + noise[0], within + noise[1], gossip + noise[2])
    answers, near = np.full((CLIENTS, CLIENTS, samples), 0.3), ~np.eye(CLIENTS, dtype=bool)
    return Pilot(3, answers, near, find_kin(gaps), *arms, Cost(1.0, 10**6, 10**4), price=1e-3, asked=1e-3)


def test_groups_that_help_and_strangers_that_harm_mean_choose() -> None:
    found = judge(pilot(0.6, 0.62, 0.45, groups=3), 60)
    assert found.verdict == "choose"
    assert found.sentence.startswith(f"Choose, with {RECOMMENDED}: three groups; expect +")
    assert found.headroom is not None
    assert 0 < found.headroom.low < 0.17 < found.headroom.high
    (need,) = [n for n in found.needs if n.rule == RECOMMENDED]
    assert f"for {need.bytes:.0%} more bytes" in found.sentence


def test_where_gossip_is_as_good_there_is_nothing_to_choose() -> None:
    for each in (pilot(0.6, 0.61, 0.62), pilot(0.6, 0.6, 0.6)):
        found = judge(each, 60)
        assert found.verdict == "gossip"
        assert found.sentence.startswith("Nothing to choose: use rg")
        assert found.headroom is not None
        assert found.headroom.low <= 0 < found.headroom.high < 0.02


def test_groups_in_which_gossip_is_no_worse_are_nothing_to_choose() -> None:
    assert judge(pilot(0.6, 0.6, 0.6, groups=2), 60).verdict == "gossip"


def test_where_gossip_is_far_below_home_and_nobody_has_kin_neighbours_harm() -> None:
    found = judge(pilot(0.8, 0.6, 0.6), 60)
    assert found.verdict == "home"
    assert found.sentence.startswith("Neighbours harm: stay at home; expect +")


def test_a_head_of_ones_own_gets_used_to_mixes() -> None:
    assert judge(replace(pilot(0.75, 0.7, 0.66), whole=False), 60).verdict == "gossip"
    assert judge(pilot(0.75, 0.7, 0.66), 60).verdict == "home"


def test_with_few_samples_it_says_how_many_would_do() -> None:
    seen = pilot(0.64, 0.6, 0.6, samples=12)
    rng = np.random.default_rng(5)
    found = judge(replace(seen, local=seen.local + rng.normal(0, 0.5, CLIENTS)), 60)
    assert found.verdict == "unsure"
    assert found.sentence.startswith("Cannot tell: 12 samples a client are too few, ")
    assert int(found.sentence.split(", ")[1].split()[0]) > 12


@pytest.mark.parametrize(("samples", "verdict"), [(8, "unsure"), (12, "unsure"), (20, "gossip"), (40, "gossip")])
def test_with_few_samples_nothing_is_said_to_be_nothing(samples: int, verdict: str) -> None:
    found = judge(pilot(0.6, 0.6, 0.6, samples=samples), 60)
    assert found.verdict == verdict
    assert (f"Cannot tell: {samples} samples a client are too few, " in found.sentence) == (verdict == "unsure")


def test_nobody_with_a_neighbour_stays_at_home() -> None:
    alone = pilot(0.6, 0.6, 0.6)
    assert judge(replace(alone, neighbours=np.zeros_like(alone.neighbours)), 60).verdict == "home"


def test_clients_without_kin_among_their_neighbours_are_told_whom_to_connect_to() -> None:
    seen = pilot(0.6, 0.62, 0.45, groups=2)
    near = seen.neighbours.copy()
    near[0, 2::2] = False
    (advice,) = judge(replace(seen, neighbours=near), 60).advice
    assert advice.startswith("Without kin among their neighbours: connect client 0 to one of 2, 4, 6, 8 ...")
    named = replace(seen, neighbours=near, names=tuple(f"ward {k}" for k in range(len(near))))
    (advice,) = judge(named, 60).advice
    assert "connect client ward 0 to one of ward 2, ward 4, ward 6, ward 8 ..." in advice


def test_the_document_is_plain() -> None:
    document = judge(pilot(0.6, 0.62, 0.45, groups=3), 60).document()
    assert document["verdict"] == "choose"
    assert document["headroom"].keys() == {"expected", "low", "high"}
    json.dumps(document, allow_nan=False)


def test_the_calibration_is_wide_enough_for_the_worlds_it_was_made_on() -> None:
    """`results/worlds/calibration.csv`: differences after a pilot and at the end, one line per world."""
    with (Path(__file__).parents[2] / "results" / "worlds" / "calibration.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    inside = []
    for row in rows:
        seen = CALIBRATION[row["difference"], row["exchanged"]].project(float(row["pilot"]), float(row["pilot_se"]))
        inside.append(seen.low <= float(row["end"]) <= seen.high or float(row["pilot"]) < 0)  # gossip leads: no matter
    assert len(rows) >= 14
    assert sum(inside) / len(inside) >= 0.9
    assert {row["verdict"] for row in rows} == {"choose", "gossip", "home"}


# Recorded answers alone


def answers(apart: float, seed: int = 1) -> np.ndarray:
    far = (np.arange(CLIENTS) % 2)[:, None] != (np.arange(CLIENTS) % 2)[None, :]
    losses = (np.random.default_rng(seed).random((CLIENTS, CLIENTS, 40)) < 0.3 + apart * far[:, :, None]).astype(float)
    losses[range(CLIENTS), range(CLIENTS)] = np.nan
    return losses


@pytest.mark.parametrize(
    ("apart", "harm", "first", "verdict"),
    [
        (0.4, None, 30, "choose"),
        (0.4, 0.1, 2, "unsure"),  # skewed labels may look like that
        (0.0, 0.0, 30, "gossip"),
        (0.0, 0.08, 30, "home"),
        (0.0, None, 30, "unsure"),
    ],
)
def test_recorded_answers_say_what_they_can(apart: float, harm: float | None, first: int, verdict: str) -> None:
    found: Scouted = judge_answers(answers(apart), harm, first)
    assert found.verdict == verdict
    assert found.headroom is None


@pytest.mark.parametrize(("known", "verdict"), [(2, "unsure"), (16, "unsure"), (17, "gossip")])
def test_few_recorded_answers_do_not_say_that_there_is_nothing_to_choose(known: int, verdict: str) -> None:
    found = judge_answers(answers(0.0)[:, :, :known], 0.0, 30)
    assert found.verdict == verdict
    assert verdict == "gossip" or found.sentence.startswith(f"Cannot tell: {known} answers of a neighbour are too few")


def test_every_risk_of_the_map_has_an_interval_that_holds_as_often_as_it_says() -> None:
    """Of a client's finite data, drawn without replacement; a pair that was never asked has none."""
    found = judge(pilot(0.6, 0.61, 0.62), 60)
    rng, held, outside = np.random.default_rng(3), 200, 0
    everything = rng.random((8, 400)) < np.linspace(0.05, 0.9, 8)[:, None]
    for _ in range(50):
        asked = rng.permutation(400)[:held]
        answers = everything[None, :, asked].astype(float).repeat(8, 0)
        answers[2, 5] = np.nan
        finding = ScoutFinding(found, "made up", nanmean(answers, 2), counts=known(answers))
        intervals = finding.document()["map_intervals"]
        assert intervals[2][5] is None
        outside += sum(not low <= p <= high for (low, high), p in zip(intervals[0], everything.mean(1), strict=True))
    assert outside / 400 <= 0.05
    assert known(np.full((2, 2, 3), 1.5)) is None  # losses that exceed 1, which the inequality does not cover
