"""Edit something between two commands: nothing stale is read or mixed, and the thing is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_commands import ONE, SMALL
from typer.testing import Result

from sagefl.runs import versions
from sagefl.runs.config import RunConfig
from sagefl.runs.environment import address, circumstances

Call = Callable[..., Result]

MODEL = """
from pathlib import Path
from torch import nn
from parts import WIDTH

class Net(nn.Module):
    shared = ("body",)

    def __init__(self, shape, classes):
        super().__init__()
        self.scale = float(Path("base.txt").read_text())
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.Tanh())
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        return self.head(self.body(x) * self.scale)
"""
RULE = """
from dataclasses import dataclass
from sagefl import Exchange, Probe, Reason, Selector

@dataclass(frozen=True)
class Best(Selector):
    def decide(self, hood, state, rng):
        if not hood.peers or hood.anchors < 4:
            return Exchange.none()
        losses = yield Probe(hood.peers, 0, 4)
        return Exchange.select(hood.peers[int(losses.mean(axis=1).argmin())], Reason.COMMITTED)
"""
DATA = """
import numpy as np

def arrays():
    scale = float(np.loadtxt("scale.txt"))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(700, 6)).astype(np.float32) * np.float32(scale)
    y = (x.sum(axis=1) > 0).astype(int)
    return x[:600], y[:600], x[600:], y[600:]
"""


@pytest.fixture(autouse=True)
def project(sagefl: Call) -> Iterator[None]:
    """A user's folder; its modules are forgotten between commands, as between two processes."""
    for name, text in {"nets": MODEL, "rules": RULE, "mine": DATA, "parts": "WIDTH = 8\n"}.items():
        Path(f"{name}.py").write_text(text)
    Path("scale.txt").write_text("1.0")
    Path("base.txt").write_text("1.0")
    before = list(sys.path)
    yield
    forget()
    sys.path[:] = before


def forget() -> None:
    for name in ("nets", "rules", "mine", "parts"):
        sys.modules.pop(name, None)


def edit(name: str, old: str, new: str) -> None:
    text = Path(name).read_text()
    assert old in text
    Path(name).write_text(text.replace(old, new))
    forget()


