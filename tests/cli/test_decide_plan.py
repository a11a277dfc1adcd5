"""`sagefl decide` and `sagefl plan`: what people and scripts see."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from sagefl import Outcome, SageOS, make, replay
from sagefl.cli import app, common, core
from sagefl.selection.recorded import read_losses

EXAMPLE = Path(__file__).parents[2] / "examples" / "losses.csv"
runner = CliRunner()


def sagefl(*arguments: object) -> str:
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> str:
    """The one line a mistake ends with; no traceback, exit code 2."""
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("sagefl: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


# decide -------------------------------------------------------------------------------------------------------------


def test_one_is_not_several(tmp_path: Path) -> None:
    losses = tmp_path / "losses.csv"
    losses.write_text("ada\n1\n")
    text = sagefl("decide", losses, "--method", "aq-128:schedule=1")
    assert text.startswith("aq-128:schedule=1 on 1 peer, 1 anchor\n")
    assert "\n1 anchor: " in text


def test_decide_says_why_stage_by_stage() -> None:
    lines = sagefl("decide", EXAMPLE).splitlines()
    assert lines[0] == "sage-os on 6 peers, 160 anchors"
    assert lines[1].split() == [
        "anchors", "ada", "bob", "cyd", "dan", "eve", "fay", "advantage", "gap", "needed", "next", "cost", "then",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[2:5]] == ["16", "32", "64"]
    assert [line.split()[-1] for line in lines[2:5]] == ["continue", "continue", "certified"]
    assert lines[6].startswith("16 anchors: ada lowest at risk ")
    assert lines[-1] == "Pull ada: certified by the evidence (384 evaluations)."


def test_the_price_is_called_lambda_or_by_its_option() -> None:
    asked = [("--lambda", 0.5), ("--set", "lambda=.5"), ("--set", "probe_cost=.5"), ("--method", "sage-os:lambda=.5")]
    said = {sagefl("decide", EXAMPLE, *flags, "--json") for flags in asked}
    assert len(said) == 1
    assert Outcome.from_json(said.pop()).reason == "cost"


def test_a_method_takes_options_as_elsewhere() -> None:
    lines = sagefl("decide", EXAMPLE, "--method", "sage-e:delta=.05:looks=stages").splitlines()
    assert lines[0] == "sage-e:delta=.05:looks=stages on 6 peers, 160 anchors"
    recorded = read_losses(EXAMPLE)
    for flags, delta in (((), 0.05), (("--set", "delta=.2"), 0.2), (("--set", "delta=.2", "--delta", ".3"), 0.3)):
        found = sagefl("decide", EXAMPLE, "--method", "sage-e:delta=.05", *flags, "--json")
        assert Outcome.from_json(found) == replay(make("sage-e", delta=delta), recorded.losses, 0, peers=recorded.peers)


def test_decide_is_the_library() -> None:
    recorded = read_losses(EXAMPLE)
    for method in ("sage-os", "sage-vanilla", "sage-nf", "aq-128", "rg", "local", "sage-os-table"):
        outcome = Outcome.from_json(sagefl("decide", EXAMPLE, "--method", method, "--seed", 5, "--json"))
        assert outcome == replay(make(method), recorded.losses, 5, peers=recorded.peers)


def test_options_reach_the_rule() -> None:
    recorded = read_losses(EXAMPLE)
    text = sagefl("decide", EXAMPLE, "--json", "--delta", 0.5, "--lambda", 0.01, "--set", "schedule=8,16", "--set",
                  "radius=tight")  # fmt: skip
    rule = SageOS(delta=0.5, probe_cost=0.01, schedule=(8, 16), radius="tight")
    assert Outcome.from_json(text) == replay(rule, recorded.losses, 0, peers=recorded.peers)


def test_json_is_one_line() -> None:
    text = sagefl("decide", EXAMPLE, "--json")
    assert text.count("\n") == 1
    document = json.loads(text)
    assert (document["peers"], document["reason"], document["anchors"], document["evaluations"]) == (
        ["ada"], "certified", 64, 384,
    )  # fmt: skip


def test_npy_is_peers_by_anchors(tmp_path: Path) -> None:
    recorded = read_losses(EXAMPLE)
    np.save(tmp_path / "losses.npy", recorded.losses.astype(np.uint8))
    document = json.loads(sagefl("decide", tmp_path / "losses.npy", "--json"))
    assert document["peers"] == [0]
    assert document["anchors"] == 64


def test_a_header_alone_is_a_pool_without_anchors(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("ada,bob\n")
    assert "the anchor pool is smaller than the first stage" in sagefl("decide", tmp_path / "empty.csv")


def test_spreadsheet_habits(tmp_path: Path) -> None:
    """A byte-order mark, Windows line ends, spaces, blank lines."""
    (tmp_path / "excel.csv").write_bytes(b"\xef\xbb\xbfada, bob\r\n0, 1\r\n\r\n0.5,1\r\n")
    recorded = read_losses(tmp_path / "excel.csv")
    assert recorded.peers == ("ada", "bob")
    assert recorded.losses.tolist() == [[0, 0.5], [1, 1]]


# Tables ---------------------------------------------------------------------------------------------------------------


def test_output_that_is_no_terminal_is_plain_and_whole() -> None:
    """A real process with its output in a pipe: no escape codes, nothing cut, whatever COLUMNS says."""
    command = [sys.executable, "-c", "from sagefl.cli import app; app()", "decide", str(EXAMPLE)]
    run = subprocess.run(
        command, capture_output=True, text=True, env={"COLUMNS": "40", "TERM": "xterm-256color"}, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == sagefl("decide", EXAMPLE)
    assert "\x1b" not in run.stdout
    assert "…" not in run.stdout
    plan = subprocess.run([*command[:3], "plan"], capture_output=True, text=True, timeout=60)
    assert "\x1b" not in plan.stdout
    assert "certify if A >  possible  next stage costs  gossip if A <=" in plan.stdout


def many(tmp_path: Path, count: int) -> Path:
    path = tmp_path / f"{count}.csv"
    rows = [",".join(f"peer{i}" for i in range(count))] + [",".join(["0"] + ["1"] * (count - 1))] * 64
    path.write_text("\n".join(rows) + "\n")
    return path


def test_many_peers_are_summed_up(tmp_path: Path) -> None:
    head = sagefl("decide", many(tmp_path, 8)).splitlines()[1]
    assert "peer7" in head
    assert "lowest" not in head
    lines = sagefl("decide", many(tmp_path, 9)).splitlines()
    assert lines[1].split()[:4] == ["anchors", "lowest", "mean", "highest"]
    assert "peer8" not in lines[1]
    assert lines[2].split()[:4] == ["16", "0.000", "0.889", "1.000"]
    assert "peer0 lowest at risk 0.000" in lines[5]


@pytest.mark.parametrize(("columns", "head"), [(79, "lowest"), (120, "ada")])
def test_a_narrow_terminal_gets_the_summary(monkeypatch: pytest.MonkeyPatch, columns: int, head: str) -> None:
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=columns, highlight=False, markup=False, color_system=None)
    monkeypatch.setattr(core, "console", lambda: terminal)
    recorded = read_losses(EXAMPLE)
    core._print_decision("sage-os", recorded, replay(SageOS(), recorded.losses, peers=recorded.peers))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert plain[1].split()[1] == head
    assert not any("…" in line for line in plain)
    assert max(map(len, plain[1:5])) <= columns


def test_peers_are_never_markup(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("[bold]ada[/bold],:smile:\n" + "0,1\n" * 128)
    text = sagefl("decide", tmp_path / "odd.csv")
    assert "[bold]ada[/bold]" in text.splitlines()[1]
    assert ":smile:" in text


def test_columns_nobody_uses_are_left_out() -> None:
    head = sagefl("decide", EXAMPLE, "--method", "aq-128").splitlines()[1]
    assert "needed" not in head
    assert "next cost" not in head


# plan -----------------------------------------------------------------------------------------------------------------


def test_plan_states_that_stage_16_cannot_certify() -> None:
    text = sagefl("plan", "--degree", 6)
    assert "Stage 16 cannot certify: 0.8785 is needed and the largest possible advantage at degree 6 is 0.8333" in text
    rows = [line.split() for line in text.splitlines()[2:6]]
    assert rows == [
        ["16", "96", "0.4392", "0.8785", "no", "0.192", "never"],
        ["32", "192", "0.3106", "0.6212", "yes", "0.384", "never"],
        ["64", "384", "0.2196", "0.4392", "yes", "0.768", "0.3288"],
        ["128", "768", "0.1553", "0.3106", "yes", "-", "otherwise"],
    ]
    assert text.splitlines()[-1].endswith("by more than 0.192 (eq:dominance).")


@pytest.mark.parametrize("degree", [1, 2, 7, 15, 200])
def test_at_every_degree(degree: int) -> None:
    assert "Stage 16 cannot certify" in sagefl("plan", "--degree", degree)


def test_plan_options() -> None:
    assert "Stage 16 certifies above 0.7321" in sagefl("plan", "--radius", "tight")
    assert "0.384" in sagefl("plan", "--cost", "cumulative").splitlines()[2]
    assert "losses in [0, 2]" in sagefl("plan", "--bound", 2)
    assert len([line for line in sagefl("plan", "--schedule", "10").splitlines() if line.startswith("Stage ")]) == 1


# Mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty: expected a header of peer names and one row of losses per anchor"),
        ("ada,bob\n0,1\n0\n", "line 3: 1 values for 2 peers"),
        ("ada,bob\n0,1\n\n0,x\n", "line 4: could not convert string to float: 'x'"),
        ("ada,ada\n0,1\n", "line 1: the header names the peers, each once, but a name stands twice: ada, ada"),
        ("ada,\n0,1\n", "line 1: the header names the peers, each once, but a peer has no name"),
        ("ada,bob\n" + "0,nan\n" * 16, "losses must be finite, got nan"),
        ("ada,bob\n" + "0,1.5\n" * 16, "losses must lie in [0, 1], got 1.5: clip or scale them, or set loss_bound"),
    ],
)
def test_bad_csv(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "bad.csv").write_text(content)
    assert says in refused("decide", tmp_path / "bad.csv")


def test_bad_files(tmp_path: Path) -> None:
    assert "no such file" in refused("decide", tmp_path / "absent.csv")
    assert "no such file" in refused("decide", tmp_path)
    (tmp_path / "binary.csv").write_bytes(bytes(range(128, 256)))
    assert "binary.csv is not a readable CSV file" in refused("decide", tmp_path / "binary.csv")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY\x01")
    assert "torn.npy is not a readable NPY array" in refused("decide", tmp_path / "torn.npy")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    assert "must hold a numeric (peers x anchors) matrix, got float64 (2, 2, 2)" in refused(
        "decide", tmp_path / "cube.npy"
    )
    np.save(tmp_path / "pickled.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    assert "pickled.npy is not a readable NPY array" in refused("decide", tmp_path / "pickled.npy")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "dflstar-lite"], "unknown selector 'dflstar-lite'"),
        (["--method", "d-psgd"], "DPSGD asks for Read: recorded losses answer probes only"),
        (["--method", "sage-os:detla=.1"], "sage-os has no option 'detla', did you mean 'delta'?"),
        (["--method", "sage-so"], "unknown selector 'sage-so', did you mean 'sage-os'?"),
        (["--method", "rg", "--delta", "0.2"], "rg has no option 'delta'"),
        (["--delta", "1.5"], "delta must be a number strictly between 0 and 1, got 1.5"),
        (["--lambda", "-1"], "probe_cost (lambda) must be a finite number of at least 0, got -1.0"),
        (["--set", "delta"], "options are written name=value, got 'delta'"),
        (["--set", "schedule=64,32"], "strictly increasing, got (64, 32)"),
        (["--set", "delta=abc"], "delta must be a number strictly between 0 and 1, got 'abc'"),
        (["--set", "ties=first"], "ties must be one of random, lowest-index, got 'first'"),
        (["--seed", "-1"], "seed must be a whole number >= 0"),
    ],
)
def test_bad_options(arguments: list[str], says: str) -> None:
    assert says in refused("decide", EXAMPLE, *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--degree", "0"], "degree is the number of active neighbours, at least 1; got 0"),
        (["--schedule", "16,,x"], "schedule must be one or more whole numbers of at least 1, got '16,,x'"),
        (["--schedule", "32,16"], "strictly increasing"),
        (["--radius", "wide"], "radius must be one of printed, tight, got 'wide'"),
        (["--bound", "0"], "loss_bound (M) must be a finite number above 0"),
    ],
)
def test_bad_plans(arguments: list[str], says: str) -> None:
    assert says in refused("plan", *arguments)


def test_version_and_help() -> None:
    assert re.fullmatch(r"sagefl \d+\.\d+\.\d+\n", sagefl("--version"))
    assert "decide" in sagefl("--help")
    assert "--lambda" in sagefl("decide", "--help")


def test_console_width_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert common.console().width == common.WIDE


def test_a_price_of_time_becomes_lambda() -> None:
    def price(per_minute: float, network: str) -> float:
        told = sagefl("plan", "--per-minute", per_minute, "--network", network)
        return float(told.split("lambda = ")[1].split()[0])

    assert price(1, "phones") > 5 * price(1, "equal") > 0
    assert price(2, "equal") == pytest.approx(2 * price(1, "equal"), rel=0.01)
    assert "unknown network 'wam', did you mean 'wan'?" in refused("plan", "--per-minute", 1, "--network", "wam")


def test_a_price_of_time_takes_a_file_as_it_is(tmp_path: Path) -> None:
    machines = tmp_path / "machines.txt"
    machines.write_text("2000 6000 100 100 5\n" * 3)
    told = sagefl("plan", "--per-minute", 1, "--network", machines)
    assert told.split("lambda = ")[1] == sagefl("plan", "--per-minute", 1).split("lambda = ")[1]  # those of `equal`
    assert "describes 3 clients" in refused("plan", "--per-minute", 1, "--network", machines, "--clients", 4)
    machines.write_text("# nobody yet\n")
    assert "describes no client" in refused("plan", "--per-minute", 1, "--network", machines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--network", "phones"], "--network is about what a minute of probing costs: give --per-minute, too"),
        (["--clients", "8"], "--clients is about what a minute"),
        (["--per-minute", "1", "--lambda", "0.1"], "--lambda and --per-minute both say what an evaluation costs"),
    ],
)
def test_nothing_that_is_said_about_a_price_is_passed_over(arguments: list[str], says: str) -> None:
    assert says in refused("plan", *arguments)
