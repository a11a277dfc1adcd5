"""The five lines that open the paper's report, whatever cells there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tiny_study import results

from sagefl.runs.config import RunConfig
from sagefl.settings import nested
from sagefl.study.claims import Verdict
from sagefl.study.collect import Record
from sagefl.study.design import Findings
from sagefl.study.judging import Judged
from sagefl.study.paper import PAPER, audit
from sagefl.study.published import as_large_as_printed, published
from sagefl.study.report import claims_markdown
from sagefl.study.results import Result


def printed_config(r: Result) -> RunConfig:
    return RunConfig.parse({"seed": r.seed, "data": {"dataset": r.configuration.dataset}})


def findings(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Findings:
    rows = results(values).rows
    records = [Record(r.configuration, r.method, printed_config(r), dict(r.values)) for r in rows]
    return Findings(PAPER, records)


def scores(accuracy: float, client: float, **more: float) -> dict[str, list[float]]:
    return {"accuracy": [accuracy], "client": [client], **{name: [value] for name, value in more.items()}}


def test_one_cell_is_enough_for_five_lines() -> None:
    for method in ("rg", "d-psgd", "pens", "sage-m"):
        lines = findings({method: scores(0.4, 0.9)}).answer
        assert len(lines) == 5
        assert lines[0] == (
            "What was run: 1 cell in 1 of the paper's 12 configurations (fmnist/er/0.1), seed 1; nothing on CIFAR-10, "
            "so claims about all of them stay open."
        )
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
    assert "D-PSGD -0.50 to +0.20, Average -1.00 to +0.10" in none.answer[0]
    assert "a hint, no proof, that a selector has nothing to win" in none.answer[0]
    assert none.answer[1].startswith("What was run: 3 cells")
    some = findings({"rg": scores(0.40, 0.95), "d-psgd": scores(0.42, 0.95)})
    assert "up to 2.00 points above gossip" in some.answer[0]
    assert none.opening is not None
    assert none.opening.rows == [["fmnist/er/0.1", "+0.20", "-0.50", "-1.00", "+0.10"]]
    assert findings({"rg": scores(0.40, 0.95)}).opening is None


def test_smaller_runs_do_not_pretend_to_be_the_printed_ones() -> None:
    """The same numbers from 250 rounds of whole epochs are a reproduction, from 150 of 8 mini-batches they are not."""
    values = {"rg": scores(0.40, 0.95), "aq-128": scores(0.41, 0.94), "sage-nf": scores(0.41, 0.94)}
    printed = findings(values)
    small = [
        replace(r, config=RunConfig.parse({"rounds": 150, "training": {"max_batches": 8}})) for r in printed.records
    ]
    laptop = Findings(PAPER, small)
    assert "By the paper's own standard, one run a cell: " in printed.answer[4]
    assert " not reproduced," in printed.answer[4]
    assert "at this scale and not the printed one, which reproduces nothing: " in laptop.answer[4]
    assert " not so at this scale," in laptop.answer[4]
    for text in (laptop.answer[4].lower(), claims_markdown(laptop).split("## ", 1)[1]):
        assert "not reproduced" not in text
        assert "own standard" not in text
        assert "reproduced as printed" not in text
    stand_in = [replace(r, config=RunConfig.parse({"data": {"dataset": "fmnist-mini"}})) for r in printed.records]
    assert not Findings(PAPER, stand_in).large


def test_a_smaller_cell_concerns_the_claims_that_read_it_and_no_others() -> None:
    """The published numbers taken as runs; one method in one configuration is run smaller, or gives other numbers."""
    configs = {name: RunConfig.parse({"data": {"dataset": name}}) for name in ("fmnist", "cifar10")}
    whole = [
        Record(r.configuration, r.method, configs[r.configuration.dataset], dict(r.values)) for r in published().rows
    ]
    one = next(r for r in whole if r.method == "pens")

    def judged(**changed: Any) -> list[Judged]:
        return Findings(PAPER, [replace(r, **changed) if r is one else r for r in whole]).judged

    before, after = judged(), judged(config=RunConfig.parse({"rounds": 150}))
    moved = {b.claim.id for b, a in zip(before, after, strict=True) if b.printed != a.printed}
    assert moved == {a.claim.id for a in after if a.printed.verdict in (Verdict.SO_HERE, Verdict.NOT_HERE)}
    assert Verdict.REPRODUCED in {a.printed.verdict for a in after}
    reading = set()
    for factor in (0.0, 10.0):
        others = judged(values={metric: factor * value for metric, value in one.values.items()})
        reading |= {b.claim.id for b, o in zip(before, others, strict=True) if b.printed != o.printed}
    assert moved == reading
    small = Findings(PAPER, [replace(r, config=RunConfig.parse({"rounds": 150})) if r is one else r for r in whole])
    assert "95 of 96 cells at the printed scale" in small.answer[4]


@pytest.mark.parametrize(
    "changed",
    [
        {"training.epochs": 2}, {"training.optimizer": "sgd"}, {"training.batch_size": 32},
        {"training.precision": "bfloat16"}, {"training.max_batches": 8}, {"rounds": 150}, {"clients": 20},
        {"model.name": "mlp"}, {"data.dataset": "fmnist-mini"},
    ],
)  # fmt: skip
def test_whatever_changes_training_makes_another_scale(changed: dict[str, Any]) -> None:
    assert as_large_as_printed(RunConfig.parse({"data": {"dataset": "cifar10"}}))
    assert not as_large_as_printed(RunConfig.parse(nested({"data.dataset": "cifar10"} | changed)))


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
