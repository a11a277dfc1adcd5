"""Several methods on one identical world: same partition, same graph, same initial weights, same anchors and draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..errors import UsageError
from ..methods import method
from ..runs.config import Execution, RunConfig, method_config, method_label
from ..runs.rundir import RunDirectory
from .simulator import Callback, InterruptedRunError, Simulator
from .world import World

__all__ = ["compare", "method_config", "method_label", "place_of"]


def place_of(out: Path, label: str) -> RunDirectory:
    """Where a comparison keeps the run of a method."""
    return RunDirectory(out / label.replace(":", "_").replace("/", "_"))


def compare(
    config: RunConfig,
    specs: Sequence[str],
    out: Path,
    execution: Execution,
    callbacks: Callable[[str], Sequence[Callback]] = lambda label: (),
    *,
    data: Dataset | None = None,
) -> dict[str, dict[str, Any]]:
    """Run every method of `specs` on the world of `config`; returns the summaries by label.

    Finished runs are read, unfinished ones go on. `data` spares loading the data set again.
    """
    sections = [method_config(spec) for spec in specs]
    labels = [method_label(section) for section in sections]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise UsageError(f"methods named more than once: {', '.join(twice)}")
    configs = [RunConfig.parse(config.model_dump() | {"method": section}) for section in sections]
    for each in configs:
        method(
            each.method.id, **each.method.options
        )  # so that a mistake in the last one shows before the others have trained
    world = World.build(config, data)
    for each in configs:
        method(each.method.id, **each.method.options).answered_privately(world.mechanism)
    results = {}
    for label, each in zip(labels, configs, strict=True):
        directory = place_of(out, label)
        directory.check(each)
        if (done := directory.summary) is None:
            own = replace(world, config=each)
            simulator = Simulator(each, directory, execution, world=own, callbacks=callbacks(label))
            done = simulator.run()
            if (
                simulator.asked_to_stop and label != labels[-1]
            ):  # the signal came in its last round, so this run is complete
                raise InterruptedRunError("stopped as asked; the same command goes on with the methods left")
        results[label] = done
    return results
