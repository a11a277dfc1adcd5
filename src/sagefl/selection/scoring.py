"""Forms of answer: what a peer sends back about an anchor, and how the receiver scores it into [0, 1].

One class is one form with its loss, and holds everything that anybody has to know about it: what the peer's model
computes, what is sent, how many bytes that takes and how it is packed, how the receiver scores it, under which number
files and the wire know it, and whether randomised response can protect it. Naming `kind` and `loss` registers it. A
rule declares the forms that it may ask for (`Selector.scorings`).

Outputs of a model are used through the methods that every tensor has; nothing here imports an ML framework.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .own_loss import UNKNOWN_LOSS, OwnLoss

Answers = npt.NDArray[Any]
Head = Callable[[Answers], Any]  # the receiver's own head: latents in, a tensor of logits out
ROUNDING = 1e-5  # how far above 0 the float32 logarithm of a probability of one may come out
OWN = 9  # in files of recorded losses a kind that a user's loss scored has its number on the wire, counted from here


class BadAnswerError(ValueError):
    """Bytes that are no answers of the form that was asked for; `kind` is a short name to count them by."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass(frozen=True)
class Outputs:
    """What a model says about one input: so many classes, and a latent of so many numbers (0: it has none).

    In regression `classes` is the number of values, and `clip` is where their errors are cut off. `own` is a loss of
    the user's, by which answers are scored instead.
    """

    classes: int
    latent: int = 0
    clip: float | None = None
    own: OwnLoss | None = None

    def form(self, asked: Scoring) -> Scoring:
        """The form that a rule's question takes here: of values, their clipped errors instead of wrong labels."""
        form = self._of_kind(asked)
        return form if self.own is None else replace(form, own=self.own)

    def try_loss(self, questions: Iterable[Scoring], truth: npt.NDArray[Any]) -> None:
        """Refuse a user's loss that cannot score what a rule asks for, or fails on guesses for some of the data."""
        if self.own is None:
            return
        for form in map(self.form, questions):
            if not form.predicts:
                raise UsageError(
                    f"{form}: a loss of your own needs predictions, and {type(form).__name__} does not say what its "
                    "answers predict; leave out data.loss, or define `predicts` and `predicted` there"
                )
            self.own.try_on(truth, self.classes if form.predicts == "probabilities" else None)

    def _of_kind(self, asked: Scoring) -> Scoring:
        if self.clip is None:
            if isinstance(asked, _OfValues):
                raise UsageError(f"{asked} is for regression, and these are classes: ask for labels, probs or latents")
            return asked
        return asked.on_values(self.clip)


