"""`results/README.md` says what its CSVs say: it is made from them, and no figure in it is typed by hand."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from sagefl.runs import versions
from sagefl.study import paper as papers
from sagefl.study.collect import Record, read_records, write_records
from sagefl.study.design import Design
from sagefl.study.matrix import Cell

ROOT = Path(__file__).parents[2]
SETTINGS = (  # what was planned, not what came out
    r"AQ-128|CIFAR-10|\b0-1 error|\b95 % interval|lambda = (0|2e-3)|\b2e-3|(ER|BA) / \.\d|alpha = \.\d|[KT] = \d+",
    r"seeds? [123](?! to)\b|\b(40|150|250) (rounds|whole)|\b8 (mini-batches|anchors)|\b25 rounds|\b250 epochs|\(d-1\)",
    r"aq-128|s 1 to 3\b|degree 6|\b(32|128) anchors|for\s+90 %",
    r"The 90 % interval|where \.(90|75) was|was 5 % at most|labels, 2 groups, skewed|gamma = \.\d+",
    r"seeds (11 to 13|4 to 6)",
)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import results_page
    finally:
        sys.path.pop(0)
    return results_page


@pytest.fixture(scope="module")
def template(page: ModuleType) -> str:
    return str(page.TEMPLATE.read_text(encoding="utf-8"))


def test_the_page_is_what_the_csvs_make_of_its_template(page: ModuleType, template: str) -> None:
    assert page.render(template) == (ROOT / "results/README.md").read_text(encoding="utf-8")


def test_no_figure_is_typed_by_hand(template: str) -> None:
    prose = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", template, flags=re.S)
    text = "\n".join(line for line in prose.splitlines() if not line.startswith("| ["))  # that table says what was run
    typed = re.findall(r".{0,30}\d.{0,20}", re.sub("|".join(SETTINGS), "", text))
    assert typed == []


def test_a_figure_follows_its_csv_and_words_that_became_false_are_refused(
    page: ModuleType, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("figures", "*.html"))
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    cells = tmp_path / "results/laptop-fmnist-er-0.1/cells.csv"
    before = cells.read_text(encoding="utf-8")
    gossip = "0.37981799999999993"
    assert before.count(gossip) == 1
    cells.write_text(before.replace(gossip, "0.37991799999999993"), encoding="utf-8")
    assert "| global accuracy | .3523 | .3799 |" in page.render(template)
    cells.write_text(before.replace(gossip, "0.36981799999999993"), encoding="utf-8")  # gossip is below AQ-128 now
    with pytest.raises(AssertionError, match="do not bear out"):
        page.render(template)


def test_old_and_new_rows_of_one_cell_are_not_averaged(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (ROOT / "results/laptop-fmnist-er-0.1/cells.csv").read_text(encoding="utf-8")
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    old = next(line for line in source.splitlines() if ",pfeddst," in line)
    (tmp_path / "a/cells.csv").write_text(source + old.replace("alternate", "loss_sign") + "\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"a: two rows for .* pfeddst 1: an old and a new one"):
        page.Cells("a")


def test_cells_that_are_run_again_flow_into_the_page(
    page: ModuleType, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PFedDST as it is now, and averaging with many: headroom comes first, and the word on old cells goes."""
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("figures", "*.html"))
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    with monkeypatch.context() as later:
        later.setattr(versions, "METHODS", {**versions.METHODS, "pfeddst": 9})
        assert "wait to be run again" in page.render(template)
    cells = {(c.configuration, c.method): c for c in papers.design("laptop", seeds=[1]).cells}
    for folder in ("laptop-fmnist-er-0.1", "laptop-fmnist-ba-0.3"):
        rows = read_records(tmp_path / "results" / folder / "cells.csv")
        old = {r.method: r.values for r in rows}
        made = {
            "pfeddst": old["pfeddst"] | {"client": old["rg"]["client"] + 0.02},
            "d-psgd": old["rg"],
            "average-all": old["rg"],
        }
        rows = [r for r in rows if r.method not in made]
        for name, values in made.items():
            cell = cells[rows[0].configuration, name]
            rows.append(Record(cell.configuration, name, cell.config, values, cell.address))
        write_records(tmp_path / "results" / folder / "cells.csv", rows)
    text = page.render(template)
    assert "wait to be run again" not in text
    assert "made before method pfeddst" not in text
    assert re.search(r"a round\):\n\n1\. Headroom: .*D-PSGD \+0\.00 to \+0\.00", text)
    assert "| SAGE-OS | SAGE-OS cum. | D-PSGD | Average |" in text
    assert "everybody but LOCAL and PFedDST is within a third" in text
    assert "+0.00 and +0.00 points at ER / .1" in text


