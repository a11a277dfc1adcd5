"""What the statistical tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import bdtrik  # scipy.stats has it too, at a second and a half of import


@pytest.fixture(scope="session")
def interval() -> Callable[[float, int, float], tuple[float, float]]:
    """The exact binomial interval: `interval(confidence, trials, p)` -> (low, high), both included."""

    def of(confidence: float, trials: int, p: float) -> tuple[float, float]:
        tail = (1 - confidence) / 2
        return float(np.ceil(bdtrik(tail, trials, p))), float(np.ceil(bdtrik(1 - tail, trials, p)))

    return of
