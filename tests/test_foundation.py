"""The house stands as drawn: dependencies point one way, the core needs NumPy alone, a clone tests itself."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "sagefl"


# Dependencies point one way -----------------------------------------------------------------------------------------

FOUNDATION = {"streams", "errors", "extras", "reading", "records", "references", "settings", "signals"}
SIDE_BY_SIDE = {"exchange", "learning", "topology", "data"}
MAY_USE: dict[str, set[str]] = {
    "streams": set(),
    "errors": set(),
    "extras": set(),
    "reading": set(),
    "records": set(),
    "signals": set(),
    "settings": {"errors"},
    "references": {"errors", "reading"},
    "selection": {"streams", "errors", "reading", "references"},
    "exchange": {"selection", "learning"} | FOUNDATION,
    "learning": {"selection"} | FOUNDATION,
    "topology": {"selection"} | FOUNDATION,
    "data": {"selection"} | FOUNDATION,
    "clock": {"selection", "topology", "exchange"} | FOUNDATION,
    "methods": {"selection"} | SIDE_BY_SIDE | FOUNDATION,
    "runs": {"selection", "clock"} | SIDE_BY_SIDE | FOUNDATION,
    "simulation": {"selection", "clock", "methods", "runs"} | SIDE_BY_SIDE | FOUNDATION,
    "study": {"selection", "methods", "runs", "simulation"} | SIDE_BY_SIDE | FOUNDATION,
    "view": {"selection", "methods", "runs"} | SIDE_BY_SIDE | FOUNDATION,
    "node": {"selection", "methods", "runs"} | SIDE_BY_SIDE | FOUNDATION,
    "flower": {"selection", "runs"} | FOUNDATION,
    "api": {"selection", "methods", "runs", "simulation", "study", "view"} | SIDE_BY_SIDE | FOUNDATION,
}


def imports(path: Path, package: Path = PACKAGE) -> Iterator[str]:
    """Every module that a file imports anywhere in it, by its absolute name."""
    here = (package.name, *path.relative_to(package).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from . import x` names a module or a name of the package itself; both begin with its name.
            yield from (f"{base}.{alias.name}" for alias in node.names)


# Read while tests are collected: beside another thread that parses, CPython 3.11's parser may fail (gh-106905).
IMPORTS = {path: list(imports(path)) for path in PACKAGE.rglob("*.py")}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def uses(part: str) -> dict[str, str]:
    """Parts of sagefl that `part` imports, each with one file that does."""
    files = [p for p in IMPORTS if part_of(p) == part]
    assert files, f"no part {part!r}"
    found = {}
    for path in files:
        for name in IMPORTS[path]:
            if name.startswith("sagefl.") and (other := name.split(".")[1]) != part:
                found[other] = f"{path.relative_to(ROOT)}: {name}"
    return found


PARTS = sorted({part_of(p) for p in IMPORTS} - {"__init__", "__main__", "cli"})


@pytest.mark.parametrize("part", PARTS)
def test_dependencies_point_one_way(part: str) -> None:
    assert part in MAY_USE, f"{part} is new: say in MAY_USE what it may use"
    wrong = {other: where for other, where in uses(part).items() if other not in MAY_USE[part] and other[0] != "_"}
    assert not wrong


def test_nothing_imports_the_command_line() -> None:
    assert "cli" not in set().union(*MAY_USE.values())
    assert "cli" not in uses("__init__")


def test_the_core_imports_numpy_and_the_standard_library_alone() -> None:
    allowed = {"numpy", "sagefl", *sys.stdlib_module_names}
    for path in [*(PACKAGE / "selection").rglob("*.py"), PACKAGE / "__init__.py", PACKAGE / "streams.py"]:
        assert {name.split(".")[0] for name in IMPORTS[path]} <= allowed, path


@pytest.mark.parametrize("part", ["selection", "topology", "clock", "data", "study", "view", "flower"])
def test_parts_that_know_no_torch(part: str) -> None:
    for path in (PACKAGE / part).rglob("*.py"):
        assert "torch" not in {name.split(".")[0] for name in IMPORTS[path]}, path


def test_the_import_reader_sees_every_form(tmp_path: Path) -> None:
    """The tests above are only as good as this."""
    package = tmp_path / "sagefl"
    (package / "a" / "b").mkdir(parents=True)
    file = package / "a" / "b" / "c.py"
    file.write_text(
        "import torch.nn\nfrom .. import d\nfrom ...cli.core import x\nfrom . import e\n"
        "def f():\n    from sagefl.node import y\n"
    )
    assert list(imports(file, package)) == [
        "torch.nn",
        "sagefl.a.d",
        "sagefl.cli.core.x",
        "sagefl.a.b.e",
        "sagefl.node.y",
    ]


# What stays small and typed -------------------------------------------------------------------------------------------


def test_every_file_can_be_read_in_one_sitting() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in IMPORTS}
    assert not {name: lines for name, lines in long.items() if lines > 480}


def test_a_class_has_its_name_to_itself() -> None:
    """A word that means two things in two rooms is read wrong in one of them."""
    homes: dict[str, list[str]] = {}
    for path in IMPORTS:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: places for name, places in homes.items() if len(places) > 1}


# What the round loop and its clock hand to those who carry it out, and get back. `ray.py` handles references of ray,
# which has no types, behind the same two doors.
BOUNDARY = ["clock/clockwork.py", "learning/tasks.py", "simulation/engines"]
BEHIND = {"ray.py", "sharding.py"}
CHECKPOINT = {"state", "load"}  # plain values by name, which are what a checkpoint is made of


def untyped(function: ast.FunctionDef) -> bool:
    """Whether the signature has a bare `Any`; that of an array's elements is none."""

    def bare(node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("NDArray"):
            return False
        return (isinstance(node, ast.Name) and node.id == "Any") or any(map(bare, ast.iter_child_nodes(node)))

    return bare(function.args) or (function.returns is not None and bare(function.returns))


def test_nothing_untyped_passes_the_boundary_of_the_engines() -> None:
    files = [p for p in IMPORTS if any(place in p.as_posix() for place in BOUNDARY)]
    assert len(files) > 6
    found = []
    for path in files:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        functions = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name not in CHECKPOINT]
        doors = [f for f in functions if path.name not in BEHIND or f.name in ("map", "close", "population")]
        found += [f"{path.relative_to(PACKAGE)}: {f.name}" for f in doors if untyped(f)]
    assert not found


