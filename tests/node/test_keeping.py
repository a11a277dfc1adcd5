"""A keeper against members that ask, renew, invite, come and go without end; one test against its real process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from processes import until
from test_joining import Kept, kept, running

from sagefl.node import joining, keeper
from sagefl.node.config import NodeConfig
from sagefl.node.errors import NodeError
from sagefl.node.joining import join, kept_by
from sagefl.node.registry import CERTIFICATES, Registry
from sagefl.node.swarm import free_ports

__all__ = ["kept"]  # a fixture


def ends_soon(registry: Registry, member: joining.KeptBy) -> None:
    """As if a member's certificate had been signed eleven months ago."""
    name, key = member.identity.name, x509.load_pem_x509_certificate(member.identity.certificate).public_key()
    made = registry.authority.sign(name, key, days=10)  # type: ignore[arg-type]
    content = made.public_bytes(joining.PEM)
    with registry.open() as roster:
        roster.members[name].serials = {made.serial_number: made.not_valid_after_utc.timestamp()}
    for path in (registry.folder / "members" / f"{name}.pem", member.identity.folder / "node.pem"):
        path.write_bytes(content)
    assert member.identity.refresh()


def test_a_certificate_is_renewed_for_the_same_key(kept: Kept) -> None:
    alice = kept_by(NodeConfig.read(kept.join("alice") / "node.toml"))
    with pytest.raises(NodeError, match="valid for 365 more days: ask in the last 30"):
        alice.renew()
    ends_soon(kept.registry, alice)
    before = alice.identity.certificate
    alice.renew()
    assert alice.identity.refresh()
    assert alice.identity.certificate != before
    assert alice.identity.days_left > 300
    assert alice.news("127.0.0.1:7443")["number"] == 0  # the new one is known to the keeper


def test_a_member_asks_and_invites_only_so_often(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "QUESTIONS", 40)
    kept.server.keeper.invites = True
    alice, bob = (kept_by(NodeConfig.read(kept.join(n) / "node.toml")) for n in ("alice", "bob"))
    for number in range(keeper.INVITATIONS):
        alice.invite(f"name-{number}", 5)
    with pytest.raises(NodeError, match=r"24 invitations a day; try again in 3[56]"):
        alice.invite("one-more", 5)
    bob.invite("one-more", 5)
    asked = json.dumps({"address": "127.0.0.1:7443"}).encode()
    shown = x509.load_pem_x509_certificate(alice.identity.certificate).public_bytes(joining.serialization.Encoding.DER)
    told = [kept.server.keeper.answer("/v1/news", asked, shown, "here") for _ in range(60)]
    assert {status for status, _ in told} == {200, 429}
    assert "over the limit of 40 questions a minute" in told[-1][1]["error"]
    assert kept.journal.total("over-limit") > 20
    bob.news("127.0.0.1:7443")


def test_the_list_forgets_certificates_that_have_ended(kept: Kept) -> None:
    authority, hour = kept.registry.authority, 3600
    authority.revoke_serials({1: time.time() - 25 * hour, 2: time.time() - 23 * hour, 3: time.time() + hour})
    assert authority.revocations().serials == {2, 3}  # clocks may differ by a day
    authority.revoke_serials({4: time.time() + hour})
    assert authority.revocations().serials == {2, 3, 4}


def test_an_answer_that_is_cut_or_too_long_is_said_to_be_so(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.join("alice")
    alice, log = kept.node("alice"), kept.home / "alice" / "run" / "events.log"

    def told() -> str:
        return log.read_text() if log.is_file() else ""

    with running(alice):
        monkeypatch.setattr(joining, "LARGEST", 100)
        until(lambda: "has more than 100 bytes: nothing of it is used, not its revocations" in told())
        monkeypatch.undo()
        send = keeper._Question.end_headers

        def longer(self: Any) -> None:
            self._headers_buffer = [
                b"Content-Length: 999999\r\n" if b"Content-Length" in line else line for line in self._headers_buffer
            ]
            send(self)

        monkeypatch.setattr(keeper._Question, "end_headers", longer)
        until(lambda: "is cut off after" in told())


@pytest.mark.parametrize("told", [{}, {"revoked": 1, "neighbours": 2}, {"revoked": "", "neighbours": {"bob": "b"}}])
def test_a_keeper_that_says_something_else_is_an_event_and_is_asked_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
) -> None:
    """Nothing of it ends the thread that asks: revocations must arrive once the keeper is itself again."""
    kept.join("alice")
    alice = kept.node("alice")
    ticket, answer = kept.ticket("bob"), keeper.Keeper.answer
    with running(alice):
        monkeypatch.setattr(keeper.Keeper, "answer", lambda *asked: (200, told))
        until(lambda: alice.journal.total("keeper") >= 1)
        for ask in (lambda: kept.join("bob", ticket), alice.around.members.kept.renew):  # type: ignore[union-attr]
            with pytest.raises(NodeError, match="what the keeper says is not what was asked for"):
                ask()
        monkeypatch.setattr(keeper.Keeper, "answer", answer)
        kept.join("bob", ticket)
        until(lambda: "bob" in alice.around.known)


