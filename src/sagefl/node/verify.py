"""Whatever a neighbour sends is checked here before it is used; what is bad raises `Fault`.

An answer must have the right size, values and snapshot; a block must have the layout of this node's model, the digest
that answered the probes, finite values and a norm within bounds. With representation probes the latents are computed
again from the block. With label probes that is impossible: the head that made the labels stays with the peer.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from ..learning.layout import Layout
from ..selection.private import RandomisedResponse
from ..selection.scoring import BadAnswerError, Outputs, Scoring
from .config import ExchangeConfig
from .errors import Fault
from .snapshots import block_digest
from .wire import node_pb2 as wire

PROTOCOL_HEADER = "sagefl-protocol"  # in every call; who does not say it speaks 2, the last version without it
PROTOCOL = 2  # raise it whenever peers of the previous version would misunderstand each other
SLACK = 64 * 1024  # safetensors header: names, shapes and offsets
BATCH = 16  # anchors that a neighbour must take at a time: one by one, a round of probes would never end
HISTORY = 16  # rounds of one's own norms that are remembered
SMALLEST = 0.05  # root mean square of a layer that begins at or near zero, as a bias does
TOLERANCE = 1e-3  # latents of one model on two machines differ by far less, of two models by far more


def other_protocol(version: object) -> str | None:
    """What is wrong with a peer that speaks this version; None: nothing."""
    if str(version) == str(PROTOCOL):
        return None
    return f"speaks protocol {str(version)[:20]}, this node {PROTOCOL}: update the one with the smaller number"


def fits(
    description: wire.Description,
    layout: Layout,
    classes: int,
    shape: tuple[int, ...],
    dtype: str,
    mechanism: RandomisedResponse | None,
) -> None:
    """Whether a neighbour's model and answers can be compared and mixed with ours."""
    if (why := other_protocol(description.protocol)) is not None:
        raise Fault("other-protocol", f"it {why}")
    if description.layout != layout.digest:
        raise Fault("other-layout", "its model has another layout: both must use the same model and shared part")
    told = (description.classes, tuple(description.input), description.dtype)
    if told != (classes, shape, dtype):
        raise Fault("other-data", f"it predicts {told}, this node {(classes, shape, dtype)}")
    ours = ("none", 0.0) if mechanism is None else (mechanism.mechanism, mechanism.epsilon)
    if (description.mechanism, description.epsilon) != ours:
        raise Fault(
            "other-privacy", f"it perturbs labels by {description.mechanism} {description.epsilon:g}, not {ours}"
        )
    if description.max_anchors < BATCH:
        raise Fault("small-batches", f"it takes {description.max_anchors} anchors at a time, expected {BATCH} or more")
    if description.digest and len(description.digest) != 32:
        raise Fault("malformed", f"its digest has {len(description.digest)} bytes, expected 32")


def decode_answers(form: Scoring, raw: bytes, count: int, outputs: Outputs) -> npt.NDArray[Any]:
    """A neighbour's answers as an array."""
    try:
        return form.decode(raw, count, outputs)
    except BadAnswerError as error:
        raise Fault(error.kind, str(error)) from None


