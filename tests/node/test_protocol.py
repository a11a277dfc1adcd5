"""The protocol as it is checked in, what nodes may import, limits as arithmetic, configs, and every kind of method."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from federation import NAMES, Federation, in_thread, tiny
from google.protobuf import descriptor_pb2
from scipy.stats import binom

from sagefl.learning.layout import Layout
from sagefl.learning.models import build_model
from sagefl.node.acceptance import LEVEL, beyond
from sagefl.node.config import ExchangeConfig, NodeConfig, host_and_port, is_loopback
from sagefl.node.errors import Fault, NodeError
from sagefl.node.journal import LINES_PER_MINUTE, Journal
from sagefl.node.limits import Bucket, Limits, Meter, OverLimit
from sagefl.node.loop import Node
from sagefl.node.snapshots import block_digest, payload
from sagefl.node.status import read_status
from sagefl.node.verify import Norms, decode_block, same_latents
from sagefl.node.wire import generate, node_pb2
from sagefl.runs.config import RunConfig
from sagefl.runs.sections import ConfigError
from sagefl.selection import ME, Draws, Exchange, Hood, Read, Reason, Selector, State
from sagefl.selection.scoring import LABEL_ERRORS
from sagefl.selection.selector import Deciding
from sagefl.simulation.comparing import method_config

SOURCE = Path(generate.__file__).parents[1]


def test_the_generated_code_is_what_the_protocol_says(tmp_path: Path) -> None:
    """Generated again from node.proto: the messages and the description must be those checked in."""
    made = generate.generate(tmp_path)
    for path in made:
        kept = SOURCE / "wire" / path.name
        assert path.read_text() == kept.read_text(), f"regenerate {kept.name}"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.28.0", "6.33.6", "7.36.2"])
def test_the_messages_work_from_the_oldest_to_the_newest_protobuf(version: str, tmp_path: Path) -> None:
    """What protoc itself writes would work at two major versions alone; other packages hold protobuf below 7."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    installed = subprocess.run([*pip, f"protobuf=={version}"], capture_output=True, text=True, timeout=300)
    if installed.returncode:
        pytest.skip(f"no package index within reach: {installed.stderr.strip()[-300:]}")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(SOURCE / 'wire')!r}]\n"
        "import google.protobuf, node_pb2 as wire\n"
        "asked = wire.ProbeRequest(kind=1, count=2, inputs=b'x', digest=b'y')\n"
        "assert wire.ProbeRequest.FromString(asked.SerializeToString()) == asked\n"
        "print(google.protobuf.__version__)"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == version, run.stderr


def test_the_protocol_has_no_field_for_the_receivers_labels() -> None:
    request = node_pb2.ProbeRequest.DESCRIPTOR
    assert {f.name for f in request.fields} == {"kind", "count", "inputs", "digest"}
    proto = descriptor_pb2.FileDescriptorProto()
    node_pb2.DESCRIPTOR.CopyToProto(proto)
    methods = {m.name: m.server_streaming for m in proto.service[0].method}
    assert methods == {
        "Describe": False, "Probe": False, "Pull": True, "Inspect": True, "Read": False, "Health": False,
    }  # fmt: skip


# Limits -------------------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_lets_through_its_size_and_then_its_rate() -> None:
    clock = Clock()
    bucket = Bucket(rate=2.0, size=10.0, clock=clock)
    taken = 0
    for _ in range(1000):
        if bucket.wait(1) == 0:
            bucket.take(1)
            taken += 1
        clock.now += 0.01
    assert taken == 10 + 2 * 10 - 1  # the bucket, and ten seconds of its rate


def test_what_is_larger_than_the_bucket_goes_through_once_and_is_paid_off() -> None:
    clock = Clock()
    bucket = Bucket(rate=1.0, size=10.0, clock=clock)
    assert bucket.wait(25) == 0
    bucket.take(25)
    assert bucket.wait(1) == 16.0


