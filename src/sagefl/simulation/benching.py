"""A short benchmark of this machine: which engine and how many workers carry out a run fastest, and what probing costs.

Every way of carrying out the work runs a few rounds of random gossip in one identical world; the fastest then runs
SAGE-OS there, so that the price of probing is measured, not guessed. There is no evaluation and no checkpoint: how
often they happen is the user's choice.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import SageflError
from ..runs.config import Execution, RunConfig, merged
from ..runs.rundir import RunDirectory
from .engines import find_device
from .simulator import Simulator
from .world import World

PATIENCE = 8.0  # seconds; after that, a way is judged by the rounds it has done
PLAIN, PROBING = "rg", "sage-os"
EXACT_MARGIN = 1.1  # how much faster stacked work must be to be worth giving up bit-identical results


@dataclass(frozen=True)
class EngineChoice:
    """One way to carry out a run."""

    engine: str
    workers: int
    device: str = "cpu"

    @property
    def flags(self) -> str:
        """The flags that choose this way on the command line."""
        device = f" --device {self.device}" if self.engine == "stacked" else ""
        return f"--engine {self.engine} --workers {self.workers}{device}"


@dataclass(frozen=True)
class Timing:
    """What a way took: median seconds of a round, training samples in it; or why it did not work."""

    way: EngineChoice
    method: str
    seconds: float | None
    samples: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class BenchReport:
    """Every way under random gossip, and the recommended one under SAGE-OS."""

    plain: tuple[Timing, ...]
    probing: Timing

    @property
    def best(self) -> Timing:
        """The fastest way; one that is not bit-identical is recommended only if it is clearly faster."""
        return recommended(self.plain)

    @property
    def overhead(self) -> float:
        """How much longer a round takes with probing, as a share of one without."""
        assert self.probing.seconds is not None
        assert self.best.seconds is not None
        return self.probing.seconds / self.best.seconds - 1


def ways(cores: int, clients: int, device: str | None = None) -> Iterator[EngineChoice]:
    """What is worth trying: one process, workers up to the number of cores, everybody at once."""
    yield EngineChoice("sequential", 1)
    count = 2
    while count < cores and count < clients:
        yield EngineChoice("processes", count)
        count *= 2
    if min(cores, clients) > 1:
        yield EngineChoice("processes", min(cores, clients))
    yield EngineChoice("stacked", cores, str(find_device(device)))


def bench(
    config: RunConfig,
    cores: int,
    *,
    rounds: int = 3,
    device: str | None = None,
    told: Callable[[Timing], None] = lambda timing: None,
) -> BenchReport:
    """Measure the world and the training of `config`; its method and number of rounds do not matter."""
    quiet = {"rounds": rounds + 1, "evaluation": {"every": 1_000_000, "losses": "none"}}  # the last round evaluates
    base = RunConfig.parse(merged(config.model_dump(), quiet))
    world = World.build(base)
    found = []
    for way in ways(cores, base.clients, device):
        found.append(measure(world, PLAIN, way, rounds))
        told(found[-1])
    probing = measure(world, PROBING, recommended(found).way, rounds)
    if probing.seconds is None:
        raise SageflError(f"{PROBING} could not be measured: {probing.problem}")
    told(probing)
    return BenchReport(tuple(found), probing)


def recommended(found: list[Timing] | tuple[Timing, ...]) -> Timing:
    """See `BenchReport.best`."""
    working = [(timing.seconds, timing) for timing in found if timing.seconds is not None]
    if not working:
        raise SageflError(f"no engine works here: {found[0].problem}")

    def cost(item: tuple[float, Timing]) -> float:
        return item[0] * (EXACT_MARGIN if item[1].way.engine == "stacked" else 1.0)

    return min(working, key=cost)[1]


class _EnoughError(Exception):
    """Enough rounds, or enough time, have been measured."""


class _Stopwatch:
    """Follows a run and ends it after some rounds, or after the first one that uses up its time."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.seconds, self.samples = rounds, list[float](), 0

    def start(self, config: RunConfig, first_round: int) -> None:
        self._began = self._last = time.perf_counter()

    def round(self, record: Mapping[str, Any]) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last, self.samples = now, int(record["samples"])
        if len(self.seconds) == self.rounds or now - self._began > PATIENCE:
            raise _EnoughError

    def end(self, summary: Mapping[str, Any] | None) -> None:
        pass


def measure(world: World, method: str, way: EngineChoice, rounds: int) -> Timing:
    """Time a few rounds. In the first, workers start and kernels are chosen: it counts only if it is the only one."""
    section = {"id": method, "options": {}}
    config = RunConfig.parse(world.config.model_dump() | {"method": section})
    device = way.device if way.engine == "stacked" else None
    execution = Execution(engine=way.engine, workers=way.workers, device=device, checkpoint_every=1_000_000)
    watch = _Stopwatch(rounds)
    with tempfile.TemporaryDirectory(prefix="sagefl-bench-") as folder:
        directory = RunDirectory(Path(folder) / "run")
        simulator = Simulator(config, directory, execution, world=replace(world, config=config), callbacks=[watch])
        try:
            simulator.run()
        except _EnoughError:
            pass
        except SageflError as error:
            return Timing(way, method, None, problem=str(error))
        if simulator.asked_to_stop:
            raise KeyboardInterrupt
    return Timing(way, method, statistics.median(watch.seconds[1:] or watch.seconds), watch.samples)
