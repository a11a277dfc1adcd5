"""What a peer's answers cost the receiver: labels and log-probabilities held against the receiver's own labels.

The simulator and a node score alike, here. Latents go through the receiver's head instead (`Workbench.score`).
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["answer_losses"]


def answer_losses(answers: npt.NDArray[Any], truth: npt.NDArray[Any], kind: str, loss: str) -> npt.NDArray[Any]:
    """0-1 errors, or cross-entropy clipped and scaled as in `clipped_ce`, of labels or log-probabilities."""
    if kind == "labels":
        return np.asarray(answers != truth)
    if loss == "error":
        return np.asarray(answers.argmax(1) != truth)
    ceiling = 2 * log(answers.shape[1])
    surprise = np.nan_to_num(-answers[np.arange(len(truth)), truth], nan=ceiling)  # float32, as all that is recorded
    return np.asarray(np.minimum(surprise, ceiling) / ceiling)
