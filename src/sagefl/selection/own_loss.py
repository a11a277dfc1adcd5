"""A loss of the user's own: a function of what a peer predicts and of the truth, with values in [0, M].

Peers send what a rule asks for, as ever; the receiver scores it by the function, divided by M, so certificates are
about the expected loss in units of M. The function gets predictions and targets of some samples, as arrays: labels
where a rule asks for errors, class probabilities (samples x classes) where it asks for cross-entropy, predicted values
in regression. It returns a number for every sample. Outside [0, M] no certificate would hold, so that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

Losses = npt.NDArray[np.float64]
TRIED = 64  # samples on which it is tried before work begins


@dataclass(frozen=True)
class OwnLoss:
    """A function with its name and the largest value that it can take."""

    name: str
    function: Callable[[npt.NDArray[Any], npt.NDArray[Any]], Any]
    most: float = 1.0

    def scaled(self, predicted: npt.NDArray[Any], truth: npt.NDArray[Any]) -> Losses:
        """Losses in units of M; whatever is no number in [0, M] is refused."""
        told = f"data.loss {self.name}"
        try:
            found = np.asarray(self.function(predicted, truth), dtype=np.float64)
        except Exception as error:  # the user's own code
            given = f"{predicted.dtype} {' x '.join(map(str, predicted.shape))}"
            raise UsageError(
                f"{told} raised {type(error).__name__}: {error}; it was given predictions ({given}) and their targets"
            ) from error
        if found.shape != (len(truth),):
            got = " x ".join(map(str, found.shape)) or "a single number"
            raise UsageError(f"{told} returned {got} for {len(truth)} samples; expected a number for each of them")
        wrong = np.flatnonzero(~((found >= 0) & (found <= self.most)))
        if len(wrong):
            raise UsageError(
                f"{told} gave {found[wrong[0]]:g} for a prediction of {_told(predicted[wrong[0]])} where "
                f"{_told(truth[wrong[0]])} is true; expected a number from 0 to {self.most:g}: clip it, or set "
                "data.loss_max"
            )
        return found / self.most

    def try_on(self, truth: npt.NDArray[Any], classes: int | None = None) -> None:
        """Refuse a function that fails on guesses for some of the data; of `classes`, it gets their probabilities."""
        some = truth[:TRIED]
        for guess in (some, some[::-1]):
            self.scaled(guess if classes is None else np.eye(classes, dtype=np.float32)[guess], some)


def _told(value: Any) -> str:
    return ", ".join(f"{number:g}" for number in np.ravel(value)[:4])


def _not_known(predicted: npt.NDArray[Any], truth: npt.NDArray[Any]) -> Any:
    raise NotImplementedError("recorded losses do not tell by which function they were computed")


UNKNOWN_LOSS = OwnLoss("a loss of the user's own", _not_known)
