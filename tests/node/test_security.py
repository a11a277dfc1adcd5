"""Who gets in and who does not, and what a node does when it is sent rubbish or too much of anything."""

from __future__ import annotations

import random
import shutil
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from cryptography import x509
from federation import NAMES, Federation, raw_call, tiny

from sagefl.errors import UsageError
from sagefl.node.client import PeerClient
from sagefl.node.config import NodeConfig
from sagefl.node.corelog import handshake_failure, watch_core_log
from sagefl.node.errors import Fault, NodeError
from sagefl.node.identity import Authority, Identity, Refused, fingerprint
from sagefl.node.loop import Node
from sagefl.node.swarm import merge_runs
from sagefl.node.wire import node_pb2 as wire
from sagefl.runs.replaying import replay_run
from sagefl.runs.rundir import RunDirectory
from sagefl.runs.sections import ConfigError
from sagefl.selection import make
from sagefl.selection.private import RandomisedResponse
from sagefl.selection.scoring import LABEL_ERRORS, scoring
from sagefl.view.shelf import Run
from sagefl.view.unfolding import unfold

LATENTS = scoring("latents", "error")

METHODS = ("Describe", "Probe", "Pull", "Inspect", "Read", "Health")
Code = grpc.StatusCode


def _status(call: Callable[..., Any], *arguments: Any) -> grpc.StatusCode:
    try:
        call(*arguments)
    except grpc.RpcError as error:
        return error.code()
    return Code.OK


def _attempt(address: str, credentials: Any | None, name: str = "bob") -> grpc.StatusCode:
    options = [("grpc.ssl_target_name_override", name)]
    channel = (
        grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials, options)
    )
    with channel:
        return _status(lambda: channel.unary_unary("/sagefl.node.v1.Peer/Health")(b"", timeout=30))


def _logged(bob: Node, kind: str, credentials: Any | None) -> bool:
    """Whether an attempt fails and bob's journal says why; gRPC's core tells it on standard error alone."""
    with watch_core_log(bob.journal):
        assert _attempt(bob.config.listen, credentials) == Code.UNAVAILABLE
        return _eventually(lambda: bob.journal.total(f"refused-{kind}") > 0)


