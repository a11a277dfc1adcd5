"""How good full predictors are: on test samples (everybody's, or of one's own group), and on one's own samples."""

from __future__ import annotations

from collections.abc import Mapping

from .targets import Floats, Targets
from .tasks import Ensemble, Evaluate, Tally, Tasks
from .workbench import Indices


def measure(
    tasks: Tasks,
    targets: Targets,
    tests: Mapping[int, Indices],
    own: Mapping[int, Indices],
    ensembles: Mapping[int, Ensemble] | None = None,
    *,
    tested: bool = False,
) -> Mapping[str, Floats]:
    """The present rows of some clients, each on test samples and on samples of its own: an array for each measure.

    Own samples are positions in the training split, or in the test split where owners are `tested` on their own. A
    client that predicts as a mixture with models published this round does so by its `ensembles`.
    """
    with_ = ensembles or {}
    tallies = tasks.map([Tally(client, tests[client], with_.get(client)) for client in own])
    scored = tasks.map([Evaluate(client, indices, with_.get(client), tested) for client, indices in own.items()])
    return targets.measures(tallies, scored, [len(indices) for indices in own.values()])
