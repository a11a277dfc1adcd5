"""Before work begins: what a run will consist of, and whether it can mean what it seems to.

What a rule can do is found out by trying it on the most telling answers there are: one neighbour always right, all
others always wrong. A rule that does not certify there never will.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
import torch

from ..learning.corpus import copies, model_input
from ..learning.devices import one_thread
from ..learning.models import copied, training_loss
from ..methods import Method
from ..selection import Outcome, Probe, Reason, Selector, State
from ..selection.private import OF_COPIES
from ..selection.theory import SCHEDULE
from .world import World

ENOUGH = 10_000  # anchors with which every rule that certifies can
REMEMBERED = 12  # rounds that a rule with a memory is given
MOST_CLASSES = 20  # so many different whole numbers look like classes
PAIRS = 200  # at most so many different neighbourhoods are tried


@dataclass(frozen=True)
class Preflight:
    """A line about a world and what is to be run in it, and sentences about what cannot work.

    `doubt` is the one among them that is about what is learnt at all: it is said to those, too, who want results only.
    """

    line: str
    warnings: tuple[str, ...]
    doubt: str | None = None


def preflight(world: World, methods: Sequence[tuple[str, Method]], workers: int = 1) -> Preflight:
    """Look at a world and the methods that will be run in it."""
    degrees = np.diff(world.graph.indptr)
    anchors = np.array([len(roles.anchor) for roles in world.federation.roles])
    doubt = _likely_classes(world)
    warnings = [*([doubt] if doubt else []), *_graph(world, degrees), *_copies(world)]
    if world.dataset.owners is not None and world.config.data.partition != "owners":
        warnings.append(
            "the data say who owns a sample, but are dealt to clients anew: set data.partition=owners to make owners "
            "the clients"
        )
    for label, method in methods:
        warnings += _rule(label, method.selector, list(zip(degrees.tolist(), anchors.tolist(), strict=True)))
    return Preflight(_line(world, degrees, anchors, methods, workers), tuple(warnings), doubt)


def _likely_classes(world: World) -> str | None:
    """Where whole numbers came as floats, which makes them values, and nobody said so."""
    y = world.dataset.train_y
    if world.config.data.task is not None or world.dataset.task == "classification" or y.shape[1] > 1:
        return None
    found = np.unique(y)
    if len(found) > MOST_CLASSES or (found != np.round(found)).any() or found[0] < 0:
        return None
    return (
        f"all targets are whole numbers, {found[0]:g} to {found[-1]:g}, but floats, and so predicted as values "
        "(regression): if they are classes, say data.task=classification; if not, data.task=regression"
    )


def _line(world: World, degrees: np.ndarray, anchors: np.ndarray, methods: Sequence[object], workers: int) -> str:
    samples = [len(roles.train) for roles in world.federation.roles]
    rounds, runs = world.config.rounds, len(methods)
    pulls = int((degrees > 0).sum()) * rounds
    moved = pulls * world.sizes.shared_block
    asked = int((degrees * np.minimum(anchors, SCHEDULE[-1])).sum()) * rounds * world.sizes.anchor_input
    seconds = _training_seconds(world, samples) * rounds * runs / max(workers, 1)
    kind = _of_certificates(world)
    return (
        f"{kind}Per client: neighbours {_span(degrees)}, anchors {_span(anchors)}, training samples {_span(samples)}. "
        f"{'1 round moves' if rounds == 1 else f'{rounds} rounds move'} {_bytes(moved)} of models if each pulls one"
        f", and up to {_bytes(asked)} of anchors; training takes about {_time(seconds)}"
        f"{f' for all {runs} methods' if runs > 1 else ''}."
    )


def _of_certificates(world: World) -> str:
    """Which loss they are about, where it is not 0-1 error."""
    clip, own = world.dataset.clipped_at, world.dataset.loss
    if own is not None:
        return f"Certificates are about {own.name}, in [0, {own.most:g}]. "
    return "" if clip is None else f"Regression: for certificates errors are cut off at {clip:.4g}. "


def _graph(world: World, degrees: np.ndarray) -> Iterator[str]:
    clients = world.clients
    if clients > 1 and not degrees.any():
        yield "the graph has no edges: nobody can exchange anything; change topology"
        return
    alone = int((degrees == 0).sum())
    if alone and clients > 1:
        yield f"{alone} of {clients} clients have no neighbour and never exchange: raise topology.p, degree, m or k"
    groups = world.graph.parts - alone
    if groups > 1:
        yield f"the graph falls into {groups} parts that never meet: raise topology.p, degree, m or k"


def _copies(world: World) -> Iterator[str]:
    """Inputs that are in a pool more than once, where peers perturb their answers."""
    if world.mechanism is None:
        return
    x = world.dataset.train_x
    if with_copies := sum(copies(x[roles.anchor]) > 0 for roles in world.federation.roles):
        yield f"{with_copies} of {world.clients} clients have copies of an input among their anchors: {OF_COPIES}"


def _rule(label: str, rule: Selector, hoods: Sequence[tuple[int, int]]) -> Iterator[str]:
    """What a rule cannot do in these neighbourhoods, each given as degree and anchors."""

    @cache
    def tried(degree: int, anchors: int) -> Outcome | None:
        try:
            return _tried(rule, degree, anchors)
        except Exception:
            # Whatever a user's rule raises on answers that are made up here: it may need more than a neighbourhood, or
            # have a mistake. This is only advice; the run asks the rule itself and says where it failed.
            return None

    if tried(4, ENOUGH) is None:
        return  # it asks for more than answers, which cannot be made up
    connected = [hood for hood in hoods if hood[0] > 0][: 50 * PAIRS]
    if len(set(connected)) > PAIRS:
        connected = connected[:PAIRS]
    without = [h for h in connected if _reason(tried(*h)) is Reason.NO_ANCHORS]
    if without:
        needed = next(m for m in range(1, ENOUGH) if _reason(tried(2, m)) is not Reason.NO_ANCHORS)
        yield (
            f"{len(without)} of {len(hoods)} clients have fewer than {needed} anchors and will gossip under {label}: "
            "raise data.anchor, or give clients more data"
        )
    single = [h for h in connected if h[0] == 1 and (found := tried(*h)) is not None and found.evaluations > 0]
    if single:
        yield (
            f"{len(single)} of {len(hoods)} clients have a single neighbour, and {label} spends evidence on it "
            "although there is nothing to choose"
        )
    if _reason(tried(4, ENOUGH)) is not Reason.CERTIFIED:
        return  # a rule without certificates
    asking = [h for h in connected if h[0] > 1 and h not in without]
    never = [h for h in asking if _reason(tried(*h)) is not Reason.CERTIFIED]
    if never:
        degree, most = max(never, key=lambda h: h[1])
        whom = "no client" if len(never) == len(asking) else f"{len(never)} of {len(hoods)} clients"
        can = "can ever" if whom == "no client" else "can never"
        yield (
            f"{whom} {can} certify under {label}, whatever neighbours answer (such as with {most} anchors and "
            f"{degree} neighbours): raise data.anchor, or delta"
        )


def _reason(outcome: Outcome | None) -> Reason | None:
    return None if outcome is None else outcome.reason


def _tried(rule: Selector, degree: int, anchors: int) -> Outcome | None:
    """The outcome where one neighbour is always right and all others are always wrong; None if that is not enough.

    A rule that remembers is given a few rounds.
    """
    state: State | None = None
    for number in range(REMEMBERED):
        decision = rule.begin(range(degree), anchors, state=state, round=number, rounds=REMEMBERED)
        while (probe := decision.request) is not None:
            if not isinstance(probe, Probe):
                return None
            wrong = np.array([[0.0 if peer == 0 else rule.bound] for peer in probe.peers])
            decision.answer(np.repeat(wrong, probe.stop - probe.start, axis=1))
        state = decision.outcome.state
        if state is None or decision.outcome.reason in (Reason.CERTIFIED, Reason.NO_ANCHORS):
            break
    return decision.outcome


def _training_seconds(world: World, samples: Sequence[int]) -> float:
    """Seconds of one round's training on one core, from the time that a mini-batch takes here and now."""
    t = world.config.training
    size = min(t.batch_size, len(world.dataset.train_y))
    batches = sum(min(-(-n // t.batch_size), t.max_batches or n) for n in samples) * t.epochs
    model = copied(world.model)
    x, y = model_input(world.dataset.train_x[:size]), torch.as_tensor(world.dataset.train_y[:size])
    times = []
    with torch.random.fork_rng(devices=[]), one_thread():
        for _ in range(3):
            start = time.perf_counter()
            training_loss(model, x, y).backward()  # type: ignore[no-untyped-call]
            times.append(time.perf_counter() - start)
    return batches * min(times)


def _span(values: Sequence[int] | np.ndarray) -> str:
    held = [int(v) for v in values]
    low, high = min(held), max(held)
    return str(low) if low == high else f"{low}-{high} (median {median(held):g})"


def _bytes(count: float) -> str:
    size, unit = next(((s, u) for s, u in ((1e9, "GB"), (1e6, "MB")) if count >= s), (1e3, "kB"))
    return f"{count / size:.1f} {unit}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
