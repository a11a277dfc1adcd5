"""The package as others get it: what it says of itself, what it loads, and that it installs where it claims to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from doc_pages import ROOT

import sagefl

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BIN = Path(sys.executable).parent
HEAVY = ("torch", "polars", "matplotlib", "networkx", "scipy", "grpc", "ray", "safetensors", "mkdocs")
VERSIONS = ("3.11", "3.12", "3.13")


# What it says of itself -----------------------------------------------------------------------------------------------


def test_the_citation_names_this_version_and_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= cited.keys()  # what the format requires
    assert cited["version"] == sagefl.__version__
    assert cited["license"] == PROJECT["license"]
    from sagefl.selection.staged import SAGE_PAPER

    assert cited["references"][0]["title"] in SAGE_PAPER


def test_the_documents_that_a_project_has() -> None:
    for name in ("LICENSE", "NOTICE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert (ROOT / name).stat().st_size > 200, name
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
    assert (ROOT / "src" / "sagefl" / "py.typed").is_file()
    assert "## Add a selector" in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_layout_it_describes_is_the_layout() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for folder in re.findall(r"`((?:src|docs|examples|tests|benchmarks)[\w/]*/)`", page):
        assert (ROOT / folder).is_dir(), folder
    parts = {p.name for p in (ROOT / "src" / "sagefl").iterdir() if (p / "__init__.py").exists()}
    assert parts == set(re.findall(r"`src/sagefl/(\w+)/`", page))


# What it loads --------------------------------------------------------------------------------------------------------


HELP = "import sys; sys.argv = ['sagefl', '--help']\nfrom sagefl.cli import app\ntry: app()\nexcept SystemExit: pass"


@pytest.mark.parametrize("code", ["import sagefl", "import sagefl; sagefl.selectors()", HELP])
def test_nothing_heavy_is_imported(code: str) -> None:
    report = f"\nimport sys; print('loaded:', *(m for m in {HEAVY} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].split() == ["loaded:"]


def test_the_version() -> None:
    run = subprocess.run([BIN / "sagefl", "--version"], capture_output=True, text=True, timeout=60)
    assert run.stdout == f"sagefl {sagefl.__version__}\n"


@pytest.mark.parametrize(("typed", "offered"), [("sagefl de", "decide"), ("sagefl node st", "status")])
def test_the_shell_completes_commands(typed: str, offered: str) -> None:
    environment = os.environ | {
        "_SAGEFL_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    run = subprocess.run([BIN / "sagefl"], capture_output=True, text=True, timeout=60, env=environment)
    assert run.stdout.split() == [offered]


# That it installs -----------------------------------------------------------------------------------------------------


def interpreter(version: str) -> str:
    """A Python of this version, from the path or from pyenv; without one there is nothing to test."""
    found = [shutil.which(f"python{version}")]
    found += [str(p) for p in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for candidate in filter(None, found):
        run = subprocess.run([candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
                             capture_output=True, text=True, timeout=60)  # fmt: skip
        if run.stdout.strip() == version:
            return candidate
    pytest.skip(f"no Python {version} on this machine (looked on the path and among pyenv's versions)")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel and a source distribution, built in isolation as a release is."""
    folder = tmp_path_factory.mktemp("dist")
    venv = folder / "builder"
    done(sys.executable, "-m", "venv", str(venv))
    done(venv / "bin" / "pip", "install", "--quiet", "build>=1.2")
    done(venv / "bin" / "python", "-m", "build", "--outdir", str(folder), str(ROOT))
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}


