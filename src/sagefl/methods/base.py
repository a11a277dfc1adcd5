"""What a method is: a rule that chooses peers, an exchange, and local training. And methods by id.

A published method is one file: its docstring cites the paper and says what is established and what was our choice. A
method that is only a rule is a selector with an id, in `sagefl.selection`; one that exchanges or trains in its own way
is a class in this package that binds the three parts. Third parties register classes in the entry-point group
`sagefl.methods` (or selectors in `sagefl.selectors`).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from ..errors import UsageError
from ..exchange import ExchangeLayer
from ..learning.training import LocalTraining
from ..reading import watched
from ..references import METHODS, is_reference, load
from ..selection import Selector
from ..selection.fidelity import cited_by
from ..selection.options import check_options, help_texts
from ..selection.private import RandomisedResponse, priced_for
from ..selection.registry import build, discover, nearest, selectors

Helps = Callable[[int, int], bool]
"""Whether (client, peer) are of one group and the peer is no culprit."""


class Method:
    """Base of all methods. `rule` chooses peers; `Options` are what the method adds to the rule's own options."""

    id: ClassVar[str] = ""
    rule: ClassVar[type[Selector]]
    citation: ClassVar[str] = ""  # see `Selector.citation`
    evidence: ClassVar[str] = ""  # what it asks of peers
    communication: ClassVar[str] = ""  # models merged / transferred per client-round
    needs_truth: ClassVar[bool] = False  # a reference that knows what no rule can: only a simulator can tell it
    fidelity: ClassVar[str] = ""  # see `Selector.fidelity`; of the whole method
    registered: ClassVar[dict[str, type[Method]]] = {}

    @dataclass(frozen=True)
    class Options:
        """Options beyond the rule's own (see `sagefl.selection.option`)."""

        def __post_init__(self) -> None:
            check_options(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "citation" not in cls.__dict__ and (cited := cited_by(cls.__module__)):
            cls.citation = cited
        if cls.__dict__.get("id"):
            Method.registered[cls.id] = cls

    def __init__(self, /, **options: Any) -> None:
        known = self.fields()
        for name in options:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise UsageError(f"{self.id} has no option {name!r}{nearest(name, known)}; options: {listed}")
        own = {f.name for f in dataclasses.fields(self.Options)}
        self.options = self.Options(**{k: v for k, v in options.items() if k in own})
        self.selector = self.rule(**{k: v for k, v in options.items() if k not in own})
        self.exchange = self.make_exchange()
        self.training = self.make_training()

    def answered_privately(self, mechanism: RandomisedResponse | None) -> Method:
        """The method where peers perturb their labels: its rule priced for that, or refused if it asks for more."""
        if mechanism is None:
            return self
        if exposed := [form.kind for form in self.selector.scorings if not form.private]:
            way = "set its option kind=labels, or leave privacy out" if "kind" in self.fields() else "leave privacy out"
            raise UsageError(f"privacy.epsilon perturbs labels, but {self.id} probes for {exposed[0]}: {way}")
        self.selector = priced_for(self.selector, mechanism)
        return self

    def asked_in(self, order: str) -> Method:
        """The method where anchors are asked about in this order (`data.anchor_order`), if it can bear that."""
        if self.selector.remembers and order == "fixed":
            raise UsageError(
                f"{self.id} remembers what it was told, and data.anchor_order = fixed would count the same anchors "
                "again in every round, which voids its guarantee: use anchor_order = shuffle"
            )
        return self

    def suited(self, *, latents: bool, graded: bool = False) -> Method:
        """The method for models with or without latents that peers may hand over, and for losses of this kind."""
        self.selector = self.selector.suited(latents=latents, graded=graded)
        return self

    def tell(self, helps: Helps) -> None:
        """Take in which peers help which client; the simulator tells methods that need it, and no others."""

    def make_exchange(self) -> ExchangeLayer:
        """What moves and how it merges; plain unless overridden."""
        return ExchangeLayer()

    def make_training(self) -> LocalTraining:
        """How clients train; plain unless overridden."""
        return LocalTraining()

    @classmethod
    def fields(cls) -> dict[str, tuple[Any, str]]:
        """Every option by name with its default and help, the method's own options first."""
        fields: dict[str, tuple[Any, str]] = {}
        for options in (cls.Options, cls.rule):
            help = help_texts(options)
            fields |= {f.name: (f.default, help[f.name]) for f in dataclasses.fields(options)}
        return fields

    @classmethod
    def summary(cls) -> str:
        """One line for lists: the first of the docstring; of a plain selector its summary, if it has one."""
        return (cls.__doc__ or cls.rule.summary or cls.rule.__doc__ or "").strip().partition("\n")[0]

    @classmethod
    def description(cls) -> str:
        """The module's docstring where the method has a module of its own, else the class's or the rule's."""
        source = inspect.getmodule(cls) if cls.__module__ != __name__ else inspect.getmodule(cls.rule)
        return inspect.cleandoc((source and source.__doc__) or cls.rule.__doc__ or "")


@cache
def _discover() -> None:
    discover(__package__, Method, Method.registered, METHODS)


def methods() -> dict[str, type[Method]]:
    """Every known method by id: published methods, and every selector with an id as a method of its own."""
    _discover()
    plain = {id: _plain(id, rule) for id, rule in selectors().items() if id not in Method.registered}
    return dict(sorted((Method.registered | plain).items()))


def method_class(id: str) -> type[Method]:
    """The method of an id."""
    known = methods()
    if id not in known and is_reference(id):
        return _referred(id, known)
    if id not in known:
        raise UsageError(f"unknown method {id!r}{nearest(id, known)}; known: {', '.join(known)}")
    return known[id]


def method(id: str, /, **options: Any) -> Method:
    """A method by id with options."""
    with watched(f"method {id}"):
        return build(method_class(id), options)


def _referred(reference: str, known: dict[str, type[Method]]) -> type[Method]:
    """The method of `module:Class` or `file.py:Class`: a method class, or a selector as a method of its own."""
    place, _, name = reference.partition(":")
    if place in known:
        raise UsageError(f"options are written name=value, got {name!r}")
    found = load("method", reference)
    if isinstance(found, type) and issubclass(found, Method):
        return found
    if isinstance(found, type) and issubclass(found, Selector):
        return _plain(reference, found)
    raise UsageError(f"{reference} is a {type(found).__name__}; expected a Selector or Method class")


@cache
def _plain(id: str, rule: type[Selector]) -> type[Method]:
    text = {name: getattr(rule, name) for name in ("citation", "evidence", "communication", "fidelity")}
    plain: type[Method] = type(rule.__name__, (Method,), {"rule": rule, **text, "__module__": __name__})
    plain.id = id  # set afterwards, so that only the selector itself is registered
    return plain