def made_up(folder: Path, study: str, preset: str, value: Callable[[Cell], dict[str, float]]) -> None:
    """A folder with a row for every cell of a study."""
    cells = papers.design(preset).cells if study == "paper" else Design.read(study, preset).cells
    folder.mkdir()
    rows = [Record(c.configuration, c.method, c.config, value(c), c.address) for c in cells]
    write_records(folder / "cells.csv", rows)


def test_studies_that_take_days_appear_with_their_folders(
    page: ModuleType, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("figures", "*.html"))
    for study in ("gap", "level", "time"):
        for folder in (tmp_path / "results").glob(f"{study}-*/"):  # folders alone: level-real.csv stays
            shutil.rmtree(folder)
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")

    def gap(cell: Cell) -> dict[str, float]:
        lost = {"rg": 0.0, "aq-128": 0.01}.get(cell.method, 0.01 if "fixed" not in str(cell.configuration) else 0.03)
        return {"accuracy": 0.4 - lost - 0.0001 * cell.seed * (cell.method != "rg"), "client": 0.9}

    def level(cell: Cell) -> dict[str, float]:
        gain = 0.002 * (cell.method == "sage-m") * (1 if "er" in str(cell.configuration) else -4)
        bytes = {"probe_input_bytes": 1.0, "probe_answer_bytes": 0.5, "model_bytes": 100.0}
        return {"accuracy": 0.4 + gain, "client": 0.9 + gain + 1e-5 * cell.seed * (cell.method == "rg"), **bytes}

    def time(cell: Cell) -> dict[str, float]:
        slow = 2.5 if "phones" in str(cell.configuration) else 0.0
        reached = {"aq-128": 5.0, "rg": 3.0}.get(cell.method, 3.0 + cell.seed / 10 + slow)
        never = cell.method == "sage-os" and "two groups, network edge" in str(cell.configuration)
        return {"accuracy": 0.4, "minutes": 9.0 + reached} | ({} if never else {"minutes_to_30": reached})

    made_up(tmp_path / "results/gap-short", "gap", "short", gap)
    made_up(tmp_path / "results/level-laptop", "level", "laptop", level)
    made_up(tmp_path / "results/time-mini", "time", "mini", time)
    text = page.render(template)
    assert "| [gap-short](gap-short/README.md) | what accounts" in text
    assert "| anchors in a fixed order | \u22121.02 [\u22121.04, \u22121.00] | \u22123.02 [" in text
    assert (
        "The published gap is \u22122.78 points; it is accounted for in: anchors in a fixed order, fixed order, reset, "
        "mixing .75; it is moved in: anchors in a fixed order, fixed order, reset, mixing .75." in text
    )
    assert "- er, alpha .1: +0.19 [+0.19, +0.19] points over 7 seeds, inside half a point; probes 1.5 %" in text
    assert "- ba, alpha .3: \u22120.81 [\u22120.81, \u22120.81] points over 7 seeds, not inside half a point" in text
    assert "time-mini: **Primary comparison**, named before the runs: `sage-os` minus aq-128, minutes to 30: " in text
    said = next(line for line in text.splitlines() if "Does stopping early pay" in line).replace("\u2212", "-")
    wan, phones, edge = (f"network {n}" for n in ("wan", "phones", "edge"))
    sooner = f"skewed labels, {wan}; skewed labels, {edge}; two groups, {wan}"
    later = f"skewed labels, {phones}; two groups, {phones}"
    assert f"sage-os is against aq-128 sooner in 3 ({sooner}), later in 2 ({later}), undecided in 1" in said
    assert f"against rg sooner in 0, later in 2 ({later}), undecided in 4." in said
    rows = [line.replace("\u2212", "-") for line in text.splitlines()]
    gossip = "| +2.00 [+2.00, +2.00] |"
    assert f"| skewed labels, {wan} | aq-128 | 5.00 (3) | {gossip} never | 14.00 (3) | {gossip} 40.0 % |" in rows
    own = "-1.80 [-2.05, -1.55] | +0.20 [-0.05, +0.45] |"
    assert f"| skewed labels, {wan} | sage-os | 3.20 (3) | {own} never | 12.20 (3) | {own} 40.0 % |" in rows
    assert any(row.startswith("| two groups, network edge | sage-os | never | | | never | 12.20 (3) |") for row in rows)


