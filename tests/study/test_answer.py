"""The five lines that open the paper's report, whatever cells there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tiny_study import results

from sagefl.runs.config import RunConfig
from sagefl.study.collect import Record
from sagefl.study.design import Findings
from sagefl.study.paper import PAPER, audit
from sagefl.study.report import claims_markdown


def findings(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Findings:
    rows = results(values).rows
    records = [Record(r.configuration, r.method, RunConfig(seed=r.seed), dict(r.values)) for r in rows]
    return Findings(PAPER, records)


def scores(accuracy: float, client: float, **more: float) -> dict[str, list[float]]:
    return {"accuracy": [accuracy], "client": [client], **{name: [value] for name, value in more.items()}}


def test_one_cell_is_enough_for_five_lines() -> None:
    for method in ("rg", "d-psgd", "pens", "sage-m"):
        lines = findings({method: scores(0.4, 0.9)}).answer
        assert len(lines) == 5
        assert lines[0] == "What was run: 1 cells in 1 of the paper's 12 configurations (fmnist/er/0.1), seed 1."
        assert "not known" in lines[1]
        assert lines[2].endswith("not run yet.")
        assert lines[3].endswith("not run yet.")
        assert "19 contradicted" in lines[4]


def test_ours_stands_beside_theirs() -> None:
    spent = {"sage-os": scores(0.401, 0.95, budget=0.365), "sage-os-table": scores(0.40, 0.95, budget=0.288)}
    lines = findings({"rg": scores(0.40, 0.95), "aq-128": scores(0.395, 0.94), **spent}).answer
    assert "AQ-128 minus gossip -0.50 points, published -2.78 points there" in lines[2]
    assert "minus gossip +0.10 points, published +0.17 points there" in lines[3]
    assert "it spends 36.50 %, published 26.14 % there; 28.80 % if the price is read as cumulative" in lines[3]


def test_headroom_is_what_more_models_a_round_give() -> None:
    none = findings({"rg": scores(0.40, 0.95), "d-psgd": scores(0.402, 0.945), "average-all": scores(0.39, 0.951)})
    assert "D-PSGD -0.50 to +0.20, Average -1.00 to +0.10" in none.answer[1]
    assert "nothing for a selector to win" in none.answer[1]
    some = findings({"rg": scores(0.40, 0.95), "d-psgd": scores(0.42, 0.95)})
    assert "up to 2.00 points above gossip" in some.answer[1]
    assert none.opening is not None
    assert none.opening.rows == [["fmnist/er/0.1", "+0.20", "-0.50", "-1.00", "+0.10"]]
    assert findings({"rg": scores(0.40, 0.95)}).opening is None


def test_upper_rows_stand_in_the_tables_and_are_never_the_best() -> None:
    found = findings({"rg": scores(0.40, 0.95), "d-psgd": scores(0.45, 0.99)})
    table = found.tables[0]
    assert [c.method for c in table.columns if c.metric == "accuracy"] == ["rg", "d-psgd"]
    assert [c.best for c in table.columns if c.metric == "accuracy"] == ["max", ""]
    assert "Upper rows, many models a round, not ranked: D-PSGD." in table.caption


def test_the_claims_and_the_audit_open_with_the_answer() -> None:
    found = findings({"rg": scores(0.4, 0.9)})
    assert claims_markdown(found).splitlines()[2:7] == [f"{n}. {line}" for n, line in enumerate(found.answer, start=1)]
    assert audit().answer[0].startswith("Nothing was run. Of 80 claims by the paper's own tables: 53 supported")