def checked_losses(losses: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The losses that answers led to; the decision itself would refuse those outside [0, 1], and end the node."""
    inside = (losses >= 0) & (losses <= 1)  # NaN is not
    if not inside.all():
        raise Fault("wrong-values", f"its answers lead to a loss of {losses[~inside][0]:.3g}, expected 0 to 1")
    return losses


def decode_values(what: str, raw: bytes, most: int) -> npt.NDArray[np.float32]:
    """A small value that a neighbour publishes, of at most `most` numbers."""
    if not raw or len(raw) % 4 or len(raw) > 4 * most:
        raise Fault("wrong-shape", f"{len(raw)} bytes for {what}, expected 4 to {4 * most}")
    values = np.frombuffer(raw, "<f4")
    if not np.isfinite(values).all():
        raise Fault("not-finite", f"its {what} holds NaN or infinity")
    return values


def decode_block(raw: bytes, layout: Layout, digest: bytes, *, full: bool = False) -> Tensor:
    """A fresh row with the parameters of `raw`, whose shared block must be the one that `digest` names."""
    try:
        tensors = load(raw)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise Fault("malformed", f"its model is not safetensors: {error}") from None
    slots = [slot for slot in layout.slots if full or slot.start < layout.shared_stop]
    if {s.name: s.shape for s in slots} != {n: tuple(t.shape) for n, t in tensors.items()}:
        raise Fault("other-layout", "its model has other parameters than its layout says")
    row = torch.zeros(layout.width)
    for slot in slots:
        tensor = tensors[slot.name]
        if tensor.dtype != slot.dtype:
            raise Fault("other-layout", f"parameter {slot.name} is {tensor.dtype}, expected {slot.dtype}")
        if not torch.isfinite(tensor).all():
            raise Fault("not-finite", "its model holds NaN or infinity")
        slot.of(row).copy_(tensor)
    if block_digest(row[layout.shared], layout) != digest:
        raise Fault("wrong-digest", "its model is not the one that answered the probes")
    return row


def same_latents(answered: npt.NDArray[Any], computed: npt.NDArray[Any]) -> None:
    """Whether the block makes the latents that were answered; else the peer answered with another model."""
    theirs, again = answered.reshape(len(answered), -1), computed.reshape(len(computed), -1)
    if theirs.shape != again.shape or not np.isfinite(again).all():
        raise Fault("latent-mismatch", "the model it sent does not make latents of the shape it answered")
    off = np.abs(theirs - again)
    wrong = off > TOLERANCE * np.maximum(1.0, np.abs(again))  # each by its own size: a large one excuses no other
    if wrong.any():
        raise Fault(
            "latent-mismatch",
            f"the model it sent makes other latents than it answered ({wrong.mean():.1%} of them, by up to "
            f"{float(off[wrong].max()):.3g})",
        )


class Norms:
    """How large a block may be, layer by layer: against this node's own history, and against the initial weights.

    The first bound keeps a block from drowning one's own. Alone it could be stretched round after round, since what is
    merged becomes one's own; nobody can stretch the second, because all began from the same weights.
    """

    def __init__(self, layout: Layout, initial: Tensor, bounds: ExchangeConfig) -> None:
        self.layout, self.ratio, self.growth = layout, bounds.norm_ratio, bounds.norm_growth
        self._shared = [slot for slot in layout.slots if slot.start < layout.shared_stop]
        norms = self._of(initial)
        self._initial = [max(n, SMALLEST * slot.size**0.5) for n, slot in zip(norms, self._shared, strict=True)]
        self._history: deque[list[float]] = deque([list(self._initial)], HISTORY)

    def trained(self, row: Tensor) -> None:
        """Remember what a round of this node's own training has come to."""
        if torch.isfinite(row[self.layout.shared]).all():
            self._history.append(self._of(row))

    def check(self, row: Tensor) -> None:
        """Refuse a block with a layer out of all proportion to one's own, or to where everybody began."""
        for slot, norm, initial, own in zip(
            self._shared, self._of(row), self._initial, zip(*self._history, strict=True), strict=True
        ):
            usual = max(median(own), SMALLEST * slot.size**0.5)
            most = min(self.ratio * usual, self.growth * initial)
            if norm >= most:
                raise Fault(
                    "norm-bound",
                    f"its layer {slot.name} has norm {norm:.4g}; ours has {usual:.4g}, at first "
                    f"{initial:.4g}: at most {most:.4g} is taken",
                )

    def state(self) -> list[list[float]]:
        """For a checkpoint."""
        return [list(norms) for norms in self._history]

    def restore(self, state: list[list[float]]) -> None:
        """Go on from a checkpoint."""
        if state and all(len(norms) == len(self._shared) for norms in state):
            self._history = deque(state, HISTORY)

    def _of(self, row: Tensor) -> list[float]:
        return [float(row[slot.start : slot.start + slot.size].double().norm()) for slot in self._shared]
