"""Runs of any kind of task: carried out by an engine, or begun and killed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.simulation.engines.processes import context
from sagefl.simulation.simulator import Simulator


def simulate(
    path: Path,
    settings: RunConfig,
    engine: str = "sequential",
    *,
    device: str | None = None,
    every: int = 10,
    **options: Any,
) -> dict[str, Any]:
    execution = Execution(engine=engine, workers=2, device=device, checkpoint_every=every)
    return Simulator(settings, RunDirectory(path), execution, **options).run()


def begin_and_kill(path: Path, settings: RunConfig) -> None:
    """Begin a run in a process of its own, and end that as soon as there is a checkpoint."""
    process = context().Process(target=simulate, args=(path, settings), kwargs={"every": 1})
    process.start()
    kept = path / "checkpoint"
    while process.is_alive() and not (kept.is_dir() and any(kept.iterdir())):
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.kill(process.pid or 0, signal.SIGKILL)
    process.join(60)
