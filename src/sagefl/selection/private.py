"""Private answers: randomised response on returned labels, usable by every rule without debiasing.

A peer perturbs each label before it answers. For k classes at privacy epsilon per answer:

* ``k-rr``: the true label with probability p = e^eps/(e^eps + k - 1), any other with q = 1/(e^eps + k - 1) each;
* ``bitwise``: the one-hot label, every bit kept with probability e^(eps/2)/(1 + e^(eps/2)); the receiver reads bit y.

The observed 0-1 loss X~ has E X~ = (1 - p) + (p - q) X, so differences between peers shrink by (p - q) and nothing
else changes: feed X~ itself with M = 1 and multiply lambda by (p - q). That is the same comparison as debiasing to
Z = (X~ - (1 - p))/(p - q) and widening the radius by M_eff = 1/(p - q). Bitwise is better iff eps < 2 ln((k - 2)/2).

Answers are memoised per (snapshot, input): the noise is a keyed function of both, so asking again cannot average it
away. Epsilon is per answer and composes over anchors and rounds; `PrivacyAccount` adds it up.
(Warner 1965; Kairouz, Oh, Viswanath 2016; Erlingsson, Pihur, Korolova 2014 for the two mechanisms.)
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from math import exp
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from .requests import Peer
from .selector import Selector
from .staged import one_of

__all__ = ["PrivacyAccount", "PrivateAnswers", "RandomisedResponse", "priced_for"]

Labels = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
Rule = TypeVar("Rule", bound=Selector)


@dataclass(frozen=True)
class RandomisedResponse:
    """The mechanism: how a label is perturbed, and what that does to an observed loss."""

    epsilon: float
    classes: int
    mechanism: Literal["k-rr", "bitwise"] = "k-rr"

    def __post_init__(self) -> None:
        one_of("mechanism", self.mechanism, ("k-rr", "bitwise"))
        if not self.epsilon > 0:
            raise ValueError(f"epsilon must be positive, got {self.epsilon}")
        if self.classes < 2:
            raise ValueError(f"randomised response needs at least two classes, got {self.classes}")

    @property
    def p(self) -> float:
        """Probability that a right answer is observed as right."""
        if self.mechanism == "bitwise":
            return 1 / (1 + exp(-self.epsilon / 2))
        return exp(self.epsilon) / (exp(self.epsilon) + self.classes - 1)

    @property
    def q(self) -> float:
        """Probability that a wrong answer is observed as right."""
        return 1 - self.p if self.mechanism == "bitwise" else 1 / (exp(self.epsilon) + self.classes - 1)

    @property
    def contrast(self) -> float:
        """p - q: by how much differences between peers shrink."""
        return self.p - self.q

    @property
    def effective_bound(self) -> float:
        """M_eff = 1/(p - q): range of the debiased loss."""
        return 1 / self.contrast

    def debiased(self, observed: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Z = (X~ - (1 - p))/(p - q): an unbiased loss with a wider range."""
        losses: npt.NDArray[np.float64] = (np.asarray(observed, dtype=np.float64) - (1 - self.p)) / self.contrast
        return losses

    def answer_bytes(self) -> int:
        """What one answer takes on the wire."""
        return -(-self.classes // 8) if self.mechanism == "bitwise" else 1

    def perturb(self, labels: Labels, uniforms: npt.NDArray[np.float64]) -> Labels | Bits:
        """Noisy answers from uniform draws: one per label (k-rr), or one per label and class (bitwise)."""
        if self.mechanism == "bitwise":
            truth = np.arange(self.classes) == labels[:, None]
            return np.asarray(truth ^ (uniforms >= self.p), dtype=np.uint8)
        # The other labels share what is left of the unit interval in equal parts.
        other = np.minimum(((uniforms - self.p) / (1 - self.p) * (self.classes - 1)).astype(np.int64), self.classes - 2)
        return np.where(uniforms < self.p, labels, other + (other >= labels))

    def losses(self, answers: Labels | Bits, truth: Labels) -> npt.NDArray[np.float64]:
        """X~ at the receiver: whether the answer (or its bit y) speaks against the true label."""
        if self.mechanism == "bitwise":
            return np.asarray(answers[np.arange(len(truth)), truth] == 0, dtype=np.float64)
        return np.asarray(answers != truth, dtype=np.float64)


@dataclass(frozen=True)
class PrivateAnswers:
    """A peer's layer over its model: the same (snapshot, input) always gets the same noisy answer.

    `secret` stays with the peer. The noise comes from a keyed hash of snapshot and input, so nothing has to be stored
    and a restart gives the same answers.
    """

    mechanism: RandomisedResponse
    secret: bytes

    def answer(self, labels: Labels, snapshot: str, inputs: npt.NDArray[Any]) -> Labels | Bits:
        """Perturb the labels that `inputs` got from the model of digest `snapshot`."""
        draws = 1 if self.mechanism.mechanism == "k-rr" else self.mechanism.classes
        rows = np.stack([self._uniforms(snapshot, x, draws) for x in inputs])
        return self.mechanism.perturb(labels, rows[:, 0] if draws == 1 else rows)

    def _uniforms(self, snapshot: str, x: npt.NDArray[Any], count: int) -> npt.NDArray[np.float64]:
        content = np.ascontiguousarray(x)
        key = hashlib.blake2b(content.tobytes(), key=self.secret[:64], digest_size=16, salt=b"sagefl-answers")
        key.update(f"{content.dtype}{content.shape}{snapshot}".encode())
        return np.random.default_rng(int.from_bytes(key.digest(), "big")).random(count)


@dataclass
class PrivacyAccount:
    """What a peer has given away, by basic composition: epsilon times the number of distinct answers."""

    epsilon: float
    answers: dict[Peer, int] = field(default_factory=dict)  # to each receiver, in all
    this_round: dict[Peer, int] = field(default_factory=dict)

    def answered(self, receiver: Peer, count: int) -> None:
        """Count answers to one receiver."""
        self.answers[receiver] = self.answers.get(receiver, 0) + count
        self.this_round[receiver] = self.this_round.get(receiver, 0) + count

    def next_round(self) -> None:
        """Begin a new round."""
        self.this_round = {}

    def report(self) -> dict[str, float]:
        """Epsilon per answer, this round (towards the receiver who asked most, and in all), and in total."""
        return {
            "per_answer": self.epsilon,
            "round_worst": self.epsilon * max(self.this_round.values(), default=0),
            "round_total": self.epsilon * sum(self.this_round.values()),
            "worst": self.epsilon * max(self.answers.values(), default=0),
            "total": self.epsilon * sum(self.answers.values()),
        }


def priced_for(rule: Rule, mechanism: RandomisedResponse) -> Rule:
    """The rule for losses under this mechanism: lambda times (p - q), everything else as it is."""
    cost = getattr(rule, "probe_cost", None)
    if cost is None:
        return rule
    changes: dict[str, Any] = {"probe_cost": cost * mechanism.contrast}
    return dataclasses.replace(rule, **changes)
