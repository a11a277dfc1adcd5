"""Real processes: decisions that replay, nodes that are killed, stopped and restarted, a flood, and the end result."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import polars as pl
import pytest
from federation import tiny_arrays
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.methods import method
from sagefl.node.identity import Authority, Identity
from sagefl.node.swarm import Swarm, free_ports
from sagefl.runs.replaying import recorded_decisions, replay_one
from sagefl.runs.rundir import RunDirectory

ROUNDS = 60  # long enough for a node to be restarted meanwhile
SOON = 240.0  # seconds: generous, for machines with other work
pytestmark = pytest.mark.timeout(4 * SOON)  # the first test makes the swarm, with four such waits


def tiny_swarm(out: Path, nodes: int, **settings: Any) -> Swarm:
    data = out.parent / "tiny.npz"
    np.savez_compressed(data, **tiny_arrays(400 * nodes), classes=4)
    base: dict[str, Any] = {
        "rounds": 4,
        "data": {"dataset": str(data), "partition": "dirichlet", "alpha": 2.0},
        "model": {"name": "mlp", "options": {"hidden": 8}},
        "training": {"max_batches": 3},
    }
    return Swarm(out, nodes, base | settings)


def audited(directory: Path, *, values: bool = False) -> int:
    """Check that every decision in a run directory is what its rule decides on the recorded losses; their number.

    Errors of `values` are recorded as float32, so that figures made of them agree up to that.
    """
    run = RunDirectory(directory)
    config = run.config
    rule = method(config.method.id, **config.method.options).selector
    states: dict[int, Any] = {}
    rows = [row for row in run.table("decisions").to_dicts() if row["peers"] or row["lost"]]
    replayed = 0
    for row, (_, record) in zip(rows, recorded_decisions(run), strict=True):
        client, number = row["client"], row["round"]
        outcome = replay_one(rule, record, (config.seed, number, client), number, config.rounds, states.get(client))
        assert outcome is not None
        states[client] = outcome.state
        told = (row["chosen"], row["reason"], row["selected"], row["anchors"], row["stages"])
        assert told == (
            list(outcome.peers), outcome.reason.value, outcome.selected, outcome.anchors, len(outcome.trace),
        )  # fmt: skip
        for name in ("risks", "advantage", "radius", "wealth", "against", "since") if outcome.trace else ():
            found = getattr(outcome.trace[-1], name)
            found = list(found) if isinstance(found, tuple) else found
            near = pytest.approx(found, rel=1e-6, abs=1e-6) if values and found is not None else found
            assert row[name] == near, name
        if not row["restarts"]:
            assert row["evaluations"] == outcome.evaluations
        else:
            assert row["evaluations"] >= outcome.evaluations
        replayed += 1
    return replayed


def wait_until(true: Callable[[], bool], seconds: float = SOON) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def rounds(swarm: Swarm) -> dict[str, int]:
    return {name: (status or {}).get("round", 0) for name, status in swarm.statuses().items()}


def events(swarm: Swarm, name: str) -> list[dict[str, Any]]:
    lines = (swarm.run_directory(name) / "events.log").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def kept(swarm: Swarm, name: str) -> int:
    """The round after a node's newest checkpoint, which is written just before its status."""
    return max(int(path.name[-5:]) for path in (swarm.run_directory(name) / "checkpoint").glob("round-*"))


def unanswered(swarm: Swarm, witness: str, victim: str) -> int:
    """How often one node has written that another does not answer."""
    return sum(e["event"] == "fault-no-answer" and e["peer"] == victim for e in events(swarm, witness))


def take_away(swarm: Swarm, victim: str, how: signal.Signals, witness: str) -> dict[str, int]:
    """Stop or kill a node until another has gone on for two rounds and written down that it does not answer.

    The first loss may be of another kind, since a model that stops coming half-way is too slow. That leaves the victim
    alone for a while; then it is asked again.
    """
    heard = unanswered(swarm, witness, victim)
    swarm.processes[victim].send_signal(how)
    if how == signal.SIGKILL:
        swarm.processes[victim].wait(30)
    at = rounds(swarm)
    wait_until(lambda: rounds(swarm)[witness] >= at[witness] + 2 and unanswered(swarm, witness, victim) > heard)
    return at


