"""Chaos: eight members on hosts of their own for 200 rounds, while everything goes wrong that can.

One of them publishes poison, one drips. Meanwhile, in an order drawn by a seed: kill -9, SIGSTOP, cut cables, a slow
line, a full disk, floods of calls and of connections. Afterwards everything must be there, once, and as it was decided.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attackers
import network
import numpy as np
import pytest
from federation import tiny_arrays
from lockstep import Lockstep
from network import cut, hosts, mend, on
from test_swarm import audited

from sagefl.data import Federation, load
from sagefl.node.acceptance import beyond
from sagefl.node.audit import heads, verify
from sagefl.node.config import NodeConfig
from sagefl.node.errors import NodeError
from sagefl.node.identity import Authority
from sagefl.node.status import read_status
from sagefl.node.swarm import _graph
from sagefl.runs.rundir import RunDirectory

NODES, ROUNDS, SEED = 8, 200, 11
NAMES = [f"node-{k}" for k in range(NODES)]
POISONER, DRIPPER, CROWDED = "node-7", "node-6", "node-5"  # the last one's disk is small
HONEST = NAMES[:6]
FAR = "node-4"  # reached through a switch that can delay
ADDRESSES = {name: f"10.213.8.{k + 1}" for k, name in enumerate(NAMES)}
EVERY = 12  # rounds of the slowest honest node between two troubles
MINUTES = 25.0  # after which it hangs; a busy machine may need a good part of that
TOLERANCE = 0.3
BEHIND = 0.1  # two standard errors of a difference of accuracies on 200 test samples are .07 (at .85); and a little


class Arena:
    """The federation, its processes and what is done to them."""

    def __init__(self, home: Path) -> None:
        self.home, self.rng = home, random.Random(SEED)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[str] = []
        self.troubles: list[str] = []
        data = home / "tiny.npz"
        np.savez_compressed(data, **tiny_arrays(400 * NODES), classes=4)
        authority, graph = Authority.create(home / "authority"), _graph(NODES, 4, SEED)
        for number, name in enumerate(NAMES):
            authority.issue(name, home / name / "identity")
            ports = {NAMES[j]: 7444 if NAMES[j] == FAR else 7443 for j in graph[number]}
            around = {
                NAMES[j]: {"address": f"{ADDRESSES[NAMES[j]]}:{ports[NAMES[j]]}", "number": j} for j in graph[number]
            }
            document: dict[str, Any] = {
                "name": name, "number": number, "clients": NODES, "seed": SEED, "rounds": ROUNDS,
                "listen": f"{ADDRESSES[name]}:7443", "neighbours": around,
                "data": {"dataset": str(data), "partition": "dirichlet", "alpha": 2.0},
                "model": {"name": "mlp", "options": {"hidden": 8}}, "training": {"max_batches": 6},
                "exchange": {"deadline": 2.0, "transfer_deadline": 4.0, "decision": 2.0, "wait": 90.0, "pace": 0.5},
                "acceptance": {"share": 0.15, "tolerance": TOLERANCE},
                "limits": {"open_seconds": 1.0, "silent_seconds": 5.0},
            }  # fmt: skip
            (home / name / "node.toml").write_text(NodeConfig.parse(document).to_toml())

    def start(self, name: str) -> None:
        kind = {POISONER: "poison", DRIPPER: "drip"}.get(name)
        config = str(self.home / name / "node.toml")
        what = ["-m", "sagefl.node", config] if kind is None else [attackers.__file__, kind, config, str(60 * MINUTES)]
        with (self.home / name / "log.txt").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*on(name), sys.executable, *what], stdout=subprocess.DEVNULL, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def switch(self) -> None:
        """The line to `FAR`."""
        self.line(0.0)
        what = [network.__file__, ADDRESSES[FAR], "7444", "7443", str(self.home / "seconds")]
        self.processes["switch"] = subprocess.Popen([*on(FAR), sys.executable, *what])

    def line(self, seconds: float) -> None:
        (self.home / "seconds.new").write_text(str(seconds))
        (self.home / "seconds.new").replace(self.home / "seconds")

    def round(self, name: str) -> int:
        try:
            return int(read_status(self.home / name / "run")["round"])
        except NodeError:
            return 0

    def slowest(self) -> int:
        return min(self.round(name) for name in HONEST)

    def check_alive(self) -> None:
        for name in HONEST:
            process = self.processes[name]
            log = (self.home / name / "log.txt").read_text(errors="replace")
            assert process.poll() is None, f"{name} ended with {process.returncode}: {log[-2000:]}"
            assert "Traceback" not in log, log[-3000:]

    # Troubles ------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        name = self.rng.choice(HONEST)
        self.processes[name].kill()  # `ip netns exec` becomes the node itself
        self.processes[name].wait(30)
        self.killed.append(name)
        time.sleep(1.0)
        self.start(name)

    def freeze(self) -> None:
        name = self.rng.choice(HONEST)
        self.processes[name].send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        self.processes[name].send_signal(signal.SIGCONT)

    def partition(self) -> None:
        names = self.rng.sample(HONEST, 2)
        for name in names:
            cut(name)
        time.sleep(4.0)
        for name in names:
            mend(name)

    def delay(self) -> None:
        self.line(self.rng.uniform(0.2, 1.5))  # round trips of up to three seconds, deadlines of two
        time.sleep(4.0)
        self.line(0.0)

    def fill_disk(self) -> None:
        ballast = self.home / CROWDED / "run" / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file:
                for _ in range(100_000):
                    file.write(bytes(4096))
        except OSError:
            pass
        time.sleep(4.0)
        ballast.unlink(missing_ok=True)

    def flood(self) -> None:
        name, kind = self.rng.choice(HONEST), self.rng.choice(["half-open", "connections"])
        command = [sys.executable, attackers.__file__, kind, str(self.home / POISONER / "identity")]
        subprocess.run(
            [*on(POISONER), *command, f"{ADDRESSES[name]}:7443", name, "4"], stderr=subprocess.DEVNULL, timeout=180
        )


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, timeout=30).returncode:
        pytest.skip("no tmpfs can be mounted here (needs root)")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, timeout=30)


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """The arena after 200 rounds of every honest node."""
    with ExitStack() as stack:
        stack.enter_context(hosts(ADDRESSES))
        arena = Arena(tmp_path_factory.mktemp("chaos"))
        stack.enter_context(small_disk(arena.home / CROWDED / "run"))
        stack.callback(_end, arena)
        arena.switch()
        for name in NAMES:
            arena.start(name)
        _trouble(arena)
        for name in HONEST:
            arena.processes[name].terminate()
        for name in HONEST:
            assert arena.processes[name].wait(60) == 0, name
        yield arena


def _trouble(arena: Arena) -> None:
    """Every kind of trouble in a drawn order, again and again, until all honest nodes are done."""
    kinds: dict[str, Callable[[], None]] = {
        "kill": arena.kill, "freeze": arena.freeze, "partition": arena.partition, "full disk": arena.fill_disk,
        "flood": arena.flood, "slow line": arena.delay,
    }  # fmt: skip
    end, due, hand = time.monotonic() + 60 * MINUTES, 3, []
    while arena.slowest() < ROUNDS:
        assert time.monotonic() < end, {name: arena.round(name) for name in HONEST}
        arena.check_alive()
        if arena.slowest() >= due and arena.slowest() < ROUNDS - 5:
            hand = hand or arena.rng.sample(sorted(kinds), len(kinds))
            arena.troubles.append(kind := hand.pop())
            kinds[kind]()
            due = arena.slowest() + EVERY
        time.sleep(0.2)


def _end(arena: Arena) -> None:
    for process in arena.processes.values():
        if process.poll() is None:
            process.kill()
    for process in arena.processes.values():
        process.wait(30)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES + 180)]


def test_every_kind_of_trouble_came_and_nobody_crashed(survived: Arena) -> None:
    assert set(survived.troubles) == {
        "kill", "freeze", "partition", "full disk", "flood", "slow line",
    }, survived.troubles  # fmt: skip
    assert len(survived.troubles) >= 8
    survived_logs = {name: (survived.home / name / "log.txt").read_text(errors="replace") for name in HONEST}
    assert not [name for name, log in survived_logs.items() if "Traceback" in log]


def test_nothing_is_lost_and_every_round_is_there_once(survived: Arena) -> None:
    for name in HONEST:
        run = RunDirectory(survived.home / name / "run")
        for table in ("metrics", "decisions", "clients", "timings"):
            assert run.table(table)["round"].to_list() == list(range(ROUNDS)), (name, table)
        assert run.summary is not None
        assert verify(run.path, heads(run.path)) == (ROUNDS, []), name


def test_every_decision_replays_from_its_record(survived: Arena) -> None:
    """Every round of somebody who was asked, those in which all who were asked failed on the way included; and in the
    others nobody was there, so that nothing was asked, chosen or merged."""
    replayed = {}
    for name in HONEST:
        run = RunDirectory(survived.home / name / "run")
        replayed[name] = audited(run.path)
        rows = run.table("decisions").to_dicts()
        alone = [row for row in rows if not (row["peers"] or row["lost"])]
        assert replayed[name] + len(alone) == ROUNDS, name
        for row in rows:
            assert bool(row["restarts"]) == bool(row["lost"]), (name, row)
            if not row["peers"]:
                assert (row["degree"], row["chosen"] or [], row["merged"]) == (0, [], 0), (name, row)
        for row in alone:
            assert not any(row[what] for what in ("evaluations", "transferred", "rejected")), (name, row)
        absent = [e for e in _events(survived, name) if e["event"].startswith("fault-") or e["event"] == "rolled-back"]
        assert absent or not alone, name  # neighbours were away or left alone, which the log says
    assert min(replayed.values()) > ROUNDS / 2, replayed


def test_no_merge_beyond_the_tolerance_survives_its_round(survived: Arena) -> None:
    """By what the audit log says of every merge; and on other samples, those that nodes keep for evaluation."""
    merges, taken_back, config = 0, 0, NodeConfig.read(survived.home / "node-0" / "node.toml")
    data = load(config.data.dataset)
    dealt = Federation.build(
        data, config.data.partitioner(data), NODES, SEED, config.data.anchor, config.data.eval, config.acceptance.share
    )
    for number, name in enumerate(HONEST):
        run, roles = RunDirectory(survived.home / name / "run"), dealt.roles[number]
        decisions, tested = run.table("decisions"), _tested(run.path)
        doubt = max(k for k in range(len(roles.safety)) if not beyond(0, k, len(roles.safety), TOLERANCE))
        rows = decisions.select("round", "merged", "rolled_back").join(run.table("clients"), on="round").to_dicts()
        for row in rows:
            if row["merged"] or row["rolled_back"]:
                assert tested[row["round"]][2] == len(roles.safety)
                assert beyond(*tested[row["round"]], TOLERANCE) == bool(row["rolled_back"]), (name, row)
            if row["merged"]:
                size = len(roles.eval)
                before, after = (round((1 - row[c]) * size) for c in ("own_accuracy_before", "own_accuracy"))
                assert not beyond(before, after, size, doubt / len(roles.safety)), (name, row)
                merges += 1
        taken_back += int(decisions["rolled_back"].sum())
    assert merges > ROUNDS
    assert taken_back >= 1
    blamed = [e["peer"] for name in HONEST for e in _events(survived, name) if e["event"] == "rolled-back"]
    assert blamed.count(POISONER) > len(blamed) / 2, blamed


def _tested(directory: Path) -> dict[int, tuple[int, int, int]]:
    """Errors before and after each merge, and samples, as the audit log has them; a round run again counts last."""
    lines = [json.loads(line) for line in (directory / "audit.log").read_text().splitlines()]
    return {line["round"]: tuple(line["tested"]) for line in lines if line.get("tested")}


def test_the_honest_learn_all_the_same(survived: Arena) -> None:
    """As well as eight honest nodes of the same seed, data and graph in step, but for `BEHIND`, in the mean of the last
    twenty rounds: a merge within the tolerance may come in any round, the last one too."""
    tables = [RunDirectory(survived.home / name / "run").table("metrics")["accuracy"] for name in HONEST]
    config = tomllib.loads((survived.home / "node-0" / "node.toml").read_text())
    shared = {name: config[name] for name in ("seed", "rounds", "data", "model", "training", "acceptance")}
    calm = Lockstep.run(shared, _graph(NODES, 4, SEED), load(config["data"]["dataset"]), ROUNDS)
    last = [_end_of(accuracies.to_list()) for accuracies in tables]
    expected = [_end_of(accuracies) for accuracies in calm.accuracies[: len(HONEST)]]
    print(f"chaos {last}, calm {expected}, taken back in calm {calm.rolled_back}")
    assert sum(last) / len(last) > sum(expected) / len(expected) - BEHIND, (last, expected)
    assert min(last) > 0.7, last  # poisoned ones are at .1 to .36; test sets are small


def _end_of(accuracies: list[float]) -> float:
    return sum(accuracies[-20:]) / 20


def _events(arena: Arena, name: str) -> list[dict[str, Any]]:
    lines = (arena.home / name / "run" / "events.log").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]
