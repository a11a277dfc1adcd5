"""Whatever a neighbour sends is checked here before it is used. Pure functions; a bad one raises `Fault`.

An answer must have the right size, values and snapshot; a block must have the layout of this node's model, the digest
that answered the probes, finite values and a norm within bounds. With representation probes the latents are computed
again from the block. With label probes that is impossible: the head that made the labels stays with the peer.
"""

from __future__ import annotations

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
from .errors import Fault
from .snapshots import block_digest
from .wire import node_pb2 as wire

PROTOCOL = 2  # raise it whenever peers of the previous version would misunderstand each other
SLACK = 64 * 1024  # safetensors header: names, shapes and offsets
BATCH = 16  # anchors that a neighbour must take at a time: one by one, a round of probes would never end
TOLERANCE = 1e-3  # latents of one model on two machines differ by far less, of two models by far more


def fits(
    description: wire.Description,
    layout: Layout,
    classes: int,
    shape: tuple[int, ...],
    dtype: str,
    mechanism: RandomisedResponse | None,
) -> None:
    """Whether a neighbour's model and answers can be compared and mixed with ours."""
    if description.protocol != PROTOCOL:
        raise Fault(
            "other-protocol",
            f"it speaks protocol {description.protocol}, this node {PROTOCOL}: update the one with the smaller number",
        )
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
