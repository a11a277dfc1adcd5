"""One round's decision, answered by neighbours over the network.

The rule is the simulator's own `Selector`, driven through `Decision`; here its requests become calls to neighbours, and
a neighbour that fails in whatever way leaves the decision, which restarts on the others and asks again only for what
it does not hold. Then the chosen models are pulled and verified; one that is refused counts as its peer having failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..exchange import Mix
from ..exchange.mixing import client_of, resolve
from ..learning.tasks import MODEL_PARTS
from ..selection import ME, Decision, Inspect, Outcome, Probe, Read
from ..selection.desk import Desk, Indices
from ..selection.private import RandomisedResponse, perturbed
from ..selection.requests import Array
from ..selection.scoring import LABEL_ERRORS, Scoring
from .client import PeerClient
from .errors import Fault, NodeError
from .learner import Learner
from .verify import SLACK, Norms, checked_losses, decode_answers, decode_block, same_latents
from .wire import node_pb2 as wire

Result = TypeVar("Result")
_SCORING = Lock()  # the learner has one module, bound to one row at a time


@dataclass(frozen=True)
class Neighbour:
    """A neighbour that is there this round, and the snapshot it answers from."""

    number: int
    client: PeerClient
    description: wire.Description

    @property
    def digest(self) -> bytes:
        """The one snapshot that answers everything in this round."""
        return bytes(self.description.digest)


@dataclass(frozen=True)
class ConsultationResult:
    """What a consultation ended with."""

    decision: Decision
    losses: Mapping[Scoring, Array]  # by form of answer: peers of the decision x anchors, in [0, 1]
    mix: Mix | None
    lost: Mapping[int, Fault]  # neighbours that failed on the way, and how
    restarts: int
    rejected_models: int  # moved, refused, paid for
    rejected_bytes: int
    rolled_back: bool = False  # merged, found harmful, taken back
    tested: tuple[int, int, int] | None = None  # errors on unseen samples before and after the merge, and how many

    @property
    def outcome(self) -> Outcome:
        """The decision's outcome."""
        return self.decision.outcome


class _LostError(Exception):
    """Some neighbours failed while a request was answered."""

    def __init__(self, faults: Mapping[int, Fault]) -> None:
        super().__init__(", ".join(f"{number}: {fault.kind}" for number, fault in faults.items()))
        self.faults = faults