# Coming and going ---------------------------------------------------------------------------------------------------


def test_whoever_comes_and_goes_takes_no_place_from_newcomers(kept: Kept) -> None:
    """A hundred members that came and left; each may be certified falsely, so all shares of delta must add up."""
    kept.join("alice")
    config = kept.node("alice").config
    few = config.keeper.model_copy(update={"most": 4})  # type: ignore[union-attr]
    alice = kept.node("alice", keeper=few)
    counted = []
    for number in range(1, 101):
        name = f"turn-{number}"
        found = joining.NeighbourConfig(address="127.0.0.1:1", number=number)
        alice.around._become(alice.around._together({name: found}))
        assert list(alice.around.known) == [name]
        counted.append(alice.around.ever)
        alice.around._become({})
    assert alice.journal.total("not-taken") == 0
    assert counted == sorted(counted)
    assert counted[0] == 8
    assert sum(1 / ever for ever in counted) < 1
    assert alice.learner.population.snapshots.shape[1] == 2  # nor memory: rows are used again
    assert kept.node("alice", keeper=few).around.ever == counted[-1]  # after a restart too


# A real process -----------------------------------------------------------------------------------------------------


@contextmanager
def keeping(home: Path) -> Iterator[Registry]:
    """A keeper as a process of its own."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    code = [sys.executable, "-c", "from sagefl.cli import app; app()", "node", "keep", str(home), "--listen", address]
    process = subprocess.Popen(code, stdout=subprocess.DEVNULL)
    try:
        log = home / "events.log"
        until(lambda: log.is_file() and "keeping" in log.read_text(), 120)
        yield Registry(home)
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_a_member_that_renews_without_end_freezes_nobodys_membership(tmp_path: Path) -> None:
    """Every certificate of a member that leaves is revoked; the others must still be able to read the list."""
    with keeping(tmp_path / "federation") as registry:

        def member(name: str) -> joining.KeptBy:
            ticket = str(registry.invite(name, 60))
            _, home = join(ticket, tmp_path / name, f"127.0.0.1:{free_ports(1)[0]}")
            return kept_by(NodeConfig.read(home / "node.toml"))

        alice, mallory = member("alice"), member("mallory")
        for _ in range(30):
            with pytest.raises(NodeError, match="valid for 365 more days"):
                mallory.renew()
        ends_soon(registry, mallory)
        own, given = tmp_path / "mallory" / "identity" / "node.pem", set()
        old = own.read_bytes()
        for _ in range(30):
            mallory.renew()
            given.add(own.read_bytes())
            own.write_bytes(old)  # and again with the old certificate
        assert len(given) == 1
        mallory.leave()
        news = alice.news("127.0.0.1:7443")
        assert alice.identity.replace_revocations(news["revoked"].encode())
        assert len(alice.identity.revoked()) == 2
        # As many as will ever be signed, all revoked: the list still arrives.
        end = time.time() + 1e6
        registry.authority.revoke_serials({x509.random_serial_number(): end for _ in range(CERTIFICATES - 2)})
        news = alice.news("127.0.0.1:7443")
        assert len(json.dumps(news)) < joining.LARGEST / 2
        assert alice.identity.replace_revocations(news["revoked"].encode())
        assert len(alice.identity.revoked()) == CERTIFICATES
        with pytest.raises(NodeError, match="no more for now"):
            member("carol")
