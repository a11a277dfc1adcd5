"""`sagefl.compare`, `run` and `load`: what they take, return and refuse."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats
from torch import nn

import sagefl
from sagefl.api.given import resolved
from sagefl.api.results import Results
from sagefl.errors import UsageError
from sagefl.runs.columns import BYTES
from sagefl.runs.config import RunConfig
from sagefl.runs.sections import ConfigError
from sagefl.runs.sources import source_of_object

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 500)
X = (np.eye(3, 6)[Y] * 2 + RNG.normal(size=(500, 6))).astype(np.float32)
DATA = (X[:400], Y[:400], X[400:], Y[400:])
SMALL: dict[str, Any] = {
    "clients": 4, "rounds": 3, "every": 1, "topology": "complete", "learning_rate": 0.02, "progress": False,
}  # fmt: skip


def test_a_comparison_says_who_is_not_quite_its_papers() -> None:
    found = sagefl.compare(DATA, "mlp", ["rg", "pens", "cfns-lite", "sage-os"], seeds=[1], **SMALL)
    assert found.notes()[:2] == [
        "Adapted from their papers: pens.",
        "Only inspired by their papers, not ranked: cfns-lite.",
    ]
    assert "(Only inspired by their papers, not ranked: cfns-lite.)" in repr(found)


class Net(nn.Module):
    """Knows its own shape."""

    shared = ("body",)

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).relu())


@dataclass(frozen=True)
class First(sagefl.Selector):
    """Takes the first neighbour."""

    turn: int = sagefl.option(0, "which", ge=0)

    def decide(self, hood: sagefl.Hood, state: Any, rng: sagefl.Draws) -> Any:
        return sagefl.Exchange.select(hood.peers[self.turn], sagefl.Reason.COMMITTED)
        yield


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three methods, three seeds."""
    out = tmp_path_factory.mktemp("results")
    return sagefl.compare(DATA, Net, ["rg", "local", First(turn=1)], seeds=range(3), out=out, **SMALL)


def test_a_row_per_method_and_seed(result: Results) -> None:
    frame = result.frame()
    assert frame.height == 9
    assert result.methods[2].endswith("First:turn=1")
    assert frame.filter((pl.col("method") == "rg") & (pl.col("seed") == 2))["accuracy"][0] == pytest.approx(
        result.of("rg")[2].values["accuracy"]
    )


def test_decisions_and_rounds_count_from_one(result: Results) -> None:
    assert sorted(result.decisions()["round"].unique()) == [1, 2, 3]
    assert result.rounds().filter(pl.col("method") == "rg").height == 9
    assert result.decisions().height == 3 * 3 * 3 * 4


def test_the_difference_is_paired_and_has_student_s_interval(result: Results) -> None:
    found = result.versus("local", "client")
    pairs = [result.of("local")[s].values["client"] - result.of("rg")[s].values["client"] for s in range(3)]
    low, high = stats.t.interval(0.95, 2, np.mean(pairs), stats.sem(pairs))
    assert found is not None
    assert found["mean"] == pytest.approx(np.mean(pairs))
    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))
    assert found["seeds"] == 3
    assert result.versus("local", against="nobody") is None


def test_it_shows_itself(result: Results) -> None:
    plain, html = repr(result), result._repr_html_()
    console = Console(width=300)
    with console.capture() as captured:
        console.print(result)
    for shown in (plain, html, captured.get()):
        assert "vs rg" in shown
        assert "±" in shown
    assert html.count("<tr>") == 4


def test_everything_by_name_as_json(result: Results) -> None:
    document = json.loads(json.dumps(result.document()))
    rg, local, _ = document["methods"]
    assert rg["versus"] == {}
    assert local["versus"]["accuracy"]["against"] == "rg"
    assert [run["seed"] for run in local["runs"]] == [0, 1, 2]
    assert math.isclose(local["metrics"]["client"]["mean"], np.mean([r["client"] for r in local["runs"]]))


def test_plot_and_report(result: Results, here: Path) -> None:
    figure = result.plot("client", here / "plot.png")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == result.methods
    assert len(axes.lines) == len(axes.collections) == 3  # a line and a band each
    assert len({line.get_color() for line in axes.lines}) == 3
    assert (here / "plot.png").stat().st_size > 5_000
    assert result.report(here / "r.html").stat().st_size > 100_000
    with pytest.raises(UsageError, match=r"no column 'acuracy', did you mean 'accuracy'"):
        result.plot("acuracy")


