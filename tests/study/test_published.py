"""The shipped tables give every mean, count and median that the paper prints."""

from __future__ import annotations

import pytest

from sagefl.study.measures import Measure, column, gap, median_gap, wins
from sagefl.study.published import SEED, counterpart, counterpart_method, published
from sagefl.study.results import Configuration

PAPER = published()


def value(measure: Measure) -> float:
    found = measure.at(PAPER, SEED)
    assert found is not None
    assert len(found.configurations) == 12
    return found.value


def test_twelve_configurations_and_eight_methods() -> None:
    assert len(PAPER.configurations) == 12
    assert PAPER.methods == ("local", "rg", "pens", "pfeddst", "aq-128", "sage-nf", "sage-vanilla", "sage-os")
    assert len(PAPER.rows) == 96
    assert PAPER.configurations[0] == Configuration("fmnist", "ba", 0.05)


@pytest.mark.parametrize(
    ("metric", "means"),
    [
        ("accuracy", {"local": 0.3208, "rg": 0.3782, "pens": 0.3625, "pfeddst": 0.3730, "aq-128": 0.3509,
                      "sage-nf": 0.3531, "sage-vanilla": 0.3763, "sage-os": 0.3750}),
        ("macro_f1", {"local": 0.2282, "rg": 0.2888, "pens": 0.2738, "pfeddst": 0.2833, "aq-128": 0.2614,
                      "sage-nf": 0.2629, "sage-vanilla": 0.2869, "sage-os": 0.2855}),
        ("client", {"rg": 0.9108, "aq-128": 0.8939, "sage-nf": 0.8950, "sage-vanilla": 0.9117, "sage-os": 0.9089}),
        ("weak", {"rg": 0.6164, "aq-128": 0.6103, "sage-nf": 0.6007, "sage-vanilla": 0.6557, "sage-os": 0.6275}),
        ("saving", {"sage-os": 0.7550, "sage-vanilla": 0.5048, "aq-128": 0.4767}),
        ("cost_rg", {"sage-os": 0.384}),
        ("stop_32", {"sage-os": 0.495}),
        ("rg_fallback", {"sage-vanilla": 0.878}),
        ("comm_oh", {"pens": 1.784, "pfeddst": 1.980, "sage-os": 1.0}),
    ],
)  # fmt: skip
def test_column_means_are_the_printed_ones(metric: str, means: dict[str, float]) -> None:
    for method, printed in means.items():
        assert value(column(method, metric)) == pytest.approx(printed, abs=5.1e-4 if metric in SHARES else 5.1e-5)


SHARES = ("cost_rg", "stop_32", "rg_fallback")


@pytest.mark.parametrize(
    ("measure", "printed"),
    [
        (wins("accuracy", "rg", "aq-128", "sage-nf"), 12),
        (wins("macro_f1", "rg", "aq-128", "sage-nf"), 12),
        (wins("client", "rg", "aq-128", "sage-nf"), 12),
        (wins("accuracy", "rg", "pens"), 11),
        (wins("accuracy", "sage-os", "aq-128", "sage-nf"), 11),
        (wins("accuracy", "sage-os", "rg"), 7),
        (wins("accuracy", "sage-os", "pens"), 10),
        (wins("accuracy", "sage-os", "pfeddst"), 8),
        (wins("accuracy", "sage-os", "sage-vanilla", ties=True), 8),
        (wins("accuracy", "sage-os", "sage-vanilla"), 7),
    ],
)
def test_win_counts_are_the_printed_ones(measure: Measure, printed: int) -> None:
    assert value(measure) == printed


@pytest.mark.parametrize(
    ("method", "metric", "printed"),
    [
        ("aq-128", "accuracy", -2.11),
        ("sage-nf", "accuracy", -2.09),
        ("sage-os", "accuracy", 0.03),
        ("sage-os", "macro_f1", -0.01),
        ("pfeddst", "macro_f1", -0.45),
    ],
)
def test_medians_against_gossip_are_the_printed_ones(method: str, metric: str, printed: float) -> None:
    assert value(median_gap(metric, method)) == pytest.approx(printed, abs=0.0051)


def test_the_commit_abstain_gaps() -> None:
    assert value(gap("accuracy", "sage-vanilla", "sage-nf")) == pytest.approx(2.3, abs=0.05)
    assert value(gap("accuracy", ("sage-vanilla", "sage-os"), ("aq-128", "sage-nf"))) == pytest.approx(2.37, abs=0.01)


def test_stand_ins_and_readings() -> None:
    assert counterpart(Configuration("fmnist-mini", "er", 0.1)) == Configuration("fmnist", "er", 0.1)
    assert counterpart(Configuration("cifar10", "ba", 0.3)) == Configuration("cifar10", "ba", 0.3)
    assert counterpart_method("sage-os-table") == "sage-os"
    assert counterpart_method("rg") == "rg"
