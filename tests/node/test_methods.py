"""Every method either works between nodes or is refused before it begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from federation import NAMES, Federation

from sagefl.errors import SageflError
from sagefl.exchange import ExchangeLayer, Mix
from sagefl.learning.population import Population
from sagefl.learning.tasks import Tasks
from sagefl.methods import Method, methods
from sagefl.methods import method as made
from sagefl.methods.median import coordinate_median
from sagefl.node.setting import pulling_method
from sagefl.node.swarm import READS
from sagefl.selection.random_gossip import RandomGossip

SIMULATED = {  # what they do cannot be done by pulling whole blocks from neighbours
    "average-all", "cfns-lite", "choco", "da-dpfl", "dfca", "dfedpgp", "dispfl", "dpfl", "epidemic", "federico",
    "ocd-fl", "oracle", "oracle-average",
}  # fmt: skip
UNLESS: dict[str, dict[str, Any]] = {"cfns-lite": {"private": False}, "dpfl": {"models": "shared"}}
SERVE = {"inspect": True, "reads": [*READS, *(f"loss-of-{n}" for n in range(len(NAMES)))]}


def test_what_nodes_cannot_do_is_refused_in_a_sentence(federation: Federation) -> None:
    refused = {}
    for id in methods():
        try:
            pulling_method(federation.config("alice", (), method={"id": id}), 4)
        except SageflError as error:
            refused[id] = str(error)
    assert refused.keys() == SIMULATED
    assert all(why.startswith(f"method {id} ") and "choose another method" in why for id, why in refused.items())
    classes = {type(made(id).exchange).__name__ for id in methods()}
    assert not [why for why in refused.values() if set(why.split()) & classes]  # an operator's words
    for id, options in UNLESS.items():
        ((name, value),) = options.items()
        assert f"it would work with its option {name}={str(value).lower()}" in refused[id]
        pulling_method(federation.config("alice", (), method={"id": id, "options": options}), 4)


def test_the_documentation_names_exactly_those_that_nodes_cannot_do() -> None:
    page = (Path(__file__).parents[2] / "docs" / "node.md").read_text(encoding="utf-8")
    told = page.partition("## What nodes do not do")[2]
    sentence, rest = told.split("run in the simulator only", 1)
    assert set(re.findall(r"`([a-z-]+)`", sentence)) == SIMULATED
    assert f"The other {len(methods()) - len(SIMULATED)} work" in " ".join(rest.split())


class _Own(ExchangeLayer):
    """A third party's, which says nothing of nodes."""

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Nothing moves."""


class Quiet(Method):
    rule = RandomGossip

    def make_exchange(self) -> ExchangeLayer:
        return _Own()


def test_an_exchange_that_says_nothing_of_nodes_is_the_simulators(federation: Federation) -> None:
    with pytest.raises(SageflError, match="exchanges in a way of its own, which only the simulator does"):
        pulling_method(federation.config("alice", (), method={"id": f"{__name__}:Quiet"}), 4)


def test_a_nodes_round_of_medians_is_the_simulators(federation: Federation) -> None:
    """The same blocks, mixed by the simulator's own task on its own kind of population."""
    settings: dict[str, Any] = {"method": {"id": "median"}, "acceptance": {"share": 0.0}, "rounds": 1}
    with federation.honest("bob", **settings) as bob, federation.honest("carol", **settings) as carol:
        alice = federation.node("alice", ("bob", "carol"), **settings)
        rows: list[torch.Tensor] = []
        train = alice.learner.train
        alice.learner.train = lambda round: (train(round), rows.append(alice.learner.kept()))[0]  # type: ignore
        assert alice.run() is not None
    layout = alice.learner.layout
    population = Population.allocate(layout, 3)
    blocks = [rows[0], *(made.learner.population.params[0] for made in (bob, carol))]
    for place in (population.params, population.snapshots[0]):
        for number, row in enumerate(blocks):
            place[number].copy_(row)
    bench = alice.learner.bench
    bench.population = population
    made("median").exchange.block(0, 0, Mix(0.0, ((1, 0, 0.5), (2, 0, 0.5)))).run(bench)
    assert torch.equal(alice.learner.population.params[0], population.params[0])
    assert not torch.equal(population.params[0][layout.shared], rows[0][layout.shared])
    assert torch.equal(population.params[0][layout.shared], coordinate_median(blocks)[layout.shared])


@pytest.mark.slow
@pytest.mark.parametrize("id", [*sorted(methods().keys() - SIMULATED), *UNLESS])
def test_every_other_method_decides_and_merges_between_nodes(federation: Federation, id: str) -> None:
    settings: dict[str, Any] = {
        "method": {"id": id, "options": UNLESS.get(id, {})},
        "serve": SERVE,
        "acceptance": {"share": 0.0},
    }
    with federation.honest("bob", **settings), federation.honest("carol", **settings):
        alice = federation.node("alice", ("bob", "carol"), rounds=3, **settings)
        assert alice.run() is not None
    decisions = alice.recorder.directory.table("decisions")
    assert not [kind for kind in alice.journal.totals() if kind.startswith(("fault", "internal", "write-failed"))]
    assert decisions["peers"].to_list() == [[1, 3]] * 3
    if id == "dpfl":  # which may find that nobody helps
        assert decisions["inspected"].sum() > 0
    elif id not in ("local", "sketchguard"):  # which may find nobody alike
        assert decisions["merged"].sum() > 0
