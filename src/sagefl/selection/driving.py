"""Two simple drivers: one calls a function that asks a single peer, the other replays a recorded matrix.

Code that batches, retries or waits for a network has a loop of its own around `Decision`, as the simulator and the
node do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..streams import stream
from .decision import Decision, DecisionError
from .outcome import Outcome, State
from .requests import Array, Peer, Probe
from .scoring import LABEL_ERRORS, Scoring
from .selector import Selector

Ask = Callable[[Peer, npt.NDArray[np.intp]], npt.ArrayLike]


def drive(decision: Decision, ask: Ask, *, scoring: Scoring = LABEL_ERRORS) -> Outcome:
    """Answer every probe by asking each peer exactly what the rule wants to know, and return the outcome.

    `ask(peer, anchors)` gives one peer's losses on the anchors with these numbers. `scoring` says what it asks the peer
    for and how it scores the answers; a rule that wants something else is refused, because errors of labels are no
    evidence about latents. A rule that remembers returns its memory in `outcome.state`: pass it to the next `begin`.
    """
    while (probe := decision.request) is not None:
        _check(probe, decision.selector, scoring)
        assert isinstance(probe, Probe)
        losses: Array = np.full(probe.shape, np.nan)
        asked = np.ones(probe.shape, dtype=bool) if probe.mask is None else probe.mask
        for row, peer in enumerate(probe.peers):
            columns = np.flatnonzero(asked[row])
            if len(columns):
                losses[row, columns] = _one_per_anchor(ask(peer, probe.start + columns), len(columns), peer)
        decision.answer(losses)
    return decision.outcome


def _check(request: object, rule: Selector, scoring: Scoring) -> None:
    if not isinstance(request, Probe):
        raise DecisionError(
            f"{type(rule).__name__} asks for {type(request).__name__}, which is more than losses: answer its requests "
            "in a loop of your own"
        )
    if request.scoring != scoring:
        wanted = f"sagefl.scoring({request.scoring.kind!r}, {request.scoring.loss!r})"
        raise DecisionError(
            f"{type(rule).__name__} asks for {request.scoring}, but `ask` gives {scoring}: "
            f"say scoring={wanted} once it does, or change the rule"
        )


def _one_per_anchor(losses: npt.ArrayLike, count: int, peer: Peer) -> Array:
    values = np.asarray(losses, dtype=np.float64)
    if values.shape != (count,):
        raise DecisionError(f"ask({peer!r}, ...) must give {count} losses, one per anchor, got shape {values.shape}")
    return values


def replay_rounds(
    selector: Selector, losses: npt.ArrayLike, rounds: int, seed: int = 0, *, peers: Sequence[Peer] | None = None
) -> list[Outcome]:
    """What `selector` decides round after round if peers answer the same every time: what it remembers builds up.

    The anchors are shuffled anew in every round, as a rule that remembers needs it.
    """
    matrix: Array = np.asarray(losses, dtype=np.float64)
    outcomes: list[Outcome] = []
    state: State | None = None
    for t in range(rounds):
        order = stream(seed, "anchors", t).permutation(matrix.shape[-1])
        outcome = replay(
            selector, matrix[:, order], (seed, t), peers=peers, state=state, round=t, rounds=rounds, ever=len(matrix)
        )
        outcomes.append(outcome)
        state = state if outcome.state is None else outcome.state
    return outcomes


def replay(
    selector: Selector,
    losses: npt.ArrayLike,
    seed: int | tuple[int, ...] = 0,
    *,
    peers: Sequence[Peer] | None = None,
    state: State | None = None,
    round: int = 0,
    rounds: int | None = None,
    me: Hashable = None,
    ever: int | None = None,
    mine: float | None = None,
) -> Outcome:
    """What `selector` decides on a recorded (peers x anchors) matrix; peers are named 0..d-1 unless given."""
    matrix: Array = np.asarray(losses, dtype=np.float64)
    if matrix.ndim != 2:
        raise DecisionError(f"expected a (peers x anchors) matrix, got shape {matrix.shape}")
    names = tuple(range(len(matrix))) if peers is None else tuple(peers)
    if len(names) != len(matrix):
        raise DecisionError(f"{len(names)} peer names for {len(matrix)} rows of losses")
    decision = selector.begin(
        names, matrix.shape[1], seed, state=state, round=round, rounds=rounds, me=me, ever=ever, mine=mine
    )
    while (probe := decision.request) is not None:
        if not isinstance(probe, Probe):
            raise DecisionError(
                f"{type(selector).__name__} asks for {type(probe).__name__}: recorded losses answer probes only"
            )
        rows: Any = slice(None) if probe.peers == names else [decision.ledger.rows[p] for p in probe.peers]
        decision.answer(matrix[rows, probe.start : probe.stop])
    return decision.outcome