def test_every_folder_of_the_papers_cells_flows_in(
    page: ModuleType, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run computed in parts, and headroom first where averaging with many was run."""
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("figures", "*.html"))
    for folder in (tmp_path / "results").glob("paper*/"):
        shutil.rmtree(folder)
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")

    def value(cell: Cell) -> dict[str, float]:
        return {"accuracy": 0.4 + 0.002 * (cell.method == "d-psgd"), "client": 0.9, "budget": 0.3}

    made_up(tmp_path / "results/paper", "paper", "paper", value)
    rows = read_records(tmp_path / "results/paper/cells.csv")
    (tmp_path / "results/paper-cifar10").mkdir()
    write_records(
        tmp_path / "results/paper-cifar10/cells.csv", [r for r in rows if r.configuration.dataset == "cifar10"]
    )
    write_records(tmp_path / "results/paper/cells.csv", [r for r in rows if r.configuration.dataset == "fmnist"])
    (first, second) = re.search(r"whole epochs:\n\n1\. (.*)\n2\. (.*)\n", page.render(template)).groups()  # type: ignore[union-attr]
    assert first.startswith("Headroom: ")
    assert "D-PSGD +0.00 to +0.20" in first
    assert second.startswith("What was run: 140 cells in 12 of the paper's 12 configurations")


def test_a_clock_put_on_the_papers_cells_is_reported_network_by_network(page: ModuleType) -> None:
    """A run that is not among the finished cells has no row; one that never gets there says so."""
    cells = page.Cells("paper").rows
    digests = {r["method"]: r["digest"] for r in cells}
    head = {"seed": "1", "rounds": "250"}
    rows = [
        {"run": digests["rg"], "method": "rg", "network": "wan", "minutes": "10", "to_38": "2", **head},
        {"run": digests["aq-128"], "method": "aq-128", "network": "wan", "minutes": "20", "to_38": "8", **head},
        {"run": digests["sage-os"], "method": "sage-os", "network": "wan", "minutes": "12.5", "to_38": "", **head},
        {"run": "0123", "method": "pens", "network": "wan", "minutes": "1", "to_38": "", **head},
    ]
    late = page.RetimedAccount(rows, cells)
    lines = list(late.table("38", str.upper))
    assert lines[0] == "| method | accuracy | wan: to 38 % | wan: in all |"
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| RG", "| AQ-128", "| SAGE-OS"]
    assert lines[4].endswith("| never | 12.5 |")
    assert late.difference("rg", "aq-128", "to_38") == "\u22126.00 (wan)"
    assert late.share("aq-128", "38") == 0.4
    assert late.levels == ["38"]
    assert late.world == "fmnist/er/0.1, K = 50, T = 250, whole epochs"


def test_power_is_that_of_the_paired_t_test(page: ModuleType) -> None:
    """Without an effect it is the level; tables give .80 for one deviation and ten pairs at .05."""
    assert page.power(0.0, 1.0, 5, 0.05) == pytest.approx(0.05, abs=0.003)
    assert page.power(1.0, 1.0, 10, 0.05) == pytest.approx(0.80, abs=0.01)