@dataclass(frozen=True)
class Scoring(ABC):
    """One form of answer and its loss; `own` is a loss of the user's that scores it instead."""

    kind: ClassVar[str]  # what peers send
    loss: ClassVar[str]  # how the receiver scores it
    number: ClassVar[int]  # in files of recorded losses
    wire: ClassVar[int]  # in requests between nodes: the same for every loss of a kind
    part: ClassVar[str] = "forward"  # which function of the peer's model computes it
    at_home: ClassVar[bool] = False  # whether the receiver's own head must look at it
    private: ClassVar[bool] = False  # whether randomised response can protect it
    predicts: ClassVar[str] = ""  # what a user's loss would be a function of: labels, probabilities or values
    registered: ClassVar[dict[tuple[str, str], Scoring]] = {}
    own: OwnLoss | None = field(default=None, kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "loss" not in cls.__dict__:
            return  # what several losses share, or a variant of a registered form
        others = [form for key, form in Scoring.registered.items() if key != (cls.kind, cls.loss)]
        for form in others:
            if cls.number in (form.number, OWN + form.wire) or OWN + cls.wire == form.number:
                raise TypeError(f"number {cls.number} of {cls.__name__} is that of {type(form).__name__}")
        for form in others:
            if form.wire == cls.wire and form.kind != cls.kind:
                raise TypeError(f"{cls.kind} cannot be {cls.wire} on the wire: {form.kind} are")
        Scoring.registered[cls.kind, cls.loss] = cls()

    # The peer's side ------------------------------------------------------------------------------------------------

    @abstractmethod
    def answer(self, out: Any) -> Answers:
        """What the peer says, given a batch of its model's outputs."""

    @abstractmethod
    def size(self, outputs: Outputs) -> int:
        """Bytes of one answer on the wire."""

    @abstractmethod
    def encode(self, answers: Answers, outputs: Outputs) -> bytes:
        """Answers as they travel."""

    # The receiver's side --------------------------------------------------------------------------------------------

    def decode(self, raw: bytes, count: int, outputs: Outputs) -> Answers:
        """The inverse of `encode` for `count` answers; whatever cannot be one raises `BadAnswerError`."""
        if len(raw) != count * self.size(outputs):
            expected = count * self.size(outputs)
            raise BadAnswerError(
                "wrong-shape", f"{len(raw)} bytes of {self.kind} for {count} anchors, expected {expected}"
            )
        return self._unpack(raw, count, outputs)

    @abstractmethod
    def _unpack(self, raw: bytes, count: int, outputs: Outputs) -> Answers:
        """`decode` for bytes of the right length."""

    @abstractmethod
    def score(self, answers: Answers, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """Losses in [0, 1]; `head` is there where `at_home` asks for it."""

    def predicted(self, answers: Answers, head: Head | None = None) -> npt.NDArray[Any]:
        """What the answers say about the targets, for a user's loss: arrays of what `predicts` names."""
        raise NotImplementedError

    def losses(self, answers: Answers, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """By the user's loss where there is one, else by the form's own."""
        if self.own is None:
            return self.score(answers, truth, head)
        return self.own.scaled(self.predicted(answers, head), truth)

    def is_for(self, asked: Scoring) -> bool:
        """Whether what is scored in this form is what a rule asks for; a user's loss scores a kind in one way."""
        return type(self) is type(asked) if self.own is None else self.kind == asked.kind

    @property
    def filed(self) -> int:
        """Its number in files of recorded losses."""
        return self.number if self.own is None else OWN + self.wire

    def on_values(self, clip: float) -> Scoring:
        """The same question where models predict values; a form that has no such counterpart refuses."""
        raise UsageError(f"{self} is for classes, and these models predict values: ask for values")

    def __str__(self) -> str:
        return f"{self.kind} scored by {self.loss if self.own is None else self.own.name}"


def scoring(kind: str, loss: str) -> Scoring:
    """The form of answer of this kind with this loss."""
    form = Scoring.registered.get((kind, loss))
    if form is not None:
        return form
    for name, word, words in (("kind", kind, kinds()), ("loss", loss, losses())):
        if word not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}, got {word!r}")
    raise ValueError(f"{kind} cannot be scored by {loss}; there are {', '.join(map(str, _forms()))}")


def kinds() -> tuple[str, ...]:
    """Everything that peers can be asked for."""
    return tuple(dict.fromkeys(form.kind for form in _forms()))


def losses() -> tuple[str, ...]:
    """Every way to score an answer."""
    return tuple(dict.fromkeys(form.loss for form in _forms()))


def sent_as(wire: int) -> Scoring | None:
    """A form that has this number on the wire."""
    return next((form for form in _forms() if form.wire == wire), None)


def filed_as(number: int) -> Scoring | None:
    """The form with this number in files; that a user's loss scored it is known from them, but not which loss."""
    form = next((form for form in _forms() if form.number == number), None)
    if form is None and (scored := sent_as(number - OWN)) is not None:
        return replace(scored, own=UNKNOWN_LOSS)
    return form


def _forms() -> list[Scoring]:
    return sorted(Scoring.registered.values(), key=lambda form: form.number)


# Labels ---------------------------------------------------------------------------------------------------------------


class _Labelled(Scoring):
    """Answers that come down to a label, wrong or right."""

    predicts: ClassVar[str] = "labels"

    def score(self, answers: Answers, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """0-1 errors."""
        return np.asarray(self.predicted(answers, head) != truth)

    def on_values(self, clip: float) -> Scoring:
        """A prediction is a value."""
        return ValueErrors(clip)


@dataclass(frozen=True)
class LabelErrors(_Labelled):
    """The top-1 label, wrong or right."""

    kind: ClassVar[str] = "labels"
    loss: ClassVar[str] = "error"
    number: ClassVar[int] = 0
    wire: ClassVar[int] = 0
    private: ClassVar[bool] = True

    def answer(self, out: Any) -> Answers:
        """The class with the largest logit."""
        return np.asarray(out.argmax(1))

    def size(self, outputs: Outputs) -> int:
        """One byte, two with more than 256 classes, four with more than 65,536."""
        return label_bytes(outputs.classes)

    def encode(self, answers: Answers, outputs: Outputs) -> bytes:
        """Little-endian unsigned numbers."""
        return answers.astype(self._dtype(outputs)).tobytes()

    def _unpack(self, raw: bytes, count: int, outputs: Outputs) -> Answers:
        labels = np.frombuffer(raw, self._dtype(outputs)).astype(np.int64)
        if labels.size and labels.max() >= outputs.classes:
            raise BadAnswerError("label-out-of-range", f"label {labels.max()} of {outputs.classes} classes")
        return labels

    def predicted(self, answers: Answers, head: Head | None = None) -> npt.NDArray[Any]:
        """The labels."""
        return answers

    def _dtype(self, outputs: Outputs) -> str:
        return f"<u{label_bytes(outputs.classes)}"


def label_bytes(classes: int) -> int:
    """Bytes of a number that can be any of so many labels."""
    return 1 if classes <= 1 << 8 else 2 if classes <= 1 << 16 else 4


LABEL_ERRORS = scoring("labels", "error")


# Numbers --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Floats(Scoring):
    """Answers that are rows of float32."""

    def answer(self, out: Any) -> Answers:
        """The numbers as they are."""
        return np.asarray(out.numpy())

    def size(self, outputs: Outputs) -> int:
        """Four bytes a number."""
        return 4 * outputs.classes

    def encode(self, answers: Answers, outputs: Outputs) -> bytes:
        """Row-major, little-endian."""
        return np.ascontiguousarray(answers, dtype="<f4").tobytes()

    def _unpack(self, raw: bytes, count: int, outputs: Outputs) -> Answers:
        values = np.frombuffer(raw, "<f4").astype(np.float32).reshape(count, -1)  # a copy: torch wants to own it
        if not np.isfinite(values).all():
            raise BadAnswerError("not-finite", f"its {self.kind} hold NaN or infinity")
        return values


class _Latents(_Floats):
    """The peer's representation of the input; what it is worth under one's own head."""

    kind: ClassVar[str] = "latents"
    wire: ClassVar[int] = 1
    part: ClassVar[str] = "latent"
    at_home: ClassVar[bool] = True

    def size(self, outputs: Outputs) -> int:
        """Four bytes a number of the latent."""
        return 4 * outputs.latent


class LatentErrors(_Labelled, _Latents):
    """Latents, and whether one's own head makes a wrong label of them."""

    loss: ClassVar[str] = "error"
    number: ClassVar[int] = 1

    def predicted(self, answers: Answers, head: Head | None = None) -> npt.NDArray[Any]:
        """The labels that one's own head makes of them."""
        assert head is not None
        return np.asarray(head(answers).argmax(1))

    def on_values(self, clip: float) -> Scoring:
        """The error of what one's own head predicts from them."""
        return LatentValueErrors(clip)


class LatentCrossEntropy(_Latents):
    """Latents, and the clipped cross-entropy of one's own head on them."""

    loss: ClassVar[str] = "ce"
    number: ClassVar[int] = 2
    predicts: ClassVar[str] = "probabilities"

    def score(self, answers: Answers, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """Scaled to [0, 1]."""
        assert head is not None
        return clipped_surprise(np.asarray(head(answers).log_softmax(1).numpy()), truth)

    def predicted(self, answers: Answers, head: Head | None = None) -> npt.NDArray[Any]:
        """The probabilities of one's own head."""
        assert head is not None
        return np.asarray(head(answers).softmax(1).numpy())

    def on_values(self, clip: float) -> Scoring:
        """The squared error of what one's own head predicts from them."""
        return LatentValueSquares(clip)


@dataclass(frozen=True)
class _Probabilities(_Floats):
    """The logarithms of the peer's class probabilities."""

    kind: ClassVar[str] = "probs"
    wire: ClassVar[int] = 2

    def answer(self, out: Any) -> Answers:
        """Log-probabilities."""
        return np.asarray(out.log_softmax(1).numpy())

    def _unpack(self, raw: bytes, count: int, outputs: Outputs) -> Answers:
        """At most 0 each: above it the cross-entropy, a loss, would be negative."""
        values = super()._unpack(raw, count, outputs)
        highest = float(values.max(initial=0.0))
        if highest > ROUNDING:
            raise BadAnswerError("wrong-values", f"a log-probability of {highest:.3g}: none can be above 0")
        if not (np.abs(np.exp(values, dtype=np.float64).sum(axis=1) - 1) < 1e-3).all():
            raise BadAnswerError("wrong-values", "its probabilities do not add up to one")
        return np.minimum(values, np.float32(0))


class ProbabilityErrors(_Labelled, _Probabilities):
    """Class probabilities, and whether the largest is the wrong one's."""

    loss: ClassVar[str] = "error"
    number: ClassVar[int] = 3

    def predicted(self, answers: Answers, head: Head | None = None) -> npt.NDArray[Any]:
        """The most probable labels."""
        return np.asarray(answers.argmax(1))


class ProbabilityCrossEntropy(_Probabilities):
    """Class probabilities, and their clipped cross-entropy."""

    loss: ClassVar[str] = "ce"
    number: ClassVar[int] = 4
    predicts: ClassVar[str] = "probabilities"

    def score(self, answers: Answers, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """Scaled to [0, 1]."""
        return clipped_surprise(answers, truth)

    def predicted(self, answers: Answers, head: Head | None = None) -> npt.NDArray[Any]:
        """The probabilities."""
        return np.asarray(np.exp(answers))

    def on_values(self, clip: float) -> Scoring:
        """The smooth loss of a value is its square."""
        return ValueSquares(clip)


def clipped_surprise(log_probabilities: Answers, truth: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Cross-entropy clipped at 2 log(classes) and scaled to [0, 1]: a uniform guess scores one half, NaN scores 1."""
    ceiling = 2 * log(log_probabilities.shape[1])
    surprise = np.nan_to_num(-log_probabilities[np.arange(len(truth)), truth], nan=ceiling)  # float32 stays float32
    return np.asarray(np.minimum(surprise, ceiling) / ceiling)


# Values ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OfValues(_Floats):
    """Predicted values and how far they are from the truth, in the mean over a sample's outputs, cut off at `clip`."""

    kind: ClassVar[str] = "values"
    wire: ClassVar[int] = 3
    power: ClassVar[int] = 1  # of the error
    predicts: ClassVar[str] = "values"
    clip: float = 1.0

    def on_values(self, clip: float) -> Scoring:
        """The form itself, at this clip."""
        return replace(self, clip=clip)

    def score(self, answers: Answers, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """Errors in units of the clip, squared or not; what is not a number is as wrong as can be."""
        predicted = self.predicted(answers, head).reshape(truth.shape).astype(np.float64)
        apart = np.abs(predicted - truth).reshape(len(truth), -1).mean(axis=1)
        clipped = np.minimum(np.nan_to_num(apart, nan=self.clip), self.clip) / self.clip
        return np.asarray(clipped if self.power == 1 else clipped**self.power)

    def predicted(self, answers: Answers, head: Head | None = None) -> npt.NDArray[Any]:
        """The values, a row per sample, or those of one's own head."""
        values = answers if head is None else np.asarray(head(answers).numpy())
        return values.reshape(len(answers), -1)

    def is_for(self, asked: Scoring) -> bool:
        """A question for labels, say, becomes one for values."""
        try:
            return super().is_for(asked.on_values(self.clip))
        except UsageError:
            return False


class ValueErrors(_OfValues):
    """Predicted values, and their clipped absolute errors."""

    loss: ClassVar[str] = "absolute"
    number: ClassVar[int] = 5


class ValueSquares(_OfValues):
    """Predicted values, and the squares of their clipped errors."""

    loss: ClassVar[str] = "squared"
    number: ClassVar[int] = 6
    power: ClassVar[int] = 2


class _LatentValues(_Latents, _OfValues):
    """The peer's representation of the input; what one's own head predicts from it."""


class LatentValueErrors(_LatentValues):
    """Latents, and the clipped absolute error of one's own head on them."""

    loss: ClassVar[str] = "absolute"
    number: ClassVar[int] = 7


class LatentValueSquares(_LatentValues):
    """Latents, and the square of the clipped error of one's own head on them."""

    loss: ClassVar[str] = "squared"
    number: ClassVar[int] = 8
    power: ClassVar[int] = 2
