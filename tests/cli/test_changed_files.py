"""Files that decide a run and that its config does not name: edited, they are never read as the old run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_commands import ONE, SMALL
from typer.testing import Result

from sagefl import reading

Call = Callable[..., Result]

RULES = """
from dataclasses import dataclass
from pathlib import Path
from sagefl import Exchange, Selector
from sagefl.methods.base import Method

SHARE = float(Path("share.txt").read_text())

@dataclass(frozen=True)
class First(Selector):
    def decide(self, hood, state, rng):
        return Exchange.none()
        yield

class Second(First):
    pass

@dataclass(frozen=True)
class Built(First):
    def __post_init__(self):
        super().__post_init__()
        Path("built.txt").read_text()
"""
NETS = """
import importlib
import runpy
import types
from torch import nn

class Net(nn.Module):
    shared = ("body",)

    def __init__(self, shape, classes):
        super().__init__()
        self.times = {how}.TIMES
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(784, 4)), nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.body(x) * self.times)
"""
DATA = """
import numpy as np
{imports}

def arrays():
    {reads}
    return (x[:300], y[:300], x[300:], y[300:])
"""
KINDS = {
    "polars": ("import polars as pl", 'd = pl.read_csv("d.csv").to_numpy(); x, y = d[:, :4], d[:, 4].astype(int)'),
    "another file beside it": (
        "import polars as pl",
        'x = np.loadtxt("x.txt"); y = pl.read_csv("d.csv").to_numpy()[:, 4].astype(int)',
    ),
    "a process": (
        "import subprocess",
        'd = np.array([r.split(",") for r in subprocess.run(["tail", "-n", "+2", "d.csv"], capture_output=True, '
        "text=True).stdout.split()], float); x, y = d[:, :4], d[:, 4].astype(int)",
    ),
    "a folder": (
        "from pathlib import Path",
        'd = np.concatenate([np.loadtxt(p, delimiter=",", skiprows=1) for p in sorted(Path("more").glob("*.csv"))]);'
        " x, y = d[:, :4], d[:, 4].astype(int)",
    ),
}
FLAGS = ("-q", "--rounds", "1", "--set", "model.options.hidden=4")


@pytest.fixture(autouse=True)
def project(sagefl: Call) -> Iterator[None]:
    Path("rules.py").write_text(RULES)
    for name in ("share.txt", "built.txt"):
        Path(name).write_text("1")
    x = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    np.savetxt("x.txt", x)
    write(x, flipped=False)
    before = list(sys.path)
    yield
    forget()
    sys.path[:] = before


def write(x: np.ndarray, *, flipped: bool) -> None:
    table = pl.DataFrame(x).with_columns(y=pl.Series((x.sum(axis=1) > 0) ^ flipped).cast(int))
    Path("more").mkdir(exist_ok=True)
    for name in ("d.csv", "more/a.csv"):
        table.write_csv(name)


def forget() -> None:
    for name in ("rules", "mine", "nets", "parts"):
        sys.modules.pop(name, None)
    reading._seen.clear()


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_a_file_of_machines(schedule: str, run: Call) -> None:
    Path("net.txt").write_text("100 300 10 10 5\n" * 6)
    flags = (*FLAGS, "--set", "clock.network=net.txt", "--set", f"clock.schedule={schedule}")
    run(*flags)
    assert "read, not run" in run(*flags).stdout
    Path("net.txt").write_text("100 300 10 10 5\n" * 5 + "1 3 10 10 5\n")
    assert "changed since: net.txt (machines net.txt)" in run(*flags, code=2).stderr


@pytest.mark.parametrize(("rule", "file"), [("First", "share.txt"), ("Built", "built.txt")])
def test_a_file_that_a_rule_reads_when_it_is_imported_or_built(rule: str, file: str, run: Call) -> None:
    flags = (*FLAGS[:3], "--method", f"rules.py:{rule}")
    run(*flags)
    forget()
    assert "read, not run" in run(*flags).stdout
    Path(file).write_text("2")
    forget()
    assert f"changed since: {file} (read by method rules.py:{rule})" in run(*flags, code=2).stderr


def test_every_rule_of_a_file_knows_what_the_file_reads(sagefl: Call) -> None:
    """It is imported for the first of them only."""
    sagefl("compare", "--methods", "rules.py:First,rules.py:Second", *SMALL, *ONE, "--out", "both", "-q")
    held = [json.loads(path.read_text())["files"] for path in sorted(Path("both").glob("*/environment.json"))]
    assert len(held) == 2
    assert all(str(Path("share.txt").resolve()) in files for files in held)


@pytest.mark.parametrize(
    "how", ["importlib.import_module('pa' + 'rts')", "types.SimpleNamespace(**runpy.run_path('parts.py'))"]
)
def test_a_module_that_no_import_statement_names(how: str, run: Call, sagefl: Call) -> None:
    Path("parts.py").write_text("TIMES = 2\n")
    Path("nets.py").write_text(NETS.format(how=how))
    flags = (*FLAGS[:3], "--set", "model.name=nets:Net")
    run(*flags)
    forget()
    assert "read, not run" in run(*flags).stdout
    Path("parts.py").write_text("TIMES = 3\n")
    forget()
    for told in (run(*flags, code=2).stderr, sagefl("resume", "run", "--allow-code", code=2).stderr):
        assert "changed since: parts.py (read by model nets:Net)" in told


@pytest.mark.parametrize("kind", KINDS)
def test_data_read_in_a_way_that_nobody_sees(kind: str, run: Call, sagefl: Call) -> None:
    imports, reads = KINDS[kind]
    Path("mine.py").write_text(DATA.format(imports=imports, reads=reads))
    flags = (*FLAGS, "--dataset", "mine:arrays", "--method", "local")
    run(*flags)
    assert "read, not run" in run(*flags).stdout
    x = np.loadtxt("x.txt").astype(np.float32)
    if kind == "a folder":
        pl.read_csv("more/a.csv").write_csv("more/b.csv")
    else:
        write(x, flipped=True)
    for told in (run(*flags, code=2).stderr, sagefl("resume", "run", "--allow-code", code=2).stderr):
        assert "changed since: data mine:arrays (other data than it was, by files that cannot be seen)" in told
    run(*flags, "--fresh")
    assert "read, not run" in run(*flags).stdout
    Path("d.csv").write_text("")
    Path("more/a.csv").unlink()
    assert "changed since" in run(*flags, code=2).stderr


def test_a_function_whose_files_are_all_seen_is_not_called_to_look(run: Call) -> None:
    text = "import numpy as np\nfrom pathlib import Path\n\ndef arrays():\n"
    text += '    with Path("calls.txt").open("a") as file:\n        file.write("x")\n'
    text += '    d = np.loadtxt("d.csv", delimiter=",", skiprows=1)\n'
    text += "    x, y = d[:, :4], d[:, 4].astype(int)\n    return x[:300], y[:300], x[300:], y[300:]\n"
    Path("mine.py").write_text(text)
    flags = (*FLAGS, "--dataset", "mine:arrays", "--method", "local")
    run(*flags)
    before = Path("calls.txt").read_text()
    assert "read, not run" in run(*flags).stdout
    assert Path("calls.txt").read_text() == before


def test_a_function_that_must_be_asked_is_asked_once_for_a_whole_comparison(sagefl: Call) -> None:
    text = "import polars as pl\nfrom pathlib import Path\n\ndef arrays():\n"
    text += '    with Path("calls.txt").open("a") as file:\n        file.write("x")\n'
    text += '    d = pl.read_csv("d.csv").to_numpy()\n'
    text += "    x, y = d[:, :4], d[:, 4].astype(int)\n    return x[:300], y[:300], x[300:], y[300:]\n"
    Path("mine.py").write_text(text)
    flags = ("compare", "--methods", "rg,local", *SMALL, *ONE, *FLAGS, "--dataset", "mine:arrays", "--seeds", "1,2")
    sagefl(*flags)
    before = len(Path("calls.txt").read_text())
    assert "All of these runs were finished before" in sagefl(*flags).stdout
    assert len(Path("calls.txt").read_text()) == before + 1


def test_cells_in_a_table_are_not_known_by_a_function_nobody_called(sagefl: Call) -> None:
    """A stranger's `cells.csv` names code: it is never called for a look, so its data count as unknown."""
    from sagefl.reading import forget_returned, note_returned
    from sagefl.runs.config import RunConfig
    from sagefl.runs.environment import address
    from sagefl.study.collect import Record
    from sagefl.study.results import Configuration

    Path("mine.py").write_text("raise SystemExit('this was called')\n")
    config = RunConfig.parse({"data": {"dataset": "mine:arrays"}})
    where = Configuration("mine:arrays", "er", 0.1)
    record = Record(where, "rg", config, {}, address(config), {"data mine:arrays": "abc"})
    forget_returned()
    assert record.changed == ("data mine:arrays",)
    note_returned("data mine:arrays", "abc")
    assert Record(where, "rg", config, {}, address(config), {"data mine:arrays": "abc"}).changed == ()
