"""What the certificate of a whole run needs of a node: bets on whoever leaves, and a coin that is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from federation import NAMES, Federation
from scipy.stats import chi2
from test_faults import Base
from test_swarm import audited, tiny_swarm

from sagefl.errors import UsageError
from sagefl.node.audit import heads, verify
from sagefl.node.loop import Node
from sagefl.runs.replaying import replay_run
from sagefl.runs.rundir import RunDirectory

SAGE_M = {"method": {"id": "sage-m"}}


def test_anchors_in_a_fixed_order_are_refused(federation: Federation) -> None:
    with pytest.raises(UsageError, match=r"sage-m remembers .* use anchor_order = shuffle"):
        federation.node("alice", (), data={"anchor_order": "fixed"}, **SAGE_M)


# The coin -------------------------------------------------------------------------------------------------------------


def orders(node: Node, rounds: int = 5) -> list[list[int]]:
    return [node.learner.anchors(number).tolist() for number in range(rounds)]


def test_whoever_knows_the_config_does_not_know_the_order(federation: Federation) -> None:
    """A peer that has everything this node was configured with, seed included, cannot tell what it will ask."""
    alice, copy = (federation.node("alice", (), **SAGE_M) for _ in range(2))
    pool = sorted(alice.learner.roles.anchor.tolist())
    assert len(pool) > 20
    for mine, theirs, by_seed in zip(orders(alice), orders(copy), orders(as_simulated(federation)), strict=True):
        assert sorted(mine) == sorted(theirs) == sorted(by_seed) == pool
        assert mine != theirs
        assert mine != by_seed
    assert orders(alice) == orders(alice)  # one order a round
    assert len({tuple(order) for order in orders(alice)}) == 5  # another one in every round


def as_simulated(federation: Federation) -> Node:
    return federation.node("alice", (), secret_order=False, **SAGE_M)


def test_a_node_that_repeats_the_simulator_goes_by_the_seed(federation: Federation) -> None:
    node = as_simulated(federation)
    drawn = [node.learner.federation.anchors(0, number, node.config.seed).tolist() for number in range(5)]
    assert orders(node) == drawn == orders(as_simulated(federation))


def test_the_order_is_uniform(federation: Federation) -> None:
    """Which anchor comes first, over a thousand rounds: chi-squared at 1 in 10,000."""
    learner = federation.node("alice", (), **SAGE_M).learner
    pool = learner.roles.anchor
    first = [learner.anchors(number)[0] for number in range(1000)]
    counts = np.array([first.count(anchor) for anchor in pool])
    expected = 1000 / len(pool)
    assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.9999, len(pool) - 1)


def test_a_coin_leaves_no_trace_and_what_it_drew_replays(federation: Federation) -> None:
    with federation.honest("bob"), federation.honest("carol"):
        first = federation.node("alice", ("bob", "carol"), rounds=4, **SAGE_M)
        checkpoint = first._checkpoint

        def stop_after_two(loss: float, samples: int) -> None:
            checkpoint(loss, samples)
            if first.round == 2:
                first.stop()

        first._checkpoint = stop_after_two  # type: ignore[method-assign]
        first.run()
        second = federation.node("alice", ("bob", "carol"), rounds=4, **SAGE_M)
        second.run()
    coins = [node.learner._coin for node in (first, second)]
    written = [path.read_bytes() for path in federation.home.rglob("*") if path.is_file()]
    assert not any(form in content for coin in coins for form in (coin, coin.hex().encode()) for content in written)
    assert {bets for *_, bets, _ in capital(second).values()} == {4}  # from before the restart, too
    assert audited(second.recorder.directory.path) == 4
    assert verify(second.recorder.directory.path, heads(second.recorder.directory.path)) == (4, [])


def test_a_swarm_repeats_the_simulator_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    for settings, secret in (({}, False), ({"secret_order": True}, True)):
        swarm = tiny_swarm(tmp_path / str(secret), 2, **settings)
        assert swarm._config(0, "node-0", "127.0.0.1:7443", {}).secret_order is secret


# Whoever leaves -------------------------------------------------------------------------------------------------------


class Leaving(Base):
    """Says that it is there, sees the first anchors of a decision, and leaves."""

    def Probe(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


def capital(node: Node) -> dict[Any, list[float]]:
    assert node.state is not None
    found: dict[Any, list[float]] = node.state["capital"]
    return found


@pytest.mark.parametrize("honest", [(), ("carol",)], ids=["all leave", "one stays"])
def test_whoever_leaves_is_bet_on_in_every_round_and_the_record_replays(
    federation: Federation, honest: tuple[str, ...]
) -> None:
    with federation.bad("bob", Leaving), federation.bad("mallory", Leaving), federation.honest("carol"):
        alice = federation.node("alice", ("bob", "mallory", *honest), rounds=3, **SAGE_M)
        alice.run()
    run = RunDirectory(alice.recorder.directory.path)
    rows = run.table("decisions").to_dicts()
    there = [{*row["peers"], *row["lost"]} for row in rows]  # whoever failed is looked for in the background meanwhile
    assert there[0] == capital(alice).keys() == {NAMES.index(name) for name in ("bob", "mallory", *honest)}
    for peer, (better, worse, _, bets, _) in capital(alice).items():
        assert bets == sum(peer in present for present in there)
        assert max(better, worse) <= 0
    assert rows[0]["lost"] == [NAMES.index("bob"), NAMES.index("mallory")]
    assert {row["reason"] for row in rows if row["lost"]} == ({"only"} if honest else {"failed"})
    assert audited(run.path) == sum(map(bool, there))
    (again,) = replay_run(run, [("again", alice.method.selector)])
    assert again.decisions == sum(bool(row["peers"]) for row in rows)
    assert again.covered == bool(honest)