def test_a_refused_call_costs_nothing_and_says_when_to_come_back() -> None:
    clock = Clock()
    meter = Meter(Limits(requests_per_minute=2, bytes_per_minute=60_000, calls_at_once=1), clock)
    with meter.call(), pytest.raises(OverLimit, match="1 calls at once"), meter.call():
        pass
    with meter.call():
        pass
    with pytest.raises(OverLimit, match="2 requests a minute; try again in 30"), meter.call():
        pass
    clock.now = 30.0
    with meter.call():
        pass
    meter.spend(60_000)
    with pytest.raises(OverLimit, match="60000 bytes a minute"):
        meter.spend(1)


def test_a_flood_of_events_is_counted_in_full_and_written_sparingly(tmp_path: Path) -> None:
    journal, began = Journal(tmp_path / "events.log"), time.monotonic()
    for _ in range(5000):
        journal.event("over-limit", peer="mallory")
    seconds = time.monotonic() - began
    assert journal.total("over-limit") == 5000
    journal.flush()
    assert len((tmp_path / "events.log").read_text().splitlines()) <= LINES_PER_MINUTE + 1 + seconds


# Configs ------------------------------------------------------------------------------------------------------------


def test_a_config_survives_its_file(federation: Federation, tmp_path: Path) -> None:
    config = federation.config("alice", ("bob", "carol"), privacy={"mechanism": "k-rr", "epsilon": 2.0, "budget": 5.0})
    path = tmp_path / "node.toml"
    path.write_text(config.to_toml())
    assert NodeConfig.read(path) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"neighbors": {}}, "did you mean 'neighbours'"),
        ({"name": "Alice"}, "name"),
        ({"listen": "7443"}, "host:port"),
        ({"neighbours": {"alice": {"address": "127.0.0.1:1", "number": 1}}}, "own neighbour"),
        ({"neighbours": {"bob": {"address": "127.0.0.1:1", "number": 0}}}, "its own number"),
        ({"neighbours": {"bob": {"address": "127.0.0.1:1", "number": 1, "key": "abc"}}}, "key"),
        ({"number": 9}, "does not fit"),
        ({"limits": {"anchors_per_request": 0}}, "anchors_per_request"),
        ({"privacy": {"mechanism": "k-rr", "budget": 1.0, "epsilon": float("inf")}}, r"privacy\.epsilon"),
        ({"privacy": {"mechanism": "k-rr"}}, r"privacy\.budget is missing"),
    ],
)
def test_mistakes_in_a_config_are_named(federation: Federation, change: dict[str, Any], message: str) -> None:
    document = federation.config("alice", ()).model_dump()
    with pytest.raises(ConfigError, match=message):
        NodeConfig.parse(document | change)


def test_addresses() -> None:
    assert host_and_port("[::1]:80") == ("::1", 80)
    assert [is_loopback(a) for a in ("localhost:1", "127.9.9.9:1", "[::1]:1", "10.0.0.1:1", "here.example:1")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_method_whose_exchange_is_not_plain_is_refused_by_name(federation: Federation) -> None:
    with pytest.raises(NodeError, match="choose another method"):
        federation.node("alice", (), method={"id": "choco"})


def test_a_name_that_is_not_the_certificates_is_refused(federation: Federation) -> None:
    config = federation.config("alice", ()).model_copy(update={"identity": str(federation.home / "bob")})
    with pytest.raises(NodeError, match="belongs to bob"):
        Node(config, dataset=tiny())


# Blocks -------------------------------------------------------------------------------------------------------------


def test_a_block_travels_bit_for_bit_and_any_change_changes_its_digest(federation: Federation) -> None:
    learner = federation.node("alice", ()).learner
    row, layout = learner.population.params[0].clone(), learner.layout
    digest = block_digest(row[layout.shared], layout)
    again = decode_block(payload(row, layout, full=False), layout, digest)
    assert torch.equal(again[layout.shared], row[layout.shared])
    assert not again[layout.shared_stop :].any()
    whole = decode_block(payload(row, layout, full=True), layout, digest, full=True)
    assert torch.equal(whole, row)
    rng = np.random.default_rng(0)
    for place in rng.choice(layout.slots[0].size, 20, replace=False):
        changed = row.clone()
        changed[place] = torch.nextafter(changed[place], torch.tensor(9.0))
        with pytest.raises(Fault, match="not the one that answered"):
            decode_block(payload(changed, layout, full=False), layout, digest)


def test_latents_are_compared_with_a_little_room() -> None:
    latents = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)
    same_latents(latents, latents * (1 + 1e-6))
    for wrong in (latents + 0.05, latents[:, ::-1], np.full_like(latents, np.nan)):
        with pytest.raises(Fault) as fault:
            same_latents(latents, wrong)
        assert fault.value.kind == "latent-mismatch"


