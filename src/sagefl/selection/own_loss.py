"""A loss of the user's own: a function of what a peer predicts and of the truth, with values in [0, M].

Peers send what a rule asks for, as ever; the receiver scores it by the function, divided by M, so certificates are
about the expected loss in units of M. The function gets predictions and targets of some samples, as arrays: labels
where a rule asks for errors, class probabilities (samples x classes) where it asks for cross-entropy, predicted values
in regression. It returns a number for every sample. Outside [0, M] no certificate would hold, so that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .scoring import LABEL_ERRORS, Answers, Head, Outputs, Scoring

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

    def form(self, asked: Scoring) -> Scoring:
        """What a rule asks for, scored by this loss."""
        return _OF_KIND[asked.kind](asked, self)

    def try_on(self, questions: Iterable[Scoring], truth: npt.NDArray[Any], outputs: Outputs) -> None:
        """Refuse a function that fails on right or wrong predictions for some of the data, as a rule asks for them."""
        some, plain = truth[:TRIED], replace(outputs, own=None)
        for asked in questions:
            unsure = plain.form(asked).predicts == "probabilities"
            for guess in (some, some[::-1]):
                self.scaled(np.eye(outputs.classes, dtype=np.float32)[guess] if unsure else guess, some)


def _told(value: Any) -> str:
    return ", ".join(f"{number:g}" for number in np.ravel(value)[:4])


@dataclass(frozen=True)
class _Own(Scoring):
    """What was asked for, but for its score; the entry in the register, without a loss, is a name for files."""

    nameable: ClassVar[bool] = False
    asked: Scoring = LABEL_ERRORS
    own: OwnLoss | None = None

    def answer(self, out: Any) -> Answers:
        """As asked."""
        return self.asked.answer(out)

    def size(self, outputs: Outputs) -> int:
        """As asked."""
        return self.asked.size(outputs)

    def encode(self, answers: Answers, outputs: Outputs) -> bytes:
        """As asked."""
        return self.asked.encode(answers, outputs)

    def _unpack(self, raw: bytes, count: int, outputs: Outputs) -> Answers:
        return self.asked._unpack(raw, count, outputs)

    def score(self, answers: Answers, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """By the user's function."""
        assert self.own is not None
        return self.own.scaled(self.asked.predicted(answers, head), truth)

    def is_for(self, asked: Scoring) -> bool:
        """By what is sent: where models predict values, that is what a question for labels becomes."""
        return asked.kind == self.kind or (self.kind == "values" and asked.kind in ("labels", "probs"))


class OwnOfLabels(_Own):
    """Labels under a loss of the user's own."""

    kind: ClassVar[str] = "labels"
    loss: ClassVar[str] = "own"
    number: ClassVar[int] = 9
    wire: ClassVar[int] = 0


class OwnOfLatents(_Own):
    """What one's own head predicts from latents, under a loss of the user's own."""

    kind: ClassVar[str] = "latents"
    loss: ClassVar[str] = "own"
    number: ClassVar[int] = 10
    wire: ClassVar[int] = 1
    part: ClassVar[str] = "latent"
    at_home: ClassVar[bool] = True


class OwnOfProbabilities(_Own):
    """Class probabilities under a loss of the user's own."""

    kind: ClassVar[str] = "probs"
    loss: ClassVar[str] = "own"
    number: ClassVar[int] = 11
    wire: ClassVar[int] = 2


class OwnOfValues(_Own):
    """Predicted values under a loss of the user's own."""

    kind: ClassVar[str] = "values"
    loss: ClassVar[str] = "own"
    number: ClassVar[int] = 12
    wire: ClassVar[int] = 3


_OF_KIND: dict[str, type[_Own]] = {
    each.kind: each for each in (OwnOfLabels, OwnOfLatents, OwnOfProbabilities, OwnOfValues)
}
