"""Experiment trackers: what they are told can be read back, also after an interruption."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.trackers import TRACKERS, make_tracker

Call = Callable[..., Result]


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = loader.EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in found.Scalars(name)]


def test_tensorboard_files_hold_every_round(run: Call) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    run("--track", "tensorboard", "-q")
    metrics = RunDirectory(Path("run")).table("metrics")
    folder = Path("run") / "tensorboard"
    assert scalars(folder, "train_loss") == [
        (t, pytest.approx(v)) for t, v in enumerate(metrics["train_loss"], start=1)
    ]
    assert scalars(folder, "accuracy") == [(t + 1, pytest.approx(metrics["accuracy"][t])) for t in (1, 2)]


def test_after_an_interruption_each_round_stands_once(run: Call, sagefl: Call, monkeypatch: Any) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    from sagefl.api.progress import RunProgress

    shown = RunProgress.round

    def stop(self: RunProgress, record: Any) -> None:
        shown(self, record)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(RunProgress, "round", stop)
        told = run("--track", "tensorboard", code=130)
    assert "sagefl: stopped after round 1 of 3; go on with: sagefl resume run" in told.stderr
    assert scalars(Path("run/tensorboard"), "train_loss")[0][0] == 1  # closed, so it can be read at once
    out = sagefl("resume", "run", "--engine", "sequential", "--track", "tensorboard").stdout
    assert "sage-os: going on at round 2 of 3" in out
    assert [t for t, _ in scalars(Path("run/tensorboard"), "train_loss")] == [1, 2, 3]


def test_mlflow_runs_hold_the_config_and_every_round(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run("--track", "mlflow", "-q")
    (found,) = mlflow.search_runs(output_format="list")
    assert found.data.params["data.alpha"] == "0.1"
    assert found.info.status == "FINISHED"
    assert found.data.metrics["accuracy"] == RunDirectory(Path("run")).table("metrics")["accuracy"][-1]


def test_wandb_runs_stay_offline(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    run("--track", "wandb", "-q")
    assert list(Path("run/wandb").glob("offline-run-*/run-*.wandb"))


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_names_its_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ValueError, match=rf"pip install .*'\.\[{name}\]'"):
        make_tracker(name, tmp_path)


def test_a_service_that_does_not_start_is_one_line(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Down:
        @staticmethod
        def is_tracking_uri_set() -> bool:
            return True

        @staticmethod
        def start_run(**options: Any) -> None:
            raise ConnectionError("no server there")

    monkeypatch.setattr("sagefl.simulation.trackers._need", lambda module, extra: Down)
    told = run("--track", "mlflow", code=2).stderr
    assert "tracking with mlflow cannot start: no server there" in told


def test_wandb_is_told_every_round_and_the_end(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract with a stand-in, for machines without the package."""
    heard: list[tuple[str, Any]] = []

    class Run:
        summary: dict[str, Any] = {}  # noqa: RUF012

        def log(self, values: dict[str, float], step: int) -> None:
            heard.append(("log", (step, values)))

        def finish(self, exit_code: int) -> None:
            heard.append(("finish", exit_code))

    class Stand:
        class api:  # noqa: N801
            api_key = None

        @staticmethod
        def init(**options: Any) -> Run:
            heard.append(("init", options))
            return Run()

    monkeypatch.setattr("sagefl.simulation.trackers._need", lambda module, extra: Stand)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run("--track", "wandb", "-q")
    assert heard[0][1]["mode"] == "offline"
    assert heard[0][1]["config"]["clients"] == 6
    assert [step for kind, (step, _) in heard[1:-1] if kind == "log"] == [1, 2, 3]
    assert all(isinstance(v, float) for _, (_, values) in heard[1:-1] for v in values.values())
    assert heard[-1] == ("finish", 0)
    assert Run.summary["accuracy"] > 0
