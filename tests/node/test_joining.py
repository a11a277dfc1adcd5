"""Joining by ticket, hearing of others while one runs, leaving; over real TLS, the slow test with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomli_w
from cryptography import x509
from federation import SETTINGS, in_thread, tiny, tiny_arrays
from hypothesis import given
from hypothesis import strategies as st
from processes import until
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.node import joining, keeper
from sagefl.node.config import NodeConfig
from sagefl.node.errors import NodeError
from sagefl.node.identity import Identity
from sagefl.node.joining import join, kept_by, kept_members
from sagefl.node.journal import Journal
from sagefl.node.keeper import Keeper, KeeperServer
from sagefl.node.loop import Node
from sagefl.node.registry import Registry
from sagefl.node.roster import Roster
from sagefl.node.status import read_status
from sagefl.node.swarm import free_ports
from sagefl.node.ticket import Ticket


class Kept:
    """A federation with its keeper serving."""

    def __init__(self, home: Path, **options: Any) -> None:
        self.home = home
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        (home / "keeper-folder").mkdir()
        shared = {k: v for k, v in SETTINGS.items() if k != "clients"} | {"rounds": 100_000, "clients": 4}
        shared["exchange"] = {"deadline": 2.0, "transfer_deadline": 2.0, "linger": 0.0, "pace": 0.2}
        (home / "keeper-folder" / "settings.toml").write_text(tomli_w.dumps(shared))
        self.registry = Registry.create(home / "keeper-folder", self.address)
        self.journal = Journal()
        self.server = KeeperServer(Keeper(self.registry, self.journal, **options), self.address)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def ticket(self, name: str, minutes: float = 60.0) -> str:
        return str(self.registry.invite(name, minutes))

    def join(self, name: str, ticket: str | None = None, folder: str | None = None) -> Path:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        _, home = join(ticket or self.ticket(name), self.home / (folder or name), listen)
        return home

    def node(self, name: str, **changes: Any) -> Node:
        config = NodeConfig.read(self.home / name / "node.toml")
        assert config.keeper is not None
        quick = config.keeper.model_copy(update={"every": 0.2})
        return Node(config.model_copy(update={"keeper": quick, **changes}), dataset=tiny())

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(10)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.stop()


@contextmanager
def running(*nodes: Node) -> Iterator[None]:
    threads = [in_thread(node) for node in nodes]
    try:
        yield
    finally:
        for node in nodes:
            node.stop()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


# Tickets ------------------------------------------------------------------------------------------------------------


def test_whoever_has_a_ticket_gets_a_certificate_its_settings_and_its_neighbours(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    ask = joining._ask
    monkeypatch.setattr(joining, "_ask", lambda *a: (sent.append(json.dumps(a[-1])), ask(*a))[1])
    first, second = kept.join("alice"), kept.join("bob")
    identity = Identity.load(second / "identity")
    assert identity.name == "bob"
    assert (second / "identity" / "node.key").stat().st_mode & 0o077 == 0
    assert (second / "identity").stat().st_mode & 0o077 == 0
    assert len(sent) == 2
    assert "PRIVATE" not in "".join(sent)  # the key has stayed where it was made
    assert "CERTIFICATE REQUEST" in sent[1]
    config = NodeConfig.read(second / "node.toml")
    assert (config.number, config.seed, config.model.options) == (1, 3, {"hidden": 8})
    known, ever = kept_members(second / "identity")
    assert (list(known), ever) == (["alice"], {0: "alice"})
    assert known["alice"].address == NodeConfig.read(first / "node.toml").listen
    own = x509.load_pem_x509_certificate((first / "identity" / "node.pem").read_bytes())
    assert known["alice"].key == joining.fingerprint(own)


def test_a_ticket_is_good_for_one_key_and_an_answer_that_was_lost_can_be_asked_for_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket, ask = kept.ticket("alice"), joining._ask

    def cut_off(*asked: Any) -> Any:
        ask(*asked)
        raise NodeError("the keeper does not answer")

    monkeypatch.setattr(joining, "_ask", cut_off)
    with pytest.raises(NodeError, match="does not answer"):
        kept.join("alice", ticket)
    monkeypatch.setattr(joining, "_ask", ask)
    with pytest.raises(NodeError, match="unknown, used or out of date"):
        kept.join("alice", ticket, folder="thief")  # another key
    kept.join("alice", ticket)
    assert Identity.load(kept.home / "alice" / "identity").name == "alice"
    with kept.registry.open() as roster:
        assert [m.number for m in roster.members.values()] == [0]
    with pytest.raises(NodeError, match="already holds a node"):
        kept.join("alice", ticket)


def test_a_ticket_out_of_date_or_replaced_opens_nothing(kept: Kept) -> None:
    old = kept.ticket("alice", minutes=1e-4)
    time.sleep(0.05)
    with pytest.raises(NodeError, match="out of date"):
        kept.join("alice", old)
    first, second = kept.ticket("bob"), kept.ticket("bob")
    with pytest.raises(NodeError, match="out of date"):
        kept.join("bob", first, folder="one")
    kept.join("bob", second, folder="two")


def test_nothing_is_sent_to_somebody_who_poses_as_the_keeper(kept: Kept) -> None:
    found = Ticket.parse(kept.ticket("alice"))
    forged = Ticket(found.name, found.keeper, "0" * 64, found.secret)
    with pytest.raises(NodeError, match="not the keeper: its key is not the one expected"):
        kept.join("alice", str(forged))
    assert kept.journal.total("refused") == kept.journal.total("joined") == 0
    kept.join("alice", str(found))


@pytest.mark.parametrize("text", ["", "hello", "sagefl-ticket-abc", "sagefl-ticket-WyJhIiwiYiIsImMiLCJkIl0"])
def test_what_is_no_ticket_is_called_so(text: str, tmp_path: Path) -> None:
    with pytest.raises(
        NodeError, match="this is not a ticket: a ticket begins with sagefl-ticket- and is copied whole"
    ):
        join(text, tmp_path / "x", "127.0.0.1:7443")
    assert not list(tmp_path.iterdir())


def test_names_are_given_once(kept: Kept) -> None:
    kept.join("alice")
    with pytest.raises(NodeError, match="alice is a member already"):
        kept.ticket("alice")
    with pytest.raises(NodeError, match="the name of the federation's keeper"):
        kept.ticket("keeper")
    with pytest.raises(NodeError, match="cannot name a node"):
        kept.ticket("Not A Name")
    with pytest.raises(NodeError, match="more than 0 and up to 10080 minutes, got 1e"):
        kept.ticket("bob", minutes=1e9)


def test_who_joined_by_ticket_is_not_renewed_by_hand(kept: Kept) -> None:
    kept.join("alice")
    told = CliRunner().invoke(app, ["node", "renew", str(kept.registry.folder), "alice"])
    assert told.exit_code == 2
    assert "joined by ticket renew their certificates themselves, in the last 30 days" in " ".join(told.output.split())


def test_a_node_that_others_cannot_reach_does_not_join(kept: Kept, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"could not reach this node at 0\.0\.0\.0:7443: say --address"):
        join(kept.ticket("alice"), tmp_path / "alice", "0.0.0.0:7443")
    join(kept.ticket("alice"), tmp_path / "alice", "0.0.0.0:7443", "alice.example.org:7443")
    with kept.registry.open() as roster:
        assert roster.members["alice"].address == "alice.example.org:7443"


# Who may ask the keeper ---------------------------------------------------------------------------------------------


def test_only_members_ask_and_only_about_themselves(kept: Kept) -> None:
    kept.join("alice")
    asked = json.dumps({"address": "127.0.0.1:1"}).encode()
    answer = kept.server.keeper.answer
    for path in ("/v1/news", "/v1/renew", "/v1/invite", "/v1/leave"):
        status, told = answer(path, asked, None, "here")
        assert (status, told["error"][:20]) == (403, "only members may ask")
    # A certificate of this CA that was not signed for the roster opens nothing either.
    made = kept.registry.authority.issue("alice", kept.home / "made-by-hand")
    der = made.public_bytes(joining.serialization.Encoding.DER)
    assert answer("/v1/news", asked, der, "here")[0] == 403
    assert answer("/v1/else", asked, None, "here")[0] == 404
    for rubbish in (b"", b"[", b"[]", b"\xff" * 10, b'{"address": 5}', b"9" * 5000, b"[" * 10_000):
        assert answer("/v1/join", rubbish, None, "here")[0] == 400


def test_members_invite_only_where_that_is_allowed(kept: Kept, tmp_path: Path) -> None:
    alice = kept_by(NodeConfig.read(kept.join("alice") / "node.toml"))
    with pytest.raises(NodeError, match="members do not invite here"):
        alice.invite("bob", 5)
    kept.server.keeper.invites = True
    kept.join("bob", alice.invite("bob", 5))
    assert kept.journal.counts[("invited", "bob")] == 1


def test_who_has_left_or_was_revoked_is_a_member_no_longer(kept: Kept) -> None:
    alice, bob, carol = (kept_by(NodeConfig.read(kept.join(n) / "node.toml")) for n in ("alice", "bob", "carol"))
    alice.leave()
    kept.registry.dismiss("bob")
    for gone in (alice, bob):
        with pytest.raises(NodeError, match="no member of this federation, or no longer"):
            gone.news("127.0.0.1:7443")
    news = carol.news("127.0.0.1:7443")
    assert news["neighbours"] == {}
    assert carol.identity.replace_revocations(news["revoked"].encode())
    assert not carol.identity.replace_revocations(news["revoked"].encode())  # not newer
    assert len(carol.identity.revoked()) == 2
    with pytest.raises(NodeError, match="not a revocation list"):
        carol.identity.replace_revocations(b"rubbish")
    again = kept.join("alice", folder="alice-again")
    assert NodeConfig.read(again / "node.toml").number == 3  # numbers are never given twice


def test_callers_that_say_nothing_or_too_much_are_hung_up(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "SECONDS", 5.0)  # in which a busy machine has met all forty
    host, port = kept.address.split(":")
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(40)]
    until(lambda: kept.journal.total("over-limit") >= 40 - keeper.PER_HOST)
    for one in silent:  # the rest after five seconds, though they never began the handshake
        with suppress(ConnectionError):  # a time-out is none, and fails
            assert one.recv(1) == b""
        one.close()
    until(lambda: not kept.server._open)  # their places are free again
    context = joining._untrusting()
    with context.wrap_socket(socket.create_connection((host, int(port)), timeout=60)) as large:
        large.sendall(b"POST /v1/join HTTP/1.0\r\nContent-Length: 99999999\r\n\r\n")
        assert b"413" in large.recv(4096)
    with context.wrap_socket(socket.create_connection((host, int(port)), timeout=60)) as drip:
        began = time.monotonic()
        with suppress(ConnectionError, ssl.SSLError):
            while drip.send(b"P"):
                time.sleep(0.1)
                assert time.monotonic() < began + 60
    kept.join("alice")


# The roster ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.booleans()), max_size=40), st.integers(1, 5))
def test_everybody_has_neighbours_in_both_directions_whoever_comes_and_goes(
    moves: list[tuple[str, bool]], degree: int
) -> None:
    roster, given_numbers = Roster(degree=degree), []
    for step, (name, comes) in enumerate(moves):
        if comes and name not in roster.members:
            roster.invite(name, bytes([step]), 0.0, 1.0)
            roster.admit(bytes([step]), f"key-{step}", "a:1", 0.5)
            given_numbers.append(roster.members[name].number)
        elif not comes and name in roster.members:
            roster.dismiss(name)
        for one, member in roster.members.items():
            assert one not in member.neighbours
            assert len(set(member.neighbours)) == len(member.neighbours)
            assert all(one in roster.members[other].neighbours for other in member.neighbours)
            assert len(member.neighbours) >= min(degree, len(roster.members) - 1)
    assert given_numbers == sorted(set(given_numbers))
    assert Roster.from_json(roster.to_json()) == roster


# Running nodes ------------------------------------------------------------------------------------------------------


def test_running_nodes_hear_of_who_joins_moves_leaves_and_is_revoked(kept: Kept) -> None:
    kept.join("alice")
    alice = kept.node("alice")

    with running(alice):
        until(lambda: alice.round >= 2)
        assert alice.around.known == {}
        for name in ("bob", "carol"):
            kept.join(name)
        bob, carol = kept.node("bob"), kept.node("carol")
        with running(carol):
            with running(bob):
                until(lambda: {"bob", "carol"} <= set(_merged(alice)))  # without a restart
            address = f"127.0.0.1:{free_ports(1)[0]}"
            moved = bob.config.keeper.model_copy(update={"advertise": address})  # type: ignore[union-attr]
            again = kept.node("bob", listen=address)
            again.around.members.config = again.config.model_copy(update={"keeper": moved})  # type: ignore[union-attr]
            with running(again):  # elsewhere, under the same name
                until(lambda: alice.around.known["bob"].address == address)
                before = _merged(alice).count("bob")
                until(lambda: _merged(alice).count("bob") > before)
                kept_by(again.config).leave()
                until(lambda: "bob" not in alice.around.known)
                until(lambda: alice.journal.counts[("refused-not-a-neighbour", "bob")] > 0)
            kept.registry.dismiss("carol")
            until(lambda: "carol" not in alice.around.known)
            until(lambda: len(alice.identity.revoked()) == 2)  # type: ignore[union-attr]
            round = alice.round
            until(lambda: alice.round >= round + 2)
    assert alice.journal.counts[("new-neighbour", "bob")] == 1  # a move is no newcomer
    assert alice.journal.counts[("neighbour-left", "carol")] == 1
    # It goes on from its checkpoint, though it has other neighbours than before.
    resumed = kept.node("alice")
    with running(resumed):
        until(lambda: resumed.round > alice.round)
    assert resumed.journal.total("resumed") == 1


def _merged(node: Node) -> list[str]:
    decisions = node.recorder.directory.table("decisions").filter(pl.col("merged") > 0)
    return [node.around.names[peer] for chosen in decisions["chosen"].to_list() for peer in chosen]


def test_a_node_goes_on_and_starts_again_while_the_keeper_is_away(kept: Kept) -> None:
    kept.join("alice")
    kept.join("bob")
    kept.stop()
    alice, bob = kept.node("alice"), kept.node("bob")
    with running(bob, alice):
        # alice joined first, when there was nobody; bob knows her, she hears of bob only from the keeper
        until(lambda: alice.journal.total("keeper") and bob.journal.total("keeper") and alice.round >= 2)
    assert alice.journal.total("keeper") == bob.journal.total("keeper") == 1  # not with every question
    assert list(bob.around.known) == ["alice"]


def test_a_keeper_cannot_name_more_neighbours_than_the_node_counts_on(kept: Kept) -> None:
    for name in ("alice", "bob", "carol"):
        kept.join(name)
    alice = kept.node("alice")
    few = alice.config.keeper.model_copy(update={"most": 1})  # type: ignore[union-attr]
    alice = kept.node("alice", keeper=few)
    alice.around._become(alice.around._together(_named(kept, "alice")))
    assert len(alice.around.known) == 1
    assert alice.journal.total("not-taken") == 1


def _named(kept: Kept, name: str) -> Any:
    with kept.registry.open() as roster:
        return {n: joining.NeighbourConfig(**c) for n, c in roster.around(name).items()}


# Real processes -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_strangers_become_a_swarm_by_tickets_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """keep, invite, join, run, leave, revoke: every step is the command that a person types, every node a process."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "tiny.npz"
    np.savez_compressed(data, **tiny_arrays(), classes=4)
    ports = free_ports(4)
    shared = {
        "rounds": 100_000, "seed": 3, "clients": 8, "data": {"partition": "iid", "dataset": str(data)},
        "model": {"name": "mlp", "options": {"hidden": 8}}, "training": {"max_batches": 3},
        "exchange": {"pace": 0.5, "deadline": 5.0},
    }  # fmt: skip
    (tmp_path / "federation").mkdir()
    (tmp_path / "federation" / "settings.toml").write_text(tomli_w.dumps(shared))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = [sys.executable, "-c", "from sagefl.cli import app; app()", "node"]
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        processes.append(subprocess.Popen([*code, *words], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL))

    def told(*words: str) -> str:
        done = CliRunner().invoke(app, ["node", *words])
        assert done.exit_code == 0, done.output
        return done.output

    def status(name: str) -> dict[str, Any]:
        try:
            return read_status(tmp_path / name / "run")
        except NodeError:
            return {"round": -1, "last": {}}

    def chosen(name: str) -> set[str]:
        path = tmp_path / name / "run" / "events.log"
        lines = path.read_text().splitlines() if path.is_file() else []
        return {c for line in lines for c in json.loads(line).get("chosen") or ()}

    try:
        start("keep", "federation", "--listen", f"127.0.0.1:{ports[0]}", "--members-invite")
        until(lambda: (tmp_path / "federation" / "events.log").is_file(), 120)
        until(lambda: "keeping" in (tmp_path / "federation" / "events.log").read_text(), 120)
        where = "federation"
        for name, port in zip(("north", "south", "east"), ports[1:], strict=True):
            ticket = told("invite", where, name).strip()
            assert f"{name} is member" in told("join", ticket, "--listen", f"127.0.0.1:{port}")
            start("run", f"{name}/node.toml")
            where = "north/node.toml"  # the others are invited by a member
        until(lambda: {"south", "east"} <= chosen("north") and chosen("south") and chosen("east"), 180)
        assert "is a member no longer" in told("leave", "east/node.toml")
        assert "Revoked" in told("revoke", "federation", "south")
        until(lambda: read_status(tmp_path / "north" / "run")["events"].get("neighbour-left") == 2, 60)
        alone = status("north")["round"]
        until(lambda: status("north")["round"] >= alone + 3, 60)
        assert status("north")["last"]["degree"] == 0
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [_ended(process) for process in processes]
    assert codes == [0, 3, 3, 3]
    assert "all as they were recorded" in told("verify", "north/node.toml")


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(120)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(10)
