"""`sagefl regret`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from sagefl.cli import app


def test_a_plain_table() -> None:
    run = CliRunner().invoke(app, ["regret", "--decisions", "12", "--lambda", "0.001", "--prior", "2,1,3"])
    assert run.exit_code == 0, run.output
    lines = run.output.splitlines()
    assert "prior Dirichlet(2, 1, 3) on (win, loss, concordant), lambda 0.001, delta 0.1" in lines[0]
    table = {line[:40].strip(): line[40:].split() for line in lines if " ± " in line or " exactly" in line}
    assert len(table) == 13
    assert table["rg"][2:5] == ["+0.0000", "±", "0.0000"]
    assert float(table["rg"][5]) == -float(table["optimal stopping, certified peers only"][0])
    assert float(table["rg"][6]) == -float(table["optimal stopping, free"][0])
    assert table["aq-128"][:2] == ["100.0%", "256.0"]
    assert "\x1b" not in run.output
    costs = [float(row[2]) for row in table.values() if "±" in row]
    assert costs == sorted(costs)
    assert "same 12 simulated decisions" in run.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prior", "1,2"], "--prior takes three numbers win,loss,concordant, got '1,2'"),
        (["--prior", "1,0,2"], "pseudo-counts must be positive"),
        *((["--delta", x], "delta must be a number strictly between 0 and 1") for x in ("2", "1", "0", "-1", "nan")),
        (["--lambda", "inf"], "probe_cost (lambda) must be a finite number"),
        (["--lambda", "-1"], "probe_cost (lambda) must be a finite number of at least 0"),
        (["--decisions", "1"], "at least 10, got 1"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    run = CliRunner().invoke(app, ["regret", *arguments])
    assert run.exit_code == 2
    assert message in run.output
    assert "Traceback" not in run.output
