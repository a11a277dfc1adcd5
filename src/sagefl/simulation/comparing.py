"""Several methods on one identical world: same partition, same graph, same initial weights, same anchors and draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..selection.registry import nearest
from .config import Execution, RunConfig
from .rundir import RunDirectory
from .simulator import Callback, Simulator
from .world import World

__all__ = ["compare", "method_config", "method_label"]


def method_config(spec: str) -> dict[str, Any]:
    """``sage-os:probe_cost=0:radius=tight`` as the config section of a method."""
    from ..settings import parse_options

    id, *options = spec.split(":")
    return {"id": id.strip(), "options": parse_options(options)}


def method_label(section: Mapping[str, Any]) -> str:
    """The inverse of `method_config`, for tables and directory names."""
    return ":".join([section["id"], *(f"{k}={v}" for k, v in section["options"].items())])


def compare(
    config: RunConfig,
    specs: Sequence[str],
    out: Path,
    execution: Execution,
    callbacks: Callable[[str], Sequence[Callback]] = lambda label: (),
) -> dict[str, dict[str, Any]]:
    """Run every method of `specs` on the world of `config`; returns the summaries by label."""
    sections = [method_config(spec) for spec in specs]
    labels = [method_label(section) for section in sections]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"methods named more than once: {', '.join(twice)}{nearest(twice[0], [])}")
    configs = [RunConfig.parse(config.model_dump() | {"method": section}) for section in sections]
    world = World.build(configs[0])
    results = {}
    for label, each in zip(labels, configs, strict=True):
        directory = RunDirectory(out / label.replace(":", "_").replace("/", "_"))
        own = World(**{**vars(world), "config": each})
        results[label] = Simulator(each, directory, execution, world=own, callbacks=callbacks(label)).run()
    return results
