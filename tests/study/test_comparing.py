"""Comparisons, on the trained-model experiment: its plan, pairing, Holm, and what it says with much and no data."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.methods import method
from sagefl.runs.intervals import t_tail
from sagefl.study import Design, comparing
from sagefl.study.account import comparisons_csv, draw_gains, draw_price, sheets, to_markdown
from sagefl.study.collect import Record, read_records, write_records
from sagefl.study.comparing import Comparison, Refutation, _holm, standings
from sagefl.study.design import Findings
from sagefl.study.errors import StudyError
from sagefl.study.spec import Spec, Trial
from sagefl.study.study import Absence

BEYOND, CONFIRMATION = Design.read("beyond", "laptop"), Design.read("confirmation", "laptop")
assert BEYOND.trial
assert CONFIRMATION.trial
EXPERIMENT: Trial = BEYOND.trial
CONFIRMING: Trial = CONFIRMATION.trial
REFERENCE, PRIMARY = EXPERIMENT.against, EXPERIMENT.primary[0].method
CELLS = {(c.configuration, c.method, c.seed): c for c in BEYOND.cells}
SEEN = 50 * 6  # decisions of a run in rounds 25, 50, ..., 150
UNITS = list(dict.fromkeys((c.configuration, c.seed) for c in BEYOND.cells))


def record(name: str, unit: int, accuracy: float, client: float, **more: float) -> Record:
    world, seed = UNITS[unit]
    cell = CELLS[world, name, seed]
    values = {"accuracy": accuracy, "client": client, "mean_anchors": 10.0, "mb_probes": 0.1}
    return Record(world, cell.method, cell.config, values | more)


def compare_arms(rows: list[Record], trial: Trial = EXPERIMENT) -> list[Comparison]:
    return comparing.compare(rows, trial)


def refutations(rows: list[Record]) -> list[Refutation]:
    return comparing.refutations(rows, EXPERIMENT)


def found(rows: list[Record], design: Design = BEYOND) -> Findings:
    return Findings(replace(design, charts=[]), rows, provenance=["sagefl study beyond"])


def account(rows: list[Record], design: Design = BEYOND) -> str:
    return to_markdown(found(rows, design))


def test_the_plan_is_every_method_in_every_replication_and_the_primary_pair_comes_first() -> None:
    cells = BEYOND.cells
    assert len(cells) == len(EXPERIMENT.methods) * 5 == len({c.config.digest for c in cells})
    assert [c.method for c in cells[:10]] == ["rg"] * 5 + [PRIMARY] * 5
    assert {c.config.rounds for c in cells} == {150}
    for cell in cells:
        method(cell.config.method.id, **cell.config.method.options)  # every spec is one that exists


def test_what_confirms_is_on_seeds_that_nobody_has_looked_at() -> None:
    """The same worlds and methods; no seed of the first experiment, in whatever world, and each in one world only."""
    assert CONFIRMING.worlds == EXPERIMENT.worlds
    assert set(CONFIRMING.methods) == {REFERENCE, *(p.method for p in CONFIRMING.primary)} <= set(EXPERIMENT.methods)
    assert all(EXPERIMENT.names[m] == name for m, name in CONFIRMING.names.items())
    fresh = {(c.configuration, c.seed) for c in CONFIRMATION.cells}
    assert not {seed for _, seed in UNITS} & {seed for _, seed in fresh}
    assert len(fresh) == len({seed for _, seed in fresh}) == CONFIRMING.replications
    assert len(CONFIRMATION.cells) == 3 * CONFIRMING.replications == 24


def test_two_primary_comparisons_are_corrected_for_being_two() -> None:
    """The smaller p-value counts twice; global and Client accuracy alone are a family apart."""
    noise = [0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0]
    gains = dict(zip(CONFIRMING.methods, (0.0, 0.002, 0.001), strict=True))
    rows = []
    for i, cell in enumerate(CONFIRMATION.cells):
        value = 0.4 + (gains[cell.method] + noise[i % 8] if gains[cell.method] else 0.0)
        values = {"accuracy": value, "client": value, "mean_anchors": 1.0, "mb_probes": 0.1}
        rows.append(Record(cell.configuration, cell.method, cell.config, values))
    made = compare_arms(rows, CONFIRMING)
    first, second = made[:2]
    assert [c.method for c in (first, second)] == [p.method for p in CONFIRMING.primary]
    assert first.primary
    assert second.primary
    assert first.p < second.p
    assert first.holm == pytest.approx(2 * first.p)
    assert second.holm == pytest.approx(max(second.p, first.holm))
    assert CONFIRMING.family == 4 == len([c for c in made if not c.primary])
    text = account(rows, CONFIRMATION)
    assert text.count("**Primary comparison**") == 2
    assert " by Holm, of 2) over 8 replications; with" in text
    assert draw_price(found(rows, CONFIRMATION)) is not None


def test_differences_are_taken_within_replications() -> None:
    """A shift common to both arms of a replication, however large, leaves no trace."""
    gains = [0.01, 0.02, 0.03, 0.01, 0.03]
    rows = [record(REFERENCE, i, 0.1 * i, 0.5) for i in range(5)]
    rows += [record(PRIMARY, i, 0.1 * i + gain, 0.5 + gain) for i, gain in enumerate(gains)]
    first = compare_arms(rows)[0]
    assert first.primary
    assert first.difference.mean == pytest.approx(2.0)
    assert first.difference.standard_error == pytest.approx(100 * 0.01 / 5**0.5)
    assert first.p == first.holm == pytest.approx(2 * t_tail(2.0 / first.difference.standard_error, 4))
    low, high = first.difference.interval()
    assert (low, high) == pytest.approx((2 - 1.2415, 2 + 1.2415), abs=1e-3)


def test_only_replications_that_both_arms_have_are_compared() -> None:
    rows = [record(REFERENCE, 0, 0.3, 0.5), record(REFERENCE, 1, 0.3, 0.5), record("aq-128", 1, 0.5, 0.7)]
    made = compare_arms(rows)
    assert {c.method for c in made} == {"aq-128"}
    assert all(c.difference.seeds == 1 and c.difference.mean == pytest.approx(20) and isnan(c.p) for c in made)
    assert "one replication" not in account(rows).split("## Against")[0]
    assert "not run yet" in account(rows)


def test_what_was_found_in_each_world_stands_beside_the_whole() -> None:
    gains = [0.01, 0.02, 0.03, -0.01, 0.0]  # three replications of ER, two of BA
    rows = [record(REFERENCE, i, 0.4, 0.5) for i in range(5)]
    rows += [record(PRIMARY, i, 0.4 + gain, 0.5 + gain) for i, gain in enumerate(gains)]
    apart = compare_arms(rows)[0].by_world
    assert {w.topology: (e.seeds, pytest.approx(e.mean)) for w, e in apart.items()} == {"er": (3, 2.0), "ba": (2, -0.5)}
    assert "| er/0.1 +2.00 (3); ba/0.3 -0.50 (2) |" in account(rows)


def test_with_the_seed_as_the_unit_its_worlds_are_averaged_first() -> None:
    """Seeds 1 and 2 stand in both worlds and share first weights and draws; a doubled value is no second one."""
    gains = [0.01, 0.02, 0.03, 0.01, 0.02]  # ER seeds 1 to 3, BA seeds 1 and 2
    rows = [record(REFERENCE, i, 0.4, 0.5) for i in range(5)]
    rows += [record(PRIMARY, i, 0.4 + gain, 0.5 + gain) for i, gain in enumerate(gains)]
    first = compare_arms(rows)[0]
    assert (first.over_seeds.seeds, first.over_seeds.mean) == (3, pytest.approx(2.0))
    assert first.over_seeds.standard_error == pytest.approx(1 / 3**0.5)
    assert "; with the seed as the unit +2.00 points [-0.48, +4.48] over 3." in account(rows)


def test_certificates_that_evaluation_data_refute_are_counted() -> None:
    """Four of ten and two of forty; a replication without certificates has none that are refuted."""
    rows = [
        record("sage-os", 0, 0.4, 0.5, certified=0.5, certified_checked=10, certified_worse=0.4),
        record("sage-os", 1, 0.4, 0.5, certified=0.2, certified_checked=40, certified_worse=0.05),
        record("sage-os", 2, 0.4, 0.5, certified=0.0, certified_checked=0),
        record("rg", 0, 0.4, 0.5, certified=0.0, certified_checked=0),
    ]
    (found,) = refutations(rows)
    assert (found.method, found.seen, found.checked, found.refuted) == ("sage-os", SEEN * 3, 50, 6)
    assert found.of_all == pytest.approx(6 / (SEEN * 3))
    text = f"| sage-os | {SEEN * 3} | 50 | 6 | 12.0 % | 4.5 to 24.3 % | {found.of_all:.1%}".replace("%", " %")
    assert text.replace("  %", " %") in account(rows)


def test_nothing_at_all() -> None:
    assert refutations([]) == []
    assert compare_arms([]) == []
    assert standings([], EXPERIMENT) == []
    assert draw_price(found([])) is None
    assert draw_gains(found([])) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_between_the_p_values_and_bonferroni_and_keeps_their_order(ps: list[float]) -> None:
    adjusted = _holm(ps, len(ps))
    for p, a in zip(ps, adjusted, strict=True):
        assert p <= a <= min(1.0, len(ps) * p) + 1e-12
    ranked = [a for _, a in sorted(zip(ps, adjusted, strict=True))]
    assert ranked == sorted(ranked)
    assert _holm(ps, len(ps) + 3) == pytest.approx(_holm([*ps, 1.0, 1.0, 1.0], len(ps) + 3)[: len(ps)])


def test_arms_that_are_not_run_yet_count_in_the_family() -> None:
    """Else a p-value would look better the earlier one looks."""
    gains = [0.01, 0.02, 0.03, 0.01, 0.03]
    rows = [record(REFERENCE, i, 0.4, 0.5) for i in range(5)]
    rows += [record("aq-128", i, 0.4 + gain, 0.5) for i, gain in enumerate(gains)]
    made = {c.measure: c for c in compare_arms(rows)}
    assert EXPERIMENT.family == len(EXPERIMENT.methods) * 3 - 3 - 1
    assert made["accuracy"].holm == pytest.approx(EXPERIMENT.family * made["accuracy"].p)
    assert f"within the {EXPERIMENT.family} comparisons of the plan" in account(rows)


def test_p_values_are_those_of_the_tables() -> None:
    for t, freedom, tail in ((12.706, 1, 0.025), (2.132, 4, 0.05), (3.747, 4, 0.01), (0.0, 7, 0.5)):
        assert t_tail(t, freedom) == pytest.approx(tail, abs=2e-5)


def test_under_no_effect_the_primary_comparison_is_rarely_significant() -> None:
    """Negative control: 500 experiments of pure noise; the share of p < .05 has .05 in its 99.9 % interval."""
    import numpy as np

    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(500):
        rows = [record(REFERENCE, i, 0.4, 0.5) for i in range(5)]
        rows += [record(PRIMARY, i, *(0.4 + rng.normal(0, 0.01), 0.5 + rng.normal(0, 0.01))) for i in range(5)]
        hits += compare_arms(rows)[0].p < 0.05
    assert abs(hits / 500 - 0.05) < 3.3 * (0.05 * 0.95 / 500) ** 0.5


def test_what_is_written_holds_what_was_found() -> None:
    rows = [record(REFERENCE, i, 0.40 + 0.01 * i, 0.5, certified=0.0) for i in range(5)]
    rows += [
        record(PRIMARY, i, 0.41 + 0.01 * i, 0.5 + 0.001 * i, certified=0.25, certified_worse=0.125) for i in range(5)
    ]
    text = account(rows)
    assert " over 5 replications; with" in text
    assert " over 3 of 5 replications: not final; with" in account(rows[:-2])
    assert "probe_cost=0`) minus rg, mean of global and Client accuracy: +0.60 points [" in text
    assert "| trim, latents, lambda 0 | 5 | 46.60 | 43.00 | 50.20 |" in text
    lines = comparisons_csv(compare_arms(rows), EXPERIMENT).splitlines()
    assert len(lines) == 1 + 3
    assert lines[1].startswith('"trim, latents, lambda 0",sage-e-trim:kind=latents:probe_cost=0,both,1,5,0.6,')
    assert "<svg" in draw_price(found(rows)).svg


def test_the_command_runs_the_first_methods_and_writes_the_account(tmp_path: Path) -> None:
    small = ("clients=8", "rounds=2", "training.max_batches=1", "evaluation.every=2", "evaluation.subset=20")
    arguments = ["study", "beyond", "--cells", str(tmp_path / "cells"), "--out", str(tmp_path / "out"), "--no-pages"]
    arguments += ["--seeds", "1", "--first", "2", *(part for key in small for part in ("--set", key))]
    assert "0 of 4 cells done" in CliRunner().invoke(app, [*arguments, "--status"]).output
    told = CliRunner().invoke(app, [*arguments, "--jobs", "1", "--workers", "1", "-q"])
    assert told.exit_code == 0, told.output
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "over 2 of 5 replications: not final; with" in text
    again = CliRunner().invoke(app, [*arguments, "--first", "3", "--no-run", "--brief"])
    assert "Left out: 2 of 6 planned cells are not finished" in again.output
    assert len((tmp_path / "out" / "comparisons.csv").read_text(encoding="utf-8").splitlines()) == 1 + 3
    known = [*arguments, "--cells", str(tmp_path / "gone"), "--known", str(tmp_path / "out")]
    assert "4 of 4 cells done, 0 left" in CliRunner().invoke(app, [*known, "--status"]).output
    assert CliRunner().invoke(app, [*known, "--out", str(tmp_path / "again"), "-q"]).exit_code == 0
    assert not (tmp_path / "gone").exists()  # nothing was run: the runs are gone, what they came to is not
    for name in ("cells.csv", "comparisons.csv", "figures/price.svg", "study.toml"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    _check_that_it_keeps_what_it_has(tmp_path, arguments)


def _check_that_it_keeps_what_it_has(tmp_path: Path, arguments: list[str]) -> None:
    """Runs may be gone: an account is not overwritten by one of fewer cells; a run that is here counts, and is said."""
    path = tmp_path / "out" / "cells.csv"
    before = path.read_bytes()
    kept = CliRunner().invoke(app, [*arguments, "--cells", str(tmp_path / "gone"), "--no-run", "--brief"])
    assert (kept.exit_code, path.read_bytes()) == (0, before)  # built again from its own cells
    plain = [*arguments, "--cells", str(tmp_path / "gone")]
    assert "4 of 4 cells done, 0 left" in CliRunner().invoke(app, [*plain, "--status"]).output
    assert (CliRunner().invoke(app, [*plain, "-q"]).exit_code, path.read_bytes()) == (0, before)
    assert not (tmp_path / "gone").exists()  # status, run and report know the same cells
    fewer = CliRunner().invoke(app, [*plain, "--methods", "rg"])
    assert fewer.exit_code == 2
    assert "holds 2 of 4 cells that this account would drop" in " ".join(fewer.output.split())
    assert path.read_bytes() == before
    records = read_records(path)
    wrong = replace(records[0], values=records[0].values | {"accuracy": 0.123})
    write_records(tmp_path / "again" / "cells.csv", [wrong, *records[1:]])
    known = [*arguments, "--no-run", "--brief", "--known", str(tmp_path / "again")]
    told = CliRunner().invoke(app, known)
    assert "1 known cells were run here, too, and came out otherwise" in told.output
    assert path.read_bytes() == before
    told = CliRunner().invoke(app, [*known, "--known", str(tmp_path / "out")])
    assert "disagree about" in told.output


def test_an_account_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real data may be on another machine than the one that reports."""
    rows = [record(name, i, 0.4, 0.5, decisions=1.0) for name in (REFERENCE, PRIMARY) for i in range(5)]
    (tmp_path / "known").mkdir()
    write_records(tmp_path / "known" / "cells.csv", rows)
    monkeypatch.setattr("sagefl.study.study.absent", lambda cells: [Absence("fmnist", "nowhere", tuple(cells))])
    arguments = ["study", "beyond", "--preset", "laptop", "--known", str(tmp_path / "known"), "--no-run", "--brief"]
    arguments += ["--cells", str(tmp_path / "cells"), "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "Left out: 75 of 85 planned cells are not finished" in told.output


def test_methods_only_inspired_by_a_paper_are_marked_and_not_compared() -> None:
    """Nor do they enlarge Holm's family; adapted ones are compared, and said to be adapted, on the screen as well."""
    text = 'title = "T"\nmethods = ["rg", "pens", "sage-os", "cfns-lite"]\nreport = ["client"]\nseeds = [1, 2]\n'
    spec = Spec.parse(tomllib.loads(text))
    spec.check()
    trial = spec.trial()
    assert trial is not None
    assert trial.contenders == ("pens", "sage-os")
    assert trial.family == 2
    rows = [
        Record(c.configuration, c.method, c.config, {"client": 0.5 + 0.01 * c.seed, "accuracy": 0.4})
        for c in spec.cells()
    ]
    findings = Findings(replace(BEYOND, trial=trial, charts=[]), rows, provenance=["sagefl study mine.toml"])
    against, methods = (sheet for sheet in sheets(findings) if sheet.title in ("Against rg", "Methods"))
    assert {row[0] for row in against.rows} == {"pens", "sage-os"}
    assert list(against.caveats) == ["Adapted from their papers: pens."]
    assert [row[0] for row in methods.rows] == ["rg", "pens", "sage-os", "cfns-lite (not ranked)"]
    assert methods.note.endswith("Only inspired by their papers, not ranked: cfns-lite.")
    first = 'primary = {method = "cfns-lite", against = "rg", measure = "client"}\n'
    with pytest.raises(StudyError, match="'cfns-lite' is only inspired by its paper, and is not ranked"):
        Spec.parse(tomllib.loads(text + first)).check()
