"""Code that a run's own modules import from elsewhere on the path: edited, it is never read as the old run."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_commands import ONE, SMALL
from typer.testing import Result

from sagefl.runs.config import RunConfig
from sagefl.runs.environment import address, changes, made_of

Call = Callable[..., Result]

NET = """
from torch import nn
from models.layers import act

class Net(nn.Module):
    shared = ("body",)

    def __init__(self, shape, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), act())
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.body(x))
"""
RULE = """
from dataclasses import dataclass
from helpers import ANCHORS
from sagefl import Exchange, Probe, Reason, Selector

@dataclass(frozen=True)
class Best(Selector):
    def decide(self, hood, state, rng):
        if not hood.peers or hood.anchors < 4:
            return Exchange.none()
        losses = yield Probe(hood.peers, 0, ANCHORS)
        return Exchange.select(hood.peers[int(losses.mean(axis=1).argmin())], Reason.COMMITTED)
"""
PROJECT = {
    "models/net.py": NET,
    "models/layers.py": "from torch.nn import Tanh as act\n",
    "rules/best.py": RULE,
    "helpers.py": "ANCHORS = 4\n",
}


@pytest.fixture(autouse=True)
def project(sagefl: Call) -> Iterator[None]:
    """Folders without `__init__.py`; the modules are forgotten between commands, as between two processes."""
    for name, text in PROJECT.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    before = list(sys.path)
    yield
    forget()
    sys.path[:] = before


def forget() -> None:
    for name in ("models", "models.net", "models.layers", "best", "rules", "rules.best", "helpers", "net", "layers"):
        sys.modules.pop(name, None)


def edit(name: str, old: str, new: str) -> None:
    text = Path(name).read_text()
    assert old in text
    Path(name).write_text(text.replace(old, new))
    forget()


@pytest.mark.parametrize(
    ("flags", "change", "named"),
    [
        (
            ["--set", "model.name=models.net:Net"],
            ("models/layers.py", "Tanh", "ReLU"),
            "layers.py (model models.net:Net)",
        ),
        (["--method", "rules/best.py:Best"], ("helpers.py", "4", "3"), "helpers.py (method rules/best.py:Best)"),
        (["--method", "rules.best:Best"], ("helpers.py", "4", "3"), "helpers.py (method rules.best:Best)"),
    ],
    ids=["a folder without __init__.py", "a file, PYTHONPATH=.", "a module, PYTHONPATH=."],
)
def test_a_module_that_is_imported_by_its_full_name(
    flags: list[str], change: tuple[str, str, str], named: str, run: Call
) -> None:
    sys.path.insert(0, str(Path.cwd()))  # as PYTHONPATH=. does
    run("-q", "--rounds", "1", *flags)
    assert "read, not run" in run("-q", "--rounds", "1", *flags).stdout
    edit(*change)
    assert f"changed since: {named}" in run("-q", "--rounds", "1", *flags, code=2).stderr


def test_modules_in_several_places_are_all_known_by_names_of_their_own() -> None:
    Path("rules/helpers.py").write_text("ANCHORS = 4\n")
    config = RunConfig.parse({"method": {"id": "rules/best.py:Best"}})
    (digests,) = made_of(config).values()
    assert set(digests) == {"best.py", "helpers.py", str(Path("helpers.py").resolve())}


def test_an_address_does_not_depend_on_what_was_loaded_before(run: Call) -> None:
    config = RunConfig.parse({"model": {"name": "models.net:Net"}, "method": {"id": "rules/best.py:Best"}})
    Path("rules/models").mkdir()
    Path("rules/models/layers.py").write_text("")
    before = address(config)
    sys.path.insert(0, str(Path.cwd()))
    run("-q", "--rounds", "1", "--method", "rules/best.py:Best")
    assert address(config) == before


def test_other_peoples_modules_are_no_part_of_an_address() -> None:
    """Neither the standard library, nor installed packages, nor this one."""
    Path("rules/best.py").write_text("import json\nimport numpy\nimport rich.table\nimport sagefl.errors\n" + RULE)
    (digests,) = made_of(RunConfig.parse({"method": {"id": "rules/best.py:Best"}})).values()
    assert set(digests) == {"best.py", "helpers.py"}


# Packages that are installed editable ---------------------------------------------------------------------------------

SETUP = """
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "best-rules"
version = "1.0"

[project.entry-points."sagefl.selectors"]
best-of-four = "best_rules.rule:Best"

[tool.setuptools]
packages = ["best_rules"]
package-dir = { best_rules = "lib/rules" }
"""


def installed_editable(home: Path) -> Path:
    """A small package as `pip install -e --no-build-isolation` installs it; the folder to add as a site directory."""
    pytest.importorskip("setuptools", minversion="64", reason="needs setuptools to build")
    project, site = home / "project", home / "site"
    (project / "lib" / "rules").mkdir(parents=True)
    (project / "pyproject.toml").write_text(SETUP)
    (project / "lib" / "rules" / "__init__.py").write_text("")
    rule = RULE.replace("from helpers", "from best_rules.parts")
    rule = rule.replace("(Selector):\n", '(Selector):\n    id = "best-of-four"\n    summary = "the best"\n')
    (project / "lib" / "rules" / "rule.py").write_text(rule)
    (project / "lib" / "rules" / "parts.py").write_text("ANCHORS = 4\n")
    build = "import sys; from setuptools import build_meta; print(build_meta.build_editable(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(home)], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = home.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    return site


def test_a_package_that_is_installed_editable_through_a_finder(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("home")
    site = installed_editable(home)
    assert list(site.glob("__editable__*finder.py")), "no finder, so nothing is tested here"

    def run() -> subprocess.CompletedProcess[str]:
        start = f"import site; site.addsitedir({str(site)!r})\nfrom sagefl.cli import app\napp()"
        call = ["run", "--method", "best-of-four", *SMALL, *ONE, "--rounds", "1", "--out", "run", "-q"]
        return subprocess.run([sys.executable, "-c", start, *call], capture_output=True, text=True, timeout=120)

    first = run()
    assert first.returncode == 0, first.stderr
    assert "read, not run" in run().stdout
    (home / "project" / "lib" / "rules" / "parts.py").write_text("ANCHORS = 3\n")
    again = run()
    assert again.returncode == 2, again.stdout
    assert "changed since: rules/parts.py (method best-of-four)" in again.stderr


def test_code_that_cannot_be_found_is_never_the_same_code() -> None:
    config = RunConfig.parse({"method": {"id": "nowhere.rules:Best"}})
    made = made_of(config)
    assert changes({"made_of": made}, config) == [
        "nowhere.rules cannot be found, so nobody knows what it is (method nowhere.rules:Best)"
    ]
    assert changes({"made_of": {"method nowhere.rules:Best": {"rules.py": os.urandom(8).hex()}}}, config) == [
        "rules.py is gone (method nowhere.rules:Best)",
        "nowhere.rules is gone (method nowhere.rules:Best)",
    ]
