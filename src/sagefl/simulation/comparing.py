"""Several methods on one identical world: same partition, same graph, same initial weights, same anchors and draws.

Over several seeds there is one such world per seed. Runs that are finished are read, unfinished ones go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..errors import UsageError
from ..methods import method
from ..runs.config import Execution, RunConfig, method_config, method_label
from ..runs.environment import address, world_address
from ..runs.rundir import RunDirectory
from .simulator import Callback, InterruptedRunError, Simulator
from .world import World

CELLS = Path("runs/cells")
"""Where studies keep their runs by address, and comparisons over several seeds too: they share what is the same."""

Spec = str | Mapping[str, Any]  # as typed, or a config's section


@dataclass(frozen=True)
class Part:
    """One run of a comparison."""

    label: str
    config: RunConfig
    directory: RunDirectory

    @property
    def seed(self) -> int:
        """The replication it belongs to."""
        return self.config.seed

    @cached_property
    def read(self) -> bool:
        """Whether it was finished when first looked at, so that it is read and not run."""
        return self.directory.check(self.config) and self.directory.summary is not None


def folder_of(config: RunConfig) -> Path:
    """The default folder of a run."""
    method = config.method.id.replace(":", "_").replace("/", "_")
    return Path("runs") / f"{method}-{_world_name(config)}-{address(config)[:8]}"


def folder_of_comparison(config: RunConfig) -> Path:
    """The default folder of a comparison in one world."""
    return Path("runs") / f"compare-{_world_name(config)}"


def _world_name(c: RunConfig) -> str:
    data = Path(c.data.dataset).stem.replace(":", "_")
    spread = f"a{c.data.alpha:g}" if c.data.partition == "dirichlet" else c.data.partition
    return f"{data}-{c.topology.kind}-{spread}-K{c.clients}-T{c.rounds}-s{c.seed}-{world_address(c)[:8]}"


def place_of(out: Path, label: str) -> RunDirectory:
    """Where a comparison keeps the run of a method."""
    return RunDirectory(out / label.replace(":", "_").replace("/", "_"))


def parts_of(
    config: RunConfig, specs: Sequence[Spec], seeds: Sequence[int] = (), out: Path | None = None
) -> list[Part]:
    """The runs of a comparison, seed by seed; without a folder of their own they are kept by address, as studies do."""
    if not specs:
        raise UsageError("no method is named: give at least one, such as rg (`sagefl methods` lists them)")
    if out is not None and (out / "run.toml").is_file():
        raise UsageError(f"{out} is itself a run, and runs inside it would not be found: choose another --out")
    sections = [method_config(spec) if isinstance(spec, str) else dict(spec) for spec in specs]
    labels = [method_label(section) for section in sections]
    for what, names in (("methods", labels), ("seeds", [str(seed) for seed in seeds])):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"{what} named more than once: {', '.join(twice)}")
    parts = []
    for seed in seeds or (config.seed,):
        for label, section in zip(labels, sections, strict=True):
            each = RunConfig.parse(config.model_dump() | {"method": section, "seed": seed})
            made = method(each.method.id, **each.method.options)  # a mistake in the last shows before others train
            made.asked_in(each.data.anchor_order)
            if out is None:
                place = RunDirectory(CELLS / address(each))
            else:
                place = place_of(out, label if len(seeds) < 2 else f"{label}-seed{seed}")
            parts.append(Part(label, each, place))
    return parts


def compare(
    parts: Sequence[Part],
    execution: Execution,
    callbacks: Callable[[Part], Sequence[Callback]] = lambda part: (),
    *,
    data: Dataset | None = None,
    fresh: bool = False,
    ready: Callable[[World, Sequence[Part]], object] = lambda world, parts: None,
) -> None:
    """Run those parts that are not finished, each seed's in one world; `data` spares loading the data set again.

    `ready` is called with every world before work in it begins.
    """
    todo = [part for part in parts if fresh or not part.read]
    for seed in dict.fromkeys(part.seed for part in todo):
        together = [part for part in todo if part.seed == seed]
        world = World.build(together[0].config, data)
        for part in together:
            method(part.config.method.id, **part.config.method.options).answered_privately(world.mechanism)
        ready(world, together)
        for part in together:
            own = replace(world, config=part.config)
            simulator = Simulator(
                part.config, part.directory, execution, world=own, callbacks=callbacks(part), fresh=fresh
            )
            simulator.run()
            if simulator.asked_to_stop and part is not todo[-1]:  # in its last round, so this run is complete
                raise InterruptedRunError("stopped as asked; the same command goes on with the runs left")
