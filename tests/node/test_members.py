"""Against its own members: floods, calls without a message, poison, drips, full disks and stalled readers.

Attackers have valid certificates. Those that flood or poison are processes of their own, and so are their victims;
those that are merely slow are services inside the test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
import polars as pl
import pytest
from attackers import LASTING, attack, channel, peer
from cryptography import x509
from federation import Federation, tiny_arrays
from processes import Left, blamed, connections, lived, round_of, running, start, until
from test_faults import MALLORY, Base

from sagefl.node.client import PeerClient, ask_health
from sagefl.node.config import NodeConfig
from sagefl.node.doors import UNKNOWN
from sagefl.node.errors import Fault
from sagefl.node.service import PeerService
from sagefl.node.status import read_status
from sagefl.selection.scoring import LABEL_ERRORS

# Floods -------------------------------------------------------------------------------------------------------------


# Seconds: a call takes 1 to 3 ms here, and when attacker, node and caller share two cores, whoever wakes up waits for a
# time slice of the scheduler (3 to 10 ms) though the node does nothing wrong.
FLOOR = 0.01
TURNS = 5
# A node that has trained once, and answers until it is stopped.
STANDING: dict[str, Any] = {"rounds": 1, "exchange": {"linger": None, "deadline": 0.2}}


def _latencies(federation: Federation, count: int = 40) -> list[float]:
    client = federation.client("alice", "bob", retries=0)
    found = [_seconds(client.health) for _ in range(count)]  # raises if it fails or takes longer than its deadline
    client.close()
    return found


def _seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _calls(federation: Federation, count: int = 10) -> dict[str, float]:
    """The median seconds of a question about 16 anchors, and of one for health."""
    client = federation.client("alice", "bob", retries=0)
    digest, inputs = client.describe().digest, tiny_arrays()["x_train"][:16]
    calls = {"probe": lambda: client.probe(LABEL_ERRORS, inputs, digest), "health": client.health}
    found = {name: median(_seconds(call) for _ in range(count)) for name, call in calls.items()}
    client.close()
    return found


@pytest.mark.parametrize("who", ["a stranger", "revoked", "a neighbour"])
def test_calls_without_a_message_hold_up_nobody_else_and_name_their_maker(
    federation: Federation, config: Callable[..., Path], who: str
) -> None:
    """32 calls on 4 connections that never send anything, again and again, against a node in a process of its own."""
    known = ("alice",) if who == "a stranger" else ("alice", "mallory")
    limits = {"open_seconds": 0.5, "calls_at_once": 4}
    kind = {"a stranger": "refused-not-a-neighbour", "revoked": "refused-revoked", "a neighbour": "half-open"}[who]
    home = federation.home / "runs" / "bob"
    with running(config("bob", known, limits=limits, **STANDING)):
        if who == "revoked":
            certificate = x509.load_pem_x509_certificate((federation.home / "mallory" / "node.pem").read_bytes())
            shutil.copy(federation.authority.revoke(certificate), federation.home / "bob" / "revoked.pem")
        idle, busy = [], []
        with attack("half-open", federation.home / "mallory", federation.addresses["bob"], "bob") as attacker:
            for _ in range(TURNS):  # in turns, for the machine may have other work
                attacker.send_signal(signal.SIGSTOP)
                time.sleep(2 * limits["open_seconds"])  # whatever it has open is over
                idle.append(_calls(federation))
                attacker.send_signal(signal.SIGCONT)
                enough = max(blamed(home)[kind, "mallory"] + 1, 8)
                until(lambda enough=enough: blamed(home)[kind, "mallory"] >= enough)
                busy.append(_calls(federation))
        assert {event for event, peer in blamed(home) if peer == "alice"} <= {"fault-no-answer"}
        for call in ("probe", "health"):
            times = [under[call] / max(alone[call], FLOOR / 5) for alone, under in zip(idle, busy, strict=True)]
            assert median(times) <= 5, (call, idle, busy)


READY = grpc.ChannelConnectivity.READY
QUIET = {"silent_seconds": 600.0}  # nobody is hung up for that


def _call_once(federation: Federation, states: list[grpc.ChannelConnectivity]) -> grpc.Channel:
    """A connection of its own on which mallory has called bob once; what becomes of it is in `states`."""
    own = channel(federation.home / "mallory", federation.addresses["bob"], "bob")
    own.subscribe(states.append)
    with suppress(grpc.RpcError):
        own.unary_unary("/sagefl.node.v1.Peer/Health")(b"", timeout=60)
    return own


def test_two_hundred_connections_of_a_stranger_are_hung_up(federation: Federation, config: Callable[..., Path]) -> None:
    home, address = federation.home / "runs" / "bob", federation.addresses["bob"]
    with running(config("bob", ("alice",), limits=QUIET, **STANDING)):
        with attack("connections", federation.home / "mallory", address, "bob") as attacker:
            until(lambda: blamed(home)["refused-not-a-neighbour", "mallory"] >= 200)
            assert _latencies(federation, 20)
            attacker.send_signal(signal.SIGSTOP)  # so that it closes none itself
            until(lambda: connections(address) <= UNKNOWN)
        states: list[grpc.ChannelConnectivity] = []
        with _call_once(federation, states):
            until(lambda: READY in states and states[-1] != READY)


def test_a_neighbours_connections_are_capped_and_the_others_served(
    federation: Federation, config: Callable[..., Path]
) -> None:
    home, address = federation.home / "runs" / "bob", federation.addresses["bob"]
    path = config("bob", ("alice", "mallory"), limits=QUIET, **STANDING)
    most = NodeConfig.read(path).limits.connections
    with running(path):
        states: list[list[grpc.ChannelConnectivity]] = [[] for _ in range(most + 1)]
        with ExitStack() as held:
            for each in states:
                held.enter_context(_call_once(federation, each))
            until(lambda: READY in states[0] and states[0][-1] != READY)  # the oldest
            until(lambda: all(each[-1:] == [READY] for each in states[1:]))
        with attack("connections", federation.home / "mallory", address, "bob") as attacker:
            until(lambda: blamed(home)["over-limit", "mallory"] >= 20)
            assert _latencies(federation, 20)
            attacker.send_signal(signal.SIGSTOP)
            until(lambda: connections(address) <= UNKNOWN + most)


def test_whoever_connects_anew_for_every_call_is_served(federation: Federation) -> None:
    """What it has closed may not be gone here yet: that must not stand in its way."""
    with federation.honest("bob", ("alice",)) as bob:
        assert {ask_health(bob.config, "live") for _ in range(20)} == {"serving"}


def test_a_crowd_of_silent_connections_costs_its_own_host_the_oldest(federation: Federation) -> None:
    with federation.honest("bob", ("alice",), limits=QUIET) as bob:
        host, port = federation.addresses["bob"].split(":")
        states: list[grpc.ChannelConnectivity] = []
        with channel(federation.home / "alice", federation.addresses["bob"], "bob") as ours:  # silent, too
            grpc.channel_ready_future(ours).result(60)
            ours.subscribe(states.append)
            until(lambda: bool(states))
            crowd = [socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0)) for _ in range(80)]
            until(lambda: bob.journal.counts[("silent-connections", "127.0.0.2")] >= 1)
            assert bob.journal.counts[("silent-connections", "127.0.0.1")] == 0
            time.sleep(0.5)
            assert set(states) == {READY}
        for one in crowd:
            one.close()


def test_connections_on_which_nobody_calls_are_closed(federation: Federation) -> None:
    with federation.honest("bob", ("alice",), limits={"silent_seconds": 0.5}) as bob:
        host, port = federation.addresses["bob"].split(":")
        tls = federation.identity("mallory").tls()
        plain = [socket.create_connection((host, int(port))) for _ in range(80)]
        silent = []
        for one in plain:
            one.settimeout(60)
            with suppress(ConnectionError, ssl.SSLError):  # on a busy machine it is closed before it is through
                silent.append(tls.wrap_socket(one, server_hostname="bob"))
        assert silent
        for one in silent:  # a time-out is neither, and fails
            with suppress(ConnectionError, ssl.SSLError):
                while one.recv(4096):
                    pass
            one.close()
        assert bob.journal.total("silent-connections") >= 1
        assert _latencies(federation, 5)


# Poison -------------------------------------------------------------------------------------------------------------


PATIENT: dict[str, Any] = {"training": {"max_batches": None, "epochs": 6, "learning_rate": 0.01}}
# Published once: if it trained on while the others are late, its norms alone would give it away (2.5 times those of a
# model one round older are more than 3 times one's own), and the test after mixing would have nothing to find.
ONCE: dict[str, Any] = {**LASTING, "exchange": {"pace": 3600.0}}
POISON = {
    "memorised anchors, chosen by probing": ("flatter", {"method": {"id": "aq-128"}}),
    "rubbish without a lie, merged by gossip": ("rubbish", {"method": {"id": "rg"}}),
}


@pytest.fixture
def poisoned(federation: Federation, config: Callable[..., Path]) -> Callable[..., Left]:
    def live(case: str, **settings: Any) -> Left:
        kind, method = POISON[case]
        with federation.honest("bob", **PATIENT), peer(kind, config("mallory", ("alice",), **ONCE, **PATIENT)):
            return lived(config("alice", ("bob", "mallory"), rounds=6, **{**PATIENT, **method, **settings}))

    return live


@pytest.mark.parametrize("case", POISON)
def test_a_merge_that_does_harm_on_unseen_samples_is_taken_back_and_its_maker_left_alone(
    poisoned: Callable[..., Left], case: str
) -> None:
    alice = poisoned(case, acceptance={"share": 0.2, "tolerance": 0.2})
    taken_back = alice.decisions.filter(pl.col("rolled_back") == 1)
    assert taken_back.height >= 1
    assert all(MALLORY in chosen for chosen in taken_back["chosen"])
    assert taken_back["merged"].to_list() == [0] * taken_back.height
    assert taken_back["digest"].to_list() == [""] * taken_back.height
    assert alice.blamed["rolled-back", "mallory"] == taken_back.height
    assert alice.blamed["rolled-back", "bob"] == 0
    first = int(taken_back["round"][0])
    assert MALLORY not in alice.decisions.filter(pl.col("round") == first + 1)["peers"][0]  # left alone
    assert alice.decisions.filter(pl.col("chosen").list.contains(MALLORY) & (pl.col("merged") > 0)).height == 0
    assert alice.node.learner.evaluate(last=True).client > 0.8


def test_without_the_test_the_same_poison_is_merged(poisoned: Callable[..., Left]) -> None:
    """The control: it is the acceptance test that keeps it out."""
    alice = poisoned("memorised anchors, chosen by probing", acceptance={"share": 0.0})
    assert alice.decisions.filter(pl.col("chosen").list.contains(MALLORY) & (pl.col("merged") > 0)).height >= 3


def test_samples_of_the_test_are_sent_to_nobody_and_trained_on_by_nobody(federation: Federation) -> None:
    node = federation.node("alice", ())
    roles, data = node.learner.roles, node.learner.dataset
    assert len(roles.safety) == len(roles) // 10
    for number in range(5):
        assert not set(roles.safety) & set(node.learner.anchors(number))
    assert not set(roles.safety) & set(roles.train)
    assert not set(roles.safety) & set(roles.eval)
    assert set(node.learner.bench.corpus.shards[0]) == set(roles.train)
    without = federation.node("alice", (), acceptance={"share": 0.0})
    for role in ("anchor", "eval"):
        assert np.array_equal(getattr(without.learner.roles, role), getattr(roles, role))
    assert data.digest == without.learner.dataset.digest


@pytest.mark.slow
def test_honest_merges_are_hardly_ever_taken_back(tmp_path: Path) -> None:
    """A swarm of honest nodes with unequal data: at most one merge of a hundred."""
    from test_swarm import SOON, tiny_swarm

    settings = {"rounds": 40, "method": {"id": "rg"}, "exchange": {"wait": 60.0}}
    settings["data"] = {"dataset": str(tmp_path / "tiny.npz"), "partition": "dirichlet", "alpha": 0.5}
    with tiny_swarm(tmp_path / "out", 4, **settings) as swarm:
        swarm.watch(lambda statuses: None, 2 * SOON)
    swarm.merge()
    decisions = pl.read_parquet(swarm.out / "run" / "decisions.parquet")
    merged = decisions.filter((pl.col("merged") > 0) | (pl.col("rolled_back") == 1))
    assert merged.height > 100
    assert merged["rolled_back"].sum() <= 0.01 * merged.height


# Slowness -----------------------------------------------------------------------------------------------------------


class Drip(Base):
    """Answers every probe, and takes its time."""

    seconds = 0.9

    def Probe(self, request: Any, context: Any) -> Any:
        self.over.wait(self.seconds)
        return super().Probe(request, context)


class Slower(Drip):
    """Longer than it has for all its answers; the other one, on however busy a machine, needs less."""

    seconds = 4.0


def test_a_neighbour_that_drips_is_left_alone_longer_and_longer(federation: Federation) -> None:
    method = {"id": "sage-vanilla", "options": {"schedule": (8, 16, 24, 32)}}
    slow = {"exchange": {"decision": 3.0}, "rounds": 8}
    with federation.honest("bob"), federation.bad("mallory", Slower):
        alice = federation.node("alice", ("bob", "mallory"), method=method, **slow)
        alice.run()
    there = [MALLORY in lost for lost in alice.recorder.directory.table("decisions")["lost"].to_list()]
    assert there == [n in (0, 2, 6) for n in range(8)]
    assert (
        alice.journal.counts[("fault-too-slow", "mallory")] + alice.journal.counts[("fault-no-answer", "mallory")] == 3
    )


# Real processes: signals, disks, readers ----------------------------------------------------------------------------


def test_no_neighbour_gets_more_than_its_budget_though_the_node_is_killed(
    federation: Federation, config: Callable[..., Path]
) -> None:
    """256 copies of an image that differ in one pixel, to average the noise away, before and after kill -9."""
    settings = {"rounds": 1, "method": {"id": "rg"}, "exchange": {"linger": None, "deadline": 0.2}}
    privacy = {"mechanism": "k-rr", "epsilon": 1.0, "budget": 300.0}
    path, home = config("bob", ("alice", "mallory"), privacy=privacy, **settings), federation.home / "runs" / "bob"
    alice, mallory = (federation.client(name, "bob") for name in ("alice", "mallory"))
    copies = np.repeat(tiny_arrays()["x_train"][:2], 256, axis=0).reshape(2, 256, 1, 8, 8)
    copies[:, :, 0, 0, 0] = np.arange(256)

    for life in (1, 2):
        process = start(path, stdout=subprocess.DEVNULL)
        try:
            until(lambda: _serves(mallory))
            digest = bytes(mallory.describe().digest)
            if life == 1:
                assert len(mallory.probe(LABEL_ERRORS, copies[0], digest)) == 256
            else:
                assert len(alice.probe(LABEL_ERRORS, copies[0], digest)) == 256  # everybody has a budget of their own
            with pytest.raises(Fault, match="privacy budget of 300 towards mallory is used up"):
                mallory.probe(LABEL_ERRORS, copies[1], digest)
            until(lambda life=life: blamed(home)["privacy-budget", "mallory"] == life)
        finally:
            process.kill()
            process.wait(30)
    assert blamed(home)["privacy-budget", "alice"] == 0


def _serves(client: PeerClient) -> bool:
    try:
        return bool(client.describe().digest)
    except Fault:
        return False


def test_a_reader_that_stalls_stops_neither_training_nor_signals(
    federation: Federation, config: Callable[..., Path]
) -> None:
    """Nobody reads standard output and standard error: the pipe is full after 64 KiB."""
    path = config("alice", ("bob",), rounds=100_000, exchange={"deadline": 0.2})
    source, sink = os.pipe()
    while True:  # fill it
        os.set_blocking(sink, False)
        try:
            os.write(sink, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(sink, True)
    process = start(path, stdout=sink, stderr=sink)
    try:
        until(lambda: round_of(federation.home / "runs" / "alice") >= 10)
        process.terminate()
        assert process.wait(30) == 3
    finally:
        process.kill()
        os.close(source)
        os.close(sink)
    assert (federation.home / "runs" / "alice" / "events.log").read_text().count('"round"') > 5


def test_the_second_signal_ends_at_once_whatever_hangs(federation: Federation, config: Callable[..., Path]) -> None:
    path = config("alice", ("mallory",), rounds=100_000, method={"id": "aq-128"},
                  exchange={"deadline": 60.0, "decision": 60.0})  # fmt: skip

    class Hanging(Base):
        def Probe(self, request: Any, context: Any) -> Any:
            self.calls.append("hanging")
            self.stay_silent()
            return super().Probe(request, context)

    made: list[Hanging] = []

    def service(honest: PeerService) -> Hanging:
        made.append(Hanging(honest))
        return made[0]

    with federation.bad("mallory", service):
        process = start(path, stdout=subprocess.DEVNULL)
        try:
            until(lambda: "hanging" in made[0].calls)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert process.poll() is None
            until(lambda: process.send_signal(signal.SIGTERM) or process.poll() is not None, 50)  # two may become one
            assert process.returncode == 4
        finally:
            process.kill()


def test_one_signal_is_enough_though_a_neighbour_drips(federation: Federation, config: Callable[..., Path]) -> None:
    """The decision under way has one more deadline, then the round is given up; a restart begins it anew."""
    method = {"id": "sage-vanilla", "options": {"schedule": tuple(range(2, 34, 2))}}  # sixteen stages of 0.9 s each
    path = config("alice", ("bob", "mallory"), rounds=1000, method=method,
                  exchange={"deadline": 4.0, "decision": 600.0})  # fmt: skip
    asked: list[Drip] = []
    with federation.honest("bob"), federation.bad("mallory", lambda honest: asked.append(Drip(honest)) or asked[0]):
        process = start(path, stdout=subprocess.DEVNULL)
        try:
            until(lambda: "Probe" in asked[0].calls)
            process.terminate()
            assert process.wait(60) == 3
        finally:
            process.kill()
    log = (federation.home / "runs" / "alice" / "events.log").read_text().splitlines()
    assert [e["round"] for e in map(json.loads, log) if e["event"] in ("round", "interrupted")] == [0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, timeout=30
        ).returncode
    ):
        pytest.skip("no tmpfs can be mounted here (needs root)")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False, timeout=30)


def test_a_full_disk_with_the_log_on_it_stops_nothing_and_readiness_says_so(
    federation: Federation, config: Callable[..., Path], small_disk: Path
) -> None:
    """As `swarm` does, standard output and error go to the disk that is full."""
    path = config("alice", ("bob",), rounds=100_000, exchange={"deadline": 0.2}, directory=str(small_disk / "run"),
                  metrics={"address": "127.0.0.1:0"})  # fmt: skip
    log = (small_disk / "log.txt").open("ab")
    process = start(path, stdout=log, stderr=log)
    try:
        until(lambda: (small_disk / "run" / "status.json").is_file() and read_status(small_disk / "run")["round"] >= 2)
        with (small_disk / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                pass
        client = federation.client("bob", "alice")
        full = client.health()
        until(lambda: not client.health().ready)
        until(lambda: client.health().round >= full.round + 5)  # it trains on
        assert process.poll() is None
        (small_disk / "ballast").unlink()
        until(lambda: client.health().ready)
        process.terminate()
        assert process.wait(30) == 3
    finally:
        process.kill()
        log.close()
    assert read_status(small_disk / "run")["events"]["write-failed"] >= 1  # counted, whether a line had room or not
