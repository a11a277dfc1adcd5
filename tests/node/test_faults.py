"""Neighbours that fail in every way we could think of, over the real transport. Nothing bad is ever merged."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import polars as pl
import pytest
import torch
from federation import NAMES, Federation
from safetensors.torch import save

from sagefl.node import deciding, identity, journal
from sagefl.node.errors import Fault
from sagefl.node.gate import Caller
from sagefl.node.limits import Meter
from sagefl.node.loop import Node
from sagefl.node.service import PeerService
from sagefl.node.snapshots import Snapshot, block_digest, payload
from sagefl.node.verify import decode_answers
from sagefl.node.wire import node_pb2 as wire
from sagefl.runs import checkpoint, files
from sagefl.selection.scoring import Outputs, scoring

MALLORY = NAMES.index("mallory")
BOB = NAMES.index("bob")


class Base:
    """Answers like its honest original, except where a subclass does not."""

    def __init__(self, honest: PeerService) -> None:
        self.honest = honest
        self.calls: list[str] = []
        self.over = threading.Event()

    def stay_silent(self) -> None:
        """Until the test is over, so that no thread outlives it; who waits for it without a deadline gets an answer."""
        self.over.wait(60)

    def _call(self, method: str, request: Any) -> Any:
        self.calls.append(method)
        meter = Meter(self.honest.published.limits)
        return getattr(self.honest, method)(request, Caller("alice", meter, None))

    def Describe(self, request: Any, context: Any) -> Any:
        return self._call("Describe", request)

    def Probe(self, request: Any, context: Any) -> Any:
        return self._call("Probe", request)

    def Pull(self, request: Any, context: Any) -> Any:
        yield from self._call("Pull", request)

    def Inspect(self, request: Any, context: Any) -> Any:
        yield from self._call("Inspect", request)

    def Read(self, request: Any, context: Any) -> Any:
        return self._call("Read", request)

    def Health(self, request: Any, context: Any) -> Any:
        return self._call("Health", request)

    @property
    def newest(self) -> Snapshot:
        found = self.honest.published.snapshots.find()
        assert found is not None
        return found


def _described(**changes: Any) -> type[Base]:
    class Bad(Base):
        def Describe(self, request: Any, context: Any) -> Any:
            answer = super().Describe(request, context)
            for name, value in changes.items():
                setattr(answer, name, value)
            return answer

    return Bad


def _answered(change: Callable[[wire.ProbeAnswer], None]) -> type[Base]:
    class Bad(Base):
        def Probe(self, request: Any, context: Any) -> Any:
            answer = super().Probe(request, context)
            change(answer)
            return answer

    return Bad


def _sent(make: Callable[[Base], Iterator[wire.Chunk]]) -> type[Base]:
    class Bad(Base):
        def Pull(self, request: Any, context: Any) -> Any:
            yield from make(self)

    return Bad


def _whole(content: bytes) -> Iterator[wire.Chunk]:
    yield wire.Chunk(total=len(content), data=content)


def _set(name: str, value: Callable[[bytes], bytes]) -> Callable[[wire.ProbeAnswer], None]:
    return lambda answer: setattr(answer, name, value(getattr(answer, name)))


def _nan_block(self: Base) -> Iterator[wire.Chunk]:
    row = self.newest.row.clone()
    row[3] = float("nan")
    yield from _whole(payload(row, self.newest.layout, full=False))


def _other_block(self: Base) -> Iterator[wire.Chunk]:
    yield from _whole(payload(self.newest.row * 0.5, self.newest.layout, full=False))


def _truncated(self: Base) -> Iterator[wire.Chunk]:
    yield wire.Chunk(total=len(self.newest.block), data=self.newest.block[:100])


def _endless(self: Base) -> Iterator[wire.Chunk]:
    yield wire.Chunk(total=len(self.newest.block), data=self.newest.block)
    while True:
        yield wire.Chunk(data=b"x" * 1000)


def _nothing_for_ever(self: Base) -> Iterator[wire.Chunk]:
    yield wire.Chunk(total=1000, data=b"x")
    while True:
        yield wire.Chunk()


def _mute(self: Base) -> Iterator[wire.Chunk]:
    self.stay_silent()
    yield from ()


def _drip(self: Base) -> Iterator[wire.Chunk]:
    yield wire.Chunk(total=len(self.newest.block), data=b"x")
    for _ in range(100):
        time.sleep(0.2)
        yield wire.Chunk(data=b"x")


def _boastful(self: Base) -> Iterator[wire.Chunk]:
    yield wire.Chunk(total=1 << 50, data=b"x" * 1000)


def _half(self: Base) -> Iterator[wire.Chunk]:
    layout = self.newest.layout
    views = layout.views(self.newest.row)
    slot = layout.slots[0]
    yield from _whole(save({slot.name: views[slot.name].half()}))


class Large(Base):
    """Far too large a block under its own, true digest."""

    def __init__(self, honest: PeerService) -> None:
        super().__init__(honest)
        newest = self.newest
        row = newest.row * 1000
        digest = block_digest(row[newest.layout.shared], newest.layout)
        honest.published.snapshots.publish(Snapshot(newest.round, row, newest.layout, newest.model, digest))


class Silent(Base):
    """Is there, but never answers a probe."""

    def Probe(self, request: Any, context: Any) -> Any:
        self.stay_silent()
        return super().Probe(request, context)


class Deaf(Base):
    """Never answers anything."""

    def Describe(self, request: Any, context: Any) -> Any:
        self.stay_silent()
        return super().Describe(request, context)


class Dying(Base):
    """Answers the first probe of a decision and dies."""

    def Probe(self, request: Any, context: Any) -> Any:
        if self.calls.count("Probe"):
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        return super().Probe(request, context)


class Crashing(Base):
    """Raises."""

    def Probe(self, request: Any, context: Any) -> Any:
        raise RuntimeError("on purpose")


PROBED = {"method": {"id": "aq-128"}}
PULLED = {"method": {"id": "d-psgd"}}  # pulls from everybody
WAITED = {"exchange": {"deadline": 5.0}}  # is waited out
LATENTS = {"method": {"id": "sage-os", "options": {"kind": "latents"}}}
PROBS = {"method": {"id": "aq-128", "options": {"kind": "probs", "loss": "ce"}}}
nan = np.full(1, np.nan, "<f4").tobytes()


def _overconfident(answers: bytes) -> bytes:
    """One class has log-probability 5e-4 everywhere: within 1e-3 they add up to one."""
    row = np.array([5e-4, -30, -30, -30], "<f4").tobytes()
    return row * (len(answers) // len(row))


CASES: dict[str, tuple[type[Base], str, dict[str, Any]]] = {
    "another layout": (_described(layout="00" * 32), "other-layout", PROBED),
    "another number of classes": (_described(classes=7), "other-data", PROBED),
    "other privacy": (_described(mechanism="k-rr", epsilon=1.0), "other-privacy", PROBED),
    "one anchor at a time": (_described(max_anchors=1), "small-batches", PROBED),
    "a digest of three bytes": (_described(digest=b"abc"), "malformed", PROBED),
    "too few labels": (_answered(_set("answers", lambda a: a[:-1])), "wrong-shape", PROBED),
    "no labels": (_answered(_set("answers", lambda a: b"")), "wrong-shape", PROBED),
    "labels out of range": (_answered(_set("answers", lambda a: b"\xff" * len(a))), "label-out-of-range", PROBED),
    "answers of another snapshot": (_answered(_set("digest", lambda d: b"\0" * 32)), "wrong-digest", PROBED),
    "NaN latents": (_answered(_set("answers", lambda a: nan * (len(a) // 4))), "not-finite", LATENTS),
    "latents of another width": (_answered(_set("answers", lambda a: a + a)), "wrong-shape", LATENTS),
    "NaN probabilities": (_answered(_set("answers", lambda a: nan * (len(a) // 4))), "not-finite", PROBS),
    "probabilities above one": (_answered(_set("answers", lambda a: bytes(len(a)))), "wrong-values", PROBS),
    "a probability just above one": (_answered(_set("answers", _overconfident)), "wrong-values", PROBS),
    "NaN in the block": (_sent(_nan_block), "not-finite", PULLED),
    "another block than answered": (_sent(_other_block), "wrong-digest", PULLED),
    "a truncated stream": (_sent(_truncated), "truncated", PULLED),
    "an endless stream": (_sent(_endless), "endless", PULLED),
    "an endless stream of nothing": (_sent(_nothing_for_ever), "malformed", PULLED),
    "a stream that drips": (_sent(_drip), "too-slow", {**PULLED, **WAITED}),
    "a peer that never sends its model": (_sent(_mute), "no-answer", {**PULLED, **WAITED}),
    "an announced petabyte": (_sent(_boastful), "oversized", PULLED),
    "an empty stream": (_sent(lambda self: iter(())), "truncated", PULLED),
    "not safetensors": (_sent(lambda self: _whole(b"garbage" * 99)), "malformed", PULLED),
    "a block of another layout": (_sent(_half), "other-layout", PULLED),
    "a block of huge norm": (Large, "norm-bound", PULLED),
    "a peer that never answers": (Silent, "no-answer", {**PROBED, **WAITED}),
    "a peer that crashes": (Crashing, "peer-error", PROBED),
}


def _decisions(node: Node) -> pl.DataFrame:
    return node.recorder.directory.table("decisions")


@pytest.mark.parametrize("case", CASES)
def test_a_bad_neighbour_is_counted_logged_and_never_merged(federation: Federation, case: str) -> None:
    service, kind, settings = CASES[case]
    with federation.honest("bob"), federation.bad("mallory", service):
        alice = federation.node("alice", ("bob", "mallory"), **settings)
        assert alice.run() is not None
    times = 1 if kind in ("no-answer", "too-slow") else 2  # once a round; who cost time is left alone for the next
    assert alice.journal.counts[(f"fault-{kind}", "mallory")] == times
    events = [json.loads(line) for line in (Path(alice.config.directory) / "events.log").read_text().splitlines()]
    assert any(e["event"] == f"fault-{kind}" and e["peer"] == "mallory" and e["why"] for e in events)
    decisions = _decisions(alice)
    assert decisions["chosen"].to_list() == [[BOB], [BOB]]  # the honest one is merged in its stead
    assert decisions["peers"].to_list() == [[BOB], [BOB]]
    assert torch.isfinite(alice.learner.population.params).all()


def test_losses_that_no_answer_may_lead_to_cost_the_neighbour_its_place(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever passes the checks of answers themselves: the node lives on."""

    def lenient(form: Any, raw: bytes, count: int, *rest: Any) -> np.ndarray:
        return np.frombuffer(raw, "<f4").reshape(count, -1)

    monkeypatch.setattr(deciding, "decode_answers", lenient)
    with federation.honest("bob"), federation.bad("mallory", _answered(_set("answers", _overconfident))):
        alice = federation.node("alice", ("bob", "mallory"), **PROBS)
        assert alice.run() is not None
    assert alice.journal.counts[("fault-wrong-values", "mallory")] == 2
    assert _decisions(alice)["chosen"].to_list() == [[BOB], [BOB]]


