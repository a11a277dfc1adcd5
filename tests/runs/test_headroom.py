"""Headroom and capture: by hand, and how often their intervals hold what is true."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from sagefl.runs.config import RunConfig
from sagefl.runs.headroom import headroom, headrooms, runs_scores, shown

ONE = {"rg": 0.5, "local": 0.6, "oracle": 0.7, "sage-os": 0.55}


def test_by_hand() -> None:
    found = headroom({1: ONE})
    assert found is not None
    assert found.reference == "oracle"
    assert found.over_gossip.mean == pytest.approx(0.2)
    captured = found.capture("sage-os")
    assert captured is not None
    assert captured.share == pytest.approx(0.25)
    assert (captured.low, captured.high) == (-inf, inf)  # one seed says nothing about the spread
    assert found.capture("pens") is None
    assert shown(captured) == "25%"


def test_where_neighbours_harm_local_is_the_mark() -> None:
    found = headroom({1: ONE | {"local": 0.8}, 2: ONE | {"local": 0.65}})
    assert found is not None
    assert found.reference == "local"  # in the mean, though not in the second seed
    assert found.over_gossip.mean == pytest.approx(0.225)


def test_seeds_without_their_references_do_not_count() -> None:
    assert headroom({1: {"rg": 0.5, "oracle": 0.6}}) is None
    found = headroom({1: ONE, 2: {"rg": 0.1}})
    assert found is not None
    assert found.over_gossip.seeds == 1


def test_a_share_of_nothing_is_not_given() -> None:
    found = headroom({1: {"rg": 0.5, "local": 0.4, "oracle": 0.505, "sage-os": 0.6}})
    assert found is not None
    assert found.capture("sage-os") is None
    assert shown(None) == "-"


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Fieller's, five seeds, noise shared by the methods of a seed; a narrower one fails."""
    rng, hits, narrow, tries = np.random.default_rng(1), 0, 0, 1500
    for _ in range(tries):
        shared = rng.normal(0, 0.02, 5)
        scores = {
            s: {
                "rg": 0.5 + shared[s] + rng.normal(0, 0.01),
                "oracle": 0.6 + shared[s] + rng.normal(0, 0.01),
                "local": 0.3,
                "rule": 0.54 + shared[s] + rng.normal(0, 0.01),
            }
            for s in range(5)
        }
        found = headroom(scores)
        assert found is not None
        wide, half = found.capture("rule"), found.capture("rule", 0.6)
        assert wide is not None
        assert half is not None
        hits += wide.low <= 0.4 <= wide.high
        narrow += half.low <= 0.4 <= half.high
    assert hits / tries == pytest.approx(0.95, abs=0.02)  # three and a half standard errors
    assert narrow / tries < 0.7


def test_runs_are_sorted_by_setting_and_measured_on_what_is_their_own() -> None:
    def run(method: str, seed: int = 1, **world: object) -> RunConfig:
        return RunConfig.parse({"seed": seed, "method": {"id": method}, "world": world})

    measured = {"accuracy": 0.5, "client": 0.9}
    grouped = [(run(m, s, shift="labels"), measured) for m in ("rg", "oracle", "local") for s in (1, 2)]
    plain = [(run("rg"), measured), (run("oracle"), measured | {"client": None})]
    found = runs_scores([*grouped, *plain])
    assert sorted(map(len, found.values())) == [1, 2]
    assert [scores for of in found.values() for scores in of.values() if len(scores) == 1] == [{"rg": 0.9}]
    (sentence,) = headrooms([*grouped, *plain])
    assert sentence.startswith("Headroom: +0.0 points of group accuracy [+0.0, +0.0] over 2 seeds (oracle 0.5000")
    assert sentence.endswith("there is nothing to choose here.")
