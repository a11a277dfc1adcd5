"""Experiment trackers as thin callbacks: TensorBoard, MLflow, Weights & Biases. Each needs its own extra.

Their steps are rounds as people count them, from 1.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..extras import how_to_install
from ..runs.config import RunConfig
from ..runs.files import RunError
from ..settings import flat
from .simulator import Callback


class TensorBoard:
    """Scalars of every round in the run directory's `tensorboard/`."""

    def __init__(self, directory: Path) -> None:
        self._writers = _need("torch.utils.tensorboard", "tensorboard")
        self._folder = directory / "tensorboard"

    def start(self, config: RunConfig, first_round: int) -> None:
        """The config as text; points of rounds that are run again are dropped."""
        self._writer = self._writers.SummaryWriter(
            str(self._folder), purge_step=first_round + 1 if first_round else None
        )
        self._writer.add_text("config", f"```toml\n{config.to_toml()}\n```")

    def round(self, record: Mapping[str, Any]) -> None:
        """One point per number."""
        for name, value in _numbers(record).items():
            self._writer.add_scalar(name, value, record["round"] + 1)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Close the file."""
        self._writer.close()


class MlFlow:
    """A run in the tracking store that MLflow is set up for, else in the run directory's `mlflow/`."""

    def __init__(self, directory: Path) -> None:
        self._mlflow = _need("mlflow", "mlflow")
        self._directory = directory

    def start(self, config: RunConfig, first_round: int) -> None:
        """Open the run and log the config."""
        with _starting("mlflow"):
            if not self._mlflow.is_tracking_uri_set():  # its own default, a database, is not part of mlflow-skinny
                os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
                self._mlflow.set_tracking_uri((self._directory / "mlflow").absolute().as_uri())
            self._mlflow.start_run(run_name=self._directory.name)
            self._mlflow.log_params(flat(config.model_dump(mode="json")))

    def round(self, record: Mapping[str, Any]) -> None:
        """One point per number."""
        self._mlflow.log_metrics(_numbers(record), step=record["round"] + 1)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Close the run; one that was stopped is marked as such."""
        self._mlflow.end_run("KILLED" if summary is None else "FINISHED")


class WeightsAndBiases:
    """A run under the project `sagefl`; offline unless a key or a mode is set up."""

    def __init__(self, directory: Path) -> None:
        self._wandb = _need("wandb", "wandb")
        self._directory = directory

    def start(self, config: RunConfig, first_round: int) -> None:
        """Open the run with the config."""
        with _starting("wandb"):
            known = "WANDB_MODE" in os.environ or self._wandb.api.api_key
            self._run = self._wandb.init(
                project="sagefl",
                name=self._directory.name,
                dir=str(self._directory),
                config=config.model_dump(mode="json"),
                mode=None if known else "offline",
            )

    def round(self, record: Mapping[str, Any]) -> None:
        """One point per number."""
        self._run.log(_numbers(record), step=record["round"] + 1)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """The summary, and close."""
        self._run.summary.update(_numbers(summary or {}))
        self._run.finish(exit_code=1 if summary is None else 0)


TRACKERS: Mapping[str, type] = {"tensorboard": TensorBoard, "mlflow": MlFlow, "wandb": WeightsAndBiases}


def make_tracker(name: str, directory: Path) -> Callback:
    """The tracker of a name, writing beside the run."""
    if name not in TRACKERS:
        raise UsageError(f"unknown tracker {name!r}: {', '.join(TRACKERS)}")
    tracker: Callback = TRACKERS[name](directory)
    return tracker


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k != "round"}


@contextmanager
def _starting(name: str) -> Iterator[None]:
    """Whatever keeps a service from starting, as one line."""
    try:
        yield
    except Exception as error:
        raise RunError(f"tracking with {name} cannot start: {error}; set it up, or leave out --track {name}") from error


def _need(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(f"tracking with {extra} needs its package: {how_to_install(extra)}") from None
