"""The privacy account: whatever ends a node, the next one starts from at least what was answered; and the budget."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import Federation, in_thread, tiny, tiny_arrays

from sagefl.node import account
from sagefl.node.account import BLOCK, KeptAccount
from sagefl.node.errors import Fault, NodeError
from sagefl.node.gate import Caller, Refusal
from sagefl.node.limits import Meter
from sagefl.node.loop import Node
from sagefl.node.service import PeerService
from sagefl.node.status import read_status
from sagefl.node.wire import node_pb2 as wire
from sagefl.runs import files
from sagefl.selection.scoring import LABEL_ERRORS

PRIVATE: dict[str, Any] = {
    "privacy": {"mechanism": "k-rr", "epsilon": 0.5, "budget": 1e6},
    "rounds": 1,
    "method": {"id": "rg"},
}


def ask(federation: Federation, me: str, name: str, inputs: slice) -> None:
    client = federation.client(me, name)
    client.probe(LABEL_ERRORS, tiny().train_x[inputs], bytes(client.describe().digest))


def until_finished(node: Node) -> None:
    directory, end = Path(node.config.directory), time.monotonic() + 120
    while not (directory / "status.json").exists() or read_status(directory)["phase"] != "finished":
        assert time.monotonic() < end
        time.sleep(0.01)


def held_after_a_restart(federation: Federation, name: str, known: tuple[str, ...]) -> dict[Any, int]:
    again = federation.node(name, known, **PRIVATE)
    again.run()
    assert read_status(Path(again.config.directory))["privacy"]["total"] == again.published.account.report()["total"]
    return again.published.account.held()


# What ends a node -----------------------------------------------------------------------------------------------------


def test_answers_given_after_the_last_round_are_in_the_account_after_a_clean_stop(federation: Federation) -> None:
    alice = federation.node("alice", ("bob", "carol"), **PRIVATE, exchange={"deadline": 1.0, "linger": None})
    thread = in_thread(alice)
    try:
        until_finished(alice)
        ask(federation, "bob", "alice", slice(0, 40))
        ask(federation, "carol", "alice", slice(0, 8))
    finally:
        alice.stop()
        thread.join(30)
    assert held_after_a_restart(federation, "alice", ("bob", "carol")) == {"bob": 40, "carol": 8}
    assert held_after_a_restart(federation, "alice", ("bob", "carol")) == {"bob": 40, "carol": 8}


def test_answers_given_before_a_crash_are_in_the_account_though_no_checkpoint_is(federation: Federation) -> None:
    with federation.honest("bob", **PRIVATE):  # is cut off: no round ends, nothing is closed
        ask(federation, "alice", "bob", slice(0, 64))
        ask(federation, "alice", "bob", slice(32, 100))
    assert 100 <= held_after_a_restart(federation, "bob", ("alice",))["alice"] <= 100 + BLOCK


def test_a_killed_process_has_counted_everything_that_left(tmp_path: Path) -> None:
    """Each line stands for answers that have left; kill -9 may come at any of them."""
    code = (
        "from pathlib import Path; from sagefl.node.account import KeptAccount; import itertools, sys\n"
        "kept = KeptAccount(1.0, Path(sys.argv[1]))\n"
        "for n in itertools.count(1):\n    kept.answered('bob', 100); print(100 * n, flush=True)\n"
    )
    path = tmp_path / "run.account"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(57):
            process.stdout.readline()
        process.kill()
        left = int([5700, *process.stdout.read().split()][-1])
    again = KeptAccount(1.0, path)
    again.load()
    assert left <= again.held()["bob"] <= left + 100 + BLOCK  # it may have counted answers that did not leave any more


def test_a_directory_removed_to_begin_anew_takes_no_answer_back(federation: Federation) -> None:
    assert held_after_a_restart(federation, "alice", ()) == {}
    kept = KeptAccount(0.5, federation.home / "runs" / "alice.account")
    kept.answered("bob", 3)
    kept.close()
    (federation.home / "runs" / "alice").rename(federation.home / "gone")
    assert held_after_a_restart(federation, "alice", ()) == {"bob": 3}


def test_the_docs_say_how_much_too_high_it_may_be() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "node.md"
    assert f"a crash up to {BLOCK:,} answers too high" in docs.read_text(encoding="utf-8")


# What it costs, and where it cannot be kept ---------------------------------------------------------------------------


def test_most_requests_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write_text = account.write_text

    def counted(path: Path, text: str) -> None:
        written.append(text)
        write_text(path, text)

    monkeypatch.setattr(account, "write_text", counted)
    kept = KeptAccount(1.0, tmp_path / "run.account")
    for number in range(1, 1001):
        for peer in ("bob", "carol"):
            kept.answered(peer, 10)
            assert json.loads(kept.path.read_text())["answers"][peer] >= 10 * number
    assert len(written) <= 2 * (1 + 10_000 // BLOCK)


def test_where_the_account_cannot_be_written_nothing_is_answered(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with federation.honest("bob", **PRIVATE) as bob:
        bob.recorder.prepare()  # for its log
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "fsync", full)
            with pytest.raises(Fault, match="internal error"):
                ask(federation, "alice", "bob", slice(0, 64))
        assert bob.published.account.held() == {}
        assert bob.journal.counts[("internal-error", "alice")] > 0
        bob.journal.flush()
        assert "cannot write the privacy account" in (Path(bob.config.directory) / "events.log").read_text()
        ask(federation, "alice", "bob", slice(0, 64))  # there is space again
        assert bob.published.account.held() == {"alice": 64}


def test_a_node_whose_account_cannot_be_read_does_not_start(federation: Federation) -> None:
    alice = federation.node("alice", (), **PRIVATE)
    (federation.home / "runs" / "alice.account").write_text("{}")
    with pytest.raises(NodeError, match=r"alice\.account is not a privacy account .* restore it from a copy"):
        alice.run()


def test_answers_at_another_epsilon_weigh_what_they_weighed(tmp_path: Path) -> None:
    before = KeptAccount(1.0, tmp_path / "run.account")
    before.answered("bob", 7)
    before.close()
    now = KeptAccount(2.0, tmp_path / "run.account")
    now.load()
    assert now.report()["total"] == 8.0  # in whole answers, rounded up


def test_a_late_answer_of_a_stopped_node_is_not_given(tmp_path: Path) -> None:
    """Another process may hold the account by then: it must not be written over."""
    kept = KeptAccount(1.0, tmp_path / "run.account")
    kept.close()
    with pytest.raises(NodeError, match="has stopped"):
        kept.answered("bob", 1)


# The budget ----------------------------------------------------------------------------------------------------------


def test_near_copies_average_noise_away_and_the_budget_is_what_stops_it(federation: Federation) -> None:
    """Inputs of float32 that differ in their last bits are different questions to the model, with fresh noise each."""
    arrays = tiny_arrays()
    data = type(tiny()).from_arrays(
        "floats", arrays["x_train"].astype(np.float32) / 255, arrays["y_train"],
        arrays["x_test"].astype(np.float32) / 255, arrays["y_test"], 4,
    )  # fmt: skip

    def recovered(budget: float) -> tuple[int, Node]:
        privacy = {"mechanism": "k-rr", "epsilon": 1.0, "budget": budget}
        node = Node(federation.config("bob", ("mallory",), privacy=privacy), dataset=data)
        node._publish(*node.learner.train(0))
        service, snapshot = PeerService(node.published), node.published.snapshots.find()
        assert snapshot is not None
        right = 0
        kinds.clear()
        for x in data.train_x[:20]:
            copies = np.stack([x] * 256)
            copies[:, 0, 0, :8] += np.arange(256)[:, None].astype(np.float32) * np.float32(1e-7)
            try:
                told = labels_told(service, copies, snapshot.digest)
            except Refusal as refusal:
                kinds.add(refusal.kind)
                continue
            right += int(np.bincount(told, minlength=4).argmax() == snapshot.infer(x[None]).argmax().item())
        return right, node

    kinds: set[str] = set()
    right, _ = recovered(1e6)
    assert right == 20  # the limit that the documentation states
    right, node = recovered(300.0)
    assert right <= 1  # one question of 256 copies is all that is paid for
    assert kinds == {"privacy-budget"}
    assert node.published.account is not None
    assert node.published.account.spent("mallory") <= 300


def labels_told(service: PeerService, inputs: np.ndarray, digest: bytes) -> np.ndarray:
    call = Caller("mallory", Meter(service.published.limits), None)
    request = wire.ProbeRequest(count=len(inputs), inputs=inputs.astype("<f4").tobytes(), digest=digest)
    return np.frombuffer(service.Probe(request, call).answers, np.uint8)


def test_a_neighbour_whose_budget_is_spent_is_refused_by_name_and_the_others_are_not(federation: Federation) -> None:
    privacy = {"privacy": {"mechanism": "k-rr", "epsilon": 0.5, "budget": 20.0}, "method": {"id": "rg"}}
    with federation.honest("bob", **privacy) as bob:
        mallory, alice = federation.client("mallory", "bob"), federation.client("alice", "bob")
        digest, x = bytes(mallory.describe().digest), tiny().train_x
        mallory.probe(LABEL_ERRORS, x[:40], digest)
        mallory.probe(LABEL_ERRORS, x[:40], digest)  # the same again costs nothing
        with pytest.raises(Fault, match="privacy budget of 20 towards mallory is used up"):
            mallory.probe(LABEL_ERRORS, x[40:41], digest)
        assert bob.journal.counts[("privacy-budget", "mallory")] == 1
        alice.probe(LABEL_ERRORS, x[:10], digest)
        bob._report("waiting")
        spent = {name: bob.metrics.registry.get_sample_value("sagefl_privacy_spent", {"peer": name})
                 for name in ("mallory", "alice")}  # fmt: skip
        assert spent == {"mallory": 1.0, "alice": 0.25}
        assert bob.published.account.held() == {"mallory": 40, "alice": 10}


def test_what_was_asked_is_remembered_up_to_a_bound(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a repeated question is charged again: the budget holds, and memory does not grow."""
    monkeypatch.setattr("sagefl.node.service.REMEMBERED", 30)
    node = Node(federation.config("bob", ("mallory",), privacy={"mechanism": "k-rr", "epsilon": 1.0, "budget": 100.0}),
                dataset=tiny())  # fmt: skip
    node._publish(*node.learner.train(0))
    service, snapshot = PeerService(node.published), node.published.snapshots.find()
    assert snapshot is not None
    assert node.published.account is not None
    for first, spent in ((0, 20), (0, 20), (20, 40), (20, 60), (0, 60), (20, 80), (20, 100)):
        service._count("mallory", snapshot.digest, tiny().train_x[first : first + 20])
        assert node.published.account.spent("mallory") == spent
        assert sum(map(len, service._counted["mallory"].values())) <= 30
    with pytest.raises(Refusal, match="is used up"):
        service._count("mallory", snapshot.digest, tiny().train_x[20:40])


# Copies ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mechanism", "copied"), [("k-rr", True), ("k-rr", False), ("none", True)])
def test_copies_among_anchors_are_told_at_the_start(federation: Federation, mechanism: str, copied: bool) -> None:
    """All copies of an input get one noisy answer, and a rule that remembers would count it as many."""
    settings = PRIVATE | {"privacy": PRIVATE["privacy"] | {"mechanism": mechanism}}
    config, data = federation.config("alice", (), **settings), tiny()
    pool = Node(config, dataset=data).learner.roles.anchor
    if copied:
        data.train_x[pool[1:3]] = data.train_x[pool[0]]
    node = Node(config, dataset=data)
    node.run()
    warned = copied and mechanism != "none"
    assert node.journal.total("copied-anchors") == warned
    told = f"2 of {len(pool)} anchors are copies of another: a private node gives all copies of an input one noisy"
    assert (told in (Path(config.directory) / "events.log").read_text()) == warned
