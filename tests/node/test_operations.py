"""Operations: an audit log that shows every change, health, renewed certificates, other versions of the protocol."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import grpc
import polars as pl
import pytest
from federation import Federation, raw_call
from test_faults import _described
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.node import client, identity
from sagefl.node.audit import Audit, heads, verify
from sagefl.node.client import ask_health
from sagefl.node.errors import Fault, NodeError
from sagefl.node.identity import Identity
from sagefl.node.loop import Node
from sagefl.runs import checkpoint
from sagefl.runs.files import make_durable


def verified(node: Node) -> tuple[int, list[str]]:
    directory = Path(node.config.directory)
    return verify(directory, heads(directory))


# The audit log ------------------------------------------------------------------------------------------------------


@pytest.fixture
def alice(federation: Federation) -> Node:
    with federation.honest("bob"):
        node = federation.node("alice", ("bob",), rounds=4, method={"id": "aq-128"})
        node.run()
    return node


def test_an_untouched_record_is_as_it_was_recorded(alice: Node) -> None:
    assert verified(alice) == (4, [])
    told = CliRunner().invoke(app, ["node", "verify", alice.config.directory])
    assert told.exit_code == 0
    assert "4 rounds, all as they were recorded" in told.output


def test_a_changed_decision_is_found(alice: Node) -> None:
    path = Path(alice.config.directory) / "decisions.parquet"
    table = pl.read_parquet(path)
    changed = pl.when(pl.col("round") == 2).then(0).otherwise(pl.col("merged")).cast(pl.Int32)
    table.with_columns(merged=changed).write_parquet(path)
    assert verified(alice) == (4, ["round 2 in the table is not what the log says"])
    assert CliRunner().invoke(app, ["node", "verify", alice.config.directory]).exit_code == 1


def test_a_removed_decision_is_found(alice: Node) -> None:
    path = Path(alice.config.directory) / "decisions.parquet"
    pl.read_parquet(path).filter(pl.col("round") != 1).write_parquet(path)
    assert verified(alice) == (4, ["round 1 is in the log, but not in the table"])


@pytest.mark.parametrize("change", ["altered", "removed", "swapped"])
def test_a_changed_log_breaks_the_chain(alice: Node, change: str) -> None:
    path = Path(alice.config.directory) / "audit.log"
    lines = path.read_text().splitlines()
    if change == "altered":
        lines[1] = json.dumps({**json.loads(lines[1]), "model": "00"})
    elif change == "removed":
        del lines[1]
    else:
        lines[1], lines[2] = lines[2], lines[1]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(NodeError, match=r"audit\.log, line [23]: the chain is broken"):
        verified(alice)


def test_a_log_cut_short_is_found_by_the_hash_in_the_checkpoint(alice: Node) -> None:
    path = Path(alice.config.directory) / "audit.log"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:-1]))
    assert any("cut short or replaced" in why for why in verified(alice)[1])


def run_until(node: Node, rounds: int) -> None:
    """Run a node and stop it after so many rounds."""
    plain = node._checkpoint

    def checkpoint(loss: float, samples: int) -> None:
        plain(loss, samples)
        if node.round == rounds:
            node.stop()

    node._checkpoint = checkpoint  # type: ignore[method-assign]
    node.run()


def test_a_resumed_node_goes_on_with_its_chain(federation: Federation) -> None:
    for rounds in (2, 5):
        node = federation.node("alice", (), rounds=5)
        run_until(node, rounds)
    assert verified(node) == (5, [])


def test_a_restarted_node_goes_on_with_what_its_rule_remembers(federation: Federation) -> None:
    with federation.honest("bob", ("alice",)), federation.honest("carol", ("alice",)):
        for rounds in (2, 3):
            node = federation.node("alice", ("bob", "carol"), rounds=3, method={"id": "sage-m"})
            run_until(node, rounds)
    assert node.state is not None
    assert {holding[3] for holding in node.state["capital"].values()} == {3}  # rounds in which was bet, from both runs
    assert 0 <= node.state["mine"] < 1  # it knows how its own model does
    looks = node.recorder.directory.table("decisions")
    assert looks["since"].to_list() == [[0.0, 0.0]] * 3
    assert looks["width"].null_count() == 0


def test_a_line_that_does_not_fit_on_the_disk_leaves_no_half_behind(tmp_path: Path) -> None:
    log = Audit(tmp_path / "audit.log")
    log.enter({"round": 0, "row": "a", "model": "b"})
    before = (tmp_path / "audit.log").read_bytes()
    log.path = Path("/dev/full")
    with pytest.raises(OSError, match="No space"):
        log.enter({"round": 1, "row": "a", "model": "b"})
    log.path = tmp_path / "audit.log"
    assert log.path.read_bytes() == before
    log.enter({"round": 1, "row": "a", "model": "b"})


# Checkpoints --------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_on_the_disk_before_it_is_in_place_and_before_older_ones_go(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power may fail at any moment: what is flushed, in which order, and which checkpoints are in place by then."""
    alice = federation.node("alice", (), rounds=3)
    home = Path(alice.config.directory) / "checkpoint"
    flushed: list[tuple[str, list[str]]] = []

    def watched(path: Path) -> None:
        make_durable(path)
        flushed.append((path.name, sorted(p.name for p in home.glob("round-*"))))

    monkeypatch.setattr(checkpoint, "make_durable", watched)
    alice.run()
    parts = sorted(path.name for path in (home / "round-00003").glob("*.safetensors"))
    old, all_three = ["round-00001", "round-00002"], ["round-00001", "round-00002", "round-00003"]
    *first, manifest, folder, entry = flushed[-len(parts) - 3 :]
    assert sorted(first) == [(part, old) for part in parts]
    assert (manifest, folder) == (("manifest.json", old), (".round-00003.partial", old))
    assert entry == ("checkpoint", all_three)


