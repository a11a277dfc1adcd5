"""The adapter of `examples/fluke_adapter.py` in fluke itself. Needs fluke-fl, which `make test` does not install."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from sagefl import RandomGossip, Reason, SageOS
from sagefl.selection.pens import Pens

pytestmark = pytest.mark.filterwarnings("ignore")  # fluke's own warnings
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def adapter() -> dict[str, Any]:
    pytest.importorskip(
        "fluke.algorithms.decentralized",
        reason="fluke-fl is not installed here: `make test-neighbours` makes an environment for it",
        exc_type=ImportError,
    )
    return runpy.run_path(str(ROOT / "examples" / "fluke_adapter.py"))


def outcomes(run: Any) -> list[Any]:
    return [outcome for client in run.clients for outcome in client.outcomes]


def test_a_certified_pull_finds_the_own_group_and_pays_for_what_it_asked(adapter: dict[str, Any]) -> None:
    from fluke.comm import ChannelObserver

    seen: list[tuple[str, int]] = []

    class Ears(ChannelObserver):  # type: ignore[misc]
        def message_received(self, by: Any, message: Any) -> None:
            seen.append((message.msg_type, len(message.payload) if message.msg_type == "anchors" else 1))

    run = adapter["federation"](SageOS(probe_cost=1e-4))
    run.set_callbacks([Ears()])
    run.run(3)
    found = outcomes(run)
    assert len(found) == 2 * adapter["CLIENTS"]  # nobody pulls before its first training
    certified = [(c.index, o) for c in run.clients for o in c.outcomes if o.reason is Reason.CERTIFIED]
    assert certified
    assert all(adapter["group"](o.peers[0]) == adapter["group"](me) for me, o in certified)
    asked = sum(size for kind, size in seen if kind == "anchors")
    assert asked == sum(o.evaluations for o in found) > 0
    assert sum(kind == "model" for kind, _ in seen) == len(found)


def test_random_gossip_in_the_same_world_does_not(adapter: dict[str, Any]) -> None:
    run = adapter["federation"](RandomGossip())
    run.run(3)
    assert sum(o.evaluations for o in outcomes(run)) == 0
    assert 0.1 < adapter["kindred"](run.clients) < 0.8  # 3 of 7 neighbours are kindred


def test_a_selector_that_asks_for_more_than_labels_is_refused_by_name(adapter: dict[str, Any]) -> None:
    run = adapter["federation"](Pens(first_phase=10))
    with pytest.raises(TypeError, match="answers probes for labels"):
        run.run(2)
