"""The trained-model experiment: its plan, its pairing, Holm, and what it says with much, little and no data."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.methods import method
from sagefl.study import trials
from sagefl.study.beyond import CONFIRMATION, EXPERIMENT, design
from sagefl.study.collect import Record, read_records, write_records
from sagefl.study.design import Findings
from sagefl.study.intervals import t_tail
from sagefl.study.study import Absence
from sagefl.study.trial_report import comparisons_csv, draw_price, to_markdown
from sagefl.study.trials import REFERENCE, Comparison, Refutation, Trial, _holm, plan_trial, standings

ARMS, WORLDS, (PRIMARY,) = EXPERIMENT.arms, EXPERIMENT.worlds, EXPERIMENT.primary
SPECS = {arm.name: arm.spec for arm in ARMS}
CELLS = {(c.configuration, c.method, c.seed): c for c in plan_trial("laptop", EXPERIMENT)}
SEEN = 50 * 6  # decisions of a run in rounds 25, 50, ..., 150
UNITS = [(world, seed) for world, seeds in WORLDS.items() for seed in seeds]


def record(name: str, unit: int, accuracy: float, client: float, **more: float) -> Record:
    world, seed = UNITS[unit]
    cell = CELLS[world, SPECS[name], seed]
    values = {"accuracy": accuracy, "client": client, "mean_anchors": 10.0, "mb_probes": 0.1}
    return Record(world, cell.method, cell.config, values | more)


def compare_arms(rows: list[Record], trial: Trial = EXPERIMENT) -> list[Comparison]:
    return trials.compare_arms(rows, trial)


def refutations(rows: list[Record]) -> list[Refutation]:
    return trials.refutations(rows, EXPERIMENT)


def found(rows: list[Record], trial: Trial = EXPERIMENT) -> Findings:
    return Findings(design("laptop", trial), rows, provenance=["sagefl study beyond"])


def account(rows: list[Record], trial: Trial = EXPERIMENT) -> str:
    return to_markdown(found(rows, trial), ["a scale"])


def test_the_plan_is_every_arm_in_every_replication_and_the_primary_pair_comes_first() -> None:
    cells = plan_trial("laptop", EXPERIMENT)
    assert len(cells) == len(ARMS) * 5 == len({c.config.digest for c in cells})
    assert [c.method for c in cells[:10]] == ["rg"] * 5 + [SPECS[PRIMARY]] * 5
    assert {c.config.rounds for c in cells} == {150}
    for cell in cells:
        method(cell.config.method.id, **cell.config.method.options)  # every spec is one that exists


def test_what_confirms_is_on_seeds_that_nobody_has_looked_at() -> None:
    """The same worlds and arms; no seed of the first experiment, in whatever world, and each in one world only."""
    assert CONFIRMATION.worlds.keys() == WORLDS.keys()
    assert set(CONFIRMATION.arms) <= set(ARMS)
    assert {arm.name for arm in CONFIRMATION.arms} == {REFERENCE, *CONFIRMATION.primary}
    looked_at = {seed for seeds in WORLDS.values() for seed in seeds}
    fresh = [seed for seeds in CONFIRMATION.worlds.values() for seed in seeds]
    assert not looked_at & set(fresh)
    assert len(fresh) == len(set(fresh)) == CONFIRMATION.replications
    cells = plan_trial("laptop", CONFIRMATION)
    assert len(cells) == 3 * CONFIRMATION.replications == 24
    assert not {c.config.digest for c in cells} & {c.config.digest for c in plan_trial("laptop", EXPERIMENT)}


def test_two_primary_comparisons_are_corrected_for_being_two() -> None:
    """The smaller p-value counts twice; global and Client accuracy alone are a family apart."""
    cells = {(c.configuration, c.method, c.seed): c for c in plan_trial("smoke", CONFIRMATION)}
    worlds = [(world, seed) for world, seeds in CONFIRMATION.worlds.items() for seed in seeds]
    noise = [0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0]
    rows = []
    for arm, gain in zip(CONFIRMATION.arms, (0.0, 0.002, 0.001), strict=True):
        for (world, seed), jitter in zip(worlds, noise, strict=True):
            config = next(c.config for (w, m, s), c in cells.items() if (w[1:], m, s) == (world[1:], arm.spec, seed))
            value = 0.4 + (gain + jitter if gain else 0.0)
            values = {"accuracy": value, "client": value, "mean_anchors": 1.0, "mb_probes": 0.1}
            rows.append(Record(world, arm.spec, config, values))
    made = compare_arms(rows, CONFIRMATION)
    first, second = made[:2]
    assert [c.arm.name for c in (first, second)] == list(CONFIRMATION.primary)
    assert first.primary
    assert second.primary
    assert first.p < second.p
    assert first.holm == pytest.approx(2 * first.p)
    assert second.holm == pytest.approx(max(second.p, first.holm))
    assert CONFIRMATION.family == 4 == len([c for c in made if not c.primary])
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
    assert {c.arm.name for c in made} == {"aq-128"}
    assert all(c.difference.seeds == 1 and c.difference.mean == pytest.approx(20) and isnan(c.p) for c in made)
    assert "one replication" not in account(rows).split("## Arms")[0]
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
    assert (found.arm.name, found.seen, found.checked, found.refuted) == ("sage-os", SEEN * 3, 50, 6)
    assert found.of_all == pytest.approx(6 / (SEEN * 3))
    text = f"| sage-os | {SEEN * 3} | 50 | 6 | 12.0 % | 4.5 to 24.3 % | {found.of_all:.1%}".replace("%", " %")
    assert text.replace("  %", " %") in account(rows)


def test_nothing_at_all() -> None:
    assert refutations([]) == []
    assert compare_arms([]) == []
    assert standings([], EXPERIMENT) == []
    assert draw_price(found([])) is None


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
    made = {c.outcome: c for c in compare_arms(rows)}
    assert EXPERIMENT.family == len(ARMS) * 3 - 3 - 1
    assert made["accuracy"].holm == pytest.approx(EXPERIMENT.family * made["accuracy"].p)
    assert f"within the {EXPERIMENT.family} comparisons of the plan" in account(rows)


def test_p_values_are_those_of_the_tables() -> None:
    for t, freedom, tail in ((12.706, 1, 0.025), (2.132, 4, 0.05), (3.747, 4, 0.01), (0.0, 7, 0.5)):
        assert t_tail(t, freedom) == pytest.approx(tail, abs=2e-5)


def test_under_no_effect_the_primary_comparison_is_rarely_significant() -> None:
    """Negative control: 2,000 experiments of pure noise; the share of p < .05 has .05 in its 99.9 % interval."""
    import numpy as np

    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(2000):
        rows = [record(REFERENCE, i, 0.4, 0.5) for i in range(5)]
        rows += [record(PRIMARY, i, *(0.4 + rng.normal(0, 0.01), 0.5 + rng.normal(0, 0.01))) for i in range(5)]
        hits += compare_arms(rows)[0].p < 0.05
    assert abs(hits / 2000 - 0.05) < 3.3 * (0.05 * 0.95 / 2000) ** 0.5


def test_what_is_written_holds_what_was_found() -> None:
    rows = [record(REFERENCE, i, 0.40 + 0.01 * i, 0.5, certified=0.0) for i in range(5)]
    rows += [
        record(PRIMARY, i, 0.41 + 0.01 * i, 0.5 + 0.001 * i, certified=0.25, certified_worse=0.125) for i in range(5)
    ]
    text = account(rows)
    assert " over 5 replications; with" in text
    assert " over 3 of 5 replications: not final; with" in account(rows[:-2])
    assert "probe_cost=0`) minus rg, mean of global and Client accuracy after mixing: +0.60 points [" in text
    assert "| trim, latents, lambda 0 | 5 | 43.00 | 50.20 |" in text
    lines = comparisons_csv(compare_arms(rows)).splitlines()
    assert len(lines) == 1 + 3
    assert lines[1].startswith('"trim, latents, lambda 0",sage-e-trim:kind=latents:probe_cost=0,both,1,5,0.6,')
    assert "<svg" in draw_price(found(rows)).svg


def test_the_command_runs_the_first_arms_and_writes_the_account(tmp_path: Path) -> None:
    small = ("clients=8", "rounds=2", "training.max_batches=1", "evaluation.every=2", "evaluation.subset=20")
    arguments = ["study", "beyond", "--cells", str(tmp_path / "cells"), "--out", str(tmp_path / "out")]
    arguments += [part for key in small for part in ("--set", key)]
    told = CliRunner().invoke(app, [*arguments, "--arms", "2", "--status"]).output
    assert "0 of 10 cells done" in told
    told = CliRunner().invoke(app, [*arguments, "--arms", "2", "--jobs", "2", "-q"])
    assert told.exit_code == 0, told.output
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "over 5 replications; with" in text
    assert text in told.output
    again = CliRunner().invoke(app, [*arguments, "--arms", "3", "--no-run"])
    assert "left out: 5 of 15 planned cells are not finished" in again.output
    rows = (tmp_path / "out" / "comparisons.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 3
    known = [*arguments[:3], str(tmp_path / "gone"), *arguments[4:], "--arms", "2", "--known", str(tmp_path / "out")]
    assert "10 of 10 cells done, 0 left" in CliRunner().invoke(app, [*known, "--status"]).output
    assert CliRunner().invoke(app, [*known, "--out", str(tmp_path / "again"), "-q"]).exit_code == 0
    assert not (tmp_path / "gone").exists()  # nothing was run: the runs are gone, what they came to is not
    for name in ("cells.csv", "comparisons.csv", "price.svg"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    _check_that_it_keeps_what_it_has(tmp_path, arguments, known)


def _check_that_it_keeps_what_it_has(tmp_path: Path, arguments: list[str], known: list[str]) -> None:
    """Runs may be gone: an account is not overwritten by one of fewer cells; a run that is here counts, and is said."""
    path = tmp_path / "out" / "cells.csv"
    before = path.read_bytes()
    forgot = CliRunner().invoke(app, [*known[:-2], "--no-run"])
    other = CliRunner().invoke(app, [*arguments, "--arms", "2", "--set", "seed=9", "--no-run"])
    for told in (forgot, other):
        assert told.exit_code == 2
        assert "holds 10 of 10 cells that this account would drop" in " ".join(told.output.split())
        assert path.read_bytes() == before
    records = read_records(path)
    wrong = replace(records[0], values=records[0].values | {"accuracy": 0.123})
    write_records(tmp_path / "again" / "cells.csv", [wrong, *records[1:]])
    known = [*arguments, "--arms", "2", "--no-run", "--known", str(tmp_path / "again")]
    told = CliRunner().invoke(app, known)
    assert "1 known cells were run here, too, and came out otherwise" in told.output
    assert path.read_bytes() == before
    told = CliRunner().invoke(app, [*known, "--known", str(tmp_path / "out")])
    assert "disagree about" in told.output


def test_an_account_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real data may be on another machine than the one that reports."""
    rows = [record(name, i, 0.4, 0.5, decisions=1.0) for name in (REFERENCE, PRIMARY) for i in range(5)]
    configs = {(c.configuration, c.method, c.seed): c.config for c in plan_trial("laptop", EXPERIMENT)}
    rows = [replace(r, config=configs[r.configuration, r.method, r.config.seed]) for r in rows]
    (tmp_path / "known").mkdir()
    write_records(tmp_path / "known" / "cells.csv", rows)
    monkeypatch.setattr("sagefl.study.study.absent", lambda cells: [Absence("fmnist", "nowhere", tuple(cells))])
    arguments = ["study", "beyond", "--preset", "laptop", "--known", str(tmp_path / "known"), "--no-run"]
    arguments += ["--cells", str(tmp_path / "cells"), "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "left out: 75 of 85 planned cells are not finished" in told.output
