"""All methods of a comparison live in one world: partition, graph, first weights, anchor order, gossip draws."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.torch import load_file
from small_runs import CORE, ROUGH, config, differing, files, mini

from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.losses import losses_path, read_losses
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.comparing import compare, parts_of
from sagefl.simulation.simulator import InterruptedRunError, Simulator

ONE = Execution(engine="sequential", checkpoint_every=2)


def compared(settings: RunConfig, specs: list[str], out: Path, *follow: Any, **how: Any) -> dict[str, dict[str, Any]]:
    """Every method of `specs` in the world of `settings`: summaries by label."""
    parts = parts_of(settings, specs, out=out)
    compare(parts, ONE, *follow, **how)
    return {part.label: part.directory.summary or {} for part in parts}


Tables = Callable[[str, str], pl.DataFrame]
Reference = Callable[..., Path]


@pytest.fixture(params=[{}, ROUGH], ids=["plain", "rough"])
def world_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    settings: dict[str, Any] = request.param
    return settings


@pytest.fixture
def folder(world_settings: dict[str, Any], reference: Reference) -> Callable[[str], Path]:
    """The run of a method in one of two worlds."""
    return lambda method: reference(config(method, **world_settings))


@pytest.fixture
def table(folder: Callable[[str], Path]) -> Tables:
    return lambda method, name: RunDirectory(folder(method)).table(name)


def test_a_comparison_leaves_exactly_what_single_runs_leave(tmp_path: Path, reference: Reference) -> None:
    """Single runs build their world themselves, so this also says that a shared one is not used up."""
    settings = config()
    results = compared(settings, ["rg", "sage-os"], tmp_path, data=mini())
    for method in ("rg", "sage-os"):
        assert differing(files(tmp_path / method), files(reference(config(method)))) == []
        assert results[method] == RunDirectory(reference(config(method))).summary


class Interrupt:
    """Presses Ctrl-C in the last round, when the run it reaches ends anyway."""

    def start(self, config: Any, first_round: int) -> None:
        pass

    def round(self, record: Any) -> None:
        if record["round"] == 3:
            signal.raise_signal(signal.SIGINT)

    def end(self, summary: Any) -> None:
        pass


def test_a_comparison_stops_even_if_it_was_asked_in_the_last_round_of_a_run(tmp_path: Path) -> None:
    methods = ["local", "rg"]
    with pytest.raises(InterruptedRunError, match="runs left"):
        compared(config(), methods, tmp_path, lambda part: [Interrupt()] if part.label == "local" else (), data=mini())
    assert RunDirectory(tmp_path / "local").summary is not None
    assert not (tmp_path / "rg").exists()
    assert list(compared(config(), methods, tmp_path, data=mini())) == methods


def test_neighbourhoods_and_pools_are_the_same_for_all(table: Tables) -> None:
    common = ["round", "client", "degree", "pool", "peers"]
    first = table("rg", "decisions").select(common)
    assert first.height == 4 * 8
    for method in CORE:
        assert table(method, "decisions").select(common).equals(first)


def test_first_weights_and_batches_are_the_same_for_all(table: Tables) -> None:
    """The first round trains before anything is exchanged: its losses tell weights, data and order."""
    first = {table(method, "metrics")["train_loss"][0] for method in CORE}
    later = {table(method, "metrics")["train_loss"][3] for method in CORE}
    assert len(first) == 1
    assert len(later) > 1


def test_anchors_are_asked_in_the_same_order_by_all(folder: Callable[[str], Path]) -> None:
    """In round 0 the published models are the same, so losses agree wherever two rules asked."""
    whole = {r.client: r for r in read_losses(losses_path(folder("aq-128"), 0))}
    for method in ("sage-nf", "sage-vanilla", "sage-os", "sage-os-table"):
        for record in read_losses(losses_path(folder(method), 0)):
            width = record.losses.shape[1]
            assert np.array_equal(record.losses, whole[record.client].losses[:, :width])
    assert len(whole) >= 4


def test_whoever_gossips_draws_the_same_peer(table: Tables) -> None:
    drawn = table("rg", "decisions")["chosen"].to_list()
    matched = 0
    for method in ("sage-os", "sage-vanilla", "sage-os-table"):
        decisions = table(method, "decisions").select("chosen", "selected", "reason")
        for (mine, selected, reason), theirs in zip(decisions.iter_rows(), drawn, strict=True):
            if not selected and reason != "none":
                assert mine == theirs
                matched += 1
    assert matched > 20


def test_sage_os_at_a_huge_price_is_random_gossip_bit_for_bit(folder: Callable[[str], Path]) -> None:
    """Its first stage can never certify (2r > (d - 1)/d), not even for a flatterer, and no more evidence can pay."""
    runs = [folder("rg"), folder("sage-os:probe_cost=1e9")]
    for part in ("params", "first", "second", "steps"):
        name = f"checkpoint/round-00004/{part}-0000.safetensors"
        rg, dear = (load_file(run / name)["rows"] for run in runs)
        assert (rg == dear).all()
    metrics = [RunDirectory(run).table("metrics") for run in runs]
    same = [name for name in metrics[0].columns if not name.startswith(("reason_", "probe_")) and name != "evaluations"]
    assert {"accuracy", "macro_f1", "before_weak", "train_loss", "pull_gini", "diversity", "model_bytes"} <= set(same)
    assert metrics[0].select(same).equals(metrics[1].select(same))
    assert metrics[1]["evaluations"].sum() > 0 == metrics[0]["evaluations"].sum()


def test_a_second_comparison_reads_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(rounds=1)
    first = compared(settings, ["rg"], tmp_path)
    monkeypatch.setattr(Simulator, "run", lambda self: pytest.fail("trained again"))
    assert compared(settings, ["rg"], tmp_path) == first


def test_methods_with_options_stand_side_by_side(tmp_path: Path) -> None:
    settings = config(rounds=1)
    results = compared(settings, ["sage-os", "sage-os:schedule=(8, 16)", "sage-os:delta=0.2"], tmp_path)
    assert list(results) == ["sage-os", "sage-os:schedule=(8, 16)", "sage-os:delta=0.2"]
    assert len(list(tmp_path.iterdir())) == 3
    kept = RunDirectory(tmp_path / "sage-os_schedule=(8, 16)")
    kept.prepare(kept.config)  # a tuple comes back from TOML as a list; it is the same config


def test_mistakes_are_found_before_anything_trains(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="named more than once: rg"):
        compared(config(), ["rg", "sage-os", "rg"], tmp_path)
    with pytest.raises(ValueError, match="unknown method 'sage-so', did you mean 'sage-os'"):
        compared(config(), ["rg", "sage-so"], tmp_path)
    with pytest.raises(ValueError, match="has no option 'detla', did you mean 'delta'"):
        compared(config(), ["rg", "sage-os:detla=1"], tmp_path)
    assert not list(tmp_path.iterdir())