@dataclass
class Consultation:
    """The neighbours of one round, and everything they have told so far."""

    learner: Learner
    neighbours: Mapping[int, Neighbour]
    round: int
    anchors: Indices
    mechanism: RandomisedResponse | None
    pool: Executor
    mixing: float
    norms: Norms
    model_bytes: int
    own: Callable[[str], npt.ArrayLike]  # what this node itself publishes, for reading ME
    heard: Callable[[int, Fault], None]  # told of every fault
    _latents: dict[int, dict[int, npt.NDArray[Any]]] = field(default_factory=dict)
    _blocks: dict[int, bool] = field(default_factory=dict)  # models held -> whether full
    _lost: dict[int, Fault] = field(default_factory=dict)
    _rejected: list[int] = field(default_factory=list)  # bytes of models moved and refused
    _form: Scoring = LABEL_ERRORS  # in which latents came

    def __post_init__(self) -> None:
        self.desk = Desk(tuple(self.neighbours), len(self.anchors))

    def run(self, decision: Decision) -> ConsultationResult:
        """Drive `decision` to its end and fetch what it chose, restarting whenever a neighbour fails."""
        restarts = 0
        while True:
            try:
                while (request := decision.request) is not None:
                    self._answer(decision, request)
                mix = self._fetch(decision)
                break
            except _LostError as lost:
                self._note(lost.faults)
                decision = decision.restart(p for p in decision.hood.peers if p not in self._lost)
                restarts += 1
        paid = self.desk.paid(decision.ledger)
        return ConsultationResult(
            decision, paid, mix, dict(self._lost), restarts, len(self._rejected), sum(self._rejected)
        )

    def _note(self, faults: Mapping[int, Fault]) -> None:
        for number, fault in sorted(faults.items()):
            self._lost[number] = fault
            self.heard(number, fault)

    def _answer(self, decision: Decision, request: Probe | Inspect | Read) -> None:
        if isinstance(request, Probe):
            self._probe(decision, request)
        else:
            decision.answer(self._inspect(request) if isinstance(request, Inspect) else self._read(request))

    def _everybody(self, numbers: Iterable[int], ask: Callable[[Neighbour], Result]) -> dict[int, Result]:
        """Ask several neighbours at once; those who fail leave the decision together, the others' answers are kept."""
        asked = {n: self.pool.submit(ask, self.neighbours[n]) for n in numbers}
        answers: dict[int, Result] = {}
        faults: dict[int, Fault] = {}
        for number, future in asked.items():
            try:
                answers[number] = future.result()
            except Exception as error:
                faults[number] = Fault.of(error)
        if faults:
            raise _LostError(faults)
        return answers

    # Probes -------------------------------------------------------------------------------------------------------

    def _probe(self, decision: Decision, probe: Probe) -> None:
        """Ask for what is missing; what was fetched before a restart is not fetched again."""
        missing = {client_of(peer): columns for peer, columns in self.desk.missing(probe)}
        self._everybody(
            missing, lambda neighbour: self._fetch_losses(neighbour, missing[neighbour.number], probe.scoring)
        )
        self.desk.answer(decision)

    def _fetch_losses(self, neighbour: Neighbour, columns: Indices, form: Scoring) -> None:
        """Ask one neighbour about some anchors, in as many calls as it demands, and score what it says."""
        most = min(neighbour.description.max_anchors, 4096)
        learner, asked = self.learner, self.learner.outputs.form(form)
        travels = perturbed(asked, self.mechanism)
        for start in range(0, len(columns), most):
            part = columns[start : start + most]
            indices = self.anchors[part]
            raw = neighbour.client.probe(asked, learner.dataset.train_x[indices], neighbour.digest)
            answers = decode_answers(travels, raw, len(part), learner.outputs)
            if form.at_home:
                self._latents.setdefault(neighbour.number, {}).update(zip(part.tolist(), answers, strict=True))
                self._form = asked
            with _SCORING:
                losses = learner.score(self.round, answers, indices, travels)
            self.desk.file(neighbour.number, part, form, checked_losses(losses))

    # Inspections and readings -------------------------------------------------------------------------------------

    def _inspect(self, asked: Inspect) -> npt.NDArray[np.float64]:
        alone = asked.groups is None or ME in asked.peers
        wanted = asked.peers if alone else (*asked.peers, ME)
        numbers = [client_of(p) for p in wanted if p != ME]
        self._take([n for n in numbers if not self._blocks.get(n)], full=True)
        at = {p: i for i, p in enumerate(wanted)}
        groups = None if asked.groups is None else [[at[p] for p in g] for g in asked.groups]
        models = [None if p == ME else client_of(p) for p in wanted]
        what = (asked.split, asked.metric, asked.weights)
        return self.learner.inspect(self.round, models, groups, *what, whole=asked.whole)

    def _read(self, asked: Read) -> list[npt.ArrayLike]:
        mine = np.ravel(self._mine(asked.what))

        def read(neighbour: Neighbour) -> npt.NDArray[np.float32]:
            values = neighbour.client.read(asked.what, neighbour.digest, mine.size)
            if values.size != mine.size:
                raise Fault("wrong-shape", f"{values.size} numbers for {asked.what}, expected {mine.size}")
            return values

        found = self._everybody([client_of(p) for p in asked.peers if p != ME], read)
        answers = [mine if p == ME else found[client_of(p)] for p in asked.peers]
        return [values if values.size > 1 else values.reshape(()) for values in answers]

    def _mine(self, what: str) -> npt.ArrayLike:
        return self.learner.read(self.round, what) if what in MODEL_PARTS else self.own(what)

    # Models -------------------------------------------------------------------------------------------------------

    def _fetch(self, decision: Decision) -> Mix | None:
        """Pull and verify what was chosen; the mix to carry out, or None for no exchange."""
        outcome = decision.outcome
        if outcome.direction == "push" and outcome.peers:
            raise NodeError(f"{decision.selector.id} pushes models to its peers; nodes pull: choose another method")
        if not outcome.peers:
            return None
        chosen = [client_of(p) for p in outcome.peers]
        self._take([n for n in chosen if n not in self._blocks], full=False)
        return resolve({0: outcome}, {}, self.mixing)[0]

    def _take(self, numbers: Iterable[int], *, full: bool) -> None:
        """Move models here and verify them; a bad one makes its peer fail."""
        layout = self.learner.layout
        size = 4 * (layout.shared_size + (layout.local_size if full else 0)) + SLACK

        def pull(neighbour: Neighbour) -> tuple[bytes, Tensor | Fault]:
            raw = neighbour.client.pull(neighbour.digest, min(size, self.model_bytes), full=full)
            try:
                return raw, decode_block(raw, layout, neighbour.digest, full=full)
            except Fault as fault:
                return raw, fault

        faults: dict[int, Fault] = {}
        for number, (raw, row) in self._everybody(numbers, pull).items():
            try:
                if isinstance(row, Fault):
                    raise row
                self._accept(number, row, full=full)
            except Fault as fault:
                faults[number] = fault
                self._rejected.append(len(raw))
        if faults:
            raise _LostError(faults)

    def _accept(self, number: int, row: Tensor, *, full: bool) -> None:
        self.norms.check(row)
        self.learner.hold(number, row, full=full)
        if told := self._latents.get(number):
            columns = np.array(sorted(told))
            again = self.learner.answers(number, self.round, self.anchors[columns], self._form)
            same_latents(np.stack([told[c] for c in columns.tolist()]), again)
        self._blocks[number] = full
