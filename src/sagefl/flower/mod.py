"""The mod: every model to train on is judged before the client sees it; the client's context remembers the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord

from ..errors import UsageError
from ..selection.guard import NOT_FINITE, Guard, Judgement, bounded

Losses = Callable[[ArrayRecord, Context], npt.ArrayLike]
Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]
MODEL, MEMORY = "sagefl.guard.model", "sagefl.guard"  # in the client's state


class AuditEntry(NamedTuple):
    """A verdict and what the audit says besides."""

    round: int  # as the client counts, from 0
    verdict: Judgement
    size: int  # bytes of the received model
    kept: list[float]  # losses of the model that the client goes on with; empty while there is none


def guard(
    losses: Losses,
    *,
    tolerance: float = 0.05,
    delta: float = 0.05,
    audit: str | Path | None = None,
    rounds: int | None = None,
    key: str = "",
) -> Mod:
    """A mod that hands the client the model it accepted last where the one received is proven worse.

    With probability at least 1 - `delta`, over the whole run of a client, no model is refused whose expected loss on
    new data of this client is at most `tolerance` above that of the model accepted before it (`sagefl.selection.guard`
    has the argument and what it assumes). The first model is accepted, one that is not finite refused without a test.

    Only what is sent for training is judged. An evaluation is of the server's model and passes, and so do replies: the
    server is not told.

    Args:
        losses: A function of a model's `ArrayRecord` and the client's `Context` that gives the loss on each of the
            client's anchors, in [0, 1]: always the same anchors in the same order, which nobody trains on.
        tolerance: How much worse a model may be, in units of the loss.
        delta: The chance that a client ever refuses a model that is not worse beyond the tolerance.
        audit: A folder for the record of every client, which `sagefl view` shows; none is kept without one.
        rounds: How many rounds the run has, for the record; default: what Flower's config calls `num-server-rounds`.
        key: Which of several array records of a message is the model.
    """
    begun = Guard(tolerance, delta)

    def judged(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        if not message.metadata.message_type.startswith(MessageType.TRAIN):
            return call_next(message, context)
        name = _model_in(message, key)
        received = message.content[name]
        verdict = _judge(begun, received, context, losses)
        if audit is not None:
            from .audit import enter

            memory, size = context.state[MEMORY], sum(array.numpy().nbytes for array in received.values())
            enter(Path(audit), context, begun, rounds, AuditEntry(memory["seen"] - 1, verdict, size, memory["losses"]))
        if verdict.refused and MODEL in context.state:
            message.content[name] = _copied(context.state[MODEL])
        return call_next(message, context)

    return judged


def _judge(begun: Guard, received: ArrayRecord, context: Context, losses: Losses) -> Judgement:
    """Judge, and remember in the client's state: how often, and the accepted model with its losses."""
    held: Any = context.state.get(MEMORY) or {"seen": 0, "judged": 0, "refused": 0, "losses": []}
    memory = dict(held)
    now = Guard(begun.tolerance, begun.delta, memory["judged"], memory["refused"])
    if all(np.isfinite(array).all() for array in received.to_numpy_ndarrays() if array.dtype.kind == "f"):
        found = bounded(losses(_copied(received), context))
        now, verdict = now.judge(memory["losses"] or None, found)
        if not verdict.refused:
            context.state[MODEL] = _copied(received)
            memory["losses"] = found.tolist()
    else:
        verdict = NOT_FINITE
    memory |= {"seen": memory["seen"] + 1, "judged": now.judged, "refused": now.refused}
    context.state[MEMORY] = MetricRecord(memory)
    return verdict


def _model_in(message: Message, key: str) -> str:
    """The name of the record that holds the model."""
    names = list(message.content.array_records)
    if key in names:
        return key
    if key or len(names) != 1:
        raise UsageError(
            f"a message to train on has the array records {', '.join(map(repr, names)) or 'none'}: "
            "say by `key` which of them is the model"
        )
    return str(names[0])


def _copied(record: ArrayRecord) -> ArrayRecord:
    """The same arrays in a record of their own: Flower's older clients empty the one they are given."""
    return ArrayRecord(dict(record.items()))
