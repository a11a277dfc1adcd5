"""The page of a regression run with named clients, in a real browser: errors, not accuracies; names, not numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from watched_pages import Served, Watched

from sagefl.data import Dataset
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

OWNERS = np.repeat(np.array(["Aachen", "Bonn", "Celle", "Dessau"]), 40)


def regression_run(folder: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(160, 3))
    y = 30 * x[:, 0] + np.where(OWNERS < "C", 5, -5) * x[:, 1]
    data = Dataset.from_arrays("made", x, y, x[:40], y[:40], owners=OWNERS)
    settings = RunConfig.parse(
        {
            "clients": 4,
            "rounds": 3,
            "data": {"partition": "owners", "anchor": 0.4, "dataset": "made.npz"},
            "topology": {"kind": "complete"},
            "model": {"name": "mlp"},
            "training": {"learning_rate": 0.05},
            "method": {"id": "sage-vanilla"},
            "evaluation": {"every": 1},
        }
    )
    world = World.build(settings, data)
    Simulator(settings, RunDirectory(folder), Execution(engine="sequential"), world=world).run()


def test_a_regression_run_is_told_by_its_errors_and_clients_by_their_names(
    serve: Callable[..., Served], watch: Callable[..., Watched], tmp_path: Path
) -> None:
    regression_run(tmp_path / "run")
    watched = watch()
    page: Any = watched.open(serve(tmp_path).address)
    page.set_default_timeout(120_000)  # for machines with other work
    page.wait_for_selector("body[data-charts=drawn]")
    shots = Path(os.environ.get("SAGEFL_SHOTS", tmp_path))
    page.screenshot(path=shots / "runs.png", full_page=True)
    told = page.inner_text("body")
    assert "accuracy" not in told.lower()
    assert "F1" not in told
    page.click("text=Network")
    page.wait_for_selector("#network-drawing g.node")
    page.screenshot(path=shots / "network.png", full_page=True)
    drawn = page.inner_text("#network-drawing")
    assert all(name in drawn for name in ("Aachen", "Bonn", "Celle", "Dessau"))
    choices = page.eval_on_selector_all("#network-colour option", "all => all.map(o => o.textContent)")
    assert "error on their own data" in choices
    assert "accuracy" not in page.inner_text("body").lower()
    label = page.get_attribute("#network-drawing g.node[data-client='1']", "aria-label")
    assert label.startswith("Bonn: pulls ")
    assert "own MAE" in label
    page.click("#network-drawing g.node[data-client='1']")
    page.wait_for_selector("text=Bonn in round")
    page.screenshot(path=shots / "decision.png", full_page=True)
    chosen = json.loads((tmp_path / "run" / "names.json").read_text())
    assert any(f"takes {name} after" in page.inner_text("#decision-facts") for name in chosen)
    assert "risk (mean error, 1 where it is cut off)" in page.text_content("#decision-risks")