OWN = {
    "model": (["--set", "model.name=nets:Net"], ("nets.py", "Tanh", "ReLU"), "nets.py (model nets:Net)"),
    "a module that the model imports": (
        ["--set", "model.name=nets:Net"], ("parts.py", "8", "4"), "parts.py (model nets:Net)",
    ),
    "file that the model reads": (
        ["--set", "model.name=nets:Net"], ("base.txt", "1.0", "2.0"), "base.txt (read by model nets:Net)",
    ),
    "selector": (["--method", "rules.py:Best"], ("rules.py", "0, 4", "0, 3"), "rules.py (method rules.py:Best)"),
    "data function": (["--dataset", "mine:arrays"], ("mine.py", "> 0", "> 1"), "mine.py (data mine:arrays)"),
    "file that it reads": (["--dataset", "mine:arrays"], ("scale.txt", "1.0", "2.0"), "scale.txt (read by data mine"),
    "graph": (
        ["--set", "topology.kind=file", "--set", "topology.file=edges.txt"], ("edges.txt", "4 5", "0 5"),
        "edges.txt (graph edges.txt)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OWN)
def test_an_edit_is_never_read_as_the_old_run(what: str, run: Call, sagefl: Call) -> None:
    flags, change, named = OWN[what]
    Path("edges.txt").write_text("0 1\n1 2\n2 3\n3 4\n4 5\n")
    if what in ("data function", "file that it reads"):
        flags = [*flags, "--set", "model.options.hidden=4"]
    run("-q", *flags)
    first = Path("run/summary.json").read_text()
    again = run("-q", *flags).stdout
    assert "run is already finished: this was read, not run" in again
    edit(*change)
    commands: dict[str, Callable[[], Result]] = {
        "run": lambda: run("-q", *flags, code=2),
        "resume": lambda: sagefl("resume", "run", "--allow-code", code=2),
    }
    for command in commands.values():
        told = command().stderr
        assert told.count("\n") == 1
        assert f"changed since: {named}" in told
        assert "--fresh" in told
        assert "--out" in told
    assert Path("run/summary.json").read_text() == first
    run("-q", *flags, "--fresh")
    assert "read, not run" in run("-q", *flags).stdout


def test_a_comparison_does_not_mix_old_and_new(sagefl: Call) -> None:
    flags = [*SMALL[:-2], *ONE, "--rounds", "1", "--set", "model.name=nets:Net", "--out", "both", "-q"]
    sagefl("compare", "--methods", "rg", *flags)
    edit("nets.py", "Tanh", "ReLU")
    told = sagefl("compare", "--methods", "rg,local", *flags, code=2).stderr
    assert "both/rg was made by other code than there is now; changed since: nets.py (model nets:Net)" in told
    assert not Path("both/local").exists()
    shown = sagefl("compare", "--methods", "rg,local", *flags, "--fresh").stdout
    assert "read" not in shown
    again = sagefl("compare", "--methods", "local,aq-128", *flags).stdout
    assert "Finished before, so read and not run: local (seed 1)." in again
    sagefl("compare", "--methods", "sage-os", *flags[:-3], "--out", "other", "-q")
    edit("nets.py", "ReLU", "Tanh")
    sagefl("compare", "--methods", "aq-128", *flags[:-3], "--out", "third", "-q")
    mixed = sagefl("compare", "both/rg", "third").stdout
    assert "made by different versions of the same code or data files: they are not comparable" in mixed


def test_cells_of_edited_code_are_other_cells(sagefl: Call) -> None:
    """By address, so that studies and comparisons that share a folder of cells never meet a stale one."""
    flags = ["--seeds", "1,2", *SMALL, *ONE, "--rounds", "1", "--set", "model.name=nets:Net", "-q"]
    sagefl("compare", "--methods", "rg", *flags)
    assert len(list(Path("runs/cells").iterdir())) == 2
    assert "All of these runs were finished before" in sagefl("compare", "--methods", "rg", *flags).stdout
    edit("parts.py", "8", "6")
    assert "finished before" not in sagefl("compare", "--methods", "rg", *flags).stdout
    assert len(list(Path("runs/cells").iterdir())) == 4


def test_a_study_s_cell_whose_data_file_changed_is_not_done(sagefl: Call) -> None:
    study = [
        "study", "paper", "--preset", "smoke", "--datasets", "mine:arrays", "--topologies", "er", "--alphas", "1",
        "--methods", "rg", "--clients", "8", "--rounds", "1", "--jobs", "1", "--workers", "1", "--no-pages", "-q",
        "--brief", "--set", "model.options.hidden=4", "--out", "out",
    ]  # fmt: skip
    sagefl(*study)
    (cell,) = Path("runs/cells").iterdir()
    assert "1 of 1 cells done" in sagefl(*study, "--status").stdout
    edit("scale.txt", "1.0", "3.0")
    assert "0 of 1 cells done" in sagefl(*study, "--status").stdout
    shown = sagefl(*study, code=1).output
    assert "scale.txt (read by data mine:arrays)" in shown
    assert json.loads((cell / "summary.json").read_text())["method"] == "rg"


def test_a_data_file(run: Call) -> None:
    import numpy as np

    def save(shift: float) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(400, 5)).astype(np.float32) + np.float32(shift)
        y = (x.sum(axis=1) > 0).astype(int)
        np.savez("d.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])

    flags = ("-q", "--dataset", "d.npz", "--set", "model.options.hidden=4")
    save(0.0)
    run(*flags)
    save(0.1)
    assert "changed since: d.npz (data d.npz)" in run(*flags, code=2).stderr


def test_an_installed_package(tmp_path: Path) -> None:
    installed = tmp_path / "site"
    (installed / "best_rules-1.0.dist-info").mkdir(parents=True)
    about = installed / "best_rules-1.0.dist-info"
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: best-rules\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sagefl.selectors]\nbest-of-four = best_rules:BestOfFour\n")
    named = 'class BestOfFour(Selector):\n    id = "best-of-four"\n    summary = "the best of four"\n'
    rule = RULE.replace("class Best(Selector):", named)
    (installed / "best_rules.py").write_text(rule)

    def run() -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
        call = [sys.executable, "-m", "sagefl", "run", "--method", "best-of-four", *SMALL, *ONE]
        call += ["--rounds", "1", "--out", "run", "-q"]
        return subprocess.run(call, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": paths})

    first = run()
    assert first.returncode == 0, first.stderr
    (installed / "best_rules.py").write_text(rule.replace("0, 4", "0, 3"))
    again = run()
    assert again.returncode == 2
    assert "changed since: best_rules.py (method best-of-four)" in again.stderr


@pytest.mark.parametrize(
    ("table", "value", "named"),
    [
        ("LOOP", 2, "round loop (results version 1 there, 2 here)"),
        ("METHODS", {"sage-os": 2}, "method sage-os (results version 1 there, 2 here)"),
        ("DATASETS", {"fmnist-mini": 3}, "data fmnist-mini (results version 1 there, 3 here)"),
        ("MODELS", {"mlp": 2}, "model mlp (results version 1 there, 2 here)"),
    ],
)
def test_a_raised_results_version(
    run: Call, monkeypatch: pytest.MonkeyPatch, table: str, value: Any, named: str
) -> None:
    run("-q", "--rounds", "1")
    assert RunConfig.read(Path("run/run.toml")).digest == address(RunConfig.read(Path("run/run.toml")))
    monkeypatch.setattr(versions, table, value)
    assert f"changed since: {named}" in run("-q", "--rounds", "1", code=2).stderr
    monkeypatch.setattr(versions, "METHODS", {"rg": 2})
    if table == "METHODS":
        run("-q", "--rounds", "1")  # a repaired method invalidates its own runs only


def test_a_run_of_before_keeps_its_address_and_is_read(run: Call) -> None:
    run("-q", "--rounds", "1")
    Path("run/environment.json").unlink()
    assert "read, not run" in run("-q", "--rounds", "1").stdout


def test_a_run_whose_code_nobody_recorded_is_not_read(run: Call) -> None:
    flags = ("-q", "--rounds", "1", "--set", "model.name=nets:Net")
    run(*flags)
    Path("run/environment.json").unlink()
    assert "model nets:Net (its code was not recorded)" in run(*flags, code=2).stderr


def test_another_library_or_cpu_is_said(run: Call, sagefl: Call) -> None:
    run("-q", "--rounds", "1", "--method", "rg")
    path = Path("run/environment.json")
    held = json.loads(path.read_text())
    assert {"torch", "numpy", "cpu", "engine", "command", "python"} <= held.keys()
    assert held["engine"] == "sequential"
    path.write_text(json.dumps(held | {"torch": "1.0", "cpu": "abacus"}))
    shown = run("-q", "--rounds", "1", "--method", "rg").stdout
    assert f"(torch 1.0 there, {held['torch']} here)" in shown
    assert "(cpu abacus there" in shown
    sagefl("run", *SMALL, *ONE, "--rounds", "1", "--method", "local", "--out", "two", "-q")
    both = sagefl("compare", "run", "two").stdout
    assert f"not made alike: torch 1.0, {held['torch']}" in both


@pytest.mark.parametrize(
    ("program", "told"),
    [("bin/sagefl", "sagefl"), ("sagefl/__main__.py", "python -m sagefl"), ("my run.py", "'my run.py'")],
)
def test_the_command_is_recorded_so_that_it_can_be_typed(
    program: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "run", "--set", "a=b c"])
    assert circumstances()["command"] == f"{told} run --set 'a=b c'"


def test_going_on_elsewhere_is_said_and_recorded(run: Call, sagefl: Call, caplog: pytest.LogCaptureFixture) -> None:
    run("-q", "--method", "rg", "--rounds", "2")
    path = Path("run/environment.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"numpy": "0.1"}))
    sagefl("resume", "run", "--rounds", "4", "-q", *ONE)
    assert "begun elsewhere (numpy 0.1 there" in caplog.text
    assert json.loads(path.read_text())["resumed"][0]["round"] == 3


def test_a_config_that_differs_is_told_by_its_keys(run: Call) -> None:
    run("-q", "--rounds", "1", "--method", "rg")
    told = run("-q", "--rounds", "2", "--method", "rg", "--alpha", ".5", code=2).stderr
    assert "another config: rounds (1 there, 2 here), data.alpha (0.1 there, 0.5 here)" in told
    told = run("-q", "--rounds", "2", "--method", "rg", code=2).stderr
    assert "`sagefl resume run --rounds 2` goes on with it" in told


def test_a_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sagefl.runs import sources

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "big.bin"
    path.write_bytes(b"a" * 100)
    old = time.time() - 60
    os.utime(path, (old, old))
    first = sources.digest_of_file(path)
    real, read = Path.open, []
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: (read.append(self), real(self, *a, **k))[1])
    assert sources.digest_of_file(path) == first
    assert path not in read
    path.write_bytes(b"b" * 100)  # the same size, and just now: never from memory
    assert sources.digest_of_file(path) != first
    os.utime(path, (old, old + 1))
    assert sources.digest_of_file(path) != first


def test_an_unchanged_project_costs_little() -> None:
    """Counted, not timed: no module is imported, a data file is not read again, sources are read once each."""
    code = (
        "import sys; from sagefl.runs.config import RunConfig; from sagefl.runs.environment import address\n"
        "c = RunConfig.parse({'model': {'name': 'nets:Net'}, 'method': {'id': 'rules.py:Best'},"
        " 'data': {'dataset': 'mine:arrays'}})\n"
        "assert address(c) != c.digest\n"
        "print([m for m in ('torch', 'nets', 'rules', 'mine', 'parts') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
