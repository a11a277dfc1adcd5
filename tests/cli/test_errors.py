"""A user's mistake ends in one sentence; a bug of ours keeps its traceback, in every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from sagefl.cli import app

ROOT = Path(__file__).parents[2]
LOSSES = str(ROOT / "examples" / "losses.csv")

BUGS = {  # command -> something of ours that it calls
    f"decide {LOSSES}": "sagefl.selection.replay",
    f"decide {LOSSES} --method sage-os:delta=.2": "sagefl.selection.recorded.read_losses",
    "plan": "sagefl.selection.planning.plan_stages",
    "regret": "sagefl.study.regret.measure_regret",
    "run": "sagefl.runs.config.RunConfig.parse",
    "run --clients 6 --rounds 1": "sagefl.simulation.simulator.Simulator.run",
    "resume .": "sagefl.runs.rundir.RunDirectory",
    "compare": "sagefl.api.run_all",
    "compare .": "sagefl.api.results.runs_below",
    "scout": "sagefl.api.scouting.scout_world",
    "replay .": "sagefl.runs.replaying.replay_run",
    "minutes .": "sagefl.runs.rundir.runs_below",
    "config": "sagefl.runs.schema.template",
    "columns": "sagefl.runs.columns.columns",
    "methods": "sagefl.methods.methods",
    "methods rg": "sagefl.methods.method_class",
    "bench": "sagefl.simulation.benching.bench",
    "data list": "sagefl.data.datasets",
    "data get fmnist": "sagefl.data.get",
    "study init mine.toml": "sagefl.study.spec.shipped",
    "study run paper --audit": "sagefl.study.paper.audit",
    "study paper --from .": "sagefl.study.recalling.read_records",
    "study paper --status": "sagefl.study.study.absent",
    "study paper": "sagefl.study.study.run_cells",
    "study paper --no-run": "sagefl.study.study.collect",
    "study beyond": "sagefl.study.study.run_cells",
    "study beyond --status": "sagefl.study.design.read_spec",
    "node init fed a": "sagefl.node.identity.Authority.create",
    "node revoke fed a": "sagefl.node.identity.Authority",
    "node keep fed": "sagefl.node.keeper.run_keeper",
    "node invite . a": "sagefl.node.registry.Registry",
    "node join ticket": "sagefl.node.joining.join",
    "node leave node.toml": "sagefl.node.config.NodeConfig.read",
    "node run node.toml": "sagefl.node.running.run_node",
    "node status .": "sagefl.node.status.read_status",
    "node renew fed a": "sagefl.node.identity.Authority",
    "node health node.toml": "sagefl.node.config.NodeConfig.read",
    "node verify .": "sagefl.node.audit.verify",
    "node config": "sagefl.runs.schema.template",
    "swarm": "sagefl.node.swarm.Swarm",
    "view .": "sagefl.view.server.kept_token",
    "report .": "sagefl.view.report.report_page",
}

MISTAKES = {  # command -> what its sentence says
    "decide absent.csv": "no such file: absent.csv",
    f"decide {LOSSES} --method sage-e:margin=x": "margin must be a finite number of at least 0, got 'x'",
    "plan --degree 0": "at least 1; got 0",
    "regret --prior x": "--prior takes three numbers win,loss,concordant, got 'x'",
    "regret --prior 0,1,1": "pseudo-counts must be positive and finite, got 0.0, 1.0, 1.0",
    "regret --decisions 3": "at least 10, got 3",
    "run --clients 0": "clients: Input should be greater than or equal to 1, got 0",
    "run --method sage-os:delta=3": "delta must be a number strictly between 0 and 1, got 3",
    "run --set data.anchor=.6 --set data.eval=.6": "expected positive fractions that leave something to train on",
    "run --set data.min_samples=99999": "Use fewer clients or more data",
    "run --track nonsense": "unknown tracker 'nonsense': tensorboard, mlflow, wandb",
    "resume .": "it has no run.toml",
    "minutes absent": "no run in absent",
    "compare --methods rg,rg": "methods named more than once: rg",
    "scout --run .": "no run in .",
    "replay . --sweep x": "a sweep is written name=v1,v2, got 'x'",
    "config --set x": "options are written name=value, got 'x'",
    "config --set seed=1 --set seed.x=1": "drop one of them",
    "columns nonsense": "there is no table 'nonsense': metrics, decisions, clients, timings",
    "methods rgg": "unknown method 'rgg', did you mean 'rg'?",
    "bench --config absent.toml": "cannot read config absent.toml: No such file or directory",
    "data get nonsense": "hf:NAME (Hugging Face)",
    "study init .": ". is there already: name another file",
    "study run papr": "no study 'papr', did you mean 'paper'",
    "study paper --alphas x": "--alphas takes numbers separated by commas, got 'x'",
    "study paper --no-run --cells none": "44 of 44 planned cells are not finished",
    "study beyond --known nowhere": "a study writes it into its --out folder",
    "node init . A_B": "use lower-case letters, digits and hyphens, at most 63",
    "node revoke nowhere a": "No such file or directory: 'nowhere/authority/ca.key'",
    "node keep . --listen nowhere": "an address is written host:port, got 'nowhere'",
    "node invite . a": "holds no federation: sagefl node keep",
    "node join hello": "this is not a ticket: a ticket begins with sagefl-ticket-",
    "node leave absent.toml": "cannot read config absent.toml: No such file or directory",
    "node run absent.toml": "cannot read config absent.toml: No such file or directory",
    "node status .": "has a node run there?",
    "node renew nowhere a": "No such file or directory: 'nowhere/authority/ca.key'",
    "node health absent.toml": "cannot read config absent.toml: No such file or directory",
    "node verify absent.toml": "cannot read config absent.toml: No such file or directory",
    "swarm --set x": "options are written name=value, got 'x'",
    "view nowhere": "no such directory: nowhere",
    "report nowhere": "no such directory: nowhere",
}
CANNOT_BE_MISTAKEN = {"data list", "node config"}  # they take no arguments


def commands(group: Any, path: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        yield from commands(command, f"{path}{name} ") if hasattr(command, "commands") else [f"{path}{name}"]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_command_is_tried() -> None:
    known = set(commands(get_command(app)))
    for tried in (BUGS, MISTAKES | dict.fromkeys(CANNOT_BE_MISTAKEN, "")):
        assert {name for name in known if any(f"{line} ".startswith(f"{name} ") for line in tried)} == known


@pytest.mark.parametrize("error", [TypeError, ValueError], ids=lambda e: e.__name__)
@pytest.mark.parametrize("command", BUGS)
def test_a_bug_keeps_its_traceback(command: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*args: object, **kwargs: object) -> None:
        raise error("a bug of ours")

    monkeypatch.setattr(BUGS[command], bug)
    result = CliRunner().invoke(app, command.split())
    assert isinstance(result.exception, error), result.output
    assert str(result.exception) == "a bug of ours"


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_sentence(command: str) -> None:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("sagefl: ")
    assert MISTAKES[command] in result.stderr
    assert "Traceback" not in result.stderr


def test_a_value_that_a_rule_refuses_is_the_users_mistake_and_any_other_error_is_ours() -> None:
    from sagefl.errors import UsageError
    from sagefl.selection.registry import build

    def rule(*, width: float = 1.0) -> float:
        if width < 0:
            raise ValueError("width must not be negative")
        return width + 1

    def broken() -> float:
        return float("x")

    assert build(rule, {"width": 2}) == 3
    with pytest.raises(UsageError, match="width must not be negative"):
        build(rule, {"width": -1})
    with pytest.raises(TypeError, match="not supported between instances of 'str' and 'int'"):
        build(rule, {"width": "wide"})
    with pytest.raises(ValueError, match="could not convert") as caught:
        build(broken, {})
    assert not isinstance(caught.value, UsageError)