def restart(swarm: Swarm, name: str, round: int) -> None:
    """Start a node again; on a machine so busy that the others would be through before, they are held meanwhile."""
    swarm.start(name)
    others = [process for other, process in swarm.processes.items() if other != name]

    def further() -> bool:
        if max(rounds(swarm).values()) > ROUNDS // 2:
            for process in others:
                process.send_signal(signal.SIGSTOP)
        return rounds(swarm)[name] > round

    wait_until(further)
    for process in others:
        process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Swarm, dict[str, Any]]:
    """Four nodes; one is killed and restarted, one is stopped for a while, and all finish."""
    settings = {"rounds": ROUNDS, "exchange": {"pace": 0.9, "deadline": 2.0, "wait": SOON}}
    notes: dict[str, Any] = {}
    with tiny_swarm(tmp_path_factory.mktemp("swarm") / "out", 4, **settings) as swarm:
        wait_until(lambda: rounds(swarm)["node-2"] >= 2)
        notes["killed"] = take_away(swarm, "node-2", signal.SIGKILL, "node-0")
        notes["kept"] = kept(swarm, "node-2")
        restart(swarm, "node-2", notes["killed"]["node-2"])
        notes["stopped"] = take_away(swarm, "node-1", signal.SIGSTOP, "node-3")
        notes["meanwhile"] = rounds(swarm)
        swarm.processes["node-1"].send_signal(signal.SIGCONT)
        swarm.watch(lambda statuses: None, SOON)
        notes["pids"] = {name: p.pid for name, p in swarm.processes.items()}
    notes["codes"] = {name: p.returncode for name, p in swarm.processes.items()}
    notes["summary"] = swarm.merge()
    return swarm, notes


def test_every_decision_of_every_node_replays(troubled: tuple[Swarm, dict[str, Any]]) -> None:
    swarm, _ = troubled
    for name in swarm.names:
        assert audited(swarm.run_directory(name)) >= 5
    assert audited(swarm.out / "run") == sum(audited(swarm.run_directory(name)) for name in swarm.names)


def test_nodes_go_on_while_one_is_dead_or_stopped_and_it_rejoins(troubled: tuple[Swarm, dict[str, Any]]) -> None:
    swarm, notes = troubled
    assert notes["meanwhile"]["node-1"] <= notes["stopped"]["node-1"] + 1  # it really stood still
    assert {s["round"] for s in swarm.statuses().values() if s} == {ROUNDS}
    resumed = [e for e in events(swarm, "node-2") if e["event"] == "resumed"]
    assert [e["round"] for e in resumed] == [notes["kept"]]
    assert notes["kept"] >= notes["killed"]["node-2"]  # what it has reported is not lost
    for victim, witness in (("node-2", "node-0"), ("node-1", "node-3")):
        table = RunDirectory(swarm.run_directory(witness)).table("decisions")
        number = int(victim[-1])
        there = [number in peers for peers in table["peers"].to_list()]
        assert False in there  # away for a while
        assert there[there.index(False) :].count(True) > 0  # and back


def test_nobody_is_missing_from_a_decision_without_a_word_in_the_log(troubled: tuple[Swarm, dict[str, Any]]) -> None:
    """Whoever was there and is not in the next round: a fault in that round, or a merge of the last one taken back.

    By the logs of all but node-2, which was killed: a line may have been on its way.
    """
    swarm, _ = troubled
    told = missing = 0
    for witness in ("node-0", "node-1", "node-3"):
        log = events(swarm, witness)
        faults = {(e["peer"], e["round"]) for e in log if e["event"].startswith("fault-")}
        taken_back = {(e["peer"], e["round"] + 1) for e in log if e["event"] == "rolled-back"}
        peers = RunDirectory(swarm.run_directory(witness)).table("decisions")["peers"].to_list()
        for name in swarm.names:
            there = [True, *(int(name[-1]) in each for each in peers)]
            gone = {(name, n) for n, (before, now) in enumerate(pairwise(there)) if before and not now}
            if name != witness:
                assert gone <= faults | taken_back, witness
                missing += len(gone)
                told += len(gone & faults)
    assert missing >= told >= 2  # node-0 missed node-2, node-3 missed node-1


def test_the_end_is_clean_and_every_round_is_there_once(troubled: tuple[Swarm, dict[str, Any]]) -> None:
    swarm, notes = troubled
    assert set(notes["codes"].values()) == {0}
    decisions = RunDirectory(swarm.out / "run").table("decisions")
    assert decisions.height == 4 * ROUNDS
    assert decisions.group_by("round", "client").len()["len"].max() == 1
    for name in swarm.names:
        run = RunDirectory(swarm.run_directory(name))
        for table in ("metrics", "decisions", "clients", "timings"):
            assert run.table(table)["round"].to_list() == list(range(ROUNDS))
        assert run.summary is not None
        assert (swarm.statuses()[name] or {})["phase"] == "stopped"


