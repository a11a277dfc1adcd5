"""Experiment trackers as thin callbacks: TensorBoard, MLflow, Weights & Biases. Each needs its own extra."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config import RunConfig
from .simulator import Callback

__all__ = ["TRACKERS", "make_tracker"]


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k != "round"}


class TensorBoard:
    """Scalars of every round in the run directory's ``tensorboard/``."""

    def __init__(self, directory: Path) -> None:
        self._writer = _need("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(directory / "tensorboard"))

    def start(self, config: RunConfig, first_round: int) -> None:
        """The config as text."""
        self._writer.add_text("config", f"```toml\n{config.to_toml()}\n```")

    def round(self, record: Mapping[str, Any]) -> None:
        """One point per number."""
        for name, value in _numbers(record).items():
            self._writer.add_scalar(name, value, record["round"])

    def end(self, summary: Mapping[str, Any]) -> None:
        """Close the file."""
        self._writer.close()


class MlFlow:
    """A run in the tracking store that MLflow is configured for (by default the local one)."""

    def __init__(self, directory: Path) -> None:
        self._mlflow = _need("mlflow", "mlflow")
        self._name = directory.name

    def start(self, config: RunConfig, first_round: int) -> None:
        """Open the run and log the config."""
        self._mlflow.start_run(run_name=self._name)
        document = config.model_dump(mode="json")
        flat = {f"{s}.{k}": v for s, inner in document.items() if isinstance(inner, dict) for k, v in inner.items()}
        self._mlflow.log_params({k: v for k, v in (document | flat).items() if not isinstance(v, dict)})

    def round(self, record: Mapping[str, Any]) -> None:
        """One point per number."""
        self._mlflow.log_metrics(_numbers(record), step=record["round"])

    def end(self, summary: Mapping[str, Any]) -> None:
        """Close the run."""
        self._mlflow.end_run()


class WeightsAndBiases:
    """A run under the project ``sagefl``; offline unless wandb is set up otherwise."""

    def __init__(self, directory: Path) -> None:
        self._wandb = _need("wandb", "wandb")
        self._directory = directory

    def start(self, config: RunConfig, first_round: int) -> None:
        """Open the run with the config."""
        self._run = self._wandb.init(
            project="sagefl", name=self._directory.name, dir=str(self._directory), config=config.model_dump(mode="json")
        )

    def round(self, record: Mapping[str, Any]) -> None:
        """One point per number."""
        self._run.log(_numbers(record), step=record["round"])

    def end(self, summary: Mapping[str, Any]) -> None:
        """The summary, and close."""
        self._run.summary.update(_numbers(summary))
        self._run.finish()


TRACKERS: Mapping[str, type] = {"tensorboard": TensorBoard, "mlflow": MlFlow, "wandb": WeightsAndBiases}


def make_tracker(name: str, directory: Path) -> Callback:
    """The tracker of a name, writing beside the run."""
    if name not in TRACKERS:
        raise ValueError(f"unknown tracker {name!r}: {', '.join(TRACKERS)}")
    tracker: Callback = TRACKERS[name](directory)
    return tracker


def _need(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(f"tracking with {extra} needs its package: pip install 'sagefl[{extra}]'") from None