@pytest.mark.parametrize("logarithm", [0.0, 1e-7])
def test_a_probability_that_rounds_to_one_is_one(logarithm: float) -> None:
    raw = np.array([[logarithm, -40, -40, -40]], "<f4").tobytes()
    form = scoring("probs", "ce")
    assert form.score(decode_answers(form, raw, 1, Outputs(4)), np.array([0])).tolist() == [0.0]


class Poisoner(Base):
    """Consistent in everything but the model: probes are answered by a good one, its digest and pulls are poison."""

    def __init__(self, honest: PeerService) -> None:
        super().__init__(honest)
        newest = self.newest
        row = newest.row.clone()
        for slot in newest.layout.slots:  # the same numbers in another order: no norm gives it away
            row[slot.start : slot.start + slot.size] = row[slot.start : slot.start + slot.size].flip(0)
        digest = block_digest(row[newest.layout.shared], newest.layout)
        honest.published.snapshots.publish(Snapshot(newest.round, row, newest.layout, newest.model, digest))


def test_a_peer_that_answers_well_and_ships_poison_is_caught_with_latents(federation: Federation) -> None:
    with federation.honest("bob"), federation.bad("mallory", Poisoner):
        alice = federation.node("alice", ("bob", "mallory"), rounds=6, **LATENTS)
        alice.run()
    decisions = _decisions(alice)
    caught = alice.journal.counts[("fault-latent-mismatch", "mallory")]
    assert caught > 0
    assert decisions["rejected"].sum() == caught
    merged = decisions.filter(pl.col("merged") > 0)
    assert merged["chosen"].to_list() == [[BOB]] * 6


