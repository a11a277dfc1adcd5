"""A user's mistake in a rule, a list or a path: one sentence that names the word, and nothing left in the way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from small_commands import ONE, SMALL
from typer.testing import Result

import sagefl as package
from sagefl.errors import UsageError
from sagefl.selection import ME, Inspect, Probe, SageOS

Call = Callable[..., Result]

RULE = """
from dataclasses import dataclass
from sagefl import Exchange, Selector
from sagefl.selection import ME, Inspect, Probe, Read

@dataclass(frozen=True)
class Mine(Selector):
    def decide(self, hood, state, rng):
        if hood.peers and hood.round >= 1:
            yield REQUEST
        return Exchange.none()
"""
REQUESTS = {
    "Probe((ME, *hood.peers), 0, 4)": "Mine probes ME, itself",
    'Inspect(hood.peers, "trian", "ce")': (
        "Mine inspects the split 'trian'; expected one of anchor, train, did you mean 'train'?"
    ),
    'Inspect(hood.peers, "train", "eror")': (
        "Mine inspects the metric 'eror'; expected one of ce, error, losses, distance, did you mean 'error'?"
    ),
    'Read(hood.peers, "hed")': "Mine reads 'hed', did you mean 'head'?",
    "Probe(hood.peers[0], 0, 4)": "Mine asks ",
    "Probe(hood.peers, 0, 4.5)": "Mine asked for anchors 0..4.5; expected whole numbers",
    "Probe(hood.peers, 0, 4, mask=[True])": "Mine: a mask is a boolean array of shape (",
    '"labels"': "Mine yielded 'labels'; a selector yields Probe, Inspect or Read",
}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.modules.pop("mine", None)
    sys.path[:] = before


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_mistake_in_a_rule_is_a_sentence_and_leaves_no_folder(request_: str, run: Call) -> None:
    Path("mine.py").write_text(RULE.replace("REQUEST", request_))
    told = run("-q", "--method", "mine.py:Mine", code=2).stderr
    assert told.startswith(f"sagefl: {REQUESTS[request_]}")
    assert told.count("\n") == 1
    assert not Path("run").exists()
    sys.modules.pop("mine")
    mended = (
        RULE.replace("REQUEST", "Probe(hood.peers, 0, 4)") + "# another length: byte code is told by size and second\n"
    )
    Path("mine.py").write_text(mended)
    run("-q", "--method", "mine.py:Mine")  # the same command, nothing to be cleared away first


RETURNED = {
    'Exchange.gossip(hood.peers[0], "unifrom")': (
        "Mine gives the reason 'unifrom'; expected a sagefl.Reason, did you mean 'uniform'?"
    ),
    "Exchange.none(state=3)": "Mine remembers 3; expected a dictionary of arrays and JSON values",
    "Exchange.none(state={'a': {1}})": "cannot write {1} (set) to JSON: a rule remembers arrays and JSON values",
}


@pytest.mark.parametrize("returned", RETURNED)
def test_a_mistake_in_what_a_rule_returns_is_a_sentence_and_leaves_no_folder(returned: str, run: Call) -> None:
    head = RULE.partition("        if hood.peers")[0]
    Path("mine.py").write_text(f"{head}        yield from ()\n        return {returned}\n")
    told = run("-q", "--method", "mine.py:Mine", code=2).stderr
    assert told.startswith(f"sagefl: {RETURNED[returned]}")
    assert told.count("\n") == 1
    assert not Path("run").exists()


def test_a_reason_may_be_written_as_its_word(run: Call) -> None:
    head = RULE.partition("        if hood.peers")[0]
    word = "Exchange.gossip(hood.peers[0], 'uniform') if hood.peers else Exchange.none()"
    Path("mine.py").write_text(f"{head}        yield from ()\n        return {word}\n")
    run("-q", "--method", "mine.py:Mine")
    assert {"uniform"} <= set(pl.read_parquet("run/decisions.parquet")["reason"]) <= {"uniform", "none"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return Exchange.none()", "Mine.decide has no yield: put `yield from ()` where it asks nothing"),
        ("yield Probe(hood.peers[99], 0, 1)", "mine.py, line 9: IndexError: tuple index out of range"),
        ("yield from (); max(hood.round)", "mine.py, line 9: TypeError: 'int' object is not iterable"),
    ],
)
def test_an_error_in_a_rule_is_said_with_its_place(body: str, says: str, run: Call) -> None:
    head = RULE.partition("        if hood.peers")[0]
    Path("mine.py").write_text(f"{head}        {body}\n")
    assert run("-q", "--method", "mine.py:Mine", code=2).stderr == f"sagefl: {says}\n"
    assert not Path("run").exists()


def test_an_error_in_a_model_is_said_with_its_place(run: Call) -> None:
    Path("mine.py").write_text(
        "from torch import nn\n\nclass Net(nn.Linear):\n    def __init__(self, shape, classes):\n"
        "        super().__init__(784, classes)\n\n    def forward(self, x):\n        return super().forward(x)\n"
    )
    told = run("-q", "--set", "model.name=mine.py:Net", code=2).stderr
    assert told.startswith("sagefl: Net cannot be trained on these data: RuntimeError: mat1 and mat2 shapes cannot")
    assert "(mine.py, line 8). A batch is float32 N x 1 x 28 x 28" in told
    assert told.count("\n") == 1


def test_an_error_of_ours_below_a_rule_keeps_its_traceback(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> object:
        raise KeyError("ours")

    broken.__code__ = broken.__code__.replace(co_filename=str(Path(package.__file__).parent / "selection/exchange.py"))
    monkeypatch.setattr("sagefl.selection.Exchange.none", broken)
    Path("mine.py").write_text(RULE.replace("hood.peers and hood.round >= 1", "False").replace("REQUEST", "0"))
    with pytest.raises(KeyError, match="ours"):
        run("-q", "--method", "mine.py:Mine")


def test_a_rule_in_a_file_decides_and_replays_too(run: Call, sagefl: Call) -> None:
    Path("mine.py").write_text(RULE.replace("REQUEST", "Probe(hood.peers, 0, 4)"))
    Path("losses.csv").write_text("a,b\n" + "0,1\n" * 8)
    assert "mine.py:Mine on 2 peers, 8 anchors" in sagefl("decide", "losses.csv", "--method", "mine.py:Mine").stdout
    refused = sagefl("decide", "losses.csv", "--method", "mine.py:Probe", code=2).stderr
    assert refused == "sagefl: mine.py:Probe is no Selector class; a whole method is run by `sagefl run --method`\n"
    run("-q", "--method", "rg", "--set", "evaluation.losses=full")
    assert "mine.py:Mine" in sagefl("replay", "run", "--method", "mine.py:Mine").stdout


FLAGS = [["--rounds", "5"], ["--seeds", "1-2"], ["--fresh"], ["--out", "elsewhere"], ["--methods", "rg"]]


@pytest.mark.parametrize("flags", FLAGS)
def test_finished_runs_take_no_settings(flags: list[str], sagefl: Call) -> None:
    told = sagefl("compare", "anywhere", *flags, code=2).stderr
    assert told.startswith("sagefl: folders of runs are compared as they are, nothing is run")
    assert told.count("\n") == 1


def test_a_comparison_inside_a_run_is_refused(run: Call, sagefl: Call) -> None:
    """Folders are searched down to a run and no further, so nobody would find what is inside one."""
    run("-q", "--method", "rg")
    told = sagefl("compare", "--methods", "local", *SMALL, *ONE, "--out", "run", code=2).stderr
    assert told.startswith("sagefl: run is itself a run, and runs inside it would not be found: choose another --out")
    assert not Path("run/local").exists()


def test_a_run_folder_that_is_a_file_is_named(sagefl: Call) -> None:
    Path("taken").write_text("notes\n")
    told = sagefl("run", *SMALL, *ONE, "--method", "rg", "--out", "taken", code=2).stderr
    assert told == "sagefl: taken is a file, not a folder: choose another --out\n"
    assert Path("taken").read_text() == "notes\n"


def test_owners_that_are_named_and_mixed_are_said(sagefl: Call) -> None:
    rows = [f"{i % 2},{'ada' if i % 3 else 'bob'},{i / 9}" for i in range(120)]
    Path("table.csv").write_text("\n".join(["label,owner,a", *rows]))
    flags = ["--dataset", "table.csv", "--clients", "2", "--rounds", "1", "--topology", "complete", *ONE]
    flags += ["--method", "rg", "--set", "model.name=mlp"]
    said = "Warning: the data say who owns a sample, but are dealt to clients anew: set data.partition=owners"
    assert said in sagefl("run", *flags, "--out", "mixed").stdout
    assert said not in sagefl("run", *flags, "--set", "data.partition=owners", "--out", "owned").stdout


def test_a_file_that_cannot_be_written_is_named(sagefl: Call, run: Call) -> None:
    run("-q", "--method", "rg")
    assert sagefl("report", "run", "--out", ".", code=2).stderr == "sagefl: .: Is a directory\n"


def test_after_a_checkpoint_the_run_is_kept(run: Call) -> None:
    Path("mine.py").write_text(RULE.replace("REQUEST", "'labels'").replace(">= 1", ">= 2"))
    run("-q", "--method", "mine.py:Mine", "--checkpoint-every", "1", code=2)
    assert Path("run/run.toml").is_file()


def test_the_same_mistake_in_a_rule_of_ours_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks(self: object, hood: object, state: object, rng: object) -> Iterator[object]:
        yield Inspect(("a",), "trian")  # type: ignore[arg-type]

    monkeypatch.setattr(SageOS, "decide", asks)
    with pytest.raises(ValueError, match="inspects the split 'trian'") as caught:
        SageOS().begin(["a", "b"], 128)
    assert not isinstance(caught.value, UsageError)
    assert Probe((ME,), 0, 1).peers == (ME,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "--methods", ""], "no method is named"),
        (["compare", "--seeds", "1-100000000"], "--seeds 1-100000000 are 100,000,000 numbers, more than 10,000"),
        (["compare", "--seeds", ""], "--seeds takes whole numbers as 1-5 or 1,4,9, got ''"),
        (["run", "--method", "nowhere.py:Mine"], "cannot load method 'nowhere.py:Mine': nowhere.py: no such file"),
        (["run", "--set", "model.name=nowhere.py:Net"], "cannot load model 'nowhere.py:Net': nowhere.py: no such file"),
        (["run", "--set", "clock.network=/nope.txt"], "/nope.txt: no such file; clock.network is equal, phones"),
        (["run", "--set", "clock.schedule=async"], "sagefl: clock.schedule needs to know"),
        (["run", "--set", "world.groups=99", "--set", "world.shift=rotation"], "sagefl: config: world.groups"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_sentence(arguments: list[str], says: str, sagefl: Call) -> None:
    told = sagefl(*arguments, *SMALL[:4], code=2).stderr
    assert says in told
    assert told.count("\n") == 1
    assert "Value error" not in told
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"methods": []}, "no method is named"),
        ({"methods": "  "}, "no method is named"),
        ({"seeds": 3}, r"seeds=3 can mean one seed or 3 of them: write \[3\] or range\(3\)"),
        ({"seeds": []}, r"seeds are whole numbers, such as range\(3\) or \[1, 4\], got \[\]"),
        ({"seeds": [1.5]}, r"seeds are whole numbers, .* got \[1.5\]"),
        ({"seeds": "x"}, "seeds takes whole numbers as 1-5 or 1,4,9, got 'x'"),
    ],
)
def test_lists_in_python(given: dict[str, object], says: str, sagefl: Call) -> None:
    with pytest.raises(UsageError, match=says):
        package.compare(**given, clients=6, rounds=1, progress=False)  # type: ignore[arg-type]


def test_one_text_names_methods_as_on_the_command_line(sagefl: Call) -> None:
    keys = {"clients": 6, "rounds": 1, "max_batches": 1, "model": "mlp", "engine": "sequential", "progress": False}
    assert package.compare(methods="rg", **keys).methods == ["rg"]  # type: ignore[arg-type]
    found = package.compare(methods="rg, sage-os:delta=.2", seeds="1-2", **keys)  # type: ignore[arg-type]
    assert found.methods == ["rg", "sage-os:delta=0.2"]


def test_a_truncated_run_is_not_compared(sagefl: Call) -> None:
    import polars as pl

    for name in ("rg", "local"):
        sagefl("run", "--method", name, *SMALL, *ONE, "-q", "--out", f"both/{name}")
    assert sagefl("compare", "both").stdout
    table = Path("both/rg/decisions.parquet")
    pl.read_parquet(table).filter(pl.col("round") < 1).write_parquet(table)
    told = sagefl("compare", "both", code=2).stderr
    assert "both/rg cannot be shown: decisions.parquet ends at round 1 of 3: it is cut off" in told
