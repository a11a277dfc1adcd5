"""How good full predictors are: on test samples (everybody's, or of one's own group), and on one's own samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .tasks import Confusion, Ensemble, Evaluate, Tasks
from .workbench import Indices

Floats = npt.NDArray[np.float64]


class Scores(NamedTuple):
    """One number per client each."""

    accuracy: Floats  # on the test images
    f1: Floats  # macro over classes
    client: Floats  # accuracy on own samples
    ce: Floats  # clipped cross-entropy there


def measure(
    tasks: Tasks,
    tests: Mapping[int, Indices],
    own: Mapping[int, Indices],
    ensembles: Mapping[int, Ensemble] | None = None,
) -> Scores:
    """The present rows of some clients, each on test samples and on samples of its own.

    A client that predicts as a mixture with models published this round does so by its `ensembles`.
    """
    with_ = ensembles or {}
    confusions = tasks.map([Confusion(client, tests[client], with_.get(client)) for client in own])
    scored = tasks.map([Evaluate(client, indices, with_.get(client)) for client, indices in own.items()])
    return Scores(
        accuracy=np.array([np.trace(c) / c.sum() for c in confusions]),
        f1=np.array([macro_f1(c) for c in confusions]),
        client=np.array([right for right, _ in scored]) / np.array([len(indices) for indices in own.values()]),
        ce=np.array([ce for _, ce in scored]),
    )


def macro_f1(confusion: npt.NDArray[np.int64]) -> float:
    """Mean F1 over all classes; a class never seen nor predicted counts 0."""
    hit = np.diag(confusion)
    seen = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(np.mean(np.divide(2 * hit, seen, out=np.zeros(len(hit)), where=seen > 0)))