def test_with_labels_the_same_poison_passes_which_the_docs_say(federation: Federation) -> None:
    """The head stays with the peer, so labels cannot be recomputed: this is the documented limit."""
    with federation.bad("mallory", Poisoner):
        alice = federation.node("alice", ("mallory",), method={"id": "aq-128"})
        alice.run()
    assert _decisions(alice)["chosen"].to_list() == [[MALLORY]] * 2
    docs = Path(__file__).resolve().parents[2] / "docs" / "node.md"
    assert "cannot be checked" in docs.read_text(encoding="utf-8")


def test_a_neighbour_that_dies_mid_decision_costs_only_what_was_not_asked(federation: Federation) -> None:
    counted: list[int] = []

    class Counting(Base):
        def Probe(self, request: Any, context: Any) -> Any:
            counted.append(request.count)
            return super().Probe(request, context)

    settings = {"method": {"id": "sage-vanilla", "options": {"schedule": (8, 16, 32)}}, "rounds": 1}
    with federation.bad("bob", Counting), federation.honest("carol"), federation.bad("mallory", Dying):
        alice = federation.node("alice", ("bob", "carol", "mallory"), **settings)
        alice.run()
    (row,) = _decisions(alice).to_dicts()
    assert row["lost"] == [MALLORY]
    assert row["restarts"] == 1
    assert row["peers"] == [BOB, NAMES.index("carol")]
    assert sum(counted) == row["anchors"]  # nobody was asked twice about the same anchor
    # Two survivors on all anchors, and the first stage of the one that died, which stays paid for.
    assert row["evaluations"] == 2 * row["anchors"] + 8