# What is imported when ------------------------------------------------------------------------------------------------

HEAVY = ("torch", "networkx", "polars", "pydantic", "safetensors", "scipy", "rich", "typer")


def loaded_by(code: str) -> set[str]:
    """Which heavy modules a fresh interpreter has loaded after `code`."""
    report = f"\nimport sys; print('loaded:', *(m for m in {HEAVY} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split()[1:])


DECIDE = "import sagefl; sagefl.replay(sagefl.make('sage-os'), [[0] * 128, [1] * 128])"
CALL = "import sys; sys.argv = ['sagefl', *{}]\nfrom sagefl.cli import app\ntry: app()\nexcept SystemExit: pass"


def test_the_library_loads_numpy_alone() -> None:
    assert loaded_by(DECIDE) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plan"], ["decide", "examples/losses.csv"]], ids=str)
def test_the_command_line_loads_no_more_than_it_needs(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert loaded_by(CALL.format(arguments)) <= {"typer", "rich", "pydantic"}  # newer typers bring pydantic along


# A clean environment --------------------------------------------------------------------------------------------------


class Clean:
    """A virtual environment with nothing in it, filled by the pip of this one."""

    def __init__(self, home: Path) -> None:
        self.home = home
        venv.create(home, with_pip=False, symlinks=os.name != "nt")
        self.bin = home / ("Scripts" if os.name == "nt" else "bin")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.home, timeout=600)

    def python(self, code: str) -> str:
        run = self.run(str(self.bin / "python"), "-c", code)
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    def install(self, what: str) -> None:
        """Install at the pinned versions; without a package index there is nothing to test."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "--disable-pip-version-check"]
        pinned = ["--constraint", str(ROOT / "constraints.txt")]
        run = self.run(*pip, "install", "--quiet", "--no-compile", *pinned, what)
        if run.returncode != 0 and re.search(
            "No matching distribution|Connection|Could not find a version", run.stderr
        ):
            pytest.skip(f"no package index within reach to install {what} from: {run.stderr.strip()[-300:]}")
        assert run.returncode == 0, run.stderr

    def distributions(self) -> set[str]:
        listing = self.python(
            "from importlib.metadata import distributions; print(*(d.name for d in distributions()), sep='\\n')"
        )
        return {name.lower().replace("_", "-") for name in listing.splitlines()}


FAMILY = """
import re
from importlib.metadata import PackageNotFoundError, requires
todo, family = ["typer"], set()
while todo:
    name = todo.pop().lower().replace("_", "-")
    if name not in family:
        try:
            needs = requires(name) or []
        except PackageNotFoundError:  # for another platform or Python
            continue
        family.add(name)
        todo += [re.match(r"[\\w.-]+", need)[0] for need in needs if "extra ==" not in need]
