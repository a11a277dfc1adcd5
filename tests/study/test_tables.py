"""Tables: what is in them, and what they look like in every format."""

from __future__ import annotations

import csv
import io

import pytest
from tiny_study import results

from sagefl.study.published import published
from sagefl.study.render import lines, to_csv, to_latex, to_markdown, to_rich
from sagefl.study.results import Configuration, Result, ResultSet
from sagefl.study.tables import Table, build_tables

PAPER = published()
OURS = results(
    {
        "rg": {"accuracy": [0.40, 0.42], "macro_f1": [0.3, 0.3], "comm_oh": [1.0, 1.0], "budget": [0.0, 0.0]},
        "aq-128": {"accuracy": [0.39, 0.41], "budget": [0.58, 0.60]},
        "sage-os": {"accuracy": [0.41, 0.42], "budget": [0.30, 0.34], "stop_32": [0.1, 0.3], "cost_rg": [0.2, 0.2]},
        "sage-os-table": {"accuracy": [0.41, 0.43], "budget": [0.26, 0.26], "stop_32": [0.5, 0.6]},
    }
)


def named(tables: list[Table], name: str) -> Table:
    (table,) = [t for t in tables if t.name == name]
    return table


def test_the_published_tables_alone_are_the_papers() -> None:
    tables = build_tables(ResultSet(), PAPER)
    assert [t.name for t in tables] == ["table1", "table2", "table3"]
    assert [len(t.columns) for t in tables] == [16, 10, 8]
    assert all(len(t.rows) == 12 and not t.has_measured for t in tables)


def test_measured_beside_published_with_difference_and_standard_error() -> None:
    table = named(build_tables(OURS, PAPER), "table1")
    column = next(i for i, c in enumerate(table.columns) if (c.method, c.metric) == ("rg", "accuracy"))
    entry = table.rows[0][1][column]
    assert entry.measured is not None
    assert entry.measured.mean == pytest.approx(0.41)
    assert entry.measured.standard_error == pytest.approx(0.01)
    assert entry.published == 0.4104
    assert entry.difference == pytest.approx(-0.0004)
    shown = [line.texts[column] for line in lines(table)][:3]
    assert shown == ["0.4100 ±0.0100", "0.4104", "−0.0004"]


def test_both_readings_of_the_cost_rule_stand_beside_the_same_published_column() -> None:
    table = named(build_tables(OURS, PAPER), "table3")
    found = {(c.method, c.metric): e for c, e in zip(table.columns, table.rows[0][1], strict=True)}
    for method in ("sage-os", "sage-os-table"):
        assert found[method, "stop_32"].published == pytest.approx(0.566)
        assert found[method, "budget"].published == pytest.approx(0.2614)
    assert "cumulative" in table.caption


def test_means_are_taken_within_a_seed_and_published_ones_over_the_same_configurations() -> None:
    other = Configuration("fmnist", "ba", 0.3)
    rows = [*OURS.rows, *(Result(other, "rg", s, {"accuracy": 0.6 + 0.02 * s}) for s in (1, 2))]
    table = named(build_tables(ResultSet(rows), PAPER), "table1")
    column = next(i for i, c in enumerate(table.columns) if (c.method, c.metric) == ("rg", "accuracy"))
    mean = table.means[column]
    assert mean.measured is not None
    assert mean.measured.mean == pytest.approx((0.40 + 0.62 + 0.42 + 0.64) / 4)
    assert mean.measured.standard_error == pytest.approx(0.01)  # between (.51, .53), not among four numbers
    assert mean.published == pytest.approx((0.4104 + 0.6429) / 2)


def test_a_mean_over_configurations_that_no_seed_has_all_of_is_left_open() -> None:
    other = Configuration("fmnist", "ba", 0.3)
    table = named(build_tables(ResultSet([*OURS.rows, Result(other, "rg", 9, {"accuracy": 0.6})]), PAPER), "table1")
    column = next(i for i, c in enumerate(table.columns) if (c.method, c.metric) == ("rg", "accuracy"))
    assert table.means[column].measured is None


def test_markdown_is_what_it_was() -> None:
    text = to_markdown(named(build_tables(OURS, PAPER), "table1"))
    golden = """\
**Global accuracy**

| Dataset | Topo. | alpha |   | RG | AQ-128 | SAGE-OS | SAGE-OS cum. |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: |
| FMNIST | ER | 0.10 | measured | 0.4100 ±0.0100 | 0.4000 ±0.0100 | 0.4150 ±0.0050 | **0.4200 ±0.0100** |
|  |  |  | published | 0.4104 | 0.3826 | **0.4121** | **0.4121** |
|  |  |  | difference | −0.0004 | +0.0174 | +0.0029 | +0.0079 |
"""
    assert golden in text


def test_latex_of_the_published_table_is_the_papers_row() -> None:
    text = to_latex(named(build_tables(ResultSet(), PAPER), "table3"))
    assert (
        r"FMNIST & SF & 0.05 & 39.23\% & 35.11\% & \textbf{21.68\%} & 25.6\% & 83.2\% & 26.4\% & 0.0\% & 22.5\%\\"
        in text
    )
    assert (
        r"\emph{Mean} &  &  & 52.33\% & 49.52\% & \textbf{24.50\%} & 29.4\% & 87.8\% & 49.5\% & 0.3\% & 38.4\%\\"
        in text
    )
    assert r"& & & \multicolumn{3}{c}{Budget consumed} & \multicolumn{2}{c}{Vanilla SAGE}" in text
    assert text.count(r"\\") == 2 + 12 + 1
    assert text.startswith(r"\begin{table*}") and text.endswith("\\end{table*}\n")  # noqa: PT018


def test_latex_of_ours_is_what_it_was() -> None:
    text = to_latex(named(build_tables(OURS, PAPER), "table1"))
    assert r"FMNIST & ER & 0.10 & measured & 0.4100 $\pm$0.0100 & 0.4000 $\pm$0.0100 & 0.4150 $\pm$0.0050" in text
    assert r" &  &  & difference & $-$0.0004 & +0.0174 & +0.0029 & +0.0079" in text


def test_every_row_of_latex_has_as_many_columns_as_its_head() -> None:
    for table in build_tables(OURS, PAPER):
        rows = [line for line in to_latex(table).splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert len({row.count("&") for row in rows}) == 1


def test_csv_is_tidy_and_exact() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(named(build_tables(OURS, PAPER), "table1")))))
    row = next(r for r in rows if r["method"] == "rg" and r["metric"] == "accuracy")
    assert (row["measured"], row["standard_error"], row["seeds"], row["published"]) == ("0.41", "0.01", "2", "0.4104")
    assert float(row["difference"]) == pytest.approx(-0.0004)
    assert {r["dataset"] for r in rows} == {"fmnist", "mean"}


def test_lines_without_anything_in_them_are_left_out() -> None:
    """Merged models are not published: their group has measured lines only."""
    ours = results({"rg": {"comm_oh": [1.0], "merged": [1.0]}, "sage-os": {"comm_oh": [1.0], "merged": [1.0]}})
    text = to_markdown(named(build_tables(ours, PAPER), "traffic"))
    first, second = text.split("**Models merged per round**")
    assert "published" in first
    assert "published" not in second


def test_a_terminal_gets_a_table_per_group() -> None:
    made = to_rich(named(build_tables(OURS, PAPER), "table3"))
    assert [title.split(": ")[1] for title, _ in made] == ["Budget consumed", "SAGE-OS", "SAGE-OS cum."]
    assert all(table.row_count == 6 for _, table in made)
