"""The guard: is the model that was sent to me worse than the last one I accepted, beyond a tolerance?

For whoever gets *one* model a round and has nobody to choose from, as a client of a central server. Both models answer
all n anchors, so anchor i gives a paired difference, and the shifted one is bet on:

    D_i = loss of the received model - loss of the accepted one   in [-1, 1]
    Y_i = (D_i - tolerance) / (1 + tolerance)                     E Y <= 0 unless it is worse beyond the tolerance
    W   = mean over stakes g of prod_i (1 + g Y_i)                (`sagefl.selection.pool.log_e_value`)

What is certified: the risk on *new data of this client*, the expected loss on a fresh draw from where its anchors come
from. If the received model is not worse by more than the tolerance, W has mean at most 1, so it reaches 1/level with
probability at most `level` (Markov).

The level over the run: with probability at least 1 - delta, no model is *ever* refused that was not worse beyond the
tolerance, however many rounds there are. The same anchors judge every round, and models depend on earlier verdicts, so
rounds are not independent of the anchors. But the anchors reach a model through those verdicts alone: for each fixed
sequence of verdicts both models are fixed without looking at an anchor. So the union is over sequences, and that of
t - 1 verdicts with k refusals gets

    level = delta / (t^2 (k + 1) (k + 2) binomial(t - 1, k)),

which adds up to delta over all of them. While nothing is refused this costs 2 log t + log 2 of log-wealth.

Assumed: anchors are independent draws; nobody trains on them, and nothing but the verdicts comes from them (no early
stopping, no metric that steers the server). Not promised: that a bad model is always noticed, which takes enough
anchors (`Guard.needed`), nor that many small steps for the worse are: each is compared with the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .betting import shifted
from .options import check
from .outcome import Outcome, Reason, Stage
from .pool import log_e_value
from .requests import Array, Peer

TEST = "guard"


class Judgement(NamedTuple):
    """What became of a received model."""

    refused: bool
    stage: Stage  # the look at the evidence

    def outcome(self, sender: Peer) -> Outcome:
        """As a decision for the audit: pull from the only sender there is, or stay with what one has."""
        taken = () if self.refused else (sender,)
        reason = Reason(self.stage.fired)
        n = self.stage.anchors
        return Outcome(taken, False, reason, anchors=n, evaluations=n, inspected=(sender,), trace=(self.stage,))


NOT_FINITE = Judgement(True, Stage(0, Reason.HOME, TEST))
"""On a model with infinite or undefined numbers, which needs no evidence."""


@dataclass(frozen=True)
class Guard:
    """One client's guard and its verdicts so far. `judge` returns a new one; nothing is changed in place."""

    tolerance: float = 0.05  # how much worse a model may be, in units of the loss
    delta: float = 0.05  # chance of ever refusing a model that is not worse beyond the tolerance
    judged: int = 0  # models judged so far
    refused: int = 0  # of which were refused

    def __post_init__(self) -> None:
        check("tolerance", self.tolerance, float, ge=0, lt=1)
        check("delta", self.delta, float, gt=0, lt=1)
        check("judged", self.judged, int, ge=0)
        check("refused", self.refused, int, ge=0, le=self.judged)

    @property
    def level(self) -> float:
        """The share of delta for the next verdict, given those before it."""
        t, k = self.judged + 1, self.refused
        return self.delta / (t * t * (k + 1) * (k + 2) * comb(self.judged, k))

    @property
    def needed(self) -> float:
        """Log-wealth that refuses the next model."""
        return -log(self.level)

    def judge(self, accepted: npt.ArrayLike | None, received: npt.ArrayLike) -> tuple[Guard, Judgement]:
        """Judge a received model by both models' losses in [0, 1], anchor by anchor in the same order.

        The first one, with none accepted before it, is accepted unjudged. A loss that is not a number counts as 1: a
        model that cannot answer is wrong.
        """
        new = bounded(received)
        if accepted is None:
            return self, Judgement(False, Stage(new.size, Reason.ONLY, TEST, risks=(float(new.mean()),)))
        old = bounded(accepted)
        if old.shape != new.shape:
            raise UsageError(
                f"the accepted model was scored on {old.size} anchors, the received one on {new.size}: "
                "score every model on the same anchors in the same order"
            )
        wealth = float(log_e_value(shifted(new - old, self.tolerance)))
        refused = wealth >= self.needed
        stage = Stage(
            anchors=old.size,
            fired=Reason.HOME if refused else Reason.ONLY,
            test=TEST,
            risks=(float(new.mean()),),
            advantage=float(old.mean() - new.mean()),
            width=self.tolerance,
            against=(wealth,),
            threshold=self.needed,
        )
        after = replace(self, judged=self.judged + 1, refused=self.refused + int(refused))
        return after, Judgement(refused, stage)


def bounded(losses: npt.ArrayLike) -> Array:
    """Losses as they are judged, or a sentence that says what is wrong with them."""
    found: Array = np.nan_to_num(np.asarray(losses, dtype=np.float64), nan=1.0)
    if found.ndim != 1 or not found.size:
        raise UsageError(f"losses are one number per anchor, for at least one anchor; got shape {found.shape}")
    if found.min() < 0 or found.max() > 1:
        raise UsageError(
            f"losses must lie in [0, 1], got {found.min():g} to {found.max():g}: take 0-1 errors, or clip and scale"
        )
    return found