print(*family)
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    return Clean(tmp_path_factory.mktemp("clean") / "venv")


def test_numpy_alone_decides(clean: Clean) -> None:
    clean.install("numpy")
    assert clean.distributions() == {"numpy"}
    source = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
    assert clean.python(source + DECIDE + "; print(sagefl.selectors()['sage-os'].__name__)") == "SageOS"


def test_the_base_install_adds_only_the_command_line(clean: Clean) -> None:
    clean.install(str(ROOT))
    family = set(clean.python(FAMILY).split())  # typer and what it needs itself
    assert {"typer", "rich"} <= family
    assert not family & {"torch", "numpy", "networkx", "polars"}
    assert clean.distributions() == {"sagefl", "numpy"} | family
    run = clean.run(str(clean.bin / "sagefl"), "decide", str(ROOT / "examples" / "losses.csv"))
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("Pull ada: certified by the evidence (384 evaluations).\n")
    for command in ("--help", "plan"):
        assert clean.run(str(clean.bin / "sagefl"), command).returncode == 0
    typed = "import sagefl, pathlib; print((pathlib.Path(sagefl.__file__).parent / 'py.typed').exists())"
    assert clean.python(typed) == "True"


# A clone tests itself -------------------------------------------------------------------------------------------------


def test_ci_calls_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line.strip() for line in script.read_text().splitlines() if line.strip() and line[0] != "#"]
    assert commands[-1] == "make test"
    assert "set -euo pipefail" in commands


def test_make_test_runs_lint_types_and_tests() -> None:
    planned = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert planned.returncode == 0, planned.stderr
    for command in ("ruff check", "ruff format --check", "mypy", "pytest"):
        assert command in planned.stdout


def test_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert {re.split(r"[><=]", need)[0] for need in project["dependencies"]} == {"numpy", "typer"}
    assert project["scripts"]["sagefl"] == "sagefl.cli:app"
    assert project["authors"] == [{"name": "The sagefl authors"}]
    assert "version" in project["dynamic"]  # it stands in sagefl/__init__.py alone


def test_everything_installed_is_pinned() -> None:
    """constraints.txt holds exact versions, and one for every direct dependency but the optional services."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+", line) for line in lines)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*document["project"]["dependencies"], *document["dependency-groups"]["dev"]]
    wanted += document["project"]["optional-dependencies"]["sim"]
    assert {re.split(r"[><=\[]", need)[0].lower() for need in wanted} <= pinned