def _eventually(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


# Files --------------------------------------------------------------------------------------------------------------


def test_keys_are_readable_by_their_owner_alone(federation: Federation) -> None:
    for path in (federation.home / "authority" / "ca.key", federation.home / "bob" / "node.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_key_that_others_can_read_is_refused_with_the_remedy(federation: Federation) -> None:
    (federation.home / "bob" / "node.key").chmod(0o640)
    with pytest.raises(NodeError, match="chmod 600"):
        federation.identity("bob")


def test_nothing_is_overwritten(federation: Federation) -> None:
    with pytest.raises(NodeError, match="already holds an authority"):
        Authority.create(federation.home / "authority")
    with pytest.raises(NodeError, match="already holds an identity"):
        federation.authority.issue("bob", federation.home / "bob")


@pytest.mark.parametrize("name", ["", "Bob", "a b", "../x", "bob.evil", "-a", "x" * 64])
def test_names_that_are_no_names_are_refused(federation: Federation, name: str) -> None:
    with pytest.raises(NodeError, match="cannot name a node"):
        federation.authority.issue(name, federation.home / "new")


def test_a_key_of_somebody_else_is_refused(federation: Federation) -> None:
    shutil.copy(federation.home / "alice" / "node.key", federation.home / "bob" / "node.key")
    with pytest.raises(NodeError, match="do not belong together"):
        federation.identity("bob")


def test_a_revocation_list_of_another_authority_is_refused(federation: Federation) -> None:
    foreign = Authority.create(federation.home / "foreign")
    shutil.copy(foreign.folder / "revoked.pem", federation.home / "bob" / "revoked.pem")
    with pytest.raises(NodeError, match="not signed by this federation's CA"):
        federation.identity("bob")


# Handshakes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def bob(federation: Federation) -> Iterator[Node]:
    """A node that knows alice alone."""
    with federation.honest("bob", ("alice",)) as node:
        yield node


def test_a_neighbour_gets_in(federation: Federation, bob: Node) -> None:
    assert federation.client("alice", "bob").health().serving
    assert bob.journal.totals() == {}


def test_no_certificate_is_refused_and_logged(federation: Federation, bob: Node) -> None:
    ca = federation.identity("alice").ca
    assert _logged(bob, "no-certificate", grpc.ssl_channel_credentials(ca))


def test_plaintext_is_refused_and_logged(bob: Node) -> None:
    assert _logged(bob, "plaintext", None)


def test_a_foreign_authority_is_refused_and_logged(federation: Federation, bob: Node) -> None:
    foreign = Authority.create(federation.home / "foreign")
    foreign.issue("alice", federation.home / "foreign-alice")
    eve = Identity.load(federation.home / "foreign-alice")
    credentials = grpc.ssl_channel_credentials(federation.identity("alice").ca, eve.key, eve.certificate)
    assert _logged(bob, "untrusted-certificate", credentials)


def test_an_expired_certificate_is_refused_and_logged(federation: Federation, bob: Node) -> None:
    folder = federation.home / "old-alice"
    federation.authority.issue("alice", folder, days=-0.5)
    old = [(folder / name).read_bytes() for name in ("ca.pem", "node.key", "node.pem")]
    assert _logged(bob, "expired", grpc.ssl_channel_credentials(*old))
    with pytest.raises(NodeError, match="own certificate will not be accepted"):
        Identity.load(folder)


def test_a_member_that_is_no_neighbour_is_refused_by_name(federation: Federation, bob: Node) -> None:
    with pytest.raises(Fault, match="carol is no neighbour") as fault:
        federation.client("carol", "bob").health()
    assert fault.value.kind == "refused"
    assert bob.journal.counts[("refused-not-a-neighbour", "carol")] == 1


def test_a_revoked_neighbour_is_refused_at_once_in_both_directions(federation: Federation, bob: Node) -> None:
    with federation.honest("alice", ("bob",)):
        caller, callee = federation.client("alice", "bob"), federation.client("bob", "alice")
        assert caller.health().serving
        assert callee.health().serving
        revoked = x509.load_pem_x509_certificate((federation.home / "alice" / "node.pem").read_bytes())
        shutil.copy(federation.authority.revoke(revoked), federation.home / "bob" / "revoked.pem")
        with pytest.raises(Fault, match="revoked"):
            caller.health()  # on the connection that is already open
        with pytest.raises(Fault, match="revoked"):
            callee.recheck()
        with pytest.raises(Fault, match="revoked"):
            callee.health()
    assert bob.journal.counts[("refused-revoked", "alice")] == 1


def test_a_broken_revocation_list_leaves_the_old_one_in_force(federation: Federation, bob: Node) -> None:
    assert bob.identity is not None
    told: list[str] = []
    bob.identity.trouble = told.append
    revoked = x509.load_pem_x509_certificate((federation.home / "alice" / "node.pem").read_bytes())
    path = federation.home / "bob" / "revoked.pem"
    shutil.copy(federation.authority.revoke(revoked), path)
    assert revoked.serial_number in bob.identity.revoked()
    listed, armour = path.read_text(), ("X509 CRL", "CERTIFICATE")
    der = ssl.PEM_cert_to_DER_cert(listed.replace(*armour)).replace(b"\x02\x01\x01", b"\x02\x01\x05", 1)
    of_no_version = ssl.DER_cert_to_PEM_cert(der).replace(*armour[::-1])
    for number, broken in enumerate(("nonsense", of_no_version), 1):
        path.write_text(broken)
        assert revoked.serial_number in bob.identity.revoked()
        assert len(told) == number
        assert "is not a revocation list" in told[-1]


DAMAGED = {
    "a version that does not exist": (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05", "unreadable"),
    "the same extension twice": (b"\x06\x03\x55\x1d\x0f", b"\x06\x03\x55\x1d\x11", "foreign-ca"),
    "a kind of name that nobody uses": (b"\x82\x03bob", b"\xa3\x03bob", "foreign-ca"),
}  # one byte each, found by fuzzing: what reading them raised was no ValueError


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_certificate_is_refused_in_a_sentence(federation: Federation, damage: str) -> None:
    before, after, kind = DAMAGED[damage]
    bob, path = federation.identity("bob"), federation.home / "bob" / "node.pem"
    der = ssl.PEM_cert_to_DER_cert(path.read_text())
    assert der.count(before) == 1
    pem = ssl.DER_cert_to_PEM_cert(der.replace(before, after))
    with pytest.raises(Refused) as refused:
        bob.judge_pem(pem.encode(), {"bob": None})
    assert refused.value.kind == kind
    path.write_text(pem)
    with pytest.raises(NodeError, match=r"no usable identity|names nobody"):
        federation.identity("bob")


@pytest.mark.parametrize("pinned", [True, False])
def test_a_replaced_key_is_refused_where_the_key_is_pinned(federation: Federation, pinned: bool) -> None:
    """Whoever gets a second certificate for alice from the right CA is still not the alice that was pinned."""
    true = x509.load_pem_x509_certificate((federation.home / "alice" / "node.pem").read_bytes())
    federation.authority.issue("alice", federation.home / "new-alice")
    pin = {"key": fingerprint(true)} if pinned else {}
    known = {"alice": {"address": federation.addresses["alice"], "number": NAMES.index("alice"), **pin}}
    with federation.honest("bob", (), neighbours=known) as bob:
        (federation.home / "alice").rename(federation.home / "true-alice")
        (federation.home / "new-alice").rename(federation.home / "alice")
        client = federation.client("alice", "bob")
        if not pinned:
            assert client.health().serving
            return
        with pytest.raises(Fault, match="another key"):
            client.health()
        assert bob.journal.counts[("refused-replaced-key", "alice")] == 1
        with federation.honest("alice", ("bob",)), pytest.raises(Fault, match="another key") as fault:
            federation.client("bob", "alice", key=fingerprint(true)).health()
        assert fault.value.kind == "refused-replaced-key"


def test_a_server_with_another_name_is_not_talked_to(federation: Federation, bob: Node) -> None:
    federation.addresses["carol"] = federation.addresses["bob"]
    with pytest.raises(Fault) as fault:
        federation.client("alice", "carol").health()
    assert fault.value.kind == "refused-untrusted"


@pytest.mark.parametrize("address", ["0.0.0.0:7443", "192.0.2.1:7443", "[::]:7443", "example.org:1"])
def test_insecure_is_for_loopback_alone(federation: Federation, address: str) -> None:
    config = federation.config("alice", ("bob",))
    with pytest.raises(NodeError, match="loopback addresses only"):
        Node(config.model_copy(update={"listen": address}), insecure=True, dataset=tiny())
    neighbour = config.neighbours["bob"].model_copy(update={"address": address})
    with pytest.raises(NodeError, match="loopback addresses only"):
        Node(config.model_copy(update={"neighbours": {"bob": neighbour}}), insecure=True, dataset=tiny())


def test_insecure_nodes_still_know_their_neighbours_by_name(federation: Federation) -> None:
    node = Node(federation.config("alice", ("bob",), rounds=1), insecure=True, dataset=tiny())
    assert node.run() is not None
    assert node.identity is None


def test_metrics_stay_on_loopback_unless_meant_otherwise(federation: Federation) -> None:
    document = federation.config("alice", ()).model_dump()
    with pytest.raises(ConfigError, match="not loopback"):
        NodeConfig.parse(document | {"metrics": {"address": "0.0.0.0:9000"}})
    NodeConfig.parse(document | {"metrics": {"address": "0.0.0.0:9000", "expose": True}})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("I0 1 x.cc:1] Handshake failed with error SSL_ERROR_SSL: error:100000c0:SSL routines:"
         "OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid", "no-certificate"),
        ("I0 Handshake failed with error SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:"
         "CERTIFICATE_VERIFY_FAILED: certificate has expired", "expired"),
        ("I0 Handshake failed with error SSL_ERROR_SSL: error:1:SSL routines:OPENSSL_internal:SOMETHING_NEW",
         "handshake"),
        ("an ordinary line", None),
    ],
)  # fmt: skip
def test_lines_of_the_core_are_understood(line: str, expected: str | None) -> None:
    found = handshake_failure(line)
    assert (found and found[0]) == expected


# What is asked ------------------------------------------------------------------------------------------------------


def _probe(count: int = 4, **fields: Any) -> bytes:
    inputs = tiny().train_x[:count].tobytes()
    return wire.ProbeRequest(**{"count": count, "inputs": inputs, **fields}).SerializeToString()


BAD = {
    "malformed bytes": ("Probe", b"\xff\xff\xff\xff", Code.INVALID_ARGUMENT),
    "no inputs": ("Probe", b"", Code.INVALID_ARGUMENT),
    "fewer bytes than inputs": ("Probe", _probe(inputs=b"123"), Code.INVALID_ARGUMENT),
    "more anchors than allowed": ("Probe", wire.ProbeRequest(count=9999).SerializeToString(), Code.INVALID_ARGUMENT),
    "an unknown kind": ("Probe", _probe() + b"\x08\x63", Code.INVALID_ARGUMENT),
    "a digest of the wrong size": ("Pull", wire.PullRequest(digest=b"x").SerializeToString(), Code.INVALID_ARGUMENT),
    "an unknown digest": ("Pull", wire.PullRequest(digest=b"x" * 32).SerializeToString(), Code.NOT_FOUND),
    "the full model": ("Inspect", b"", Code.FAILED_PRECONDITION),
    "the head": ("Read", wire.ReadRequest(what="head").SerializeToString(), Code.FAILED_PRECONDITION),
    "a method that is not there": ("Steal", b"", Code.UNIMPLEMENTED),
    "an oversized message": ("Probe", b"\x1a" + b"\x00" * 10_000_000, Code.RESOURCE_EXHAUSTED),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_get_a_clear_status_and_the_node_stays_up(federation: Federation, bob: Node, case: str) -> None:
    method, content, expected = BAD[case]
    call = raw_call(federation, "alice", "bob")
    assert _status(call, method, content) == expected
    assert wire.ProbeAnswer.FromString(call("Probe", _probe())).answers
    assert bob.journal.total("internal-error") == 0


def test_answers_come_from_one_snapshot_while_training_goes_on(federation: Federation) -> None:
    """While the trained row changes under it, a digest always gives the same answers and the same block."""
    import hashlib
    import threading

    with federation.honest("bob", rounds=1) as bob:
        client = federation.client("alice", "bob")
        digest = bytes(client.describe().digest)
        inputs = tiny().train_x[:32]
        first = client.probe(LATENTS, inputs, digest), client.pull(digest, 1 << 20)
        stop = threading.Event()

        def train() -> None:
            while not stop.is_set():
                bob.learner.train(1)

        trainer = threading.Thread(target=train, daemon=True)
        trainer.start()
        try:
            for _ in range(50):
                assert (client.probe(LATENTS, inputs, digest), client.pull(digest, 1 << 20)) == first
        finally:
            stop.set()
            trainer.join(30)
        assert hashlib.sha256(first[1]).digest()  # what it is is checked by the receiver: see test_faults
        bob.round = 1
        bob._publish(0.0, 1)
        assert bytes(client.describe().digest) != digest
        assert client.probe(LATENTS, inputs, digest) == first[0]  # still kept
        for bob.round in (2, 3, 4):
            bob.learner.train(bob.round)
            bob._publish(0.0, 1)
        with pytest.raises(Fault, match="no longer, kept here"):
            client.probe(LATENTS, inputs, digest)


def _mutants(rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Valid requests, valid ones with bytes changed, cut or repeated, random fields, and noise."""
    inputs = tiny().train_x[:2].tobytes()
    seeds = [
        ("Probe", wire.ProbeRequest(count=2, inputs=inputs).SerializeToString()),
        ("Probe", wire.ProbeRequest(kind=LATENTS.wire, count=2, inputs=inputs, digest=b"d" * 32).SerializeToString()),
        ("Pull", wire.PullRequest(digest=b"d" * 32).SerializeToString()),
        ("Inspect", wire.PullRequest(digest=b"d" * 32).SerializeToString()),
        ("Read", wire.ReadRequest(what="degree").SerializeToString()),
        ("Describe", b""),
        ("Health", b""),
    ]
    for _ in range(count):
        method, content = rng.choice(seeds)
        raw = bytearray(content)
        shape = rng.randrange(5)
        if shape == 0:
            raw = bytearray(rng.randbytes(rng.randrange(200)))
        elif shape == 1 and raw:
            for _ in range(rng.randrange(1, 8)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        elif shape == 2 and raw:
            raw = raw[: rng.randrange(len(raw))]
        elif shape == 3:
            raw = raw + raw[: rng.randrange(len(raw) + 1)]
        elif shape == 4:
            size = rng.choice((0, 1, 63, 64, 128, 1000))
            fuzzed = wire.ProbeRequest(
                kind=rng.choice((0, 1, 2)), count=rng.choice((0, 1, 2, 255, 2**32 - 1)), inputs=rng.randbytes(size)
            )
            method, raw = "Probe", bytearray(fuzzed.SerializeToString())
        yield rng.choice((method, method, method, rng.choice(METHODS))), bytes(raw)


def _fuzz(federation: Federation, count: int) -> dict[grpc.StatusCode, int]:
    generous = {"limits": {"requests_per_minute": 10_000_000, "bytes_per_minute": 2**40}}
    statuses: dict[grpc.StatusCode, int] = {}
    with federation.honest("bob", **generous) as bob:
        call = raw_call(federation, "alice", "bob")
        for method, content in _mutants(random.Random(11), count):
            code = _status(call, method, content)
            statuses[code] = statuses.get(code, 0) + 1
        assert bob.journal.total("internal-error") == 0
        client = federation.client("alice", "bob")
        digest = bytes(client.describe().digest)
        told = np.frombuffer(client.probe(LABEL_ERRORS, tiny().train_x[:16], digest), np.uint8)
        assert told.shape == (16,)
    return statuses


EXPECTED = {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION}


def test_fuzzed_requests_never_hurt(federation: Federation) -> None:
    statuses = _fuzz(federation, 2_000)
    assert set(statuses) == EXPECTED


@pytest.mark.slow
def test_twenty_thousand_fuzzed_requests_never_hurt(federation: Federation) -> None:
    statuses = _fuzz(federation, 20_000)
    assert sum(statuses.values()) == 20_000
    assert set(statuses) == EXPECTED


# Too much -----------------------------------------------------------------------------------------------------------


def test_over_the_request_limit_there_is_a_clear_status_and_others_are_served(federation: Federation) -> None:
    with federation.honest("bob", limits={"requests_per_minute": 20}) as bob:
        call, began = raw_call(federation, "mallory", "bob"), time.monotonic()
        codes = [_status(call, "Health", b"") for _ in range(1000)]  # 50 times the limit
        seconds = time.monotonic() - began
        assert 20 <= codes.count(Code.OK) <= 21 + seconds / 3  # the bucket, and what flows in meanwhile
        assert codes.count(Code.RESOURCE_EXHAUSTED) == 1000 - codes.count(Code.OK)
        assert federation.client("alice", "bob").health().serving
        assert bob.journal.counts[("over-limit", "mallory")] == codes.count(Code.RESOURCE_EXHAUSTED)
        bob.journal.flush()
        written = (Path(bob.config.directory) / "events.log").read_text() if bob.journal.path.exists() else ""
        assert written.count("over-limit") <= 61 + seconds  # counted in full, written sparingly


def test_over_the_byte_limit_models_are_not_sent(federation: Federation) -> None:
    with federation.honest("bob", limits={"bytes_per_minute": 6000}):
        client = federation.client("mallory", "bob", retries=0)
        digest = bytes(client.describe().digest)
        assert client.pull(digest, 1 << 20)
        with pytest.raises(Fault, match="bytes a minute"):
            _ = [client.pull(digest, 1 << 20) for _ in range(9)]
        assert federation.client("alice", "bob").pull(digest, 1 << 20)


def test_calls_at_once_are_bounded_and_stalled_readers_are_dropped(federation: Federation) -> None:
    big = {"model": {"options": {"hidden": 20_000}}}  # 5 MB: does not fit into the transport's buffers
    limits = {"limits": {"calls_at_once": 2, "stream_seconds": 5.0}}
    with federation.honest("bob", **big, **limits):
        identity = federation.identity("mallory")
        digest = bytes(federation.client("alice", "bob").describe().digest)
        request = wire.PullRequest(digest=digest).SerializeToString()
        credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
        options = [
            ("grpc.ssl_target_name_override", "bob"), ("grpc.use_local_subchannel_pool", 1),
            ("grpc.http2.lookahead_bytes", 64 * 1024), ("grpc.http2.bdp_probe", 0),
        ]  # fmt: skip
        # A connection each: the transport's own cap is per connection.
        channels = [grpc.secure_channel(federation.addresses["bob"], credentials, options) for _ in range(3)]
        for channel in channels:  # however long handshakes take: streams are timed from their call on
            grpc.channel_ready_future(channel).result(60)
        pulls = [channel.unary_stream("/sagefl.node.v1.Peer/Pull") for channel in channels]
        stalled = [pull(request, timeout=600) for pull in pulls[:2]]
        for stream in stalled:
            next(stream)  # it is under way; then nothing is read any more
        with pytest.raises(grpc.RpcError) as refused:
            next(pulls[2](request, timeout=600))
        assert refused.value.code() == Code.RESOURCE_EXHAUSTED
        again = federation.client("mallory", "bob", retries=0)  # its fourth connection: none has to go for it
        assert _eventually(lambda: _serves(again))  # the stalled streams hold no place any more
        for channel in channels:
            channel.close()


def _serves(client: PeerClient) -> bool:
    try:
        return bool(client.health().serving)
    except Fault:
        return False


def test_a_caller_that_is_told_to_wait_waits_and_comes_back(federation: Federation) -> None:
    """In three tries of its own accord it would be over within a second, and a call is free every three."""
    with federation.honest("bob", limits={"requests_per_minute": 20}) as bob:
        call = raw_call(federation, "alice", "bob")
        while _status(call, "Health", b"") == Code.OK:
            pass
        refused = bob.journal.counts[("over-limit", "alice")]
        assert federation.client("alice", "bob", retries=3, deadline=60.0).health().serving
        assert bob.journal.counts[("over-limit", "alice")] <= refused + 1


# Private answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["k-rr", "bitwise"])
def test_private_answers_are_noisy_memoised_and_accounted(federation: Federation, mechanism: str) -> None:
    privacy = {"privacy": {"mechanism": mechanism, "epsilon": 0.5, "budget": 1000.0}, "method": {"id": "aq-128"}}
    with federation.honest("bob", **privacy) as bob:
        client = federation.client("alice", "bob")
        digest = bytes(client.describe().digest)
        x = tiny().train_x[:64]
        first = client.probe(LABEL_ERRORS, x, digest)
        assert client.probe(LABEL_ERRORS, x, digest) == first
        assert client.probe(LABEL_ERRORS, x[32:], digest) == first[len(first) // 2 :]
        plain = bob.published.snapshots.find().infer(x).argmax(1).numpy()
        if mechanism == "k-rr":
            assert (np.frombuffer(first, np.uint8) != plain).mean() > 0.2
        assert bob.published.account.report()["total"] == 0.5 * 64  # distinct answers only
        with pytest.raises(Fault, match="labels only"):
            client.probe(LATENTS, x, digest)
        alice = federation.node("alice", ("bob",), **privacy)
        alice.run()
    assert alice.recorder.directory.table("decisions")["merged"].to_list() == [1, 1]
    assert alice.method.selector == alice.config.effective_method(4).selector
    secret = Path(alice.config.directory).with_name("alice.secret")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["latents", "probs"])
def test_a_private_node_that_nobody_would_answer_does_not_start(federation: Federation, kind: str) -> None:
    """Private neighbours answer labels only: it would train for ever without an exchange."""
    settings = {"privacy": {"mechanism": "k-rr", "budget": 9.0}, "method": {"id": "sage-os", "options": {"kind": kind}}}
    with pytest.raises(UsageError, match=rf"perturbs labels, but sage-os probes for {kind}: set .* kind=labels"):
        federation.node("alice", ("bob",), **settings)
    assert not (federation.home / "runs").exists()


def test_a_private_nodes_run_says_so_and_other_rules_are_priced_alike_on_its_losses(federation: Federation) -> None:
    """What stands in run.toml are the node's own options; whoever reads the losses needs none of the data.

    With two neighbours and this schedule lambda (p - q) never stops for cost and lambda does at 16, whatever is told.
    """
    privacy = {"privacy": {"mechanism": "k-rr", "epsilon": 1.0, "budget": 1e6}, "rounds": 3}
    rule = {"schedule": (8, 16, 32), "probe_cost": 0.05}
    with federation.honest("bob", **privacy), federation.honest("carol", **privacy):
        alice = federation.node("alice", ("bob", "carol"), method={"id": "sage-os", "options": rule}, **privacy)
        alice.run()
    directory = alice.recorder.directory
    told = directory.config
    assert (told.privacy.epsilon, told.privacy.mechanism) == (1.0, "k-rr")
    assert told.method.options["probe_cost"] == 0.05
    assert alice.method.selector.probe_cost == pytest.approx(0.05 * RandomisedResponse(1.0, 4).contrast)
    assert directory.table("decisions")["evaluations"].to_list() == [2 * 32] * 3
    merge_runs([directory.path], federation.home / "merged")
    dear = {**rule, "probe_cost": 0.05 / RandomisedResponse(1.0, 4).contrast}
    rules = [("again", make("sage-os", **rule)), ("dearer", make("sage-os", **dear))]
    for run in (directory, RunDirectory(federation.home / "merged")):
        again, dearer = replay_run(run, rules)
        assert (again.covered, again.evaluations, dearer.evaluations) == (1, 2 * 32, 2 * 16)
        assert all(unfold(Run(run.path), number, alice.config.number).get("replayed") for number in range(3))
