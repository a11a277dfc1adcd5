"""The contract of a selector, and what it is given: a neighbourhood, its state and its random draws.

A selector is a frozen dataclass of options with one generator method, `decide`, that yields requests for evidence
(`sagefl.selection.requests`) and returns an `Exchange`. Giving the class an `id` registers it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..streams import stream
from .fidelity import cited_by
from .options import check_options, option
from .outcome import Exchange, State
from .requests import Peer, Request
from .scoring import LABEL_ERRORS, Scoring, kinds, losses, scoring
from .theory import SCHEDULE

if TYPE_CHECKING:
    from .decision import Decision

Deciding = Generator[Request, Any, Exchange]
"""What `decide` is: yields requests, is sent answers, returns an exchange."""


@dataclass(frozen=True, slots=True)
class Hood:
    """One client-round seen from the receiver: its active neighbours and its anchor pool."""

    peers: tuple[Peer, ...]  # the active neighbours, in the order of the rows of losses
    anchors: int  # the size of its pool
    round: int = 0  # from 0
    rounds: int | None = None  # the length of the run, for rules that plan ahead
    me: Hashable = None  # the receiver's own name, for rules that need it
    ever: int | None = None  # how many peers can ever be its neighbours, for rules that promise something for a run
    price: float | None = None  # bytes of one evaluation, in models; None where nobody knows
    mine: float | None = None  # the share of the pool that one's own model gets wrong; None if not said
    silent: tuple[Peer, ...] = ()  # peers with which this decision began and that left it
    ages: tuple[float, ...] = ()  # seconds since each peer published what it answers from; empty: nobody keeps time

    def stages(self, schedule: Sequence[int]) -> list[int]:
        """The schedule truncated to the pool (the paper: to the largest feasible stage)."""
        return [m for m in schedule if m <= self.anchors]


class Draws:
    """The decision's own random streams, one per purpose, created when first used.

    Gossip draws have a stream of their own: two rules that both gossip in a client-round take the same peer, whatever
    else either of them has drawn before.
    """

    __slots__ = ("_streams", "seed")

    def __init__(self, seed: int | tuple[int, ...]) -> None:
        self.seed = seed
        self._streams: dict[str, np.random.Generator] = {}

    def __call__(self, purpose: str) -> np.random.Generator:
        """The generator of one purpose."""
        rng = self._streams.get(purpose)
        if rng is None:
            rng = self._streams[purpose] = stream(self.seed, purpose)
        return rng

    def pick(self, items: Sequence[Any], purpose: str) -> Any:
        """A uniform draw from `items`; one item is taken without a draw."""
        if len(items) == 1:
            return items[0]
        return items[int(self(purpose).random() * len(items))]

    def gossip(self, hood: Hood) -> Peer:
        """The uniform draw that every rule shares in this client-round."""
        peer: Peer = self.pick(hood.peers, "gossip")
        return peer


@dataclass(frozen=True)
class Selector(ABC):
    """Base of all selectors: options are fields, `decide` is the rule, state is passed in and returned."""

    id: ClassVar[str] = ""
    summary: ClassVar[str] = ""  # one line for lists
    citation: ClassVar[str] = ""  # its paper; by default what its module's docstring names before `Read:`
    evidence: ClassVar[str] = ""  # what it asks of peers; "none" for a rule that asks nothing
    remembers: ClassVar[bool] = False  # whether it goes by earlier rounds and by `ever`, `price` and `mine` of a hood
    communication: ClassVar[str] = "1 / 1"  # models merged / transferred per client-round
    fidelity: ClassVar[str] = (
        ""  # to its paper: "as published", "adapted: how and why", "inspired by: why" (not ranked); "ours" has none
    )
    pushes: ClassVar[bool] = False  # sends its model to those it chooses, instead of asking for theirs
    registered: ClassVar[dict[str, type[Selector]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "citation" not in cls.__dict__ and (cited := cited_by(cls.__module__)):
            cls.citation = cited
        if "id" in cls.__dict__ and cls.id:
            holder = Selector.registered.get(cls.id)
            if holder is not None and (holder.__module__, holder.__name__) != (cls.__module__, cls.__name__):
                raise TypeError(f"selector id {cls.id!r} is taken by {holder.__module__}.{holder.__qualname__}")
            Selector.registered[cls.id] = cls  # the same class again: a notebook cell or a reload

    def __post_init__(self) -> None:
        check_options(self)  # each by itself; whether options fit together is for the rule to check after this

    @property
    def bound(self) -> float:
        """M: losses answered to probes lie in [0, M]."""
        return 1.0

    @property
    def scorings(self) -> tuple[Scoring, ...]:
        """Every form of answer that this rule's probes may ask for, the main one first."""
        return (LABEL_ERRORS,)

    @property
    def scoring(self) -> Scoring:
        """The main form of answer: what is recorded and measured for this rule."""
        return self.scorings[0]

    @property
    def reach(self) -> int:
        """The most anchors that a decision ever asks about, however large the pool."""
        return SCHEDULE[-1]

    @property
    def wants_mine(self) -> bool:
        """Whether it makes use of the risk of one's own model (`Hood.mine`), so that drivers work it out."""
        return False

    @property
    def beyond(self) -> str:
        """What only the simulator can do, as an operator is told whose node cannot; nothing for most rules."""
        return ""

    def suited(self, *, latents: bool, graded: bool = False) -> Selector:
        """The rule for models with or without latents, and for losses that are graded even where labels are asked for.

        Only a rule that leaves the choice open differs; one that cannot work there refuses.
        """
        return self

    def restarted(self) -> Selector:
        """The rule to go on with when a decision starts over because a peer dropped out.

        Every start is another chance for a certificate to be wrong, and how many there will be is not the rule's
        choice: a rule that certifies lowers its delta here.
        """
        return self

    @abstractmethod
    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        """Yield requests, return an exchange. Written by selector authors; drivers run it through `begin`.

        `state` is what the last exchange returned as its state, or {}. Return a new one, never change it in place: a
        decision may be restarted. A rule that remembers is also run when everybody has left: with no peers, and
        `hood.silent`.
        """

    def begin(
        self,
        peers: Sequence[Peer],
        anchors: int,
        seed: int | tuple[int, ...] = 0,
        *,
        state: State | None = None,
        round: int = 0,
        rounds: int | None = None,
        me: Hashable = None,
        ever: int | None = None,
        price: float | None = None,
        mine: float | None = None,
        ages: Sequence[float] = (),
    ) -> Decision:
        """Start one decision in ask-and-answer form.

        The caller takes care of two things. `seed` must differ from decision to decision, as `(run, round, client)`
        does: `round` and `me` are there for rules to read and do not enter it, so with a constant seed all clients
        would draw the same peer. And the order of the anchors must be random, fixed before anybody is asked and
        shuffled again every round: a pool sorted by class voids every certificate. Rules that remember also want to
        know how many peers can `ever` be neighbours, the `price` of one evaluation in models, and which share of the
        pool one's own model gets wrong (`mine`). `ages` are how many seconds ago each peer published what it answers
        from, where somebody keeps time.
        """
        from .decision import Decision

        hood = Hood(tuple(peers), anchors, round, rounds, me, ever, price, mine, ages=tuple(ages))
        return Decision(self, hood, seed=seed, state=state)

    @classmethod
    def options(cls) -> dict[str, dataclasses.Field[Any]]:
        """The options of this selector by name."""
        return {f.name: f for f in dataclasses.fields(cls)}

    @classmethod
    def preset(cls, name: str, default: Any) -> Any:
        """An option of this selector with another default, for a subclass that differs only in defaults."""
        return field(default=default, metadata=cls.options()[name].metadata)


@dataclass(frozen=True)
class ProbingSelector(Selector):
    """A rule whose options say in which form peers answer and how far losses reach."""

    loss_bound: float = option(1.0, "probe losses lie in [0, M]", symbol="M", gt=0)
    kind: str = option("labels", "what peers answer", choices=kinds)
    loss: str = option(
        "error",
        "how answers are scored: 0-1 (error), or cross-entropy clipped and scaled to [0, M] (ce)",
        choices=losses,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.scorings  # refuses a kind that cannot be scored in this way

    @property
    def bound(self) -> float:
        """M: losses lie in [0, M]."""
        return float(self.loss_bound)

    @property
    def scorings(self) -> tuple[Scoring, ...]:
        """The one form that its options name."""
        return (scoring(self.kind, self.loss),)
