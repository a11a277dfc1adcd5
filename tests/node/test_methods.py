"""Every method either works between nodes or is refused before it begins."""

from __future__ import annotations

from typing import Any

import pytest
from federation import NAMES, Federation

from sagefl.errors import SageflError
from sagefl.methods import methods
from sagefl.node.setting import pulling_method
from sagefl.node.swarm import READS

SIMULATED = {  # what they do cannot be done by pulling whole blocks from neighbours
    "average-all", "choco", "da-dpfl", "dfca", "dfedpgp", "dispfl", "dpfl", "epidemic", "federico", "median",
    "ocd-fl", "oracle", "oracle-average",
}  # fmt: skip
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


@pytest.mark.slow
@pytest.mark.parametrize("id", sorted(methods().keys() - SIMULATED))
def test_every_other_method_decides_and_merges_between_nodes(federation: Federation, id: str) -> None:
    settings: dict[str, Any] = {"method": {"id": id}, "serve": SERVE, "acceptance": {"share": 0.0}}
    with federation.honest("bob", **settings), federation.honest("carol", **settings):
        alice = federation.node("alice", ("bob", "carol"), rounds=3, **settings)
        assert alice.run() is not None
    decisions = alice.recorder.directory.table("decisions")
    assert not [kind for kind in alice.journal.totals() if kind.startswith(("fault", "internal", "write-failed"))]
    assert decisions["peers"].to_list() == [[1, 3]] * 3
    if id not in ("local", "sketchguard"):  # which may find nobody alike
        assert decisions["merged"].sum() > 0
