"""`sagefl bench`: which engine and how many workers suit this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..settings import nested, parse_options
from .common import console, friendly_errors, table

if TYPE_CHECKING:
    from ..runs.config import RunConfig
    from ..simulation.benching import BenchReport, Timing

SHORT = {"clients": 16, "training.max_batches": 4}  # a run like the default one, made short


def bench(
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file of the run you plan; flags override it.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any config key, section.key=value.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds per measurement; the first does not count.")] = 3,
    workers: Annotated[int | None, typer.Option(min=1, help="Most workers to try; default: all cores.")] = None,
    device: Annotated[str | None, typer.Option(help="Where stacked work is tried; default: the fastest.")] = None,
    race: Annotated[
        bool, typer.Option("--race", help="Race the recommended engine against a plain PyTorch loop on your model.")
    ] = False,
) -> None:
    """Try every engine for a few rounds on this machine and recommend --engine and --workers.

    Without --config: the default model on the embedded data, 16 clients, 4 mini-batches each; under a minute.
    """
    with friendly_errors():
        from ..runs.config import RunConfig
        from ..simulation.benching import bench as measure
        from ..simulation.engines import cores

        flags = parse_options(set_ or [])
        if config is None:
            resolved = RunConfig.parse(nested(SHORT | flags))
        else:
            resolved = RunConfig.read(config, nested(flags))
        out = console()
        if race:
            from ..simulation.crowding import look

            out.print(str(look(cores())), soft_wrap=True)
        out.print(f"{resolved.data.dataset}, {resolved.model.name}, {resolved.clients} clients, {rounds} rounds each")
        report = measure(resolved, workers or cores(), rounds=rounds, device=device, told=lambda t: out.print(_line(t)))
        _print(report)
        if race:
            _race(resolved, report, workers or cores(), rounds)


def _race(resolved: RunConfig, report: BenchReport, threads: int, rounds: int) -> None:
    """Laps as they come in, then how busy others kept the machine meanwhile, and the table."""
    from ..simulation.crowding import Others, look
    from ..simulation.engines import cores
    from ..simulation.racing import OURS, race

    out, way = console(), report.best.way
    of = f"{threads} threads, and with one" if threads > 1 else "one thread"
    out.print(f"\nThe race: {way.flags} against a plain loop with {of}, at equal precision, in turns", soft_wrap=True)
    others = Others()
    laps = race(
        resolved, way, threads, rounds=rounds, told=lambda name, speed: out.print(f"{name}: {speed:,.0f} samples/s")
    )
    rows = [
        (
            name,
            f"{laps.median(name):,.0f}",
            f"{min(found):,.0f} - {max(found):,.0f}",
            "" if name == OURS else f"{laps.lead(name):.2f} x",
        )
        for name, found in laps.speeds.items()
    ]
    out.print(f"\nMeanwhile: {look(cores(), others=others)}", soft_wrap=True)
    out.print(table(("who", "samples/s", "range", f"{OURS} is faster by"), rows, left=("who",)))
    out.print(f"\nAgainst the fastest alternative ({laps.fastest}): {laps.lead(laps.fastest):.2f} x")
    out.print("docs/race.md races other libraries, too: benchmarks/peers.py installs fluke and gossipy beside it.")


def _line(timing: Timing) -> str:
    if timing.seconds is None:
        return f"{timing.way.flags}: {timing.problem}"
    return f"{timing.way.flags}, {timing.method}: {timing.seconds:.3f} s a round"


def _print(report: BenchReport) -> None:
    reference = next((t.seconds for t in report.plain if t.seconds is not None), None)
    rows = []
    for timing in report.plain:
        way, seconds = timing.way, timing.seconds
        figures = ("-", "-", "-")
        if seconds is not None and reference is not None:
            figures = (f"{seconds:.3f}", f"{timing.samples / seconds:,.0f}", f"{reference / seconds:.2f} x")
        rows.append((way.engine, str(way.workers), way.device, *figures))
    out = console()
    out.print()
    out.print(table(("engine", "workers", "device", "s/round", "samples/s", "speed"), rows, left=("engine", "device")))
    out.print(f"\nProbing changes the time of a round by {report.overhead:+.1%} (sage-os against rg).")
    out.print(f"Recommended here: {report.best.way.flags}")
    if report.best.way.engine == "stacked":
        out.print("(stacked agrees with the other engines within rounding; they agree bit for bit.)")