def done(*command: object) -> str:
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=1200)
    if run.returncode and re.search("No matching distribution|Connection|Could not find a version", run.stderr):
        pytest.skip(f"no package index within reach: {run.stderr.strip()[-300:]}")
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
def test_wheel_and_sdist_pass_what_an_index_and_its_users_check(built: dict[str, Path], tmp_path: Path) -> None:
    done(sys.executable, "-m", "venv", str(tmp_path))
    done(tmp_path / "bin" / "pip", "install", "--quiet", "twine>=6", "check-wheel-contents>=0.6", "cffconvert>=2")
    assert "PASSED" in done(tmp_path / "bin" / "twine", "check", "--strict", *built.values())
    done(tmp_path / "bin" / "check-wheel-contents", built["wheel"])
    done(tmp_path / "bin" / "cffconvert", "--validate", "--infile", ROOT / "CITATION.cff")


@pytest.mark.slow
def test_its_description_needs_no_file_of_the_repository(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = [n for n in wheel.namelist() if n.endswith("METADATA")]
        metadata = wheel.read(name).decode()
    assert "Author: The sagefl authors" in metadata
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata.count("\n```") == readme.count("\n```") > 1  # the README is in it
    assert not re.findall(r"\]\((?!https?:|#)", metadata.partition("\n\n")[2])


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_they_should(built: dict[str, Path]) -> None:
    inside = zipfile.ZipFile(built["wheel"]).namelist()
    assert "sagefl/py.typed" in inside
    assert "sagefl/data/embedded/fmnist-mini.npz" in inside
    assert not [name for name in inside if not name.startswith(("sagefl/", "sagefl-"))]
    with tarfile.open(built["sdist"]) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "CITATION.cff",
        "pyproject.toml",
        "src/sagefl/__init__.py",
        "docs/index.md",
    } <= names
    assert not [name for name in names if name.startswith((".venv", "build/", "runs/", "site/"))]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_installs_in_a_clean_environment(version: str, kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    home = tmp_path / "venv"
    done(interpreter(version), "-m", "venv", str(home))
    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    done(*pip, built[kind])
    assert done(home / "bin" / "sagefl", "--version").strip() == f"sagefl {sagefl.__version__}"
    decided = done(home / "bin" / "sagefl", "decide", ROOT / "examples" / "losses.csv")
    assert decided.endswith("Pull ada: certified by the evidence (384 evaluations).\n")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_steps_work_on_every_python(version: str, built: dict[str, Path], tmp_path: Path) -> None:
    """decide, run, compare, replay, report, swarm and view; `make test-lowest` does the same on the oldest versions."""
    home = tmp_path / "venv"
    done(interpreter(version), "-m", "venv", str(home))
    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    done(*pip, f"{built['wheel']}[sim,study,node,view]")
    assert f"the first steps work: Python {version}." in done(ROOT / "tools" / "first_steps.sh", home / "bin")


# What it loads on a system that is not POSIX --------------------------------------------------------------------------

POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
IMPORT_ALL = f"""
import importlib, pkgutil, signal, sys, warnings
for name in {POSIX}:
    sys.modules[name] = None  # as where there is none: an import of it fails
for name in [n for n in vars(signal) if n.startswith("SIG") and n not in (
        "SIGABRT", "SIGBREAK", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN")]:
    delattr(signal, name)
import sagefl
foreign = ("flower", "engines.ray", "__main__", "distributed")  # needs flwr, Ray, which have systems of their own
for found in pkgutil.walk_packages(sagefl.__path__, "sagefl."):
    if not any(part in found.name for part in foreign):
        importlib.import_module(found.name)
        print(found.name)
"""


def test_what_cannot_work_there_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from sagefl.node import errors, running, status

    monkeypatch.setattr(errors, "os", SimpleNamespace(name="nt"))
    for refused in (lambda: running.run_node(tmp_path / "node.toml"), lambda: status.read_status(tmp_path)):
        with pytest.raises(errors.NodeError, match=r"system \(nt\): run nodes in a container or in WSL"):
            refused()


def test_every_module_can_be_imported_without_what_only_posix_has() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    assert {"sagefl.node.loop", "sagefl.view.server", "sagefl.simulation.simulator"} <= set(run.stdout.split())