def test_one_huge_latent_excuses_no_other() -> None:
    answered = np.random.default_rng(1).normal(size=(100, 8)).astype(np.float32)
    computed = answered + 9.0
    answered[0, 0] = computed[0, 0] = 1e4
    with pytest.raises(Fault, match=r"99\.9% of them"):
        same_latents(answered, computed)


def test_no_layer_may_be_stretched_however_patiently() -> None:
    """Blocks just below the bound, merged half and half, round after round: the initial norms end it."""
    layout = Layout.of(build_model("mlp", (1, 8, 8), 4, 1, {"hidden": 8}))
    initial = layout.flatten(build_model("mlp", (1, 8, 8), 4, 1, {"hidden": 8}))
    norms, row = Norms(layout, initial, ExchangeConfig()), initial.clone()
    norms.check(2.5 * initial)
    refused = 0
    for _ in range(200):
        norms.trained(row)
        try:
            norms.check(2.9 * row)
            row = 0.5 * row + 0.5 * 2.9 * row
        except Fault:
            refused += 1
    assert refused > 150
    first, last = layout.views(initial), layout.views(row)
    assert all(last[name].norm() <= 20 * first[name].norm() for name in first)


def test_one_swollen_layer_is_refused_though_the_block_as_a_whole_is_not() -> None:
    layout = Layout.of(build_model("mlp", (1, 8, 8), 4, 1, {"hidden": 8}))
    initial = layout.flatten(build_model("mlp", (1, 8, 8), 4, 1, {"hidden": 8}))
    swollen = initial.clone()
    smallest = min((s for s in layout.slots if s.start < layout.shared_stop), key=lambda s: s.size)
    swollen[smallest.start : smallest.start + smallest.size] *= 10
    assert swollen.norm() < 3 * initial.norm()
    with pytest.raises(Fault, match=smallest.name):
        Norms(layout, initial, ExchangeConfig()).check(swollen)


@pytest.mark.parametrize("samples", [4, 12, 40, 300])
@pytest.mark.parametrize("tolerance", [0.1, 0.3, 0.6])
def test_a_merge_within_the_tolerance_is_taken_back_in_at_most_one_case_of_a_hundred(
    samples: int, tolerance: float
) -> None:
    """Each sample turns wrong with the tolerated probability: the binomial, summed by another package."""
    harmful = [k for k in range(samples + 1) if beyond(0, k, samples, tolerance)]
    chance = sum(binom.pmf(k, samples, tolerance) for k in harmful)
    assert chance <= LEVEL
    assert beyond(0, samples, samples, tolerance) == (tolerance**samples <= LEVEL)
    assert not beyond(5, 5, samples, tolerance)


@pytest.mark.parametrize(("samples", "share"), [(300, 36), (60, 43), (20, 55)])
def test_the_harm_that_few_samples_let_through_is_what_the_security_page_says(samples: int, share: int) -> None:
    worst = max(k for k in range(samples) if not beyond(0, k, samples, 0.3))
    assert round(100 * worst / samples) == share
    assert f"{share} % of {samples}" in " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text().split())


# Whole nodes in one process -----------------------------------------------------------------------------------------

