"""Words that the claims of several sections share: methods, bands, and where a measure is taken."""

from __future__ import annotations

from ..claims import NotRun
from ..measures import Measure, Slice
from ..results import Configuration

OS, VANILLA, NF, AQ, RG = "sage-os", "sage-vanilla", "sage-nf", "aq-128", "rg"
COMMIT, ABSTAIN = (AQ, NF), (VANILLA, OS)
POINT, EVIDENCE, STOPS, MODELS = 1.0, 5.0, 10.0, 0.1
OUTLIER = Configuration("cifar10", "er", 0.05)
TEXT_ONLY = NotRun("about what the text says of its own tables")


def at_alpha(alpha: float, measure: Measure) -> Measure:
    """The measure where partitions have this alpha."""
    return measure.on(lambda c: c.alpha == alpha, f"at alpha {alpha:g}")


def on(configuration: Configuration, measure: Measure) -> Measure:
    """The measure in one configuration."""
    return measure.on(lambda c: c == configuration, f"on {configuration}")


def without_outlier(measure: Measure) -> Measure:
    """The measure without the configuration that the paper calls an outlier."""
    return measure.on(lambda c: c != OUTLIER, f"without {OUTLIER}")


def on_topology(topology: str, measure: Measure) -> Measure:
    """The measure on one kind of graph."""
    return measure.on(lambda c: c.topology == topology, f"on {topology.upper()}")


def on_dataset(dataset: str, measure: Measure) -> Measure:
    """The measure on one data set."""
    return measure.on(lambda c: c.dataset == dataset, f"on {dataset}")


def ratio(metric: str, a: str, b: str) -> Measure:
    """A metric of one method over that of another, both summed over configurations."""

    def compute(s: Slice) -> float | None:
        below = sum(s.column(b, metric))
        return sum(s.column(a, metric)) / below if below else None

    return Measure(f"{metric} of {a} over {b}", ((a, metric), (b, metric)), compute)