def test_without_active_neighbours_a_node_goes_on_training(federation: Federation) -> None:
    with federation.bad("mallory", Deaf):
        alice = federation.node("alice", ("bob", "mallory"), exchange={"deadline": 0.5, "linger": 0.0})
        start = alice.learner.population.params[0].clone()
        assert alice.run() is not None
    assert _decisions(alice)["reason"].to_list() == ["none", "none"]
    assert not torch.equal(alice.learner.population.params[0], start)
    assert alice.journal.total("fault-no-answer") == 2  # then they are looked for in the background


def test_a_node_that_is_told_to_wait_begins_with_neighbours_that_train_longer(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up is not ready: a neighbour answers from its first model on, and that may take it longer."""
    slow = federation.node("bob", ("alice",), rounds=1, exchange={"linger": None})
    train = slow.learner.train

    def at_leisure(number: int) -> tuple[float, int]:
        time.sleep(1.5)
        return train(number)

    monkeypatch.setattr(slow.learner, "train", at_leisure)
    neighbour = threading.Thread(target=slow.run, daemon=True)
    neighbour.start()
    try:
        node = federation.node("alice", ("bob",), rounds=1, exchange={"wait": 120.0})
        node.run()
    finally:
        slow.stop()
        neighbour.join(60)
    assert _decisions(node)["peers"].to_list() == [[BOB]]


def test_a_full_disk_at_a_checkpoint_is_an_event_and_the_next_one_works(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, save_file = [], checkpoint.save_file

    def full_once(*args: Any) -> None:
        if not saved:
            saved.append(1)
            raise OSError(28, "No space left on device")
        save_file(*args)

    monkeypatch.setattr(checkpoint, "save_file", full_once)
    alice = federation.node("alice", ())
    assert alice.run() is not None
    assert alice.journal.totals()["write-failed"] == 1
    stored = sorted(p.name for p in (Path(alice.config.directory) / "checkpoint").iterdir())
    assert stored == ["round-00002"]


def test_a_disk_that_stays_full_stops_nothing_but_the_writing(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = federation.node("alice", ())
    alice.recorder.prepare()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)  # every atomic write ends here
    alice.run()
    assert alice.round == 2
    assert alice.journal.total("write-failed") >= 4


class Skewed:
    """A clock that is wrong."""

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def time(self) -> float:
        return time.time() + self.shift


def _skew(monkeypatch: pytest.MonkeyPatch, shift: float) -> None:
    true_now = identity.now
    monkeypatch.setattr(identity, "now", lambda: true_now() + datetime.timedelta(seconds=shift))
    monkeypatch.setattr(journal, "time", Skewed(shift))


@pytest.mark.parametrize("hours", [-20, 20])
def test_a_skewed_clock_disturbs_neither_certificates_nor_limits_nor_deadlines(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    with federation.honest("bob"):
        alice = federation.node("alice", ("bob",), **PROBED)
        _skew(monkeypatch, 3600 * hours)
        alice.run()
    assert _decisions(alice)["merged"].to_list() == [1, 1]


@pytest.mark.parametrize("days", [-400, 400])
def test_a_clock_that_is_years_off_makes_a_lonely_node_not_a_crash(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, days: float
) -> None:
    with federation.honest("bob"):
        alice = federation.node("alice", ("bob",), **PROBED)
        _skew(monkeypatch, 86400 * days)
        assert alice.run() is not None
    assert _decisions(alice)["reason"].to_list() == ["none", "none"]
    assert alice.journal.counts[("fault-refused-expired", "bob")] == 2


def test_a_stopped_node_goes_on_where_it_was(federation: Federation) -> None:
    def run(rounds_then_stop: int | None) -> Node:
        alice = federation.node("alice", ("bob",), rounds=4, **PROBED)
        if rounds_then_stop is not None:
            plain = alice._checkpoint

            def checkpoint(loss: float, samples: int) -> None:
                plain(loss, samples)
                if alice.round == rounds_then_stop:
                    alice.stop()

            alice._checkpoint = checkpoint  # type: ignore[method-assign]
        alice.run()
        return alice

    with federation.honest("bob"):
        assert run(2).round == 2
        resumed = run(None)
        assert resumed.journal.totals()["resumed"] == 1
        assert _decisions(resumed)["round"].to_list() == [0, 1, 2, 3]
        shutil.rmtree(resumed.config.directory)
        through = run(None)
    assert torch.equal(through.learner.population.params[0], resumed.learner.population.params[0])
    assert _decisions(through).drop("digest").equals(_decisions(resumed).drop("digest"))


def test_what_nobody_foresaw_is_a_fault_and_leaves_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    known = Fault("no-answer", "silence")
    assert Fault.of(known) is known
    with caplog.at_level("INFO"):
        try:
            raise ZeroDivisionError("ours?")
        except ZeroDivisionError as error:
            made = Fault.of(error)
    assert (made.kind, str(made)) == ("unexpected", "ZeroDivisionError: ours?")
    assert 'raise ZeroDivisionError("ours?")' in caplog.text
