"""The simulator in a few lines of Python: `sagefl.run`, `sagefl.compare`, `sagefl.scout` and `sagefl.load`.

    result = sagefl.compare(data=(x, y, x_test, y_test), model=MyNet, methods=["rg", MyRule()], seeds=range(3))

What is returned shows itself as a table, in a terminal and in a notebook. Runs are kept on disk by what decides their
result, so the same lines read what is finished and run only what is new.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.config import Execution
from ..runs.environment import asked_once
from ..selection.registry import RECOMMENDED
from ..simulation.comparing import Part, parts_of
from ..simulation.comparing import compare as run_all
from .given import dataset_of, engine_for, loss_of, method_of, methods_of, model_of, resolved, seeds_of
from .progress import RunProgress
from .results import Held, Results, runs_at
from .scouting import Scouting, scout

if TYPE_CHECKING:
    from rich.console import Console

    from ..simulation.world import World

__all__ = ["Results", "Scouting", "checked_world", "compare", "load", "run", "scout"]

logger = logging.getLogger(__name__)


def compare(
    data: Any = None,
    model: Any = None,
    methods: Any = ("rg", RECOMMENDED),
    *,
    loss: Any = None,
    seeds: Iterable[int] | str | None = None,
    config: Mapping[str, Any] | str | Path | None = None,
    out: Path | str | None = None,
    engine: str = "auto",
    workers: int | None = None,
    device: str | None = None,
    checkpoint_every: int = 10,
    fresh: bool = False,
    progress: bool = True,
    **keys: Any,
) -> Results:
    """Run several methods in the same worlds, one world per seed, and return what they came to.

    `data` is a name, arrays (x, y, x_test, y_test), a `Dataset` or a function that returns either; `model` a name
    or a class that is called with the shape of one input and the number of classes (or with nothing); `methods` are
    ids with options, selectors or method classes, or a text as on the command line; `loss` is one of your own for
    certificates, a function of predictions and targets with values in [0, `loss_max`]. Any config key can be given
    as a keyword (`clients=20`, `max_batches=4`), as a section (`training={"max_batches": 4}`), or in `config`, a
    dictionary or a TOML file. Runs are kept in `out`, or by their address in `runs/cells`, where studies find them
    too; `fresh` makes them anew.
    """
    from rich.console import Console

    with asked_once():
        asked = methods_of(methods)
        name, dataset = dataset_of(data)
        of_data = {key: value for key, value in (("dataset", name), ("loss", loss_of(loss))) if value is not None}
        own = {"model": model_of(model), "data": of_data or None}
        base = resolved(config, keys, **own)
        chosen = {"engine": engine_for(engine, model, asked, loss), "workers": workers, "device": device}
        execution = Execution.parse(chosen | {"checkpoint_every": checkpoint_every})
        sections = [method_of(each) for each in asked]
        parts = parts_of(base, sections, seeds_of(seeds), None if out is None else Path(out))
        screen = Console(highlight=False, soft_wrap=True, file=None if progress else sys.stderr)
        return carry_out(parts, execution, screen, data=dataset, fresh=fresh, quiet=not progress)


def run(
    data: Any = None,
    model: Any = None,
    method: Any = "sage-os",
    *,
    seed: int | None = None,
    **options: Any,
) -> Results:
    """Run one method; options as for `compare`."""
    return compare(data, model, [method], seeds=None if seed is None else [seed], **options)


def load(*folders: Path | str) -> Results:
    """The runs at or below some folders; unfinished ones as of their last evaluated round."""
    return runs_at([Path(folder) for folder in folders])


def carry_out(
    parts: Sequence[Part],
    execution: Execution,
    screen: Console,
    *,
    data: Any = None,
    fresh: bool = False,
    quiet: bool = False,
    notes: Sequence[str] = (),
) -> Results:
    """Run what is not finished yet, showing how far it is, and return everything."""
    with asked_once():
        read = _carry_out(parts, execution, screen, data=data, fresh=fresh, quiet=quiet)
    return Results([Held(part.label, part.directory, read[part.directory.path]) for part in parts], notes)


def _carry_out(
    parts: Sequence[Part], execution: Execution, screen: Console, *, data: Any, fresh: bool, quiet: bool
) -> dict[Path, bool]:
    """Run what is not finished yet; returns by folder what was."""
    read = {part.directory.path: not fresh and part.read for part in parts}
    several = len({part.seed for part in parts}) > 1

    def follow(part: Part) -> list[RunProgress]:
        name = f"{part.label}, seed {part.seed}" if several else part.label
        return [RunProgress(name, screen, quiet=quiet)]

    def ready(world: World, together: Sequence[Part]) -> None:
        checked_world(world, together, execution, screen, quiet=quiet)

    run_all(parts, execution, follow, data=data, fresh=fresh, ready=ready)
    return read


def checked_world(
    world: World, parts: Sequence[Part], execution: Execution, screen: Console, *, quiet: bool = False
) -> None:
    """Say what is about to be run, and what cannot mean what it seems to; the runs' logs keep it."""
    from ..methods import method
    from ..simulation.engines import cores
    from ..simulation.preflight import preflight

    rules = [(part.label, method(part.config.method.id, **part.config.method.options)) for part in parts]
    workers = 1 if execution.engine == "sequential" else execution.workers or cores()
    found = preflight(world, rules, workers)
    for part in parts:
        part.directory.foreword = {"preflight": found.line, "warnings": list(found.warnings)}
    if not quiet:
        screen.print(found.line)
        for warning in found.warnings:
            screen.print(f"Warning: {warning}.", style="yellow")
    elif found.doubt is not None:
        logger.warning("%s", found.doubt)
