"""What is measured in a run: accuracy and macro-F1, Client and Weak, and the mechanisms that the paper only names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import numpy.typing as npt

from ..learning.measuring import measure
from ..learning.tasks import Answer, Ensemble, Gram, Score
from ..runs.columns import Errors, Evaluated, Evaluation, evaluation
from ..selection import Outcome, Selector
from ..selection.scoring import Scoring
from .engines import Engine
from .world import World

Floats = npt.NDArray[np.float64]
_Snapshot = tuple[int, int]  # a peer and of which of its rounds its model is
DIVERSITY_CLIENTS = (
    100  # at most so many representations are compared: enough for a mean, and the cost does not grow with K
)


@dataclass(frozen=True)
class ProxyCheck:
    """One decision seen on the receiver's evaluation data, which it could not see.

    `pulled` and `gossip` are by the peers' own predictions, one yardstick for all rules: 0-1 risk of what was pulled,
    and of a random draw. `risks` are all peers' as the rule scores its probes: what its certificates are about.
    """

    pulled: float
    gossip: float
    risks: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """What one evaluation round found: before and after mixing, and the mechanisms where they are asked for."""

    test_images: int
    before: Evaluation | Errors
    proxies: Mapping[int, ProxyCheck]
    after: Evaluation | Errors
    diversity: float | None
    along: Evaluated | None = None  # of the last round: what it would be on the way, where that uses fewer test images
    along_images: int = 0

    def gain(self, client: int) -> float:
        """What mixing did to the client's accuracy (or error, turned round) on its own evaluation data."""
        return float(self.after.good[client] - self.before.good[client])


def evaluate(
    world: World,
    engine: Engine,
    tests: Sequence[npt.NDArray[np.int64]],
    ensembles: Mapping[int, Ensemble] | None = None,
) -> Evaluation | Errors:
    """Evaluate all clients, each on its test images and on its own samples: their rows, or the mixtures they form."""
    own = dict(enumerate(world.own_tests or world.evaluation_sets))
    tested = world.own_tests is not None
    return evaluation(measure(engine, world.targets, dict(enumerate(tests)), own, ensembles, tested=tested))


def diversity(world: World, engine: Engine) -> float | None:
    """1 - mean pairwise linear CKA of clients' representations of the same images; None where there are no pairs.

    With normalised Gram matrices g_k the mean over pairs is (|sum g_k|^2 - K)/(K(K-1)): linear in K.
    """
    count = min(world.clients, DIVERSITY_CLIENTS)
    if count < 2 or not hasattr(world.model, "latent"):
        return None
    chosen = np.linspace(0, world.clients - 1, count).astype(int)
    total: Floats = np.zeros(1)
    for gram in engine.map([Gram(int(k)) for k in chosen]):
        total = total + gram
    norm = np.square(total).sum()  # a dot product would depend on the number of BLAS threads
    spread = float(1.0 - (norm - count) / (count * (count - 1)))
    return spread if isfinite(spread) else None  # a diverged model has no representation


def gini(counts: npt.ArrayLike) -> float | None:
    """How unevenly pulls are spread over peers: 0 if all get as many, near 1 if one gets all; None without pulls."""
    ranked = np.sort(np.asarray(counts, dtype=np.float64))
    if ranked.sum() == 0:
        return None
    n = len(ranked)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ranked / (n * ranked.sum()))


def check_proxy(
    world: World,
    engine: Engine,
    rounds: Mapping[int, int],
    outcomes: Mapping[int, Outcome],
    peers: Sequence[Sequence[int]],
    ages: Mapping[tuple[int, int], int],
    rule: Selector,
) -> dict[int, ProxyCheck]:
    """How good the pulled peers are on evaluation data, against the neighbourhood mean (before mixing).

    `rounds` are those in which the receivers are; `ages`: by how many a (receiver, peer) link's model is behind that.
    """
    receivers = [k for k, outcome in sorted(outcomes.items()) if outcome.peers and outcome.direction == "pull"]
    asked: dict[_Snapshot, list[int]] = defaultdict(list)  # by whom
    for client in receivers:
        for peer in peers[client]:
            asked[peer, rounds[client] - ages.get((client, peer), 0)].append(client)
    prediction, form = world.prediction, world.form(rule.scoring)
    predicted = _risks(world, engine, rounds, asked, prediction)
    scored = predicted if form == prediction else _risks(world, engine, rounds, asked, form)
    return {
        k: ProxyCheck(
            pulled=float(np.mean([predicted[p, k] for p in outcomes[k].peers if isinstance(p, int)])),
            gossip=float(np.mean([predicted[p, k] for p in peers[k]])),
            risks=tuple(rule.bound * scored[p, k] for p in peers[k]),
        )
        for k in receivers
    }


def _risks(
    world: World, engine: Engine, rounds: Mapping[int, int], asked: Mapping[_Snapshot, Sequence[int]], form: Scoring
) -> dict[tuple[int, int], float]:
    """Mean loss of every (peer, receiver) on the receiver's evaluation samples; a model answers all at once."""
    samples, order = world.evaluation_sets, sorted(asked)
    tasks = [Answer(p, at, 0, np.concatenate([samples[k] for k in asked[p, at]]), form) for p, at in order]
    answers = engine.map(tasks)
    pairs = [(model[0], client) for model in order for client in asked[model]]
    parts = [
        part
        for model, answer in zip(order, answers, strict=True)
        for part in np.split(answer, np.cumsum([len(samples[k]) for k in asked[model]])[:-1])
    ]
    if form.at_home:
        scored = engine.map(
            [Score(k, rounds[k], z[None], samples[k], form) for (_, k), z in zip(pairs, parts, strict=True)]
        )
        losses = [rows[0] for rows in scored]
    else:
        truth = world.dataset.train_y
        losses = [form.losses(a, truth[samples[k]]) for (_, k), a in zip(pairs, parts, strict=True)]
    return {pair: float(np.mean(values, dtype=np.float64)) for pair, values in zip(pairs, losses, strict=True)}