def test_the_swarm_learns(troubled: tuple[Swarm, dict[str, Any]]) -> None:
    swarm, notes = troubled
    metrics = RunDirectory(swarm.out / "run").table("metrics")
    assert notes["summary"]["accuracy"] == metrics["accuracy"][-1]
    assert metrics["accuracy"][-1] > metrics["accuracy"][0] + 0.1
    assert metrics["wire_bytes"].sum() > metrics["model_bytes"].sum() > 0


def test_compare_replay_report_and_status_read_what_a_swarm_left(troubled: tuple[Swarm, dict[str, Any]]) -> None:
    swarm, notes = troubled
    runner = CliRunner()
    result = runner.invoke(app, ["compare", str(swarm.out / "run"), str(swarm.run_directory("node-0"))])
    assert result.exit_code == 0, result.output
    assert f"{notes['summary']['accuracy']:.4f}" in result.output
    for place in (swarm.out / "run", swarm.out):
        result = runner.invoke(app, ["report", str(place), "-o", str(swarm.out / "report.html")])
        assert result.exit_code == 0, result.output
    (swarm.run_directory("node-1") / "summary.json").rename(swarm.out / "kept.json")  # as while it runs
    result = runner.invoke(app, ["compare", str(swarm.out)])
    (swarm.out / "kept.json").rename(swarm.run_directory("node-1") / "summary.json")
    assert result.exit_code == 0, result.output
    assert result.output.count("/run) ") == 5
    assert f"node-1/run) (unfinished, round {ROUNDS} of {ROUNDS})" in result.output
    for directory in (swarm.out / "run", swarm.run_directory("node-0")):
        result = runner.invoke(app, ["replay", str(directory), "--lambda", "0,2e-3"])
        assert result.exit_code == 0, result.output
        assert "recorded decisions" in result.output
    result = runner.invoke(app, ["node", "status", str(swarm.folder("node-0") / "node.toml")])
    assert result.exit_code == 0, result.output
    assert f"node-0: stopped, round {ROUNDS} of {ROUNDS}" in result.output
    assert "resumed" not in result.output
    told = json.loads(runner.invoke(app, ["node", "status", str(swarm.run_directory("node-2")), "--json"]).output)
    assert told["events"]["resumed"] == 1
    assert not told["running"]


