"""The commands a person types, the example that the docs point to, and the example files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.node.config import NodeConfig
from sagefl.node.identity import Identity
from sagefl.node.registry import Registry
from sagefl.node.swarm import free_ports

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "node"
runner = CliRunner()


def test_init_makes_identities_and_revoke_unmakes_them(tmp_path: Path) -> None:
    made = runner.invoke(app, ["node", "init", str(tmp_path), "north", "south"])
    assert made.exit_code == 0, made.output
    assert made.output.count("  key ") == 2
    assert Identity.load(tmp_path / "north").name == "north"
    more = runner.invoke(app, ["node", "init", str(tmp_path), "west"])  # the same federation grows
    assert more.exit_code == 0, more.output
    assert (tmp_path / "west" / "ca.pem").read_bytes() == (tmp_path / "north" / "ca.pem").read_bytes()
    gone = runner.invoke(app, ["node", "revoke", str(tmp_path), "north"])
    assert gone.exit_code == 0, gone.output
    shutil.copy(tmp_path / "authority" / "revoked.pem", tmp_path / "south" / "revoked.pem")
    assert len(Identity.load(tmp_path / "south").revoked()) == 1


def test_init_makes_nobody_whom_the_keeper_would_not_know(tmp_path: Path) -> None:
    Registry.create(tmp_path, "127.0.0.1:7440")
    before = sorted(tmp_path.rglob("*"))
    told = runner.invoke(app, ["node", "init", str(tmp_path), "west", "east"])
    assert told.exit_code == 2
    assert f"who would not know west: sagefl node invite {tmp_path} west lets it in" in " ".join(told.output.split())
    assert sorted(tmp_path.rglob("*")) == before
    assert runner.invoke(app, ["node", "invite", str(tmp_path), "west"]).exit_code == 0


@pytest.mark.parametrize("command", ["revoke", "renew"])
def test_a_damaged_certificate_is_called_so(tmp_path: Path, command: str) -> None:
    assert runner.invoke(app, ["node", "init", str(tmp_path), "north"]).exit_code == 0
    (tmp_path / "north" / "node.pem").write_text("junk")
    told = runner.invoke(app, ["node", command, str(tmp_path), "north"])
    assert told.exit_code == 2
    assert "north/node.pem is not a certificate: " in " ".join(told.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["node", "init", "{}", "Not A Name"], "cannot name a node"),
        (["node", "run", "{}/none.toml"], "cannot read config"),
        (["node", "status", "{}"], "has a node run there?"),
        (["swarm", "--nodes", "5", "--degree", "3", "--out", "{}/s"], "must be even"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = runner.invoke(app, [a.format(tmp_path) for a in arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_swarm_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    told = CliRunner().invoke(
        app, ["swarm", "--nodes", "3", "--set", "training.batches=3", "--out", str(tmp_path / "s")]
    )
    assert told.exit_code == 2
    assert "batches" in told.output
    assert not (tmp_path / "s").exists()


def test_every_key_is_explained() -> None:
    result = runner.invoke(app, ["node", "config"])
    assert result.exit_code == 0
    assert "requests_per_minute" in result.output
    assert "None" not in [line.rpartition("#")[2].strip() for line in result.output.splitlines()]


def test_the_printed_config_is_a_file_in_which_only_the_name_is_missing(tmp_path: Path) -> None:
    printed = runner.invoke(app, ["node", "config"]).output
    assert '\n# name = "..."  # required: ' in printed
    assert "\nevery = 1  #" in printed  # a node's own default, not that of a run
    file = tmp_path / "node.toml"
    file.write_text(printed.replace('# name = "..."', 'name = "north"'))
    home = {"directory": str(tmp_path / "run"), "identity": str(tmp_path / "identity")}
    assert NodeConfig.read(file) == NodeConfig(name="north").model_copy(update=home)
    peer = printed[printed.index("# [neighbours.NAME]") :].replace("\n# ", "\n").removeprefix("# ")
    peer = peer.replace("NAME", "south").replace('"..."', '"127.0.0.1:7"', 1).replace("...", "1", 1).split("key =")[0]
    file.write_text(file.read_text() + peer)
    assert NodeConfig.read(file).neighbours["south"].number == 1


def test_the_example_is_short_and_its_configs_are_right() -> None:
    assert len((EXAMPLE / "wards.py").read_text().splitlines()) <= 42
    north, south = (NodeConfig.read(EXAMPLE / f"{name}.toml") for name in ("north", "south"))
    assert (set(north.neighbours), set(south.neighbours)) == ({"south"}, {"north"})
    assert north.neighbours["south"].number == south.number != north.number
    unit, docker = (EXAMPLE / "sagefl-node.service").read_text(), (EXAMPLE / "Dockerfile").read_text()
    assert "sagefl node run" in unit
    assert '["sagefl", "node", "run"]' in docker


@pytest.mark.slow
def test_the_example_of_the_docs_runs_stops_on_a_signal_and_goes_on(tmp_path: Path) -> None:
    """Two processes with their own data and model by module:object, as an operator would start them."""
    folder = tmp_path / "fed"
    assert runner.invoke(app, ["node", "init", str(folder / "identities"), "north", "south"]).exit_code == 0
    shutil.copy(EXAMPLE / "wards.py", folder)
    ports = dict(zip(("north", "south"), free_ports(2), strict=True))
    for name in ports:
        text = (EXAMPLE / f"{name}.toml").read_text()
        text = text.replace("0.0.0.0:7443", f"127.0.0.1:{ports[name]}").replace(
            "pace = 60.0", "pace = 0.2\nwait = 60.0"
        )
        for other in ports:
            text = text.replace(f"{other}.example.org:7443", f"127.0.0.1:{ports[other]}")
        (folder / f"{name}.toml").write_text(text.replace("rounds = 100", "rounds = 100000").replace("9464", "0"))
    (folder / "south.toml").write_text((folder / "south.toml").read_text().replace("127.0.0.1:9465", "127.0.0.1:0"))
    nodes = {name: _start(folder, name) for name in ports}
    try:
        _reach(folder, "north", 3)
        nodes["north"].send_signal(signal.SIGTERM)
        assert nodes["north"].wait(120) == 3  # stopped on purpose before the last round
        (stopped,) = [e for e in _events(folder) if e["event"] == "interrupted"]
        nodes["north"] = _start(folder, "north")
        _reach(folder, "north", stopped["round"] + 2)
        shown = runner.invoke(app, ["node", "status", str(folder / "north.toml")])
        assert "north: running" in shown.output
    finally:
        for process in nodes.values():
            process.terminate()
        codes = [process.wait(120) for process in nodes.values()]
    assert codes == [3, 3]
    told = [e for e in _events(folder) if e["event"] == "round"]
    assert any(e["chosen"] == ["south"] and e["merged"] == 1 for e in told)
    assert [e["round"] for e in _events(folder) if e["event"] == "resumed"] == [stopped["round"]]
    assert not [e for e in _events(folder) if e["event"].startswith("fault-") and e["event"] != "fault-no-answer"
                and e["event"] != "fault-not-ready"]  # fmt: skip


def _start(folder: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from sagefl.cli import app; app()", "node", "run", str(folder / f"{name}.toml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, env=environment)


def _reach(folder: Path, name: str, round: int) -> None:
    end = time.monotonic() + 240
    while True:
        rounds = [e["round"] for e in _events(folder, name) if e["event"] == "round"]
        if rounds and rounds[-1] >= round:
            return
        assert time.monotonic() < end, f"{name} did not reach round {round}"
        time.sleep(0.1)


def _events(folder: Path, name: str = "north") -> list[dict[str, object]]:
    path = folder / f"run-{name}" / "events.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