# Health -------------------------------------------------------------------------------------------------------------


def test_the_standard_health_service_tells_live_from_ready(federation: Federation) -> None:
    with federation.honest("bob", ("alice",)) as bob:
        assert ask_health(bob.config, "live") == ask_health(bob.config, "ready") == "serving"
        bob.published.writing = False
        assert ask_health(bob.config, "ready") == "not serving"
        assert ask_health(bob.config, "live") == "serving"
        assert ask_health(bob.config, "nonsense") == f"no answer from {bob.config.listen}: NOT_FOUND"
    gone = f"no answer from {bob.config.listen}: UNAVAILABLE: is the node running?"
    assert ask_health(bob.config, "live") == gone


def test_a_nodes_own_certificate_opens_nothing_but_health(federation: Federation) -> None:
    with federation.honest("bob", ("alice",)):
        call = raw_call(federation, "bob", "bob")
        for method in ("Probe", "Describe", "Pull", "Health"):
            with pytest.raises(grpc.RpcError) as refused:
                call(method, b"")
            assert refused.value.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE)


# Certificates -------------------------------------------------------------------------------------------------------


def test_a_renewed_certificate_is_used_without_a_restart(federation: Federation) -> None:
    with federation.honest("bob", ("alice",)) as bob:
        client = federation.client("alice", "bob")
        assert client.health().serving
        first = client._certificate
        made = federation.authority.renew(federation.home / "bob", days=500)
        client.close()
        assert client.health().serving
        assert client._certificate == made != first
        assert bob.identity is not None
        assert bob.identity.days_left > 499
        (federation.home / "bob" / "node.pem").write_text("nonsense")
        told: list[str] = []
        bob.identity.trouble = told.append
        client.close()
        assert client.health().serving  # with the one before
    assert "the previous certificate stays in use" in told[0]


def test_a_certificate_that_ends_soon_is_an_event(federation: Federation) -> None:
    federation.authority.renew(federation.home / "alice", days=3)
    alice = federation.node("alice", ())
    alice.run()
    assert alice.journal.total("certificate-ends") >= 1
    assert b"sagefl_certificate_days 2." in _exposed(alice)


def _exposed(node: Node) -> bytes:
    from prometheus_client import generate_latest

    return generate_latest(node.metrics.registry)


def test_an_older_revocation_list_does_not_replace_a_newer_one(federation: Federation) -> None:
    bob, listed = federation.identity("bob"), federation.home / "bob" / "revoked.pem"
    before = listed.read_bytes()
    carol = identity.x509.load_pem_x509_certificate((federation.home / "carol" / "node.pem").read_bytes())
    shutil.copy(federation.authority.revoke(carol), listed)
    assert carol.serial_number in bob.revoked()
    told: list[str] = []
    bob.trouble = told.append
    listed.write_bytes(before)
    assert carol.serial_number in bob.revoked()
    assert "older than list 2" in told[0]
    with pytest.raises(NodeError, match="carol is revoked"):
        federation.authority.renew(federation.home / "carol")


def test_an_overdue_revocation_list_is_a_warning(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    bob, true = federation.identity("bob"), identity.now
    assert bob.warnings() == []
    monkeypatch.setattr(identity, "now", lambda: true() + identity.datetime.timedelta(days=100))
    assert [kind for kind, _ in bob.warnings()] == ["revocation-list-old"]


def test_the_renew_command_keeps_the_key(tmp_path: Path) -> None:
    run = CliRunner()
    assert run.invoke(app, ["node", "init", str(tmp_path), "north"]).exit_code == 0
    key = (tmp_path / "north" / "node.key").read_bytes()
    told = run.invoke(app, ["node", "renew", str(tmp_path), "north", "--days", "30"])
    assert told.exit_code == 0, told.output
    assert (tmp_path / "north" / "node.key").read_bytes() == key
    assert 28 < Identity.load(tmp_path / "north").days_left < 31


# Versions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1", "3", "x" * 1000, ""])
def test_a_caller_of_another_protocol_version_is_refused_in_a_sentence(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    with federation.honest("bob", ("alice",)) as bob:
        assert federation.client("alice", "bob").health().serving
        monkeypatch.setattr(client, "PROTOCOL", version)
        for ask in (lambda c: c.health(), lambda c: c.pull(b"", 1 << 20)):
            with pytest.raises(Fault, match=r"alice speaks protocol .*, this node 2: update the one") as refused:
                ask(federation.client("alice", "bob"))
            assert refused.value.kind == "refused"
        assert bob.journal.counts[("other-protocol", "alice")] == 2
        assert ask_health(bob.config, "live") == "serving"  # load balancers speak no version of ours


def test_a_peer_of_another_protocol_version_is_told_apart_clearly(federation: Federation) -> None:
    with federation.bad("mallory", _described(protocol=1)):
        alice = federation.node("alice", ("mallory",))
        alice.run()
    assert alice.journal.counts[("fault-other-protocol", "mallory")] == 2
    log = (Path(alice.config.directory) / "events.log").read_text()
    assert "it speaks protocol 1, this node 2: update the one with the smaller number" in log