EVERYTHING = {
    "inspect": True,
    "reads": [
        "degree",
        "samples",
        "loss",
        "head",
        "last-layer",
        "age",
        "x",
        "y",
        "sketch",
        "loss-of-0",
        "loss-of-1",
        "loss-of-2",
    ],
}
PULLING = [
    "rg", "local", "aq-128", "sage-os", "sage-vanilla", "sage-nf", "sage-e", "d-psgd", "pens", "fedfomo",
    "dpfl:models=shared", "pfeddst", "sketchguard", "cfns-lite:private=false", "dfedmq-lite", "hoeffding-race",
]  # fmt: skip


@pytest.mark.parametrize("id", PULLING)
def test_methods_of_every_kind_run_over_the_network(federation: Federation, id: str) -> None:
    """Probes of every kind, inspections, readings, several models merged: whatever a rule asks is answered."""
    settings = {"method": method_config(id), "serve": EVERYTHING, "rounds": 3}
    with federation.honest("bob", **settings), federation.honest("carol", **settings):
        alice = federation.node("alice", ("bob", "carol"), **settings)
        assert alice.run() is not None
    decisions = alice.recorder.directory.table("decisions")
    assert [e for e in alice.journal.totals() if e.startswith("fault")] == []
    assert decisions["degree"].to_list() == [2, 2, 2]
    assert (decisions["merged"].sum() > 0) == (id != "local")
    assert decisions.filter(pl.col("merged") > 0)["digest"].str.len_chars().min() in (None, 64, 129)


class Pusher(Selector):
    """Sends its model to everybody."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        yield Read(hood.peers, "degree")
        return Exchange.push(hood.peers, Reason.COMMITTED)


def test_a_method_that_pushes_says_that_nodes_pull(federation: Federation) -> None:
    with federation.honest("bob"):
        alice = federation.node("alice", ("bob",))
        alice.method.selector = Pusher()
        with pytest.raises(NodeError, match="nodes pull"):
            alice.run()


def test_what_a_peer_does_not_hand_out_costs_it_its_place_and_nothing_else(federation: Federation) -> None:
    settings = {"method": {"id": "pens", "options": {"first_phase": 2}}}
    with federation.honest("bob", **settings), federation.honest("carol", serve=EVERYTHING, **settings):
        alice = federation.node("alice", ("bob", "carol"), **settings)
        alice.run()
    assert alice.journal.counts[("fault-refused", "bob")] == 2
    assert alice.recorder.directory.table("decisions")["chosen"].to_list() == [[NAMES.index("carol")]] * 2


def wait_for_the_end(node: Node, thread: Thread) -> Path:
    """Until a node has finished its rounds and only serves; returns its directory."""
    directory = Path(node.config.directory)
    while not (directory / "status.json").exists() or read_status(directory)["phase"] != "finished":
        assert thread.is_alive()
        time.sleep(0.01)
    return directory


class Curious(Selector):
    """Reads how many neighbours there are, its own among them, and remembers it."""

    def decide(self, hood: Hood, state: State, rng: Draws) -> Deciding:
        mine, theirs = yield Read((ME, *hood.peers), "degree")
        return Exchange.none(state={"mine": int(mine), "theirs": int(theirs)})


def test_a_node_reads_of_itself_the_degree_that_it_tells_others(federation: Federation) -> None:
    """As in the simulator, that is how many neighbours are there this round, not how many are configured."""
    with federation.honest("bob"):
        alice = federation.node("alice", ("bob", "mallory", "carol"), exchange={"linger": 60.0})
        alice.method.selector = Curious()
        thread = in_thread(alice)
        try:
            wait_for_the_end(alice, thread)
            (told,) = federation.client("bob", "alice").read("degree", b"", 1)
        finally:
            alice.stop()
            thread.join(60)
    assert alice.recorder.directory.table("decisions")["degree"].to_list() == [1, 1]
    assert alice.state == {"mine": 1, "theirs": 3}  # bob has not looked yet who of his is there
    assert told == 1


def test_mixing_over_the_network_is_the_paper_s_equation(federation: Federation) -> None:
    """omega <- (1 - a) omega + a omega_peer, from the block that answered; the head stays as it was."""
    with federation.honest("bob") as bob:
        alice = federation.node("alice", ("bob",), rounds=1, method={"id": "rg"}, training={"mixing": 0.25})
        alice.run()
    layout = alice.learner.layout
    trained = alice.published.snapshots.find().row
    theirs = bob.published.snapshots.find().row
    expected = trained[layout.shared] * 0.75 + theirs[layout.shared] * 0.25
    assert torch.allclose(alice.learner.population.params[0, layout.shared], expected, atol=1e-7)
    assert torch.equal(alice.learner.population.params[0, layout.shared_stop :], trained[layout.shared_stop :])


def test_the_wire_carries_what_the_account_says(federation: Federation) -> None:
    """Payload bytes against the simulator's accounting; with inputs this small, the rest is a larger share."""
    with federation.honest("bob"), federation.honest("carol"):
        alice = federation.node("alice", ("bob", "carol"), method={"id": "aq-128", "options": {"schedule": (32,)}})
        alice.run()
    metrics = alice.recorder.directory.table("metrics")
    kinds = ("probe_input_bytes", "probe_answer_bytes", "model_bytes", "control_bytes")
    said = sum(metrics[kind].sum() for kind in kinds)
    assert metrics["probe_input_bytes"].to_list() == [2 * 32 * 64] * 2
    assert said < metrics["wire_bytes"].sum() < 1.25 * said