@pytest.mark.slow
def test_a_flood_of_fifty_times_the_limit_stops_nobody(tmp_path: Path) -> None:
    """mallory is a neighbour of node-0 and floods it; node-0 and its other neighbours keep making progress."""
    limit = 200  # a round of an honest neighbour takes two or three calls
    swarm = tiny_swarm(
        tmp_path / "out", 3, rounds=5000, limits={"requests_per_minute": limit},
        method={"id": "aq-128", "options": {"schedule": [16]}}, exchange={"pace": 1.0, "deadline": 5.0, "wait": 3.0},
    )  # fmt: skip
    swarm.out.mkdir(parents=True)
    swarm.prepare()
    Authority(swarm.out / "authority").issue("mallory", tmp_path / "mallory")
    (port,) = free_ports(1)
    config = swarm.folder("node-0") / "node.toml"
    entry = f'\n[neighbours.mallory]\naddress = "127.0.0.1:{port}"\nnumber = 3\n'
    config.write_text(config.read_text().replace("clients = 3", "clients = 1") + entry)
    address = next(line.split('"')[1] for line in config.read_text().splitlines() if line.startswith("listen"))
    try:
        for name in swarm.names:
            swarm.start(name)
        wait_until(lambda: min(rounds(swarm).values()) >= 1)
        before, began = rounds(swarm), time.monotonic()
        codes = _flood(Identity.load(tmp_path / "mallory"), address, 50 * limit)
        after, minutes = rounds(swarm), (time.monotonic() - began) / 60
    finally:
        swarm.stop()
    assert all(after[name] > before[name] for name in swarm.names)
    assert codes[grpc.StatusCode.OK] <= (1 + minutes) * limit + 1
    assert codes[grpc.StatusCode.RESOURCE_EXHAUSTED] >= (48 - minutes) * limit
    decisions = RunDirectory(swarm.run_directory("node-1")).table("decisions")
    during = decisions.filter(pl.col("round").is_between(before["node-1"], after["node-1"]))
    assert during["merged"].sum() > 0
    counted = (swarm.statuses()["node-0"] or {})["events"]["over-limit"]
    assert counted >= codes[grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert (swarm.run_directory("node-0") / "events.log").stat().st_size < 200_000


def _flood(identity: Identity, address: str, count: int) -> dict[grpc.StatusCode, int]:
    """`count` calls as fast as four threads can, each thread on a connection of its own."""
    codes: dict[grpc.StatusCode, int] = {grpc.StatusCode.OK: 0, grpc.StatusCode.RESOURCE_EXHAUSTED: 0}
    lock = threading.Lock()

    def work() -> None:
        credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
        options = [("grpc.ssl_target_name_override", "node-0"), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(address, credentials, options) as channel:
            call = channel.unary_unary("/sagefl.node.v1.Peer/Health")
            for _ in range(count // 4):
                code = grpc.StatusCode.OK
                try:
                    call(b"", timeout=60)
                except grpc.RpcError as error:
                    code = error.code()
                with lock:
                    codes[code] = codes.get(code, 0) + 1

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert not any(thread.is_alive() for thread in threads)
    return codes


def test_nodes_do_not_outlive_a_swarm_that_is_killed(tmp_path: Path) -> None:
    """The parent gets kill -9: its nodes notice, and end by themselves."""
    script = (
        "import sys, time; sys.path[:0] = [sys.argv[2]]\n"
        "from pathlib import Path; from test_swarm import tiny_swarm\n"
        "with tiny_swarm(Path(sys.argv[1]), 2, rounds=10000, exchange={'pace': 0.2}) as swarm:\n"
        "    print(*[p.pid for p in swarm.processes.values()], flush=True)\n"
        "    time.sleep(300)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "out"), str(Path(__file__).parent)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        wait_until(lambda: bool(select.select([parent.stdout], [], [], 0)[0]))
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        statuses = [tmp_path / "out" / "nodes" / f"node-{k}" / "run" / "status.json" for k in range(2)]
        wait_until(lambda: all(path.is_file() for path in statuses))
    finally:
        parent.kill()
        parent.wait(30)
        parent.stdout.close()
    wait_until(lambda: not any(_alive(pid) for pid in pids))
    assert {json.loads(path.read_text())["phase"] for path in statuses} == {"stopped"}


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_swarm_of_eight_on_the_embedded_data_replays_decision_by_decision(tmp_path: Path) -> None:
    """The command a newcomer types, as it is."""
    out = tmp_path / "swarm"
    command = [sys.executable, "-m", "sagefl.cli", "swarm", "--nodes", "8", "--rounds", "5", "--out", str(out)]
    command[1:3] = ["-c", "from sagefl.cli import app; app()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("round 5/5") == 8
    replayed = [audited(out / "nodes" / f"node-{k}" / "run") for k in range(8)]
    assert sum(replayed) == audited(out / "run") == 40


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("nonsense", "unknown method 'nonsense'"),
        ("epidemic", "method epidemic pushes models to its peers, and nodes pull: choose another method"),
        ("choco", "method choco sends compressed changes of models, which only the simulator does"),
        ("oracle", "method oracle knows the truth, which only the simulator can tell"),
        ("sage-os:kind=nothing", "kind"),
    ],
)
def test_a_method_that_nodes_cannot_use_is_refused_before_anything_is_made(
    tmp_path: Path, method: str, why: str
) -> None:
    out = tmp_path / "swarm"
    done = CliRunner().invoke(app, ["swarm", "--nodes", "2", "--method", method, "--out", str(out)])
    assert done.exit_code == 2, done.output
    assert why in " ".join(done.output.split())
    assert len(done.output.strip().splitlines()) == 1
    assert not out.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port that is bound cannot be listened on by another")
def test_a_free_port_is_given_to_nobody_else_before_it_is_used() -> None:
    (port,) = free_ports(1)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.slow
def test_a_node_that_ends_after_its_last_round_has_not_ended_too_early(tmp_path: Path) -> None:
    with tiny_swarm(tmp_path / "out", 2, rounds=2, exchange={"linger": 0.0, "wait": 60.0}) as swarm:
        swarm.watch(lambda statuses: None, SOON)
    assert {process.returncode for process in swarm.processes.values()} == {0}
