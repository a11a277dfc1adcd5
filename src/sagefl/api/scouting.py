"""`sagefl.scout`: will choosing pay here? A short pilot, or recorded losses, and a verdict that shows itself."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..runs.config import Execution, RunConfig
from ..runs.files import write_text
from ..runs.findings import KEPT, ScoutFinding, find_in_runs, known
from ..runs.kinship import nanmean
from ..runs.scouting import judge
from ..view.plain import plain, text
from .given import dataset_of, engine_for, model_of, resolved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..data import Dataset


def scout(
    data: Any = None,
    model: Any = None,
    *,
    runs: Path | str | Sequence[Path | str] | None = None,
    config: Mapping[str, Any] | str | Path | None = None,
    pilot: int | None = None,
    engine: str = "auto",
    workers: int | None = None,
    device: str | None = None,
    **keys: Any,
) -> Scouting:
    """Say whether choosing will pay in a world, from a pilot of a few rounds (`pilot`; about a tenth of a run).

    Data, model and config keys as for `sagefl.compare`. With `runs`, the folder of a run or those of nodes, nothing is
    trained: the verdict is on the losses recorded there.
    """
    if runs is not None:
        if data is not None or model is not None or config is not None or keys or pilot is not None:
            raise UsageError("scout looks at runs, or makes a pilot: give `runs`, or data, model and config keys")
        return scout_runs([Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)])
    name, dataset = dataset_of(data)
    own = {"model": model_of(model), "data": None if name is None else {"dataset": name}}
    chosen = {"engine": engine_for(engine, model, ()), "workers": workers, "device": device}
    return scout_world(resolved(config, keys, **own), Execution.parse(chosen), pilot, dataset)


def scout_world(
    config: RunConfig, execution: Execution, rounds: int | None = None, data: Dataset | None = None
) -> Scouting:
    """Make a pilot of the world that a config describes."""
    from ..learning.training import LocalTraining
    from ..simulation.engines import make_engine
    from ..simulation.pilot import run_pilot
    from ..simulation.world import World

    if rounds is not None and not 2 <= rounds <= config.rounds:
        raise UsageError(f"a pilot has 2 to {config.rounds} rounds here (those of a run), got {rounds}")
    world = World.build(config, data)
    how = {"workers": execution.workers, "device": execution.device, "ray_address": execution.ray_address}
    engine = make_engine(execution.engine, world, LocalTraining(), **how)  # type: ignore[arg-type]
    try:
        pilot = run_pilot(world, engine, rounds)
    finally:
        engine.close()
    risks, counts = nanmean(pilot.answers, 2), known(pilot.answers)
    return Scouting(judge(pilot, config.rounds), config.described(), risks, pilot, counts)


def scout_runs(folders: Sequence[Path]) -> Scouting:
    """Judge by the losses that a run, or several nodes, recorded."""
    seen = find_in_runs(folders)
    return Scouting(seen.found, seen.source, seen.risks, counts=seen.counts, recorded_names=seen.names)


class Scouting(ScoutFinding):
    """A verdict with what is behind it. It shows itself in a terminal and in a notebook."""

    @property
    def verdict(self) -> str:
        """`choose`, `gossip`, `home` or `unsure`."""
        return self.found.verdict

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        return self.found.sentence

    @property
    def groups(self) -> tuple[int, ...]:
        """The group of every client, as far as it was found."""
        return self.found.kinship.groups

    def document(self) -> dict[str, Any]:
        """Everything by name, in plain values; a number that is not known is null."""
        known: dict[str, Any] = plain(super().document())
        return known

    def __repr__(self) -> str:
        return "\n".join([self.sentence, "", *self.lines()])

    def _repr_html_(self) -> str:
        rest = "".join(f"<div><small>{html.escape(line)}</small></div>" for line in self.lines())
        return f"<p><b>{html.escape(self.sentence)}</b></p>{rest}"

    def write(self, folder: Path | str) -> Path:
        """Keep everything as `scout.json` in a folder, where `sagefl view` and `sagefl report` show it."""
        target = Path(folder) / KEPT
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text(plain(self.sheet(), 6)))
        return target

    # Pictures -----------------------------------------------------------------------------------------------------

    def plot(self, path: Path | str | None = None) -> Figure:
        """The map: everybody's error on everybody's samples, by group; and what the pilot came to.

        Needs matplotlib (the extra `study`). The figure is returned, and written to `path` (PNG, SVG) if one is given.
        """
        from .mapping import drawn_map

        return drawn_map(self, path)

    def report(self, path: Path | str = "scout.html") -> Path:
        """The verdict, what is behind it and the map as one HTML file."""
        from .mapping import map_page

        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(map_page(self), encoding="utf-8")
        return target