def test_metrics_and_status_tell_the_same_story(federation: Federation) -> None:
    settings = {"metrics": {"address": "127.0.0.1:0"}, "privacy": {"mechanism": "k-rr", "epsilon": 1.0, "budget": 1e4}}
    settings |= {"exchange": {"linger": 60.0}}
    with federation.honest("bob", privacy=settings["privacy"]):
        alice = federation.node("alice", ("bob",), **settings)
        thread = in_thread(alice)
        try:
            directory = wait_for_the_end(alice, thread)
            client = federation.client("bob", "alice")
            client.probe(LABEL_ERRORS, tiny().train_x[:8], bytes(client.describe().digest))
            alice._report("finished")
            page = urllib.request.urlopen(f"http://127.0.0.1:{alice.metrics.port}/metrics", timeout=30).read().decode()
            status = read_status(directory)
        finally:
            alice.stop()
            thread.join(60)
    assert "sagefl_round 2.0" in page
    assert 'sagefl_calls_total{method="Probe",peer="bob"} 1.0' in page
    assert 'sagefl_events_total{kind="round",peer=""} 2.0' in page
    assert 'sagefl_epsilon{over="total"} 8.0' in page
    assert status["privacy"]["total"] == 8.0
    assert status["running"]
    assert read_status(directory)["phase"] == "stopped"


def test_the_run_directory_is_one_that_downstream_reads(federation: Federation) -> None:
    alice = federation.node("alice", ())
    alice.run()
    directory = alice.recorder.directory
    assert isinstance(directory.config, RunConfig)
    assert directory.config.clients == len(NAMES)
    assert directory.summary["rounds"] == 2
    for line in (directory.path / "events.log").read_text().splitlines():
        assert {"time", "event"} <= json.loads(line).keys()


def test_two_insecure_nodes_on_loopback_learn_from_each_other(federation: Federation) -> None:
    settings = {"rounds": 3, "exchange": {"wait": 120.0, "linger": None}}
    configs = [federation.config(me, (you,), **settings) for me, you in (("alice", "bob"), ("bob", "alice"))]
    nodes = [Node(config, insecure=True, dataset=tiny()) for config in configs]
    threads = [in_thread(node) for node in nodes]
    for node, thread in zip(nodes, threads, strict=True):
        wait_for_the_end(node, thread)
    for node, thread in zip(nodes, threads, strict=True):
        node.stop()
        thread.join(60)
        assert not thread.is_alive()
    for node in nodes:
        assert node.recorder.directory.table("decisions")["merged"].sum() >= 2