def test_curves_are_drawn_over_minutes_and_bytes(result: Results) -> None:
    timed = sagefl.compare(DATA, "mlp", ["rg"], seeds=[1], clock={"network": "wan"}, **SMALL)
    (line,) = timed.plot("accuracy", over="minutes").axes[0].get_lines()
    rounds = timed.rounds().sort("round")
    assert line.get_xdata().tolist() == rounds["minutes"].to_list()
    assert line.get_ydata().tolist() == rounds["accuracy"].to_list()
    (line,) = timed.plot("accuracy", over="bytes").axes[0].get_lines()
    assert line.get_xdata().tolist() == rounds.select(pl.sum_horizontal(BYTES).cum_sum()).to_series().to_list()
    with pytest.raises(UsageError, match=r"these runs have no clock: set clock\.network"):
        result.plot(over="minutes")


def test_what_is_finished_is_read_and_found_by_load(here: Path) -> None:
    first = sagefl.run(DATA, Net, "rg", **SMALL)
    again = sagefl.run(DATA, Net, "rg", **SMALL)
    assert not first.runs[0].read
    assert again.runs[0].read
    assert "read, not run" in again.notes()[0]
    other = (X[:400] + 1, *DATA[1:])
    assert not sagefl.run(other, Net, "rg", **SMALL).runs[0].read
    assert sagefl.load("runs").frame().height == 2
    assert not sagefl.run(DATA, Net, "rg", fresh=True, **SMALL).runs[0].read


def test_a_function_and_a_name_are_data_too(here: Path) -> None:
    one = sagefl.run(lambda: DATA, "mlp", "rg", **SMALL)
    two = sagefl.run(DATA, "mlp", "rg", **SMALL)
    assert two.runs[0].read
    assert one.runs[0].directory.path == two.runs[0].directory.path


# Keys -----------------------------------------------------------------------------------------------------------------


def test_any_key_as_a_keyword_or_in_a_dictionary() -> None:
    plain = RunConfig.parse({"clients": 7, "training": {"max_batches": 3}, "topology": {"kind": "ring"}})
    for config, keys in (
        (None, {"clients": 7, "max_batches": 3, "topology": "ring"}),
        ({"clients": 7, "training.max_batches": 3}, {"topology": {"kind": "ring"}}),
        ({"clients": 9}, {"clients": 7, "training": {"max_batches": 3}, "topology": "ring"}),
    ):
        assert resolved(config, keys).digest == plain.digest


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sagefl.run(clints=3), "no config key 'clints', did you mean 'clients'"),
        (lambda: sagefl.run(options={}), "'options' is a key of model, method: write model="),
        (lambda: sagefl.run(3), "data is a int; expected a name"),
        (lambda: sagefl.run((X, Y)), "expected a name, a sagefl.data.Dataset"),
        (lambda: sagefl.run(DATA, 3), "model is a int; expected a name"),
        (lambda: sagefl.run(DATA, nn.Linear(2, 2)), "model is a Linear; expected a name, or a class or function"),
        (lambda: sagefl.run(DATA, lambda shape: nn.Linear(2, 2), clients=4), "<lambda> takes neither the shape of an"),
        (lambda: sagefl.compare(DATA, methods=[3]), "a method is an id such as 'rg'"),
        (lambda: sagefl.compare(DATA, methods=["rg", "rg"]), "methods named more than once: rg"),
        (lambda: sagefl.compare(DATA, methods=["rg"], seeds=[1, 1]), "seeds named more than once: 1"),
        (lambda: sagefl.compare(DATA, methods=["rgg"]), "unknown method 'rgg', did you mean 'rg'"),
        (lambda: sagefl.load("nowhere"), "no such directory: nowhere"),
    ],
)
def test_mistakes_are_named(here: Path, call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        call()
    assert not (here / "runs").exists()


def test_a_bad_value_is_told_as_on_the_command_line() -> None:
    with pytest.raises(ConfigError, match="clients: Input should be greater than or equal to 1, got 0"):
        sagefl.run(clients=0)


def test_a_file_edited_after_its_import_is_not_taken_for_what_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(here))
    source = (
        "from torch import nn\nclass Late(nn.Linear):\n    def forward(self, x):\n        return super().forward(x)\n"
    )
    Path("late_nets.py").write_text(source)
    import late_nets  # type: ignore[import-not-found]

    from sagefl.api.given import model_of

    assert model_of(late_nets.Late) == {"name": "late_nets:Late"}
    Path("late_nets.py").write_text(source.replace("forward(x)\n", "forward(2 * x)\n"))
    with pytest.raises(UsageError, match="was changed after it had been imported, so the old code would"):
        model_of(late_nets.Late)


