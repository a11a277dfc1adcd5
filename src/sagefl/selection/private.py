"""Private answers: randomised response on returned labels, usable by every rule without debiasing.

A peer perturbs each label before it answers. For k classes at privacy epsilon per answer:

* `k-rr`: the true label with probability p = e^eps/(e^eps + k - 1), any other with q = 1/(e^eps + k - 1) each;
* `bitwise`: the one-hot label, every bit kept with probability e^(eps/2)/(1 + e^(eps/2)); the receiver reads bit y.

The observed 0-1 loss X~ has E X~ = (1 - p) + (p - q) X, so differences between peers shrink by (p - q) and nothing
else changes: feed X~ itself with M = 1 and multiply lambda by (p - q) (`priced_for`). That is the same comparison as
debiasing to Z = (X~ - (1 - p))/(p - q) and widening the radius by M_eff = 1/(p - q). Bitwise is better iff
eps < 2 ln((k - 2)/2).

Answers are memoised per (snapshot, input): the noise is a keyed function of both, so the very same question gives
nothing new away. An input that differs in one bit gets fresh noise, though, and many of them average it out: epsilon is
per answer and composes over anchors and rounds. `PrivacyAccount` adds it up; whoever answers must set it a limit.
(Warner 1965; Kairouz, Oh, Viswanath 2016; Erlingsson, Pihur, Korolova 2014 for the two mechanisms.)
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from math import exp, expm1
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from .options import check
from .requests import Peer
from .scoring import Head, LabelErrors, Outputs, Scoring, label_bytes
from .selector import Selector

Labels = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
Uniforms = npt.NDArray[np.float64]
Rule = TypeVar("Rule", bound=Selector)
Mechanism = Literal["k-rr", "bitwise"]

IN_RISK_UNITS = ("probe_cost", "margin")  # options that are compared with differences of risks
SHORTEST_SECRET = 16  # bytes
OF_COPIES = (
    "a private node gives all copies of an input one noisy answer, so that chance counts once for each and a rule that "
    "remembers errs far above delta: drop duplicates from the data"
)


@dataclass(frozen=True)
class RandomisedResponse:
    """The mechanism: how a label is perturbed, and what that does to an observed loss."""

    epsilon: float
    classes: int
    mechanism: Mechanism = "k-rr"

    def __post_init__(self) -> None:
        check("mechanism", self.mechanism, Mechanism)
        check("epsilon", self.epsilon, float, gt=0)
        check("classes", self.classes, int, ge=2)

    @property
    def p(self) -> float:
        """Probability that a right answer is observed as right."""
        if self.mechanism == "bitwise":
            return 1 / (1 + exp(-self.epsilon / 2))
        return 1 / (1 + (self.classes - 1) * exp(-self.epsilon))

    @property
    def q(self) -> float:
        """Probability that a wrong answer is observed as right."""
        if self.mechanism == "bitwise":
            return exp(-self.epsilon / 2) / (1 + exp(-self.epsilon / 2))
        return exp(-self.epsilon) / (1 + (self.classes - 1) * exp(-self.epsilon))

    @property
    def contrast(self) -> float:
        """p - q: by how much differences between peers shrink."""
        scaled = self.epsilon / 2 if self.mechanism == "bitwise" else self.epsilon
        others = 1 if self.mechanism == "bitwise" else self.classes - 1
        return -expm1(-scaled) / (1 + others * exp(-scaled))  # the difference itself has no digits left at tiny epsilon

    @property
    def effective_bound(self) -> float:
        """M_eff = 1/(p - q): range of the debiased loss."""
        return 1 / self.contrast

    @property
    def draws(self) -> int:
        """Uniform draws that one answer takes."""
        return self.classes if self.mechanism == "bitwise" else 1

    @property
    def answer_bytes(self) -> int:
        """What one answer takes on the wire."""
        if self.mechanism == "bitwise":
            return -(-self.classes // 8)
        return label_bytes(self.classes)

    def debiased(self, observed: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Z = (X~ - (1 - p))/(p - q): an unbiased loss with a wider range."""
        losses: npt.NDArray[np.float64] = (np.asarray(observed, dtype=np.float64) - (1 - self.p)) / self.contrast
        return losses

    def perturb(self, labels: npt.NDArray[Any], uniforms: Uniforms) -> Labels | Bits:
        """Noisy answers from uniform draws in [0, 1), a row of `draws` per label."""
        if self.mechanism == "bitwise":
            truth = np.arange(self.classes) == labels[:, None]
            return np.asarray(truth ^ (uniforms >= self.p), dtype=np.uint8)
        # A draw beyond p lands on one of the other labels, which share the rest of the unit interval evenly.
        u = uniforms[:, 0]
        other = np.clip((u - self.p) / max(self.q, 1e-300), 0, self.classes - 2).astype(np.int64)
        return np.where(u < self.p, labels, other + (other >= labels)).astype(np.int64)

    def losses(self, answers: Labels | Bits, truth: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """X~ at the receiver: whether the answer (or its bit y) speaks against the true label."""
        if self.mechanism == "bitwise":
            return np.asarray(answers[np.arange(len(truth)), truth] == 0, dtype=np.float64)
        return np.asarray(answers != truth, dtype=np.float64)


@dataclass(frozen=True)
class PrivateAnswers:
    """A peer's layer over its model: the same (snapshot, input) always gets the same noisy answer.

    `secret` stays with the peer: whoever knows it can take the noise away. The noise is a keyed hash (SHAKE-256) of
    snapshot and input, so nothing has to be stored and a restart gives the same answers.
    """

    mechanism: RandomisedResponse
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < SHORTEST_SECRET:
            raise ValueError(f"the secret needs at least {SHORTEST_SECRET} random bytes, got {len(self.secret)}")

    def answer(self, labels: npt.NDArray[Any], snapshot: str, inputs: npt.NDArray[Any]) -> Labels | Bits:
        """Perturb the labels that `inputs` got from the model of digest `snapshot`."""
        if len(labels) != len(inputs):
            raise ValueError(f"{len(labels)} labels for {len(inputs)} inputs")
        return self.mechanism.perturb(labels, self._uniforms(snapshot, inputs))

    def _uniforms(self, snapshot: str, inputs: npt.NDArray[Any]) -> Uniforms:
        content, draws = np.ascontiguousarray(inputs), self.mechanism.draws
        # Another mechanism or epsilon gets fresh noise, or two answers together would give away more than their sum.
        header = f"{self.mechanism} {content.dtype.str} {content.shape[1:]} {len(snapshot)} {snapshot}"
        keyed = hashlib.shake_256(self.secret + header.encode())
        noise = bytearray()
        for x in content:
            one = keyed.copy()
            one.update(x.tobytes())
            noise += one.digest(8 * draws)
        words = np.frombuffer(bytes(noise), dtype="<u8").reshape(len(content), draws)
        return np.asarray((words >> np.uint64(11)) * 2.0**-53)


@dataclass
class PrivacyAccount:
    """What a peer has given away, by basic composition: epsilon times the number of distinct answers.

    An answer repeated from memory gives nothing new away, so whoever enters answers leaves those out.
    """

    epsilon: float
    answers: dict[Peer, int] = field(default_factory=dict)  # to each receiver, in all
    this_round: dict[Peer, int] = field(default_factory=dict)

    def answered(self, receiver: Peer, count: int) -> None:
        """Enter distinct answers to one receiver."""
        self.answers[receiver] = self.answers.get(receiver, 0) + count
        self.this_round[receiver] = self.this_round.get(receiver, 0) + count

    def next_round(self) -> None:
        """Begin a new round."""
        self.this_round = {}

    def report(self) -> dict[str, float]:
        """Epsilon per answer; this round and in total, towards the receiver who asked most and towards all together."""
        return {
            "per_answer": self.epsilon,
            "round_worst": self.epsilon * max(self.this_round.values(), default=0),
            "round_total": self.epsilon * sum(self.this_round.values()),
            "worst": self.epsilon * max(self.answers.values(), default=0),
            "total": self.epsilon * sum(self.answers.values()),
        }


def priced_for(rule: Rule, mechanism: RandomisedResponse) -> Rule:
    """The rule for losses under this mechanism: lambda (and a margin) times (p - q), everything else as it is.

    Differences shrink by that factor, risks do not: a rule that holds peers against a fixed one is told (`noisy`).
    """
    changes: dict[str, Any] = {
        name: getattr(rule, name) * mechanism.contrast for name in IN_RISK_UNITS if hasattr(rule, name)
    }
    if hasattr(rule, "noisy"):
        changes["noisy"] = True
    return dataclasses.replace(rule, **changes) if changes else rule


@dataclass(frozen=True)
class PrivateLabels(LabelErrors):
    """Labels after randomised response: what travels, and the loss X~ that the receiver observes."""

    mechanism: RandomisedResponse

    def size(self, outputs: Outputs) -> int:
        """A label, or the bits of all classes."""
        return self.mechanism.answer_bytes

    def encode(self, answers: npt.NDArray[Any], outputs: Outputs) -> bytes:
        """Labels as they are, bits packed."""
        return np.packbits(answers, axis=1).tobytes() if self._bitwise else super().encode(answers, outputs)

    def _unpack(self, raw: bytes, count: int, outputs: Outputs) -> npt.NDArray[Any]:
        if not self._bitwise:
            return super()._unpack(raw, count, outputs)
        packed = np.frombuffer(raw, np.uint8).reshape(count, self.size(outputs))
        return np.unpackbits(packed, axis=1, count=outputs.classes)

    def score(self, answers: Labels | Bits, truth: npt.NDArray[Any], head: Head | None = None) -> npt.NDArray[Any]:
        """As the mechanism observes it."""
        return self.mechanism.losses(answers, truth)

    @property
    def _bitwise(self) -> bool:
        return self.mechanism.mechanism == "bitwise"


def perturbed(form: Scoring, mechanism: RandomisedResponse | None) -> Scoring:
    """A form of answer as it travels and is scored where peers perturb their labels by `mechanism`."""
    if mechanism is None:
        return form
    if not form.private:
        raise ValueError(f"peers perturb labels alone, but were asked for {form.kind}")
    return PrivateLabels(mechanism)