NETS = """
from torch import nn
from its_width import WIDTH

class Net(nn.Module):
    shared = ("body",)

    def __init__(self, shape, classes):
        super().__init__()
        self.body, self.head = nn.Linear(6, WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, x):
        return self.head(self.body(x))
"""
RULES = """
from dataclasses import dataclass
from sagefl import Exchange, Selector

@dataclass(frozen=True)
class Mine(Selector):
    def decide(self, hood, state, rng):
        return Exchange.none()
        yield
"""


def test_a_module_edited_between_two_calls_in_one_process_is_refused_until_it_is_loaded_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is named or given, and whether the class is in it or uses it: the old code would run as the new."""
    monkeypatch.syspath_prepend(str(here))
    for name, text in {"its_width": "WIDTH = 3\n", "its_nets": NETS, "its_rules": RULES}.items():
        monkeypatch.delitem(sys.modules, name, raising=False)
        Path(f"{name}.py").write_text(text)
    import its_nets  # type: ignore[import-not-found]
    import its_width  # type: ignore[import-not-found]

    asked = {"clients": 3, "rounds": 1, "topology": "complete", "progress": False}
    sagefl.run(DATA, its_nets.Net, "its_rules.py:Mine", **asked)
    for name, old, new in (("its_width", "3", "4"), ("its_rules", "none()", "none(  )")):
        Path(f"{name}.py").write_text(Path(f"{name}.py").read_text().replace(old, new))
        with pytest.raises(UsageError, match=f"{name}.py was changed after it had been imported, so the old code"):
            sagefl.run(DATA, its_nets.Net, "its_rules.py:Mine", **asked)
        importlib.reload(its_width if name == "its_width" else sys.modules["its_rules"])
    importlib.reload(its_nets)
    assert not sagefl.run(DATA, its_nets.Net, "its_rules.py:Mine", **asked).runs[0].read
    assert sagefl.run(DATA, its_nets.Net, "its_rules.py:Mine", **asked).runs[0].read


PARTS = """
WIDTH = 3

def scaled(x):
    return 2 * x
"""
USERS = """
from torch import nn
import its_parts
from its_parts import WIDTH as W
from its_parts import scaled

class Net(nn.Linear):
    def forward(self, x):
        return super().forward(scaled(x) * W * its_parts.WIDTH)
"""


@pytest.mark.parametrize(("old", "new", "name"), [("WIDTH = 3", "WIDTH = 4", "WIDTH"), ("2 * x", "3 * x", "scaled")])
def test_names_imported_from_a_module_that_was_loaded_again_are_not_taken_for_the_new_ones(
    here: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, name: str
) -> None:
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file of the same second and size would pass for the old
    for module, text in {"its_parts": PARTS, "its_users": USERS}.items():
        monkeypatch.delitem(sys.modules, module, raising=False)
        Path(f"{module}.py").write_text(text)
    import its_parts  # type: ignore[import-not-found]
    import its_users  # type: ignore[import-not-found]

    source_of_object(its_users.Net)
    before = its_parts.scaled
    Path("its_parts.py").write_text(PARTS.replace(old, new))
    importlib.reload(its_parts)
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"its_users.py has {name} from before its_parts was loaded again"):
            source_of_object(its_users.Net)
    importlib.reload(its_users)
    assert list(source_of_object(its_users.Net)) == ["its_parts.py", "its_users.py"]
    if name == "scaled":
        with pytest.raises(UsageError, match="scaled is from before its_parts was loaded again: import it again"):
            source_of_object(before)


def test_a_script_needs_no_guard_to_use_several_processes(tmp_path: Path) -> None:
    """Workers that ran the script again from its top would start workers of their own."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sagefl\n"
        "print('once')\n"
        "world = dict(clients=4, rounds=1, model='mlp', engine='processes', workers=2, max_batches=1)\n"
        "print(sagefl.compare(methods=['rg'], progress=False, **world))\n"
    )
    ran = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("once") == 1
    assert "rg" in ran.stdout
