"""The engine of many machines: the population in shards, each held by a Ray actor.

An actor trains its clients' rows and answers probes for them; rows that others pull go through Ray's object store from
the actor that holds them to the one that merges them, and never pass the driver, which has the decisions and the
metrics. The data set is put into the object store once and mapped from there by all actors of a node.

An actor that dies takes its rows with it. The engine then raises `LostRowsError`; `rebuild` replaces the dead, deals
the rows anew over whoever is there, and the run goes back to its last checkpoint.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ...extras import how_to_install
from ...learning.corpus import Corpus, InputForm
from ...learning.layout import Layout
from ...learning.memory import keep_freed_memory
from ...learning.population import Population
from ...learning.tasks import Result, Task, carry_out
from ...learning.training import LocalTraining, TrainingOptions
from ...learning.workbench import Workbench
from ...selection.own_loss import OwnLoss
from ..world import World
from .base import EngineError, LostRowsError, allocate, parts
from .sharding import Key, NotHereError, Shard, deal

logger = logging.getLogger(__name__)

GUESTS = 64  # rows of others that stand beside a shard's own at a time
FIRST_ACTOR, OTHER_ACTORS = 120.0, 15.0  # seconds to wait for a place in the cluster: for one at all, then for more
Array = npt.NDArray[Any]


# The cluster --------------------------------------------------------------------------------------------------------


def import_ray() -> Any:
    """Import Ray, or say how to install it."""
    try:
        import ray
    except ImportError:
        raise EngineError(f"Ray is not installed: {how_to_install('ray')}") from None
    return ray


def connect(address: str | None) -> Callable[[], None]:
    """Join the cluster at `address` and return how to leave it.

    Without an address Ray looks for a cluster (RAY_ADDRESS, then one started on this machine) and starts a local one
    if there is none; `local` starts one in any case. Where this process has joined already, that stays as it is.
    """
    ray = import_ray()
    if ray.is_initialized():
        return lambda: None
    _require_somebody(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise EngineError(f"cannot join a Ray cluster at {address or 'any address'}: {error}") from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, handler)  # Ray's own would end the run without a checkpoint
    leave: Callable[[], None] = ray.shutdown
    return leave


def _require_somebody(address: str | None) -> None:
    """Refuse a HOST:PORT where nobody listens; Ray itself would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise EngineError(
            f"no Ray cluster at {address} ({error.strerror or error}): start one (ray start --head), or leave the "
            "address out"
        ) from None


def cpus() -> int:
    """The CPUs of all nodes that are alive."""
    return int(import_ray().cluster_resources().get("CPU", 0))


# An actor -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kit:
    """What every actor needs: put into the object store once; its arrays are mapped, not copied."""

    model: nn.Module
    layout: Layout
    options: TrainingOptions
    hooks: LocalTraining
    seed: int
    samples: tuple[Array, Array, Array, Array]
    classes: int
    form: InputForm
    clip: float | None
    own: OwnLoss | None
    training_sets: Sequence[Array]
    ages: int
    two_faced: bool
    extras: Mapping[str, int]

    @classmethod
    def of(cls, world: World, hooks: LocalTraining, extras: Mapping[str, int] | None, whole: Population) -> _Kit:
        model, layout, _, corpus, options, _, seed, _ = parts(world, hooks, whole, shared_memory=False)
        x, y, test_x, test_y = (t.numpy() for t in (corpus.train_x, corpus.train_y, corpus.test_x, corpus.test_y))
        return cls(
            model, layout, options, hooks, seed, (x, y, test_x, test_y),
            corpus.classes, corpus.form, corpus.clip, corpus.own, corpus.shards,
            len(whole.snapshots), whole.voices is not whole.snapshots, dict(extras or {}),
        )  # fmt: skip

    def bench(self, clients: Sequence[int]) -> tuple[Workbench, Shard]:
        """A workbench on fresh rows of these clients."""
        held = Population.allocate(
            self.layout, len(clients), ages=self.ages, two_faced=self.two_faced, extras=self.extras
        )
        shard = Shard(held, clients, len(self.training_sets))
        train_x, train_y, test_x, test_y = (torch.from_numpy(a) for a in self.samples)
        how = (self.classes, self.training_sets, self.form, self.clip, self.own)
        corpus = Corpus(train_x, train_y, test_x, test_y, *how)
        population: Any = shard  # what a workbench does with single rows, a shard can do too
        return Workbench(self.model, self.layout, population, corpus, self.options, self.hooks, self.seed), shard


class ShardActor:
    """Some clients' rows in a process somewhere in the cluster."""

    def __init__(self, kit: _Kit) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to samples
        self._kit = kit

    def ready(self) -> bool:
        """Answers as soon as the actor runs."""
        return True

    def hold(self, clients: Sequence[int]) -> None:
        """Hold the rows of these clients from now on."""
        self._bench, self._shard = self._kit.bench(clients)

    def work(self, tasks: Sequence[Task[Result]], keys: Sequence[Key], *rows: Array) -> list[Result]:
        """Carry out tasks of clients that are held here; `rows` are those of others that they read."""
        # Copied: kernels may round differently on memory that is aligned differently.
        self._shard.welcome({key: torch.from_numpy(row).clone() for key, row in zip(keys, rows, strict=True)})
        return carry_out(tasks, self._bench)

    def lend(self, keys: Sequence[Key]) -> Any:
        """Rows for others, each an object of its own."""
        rows = [self._shard.row(key).numpy() for key in keys]
        return tuple(rows) if len(rows) > 1 else rows[0]

    def reset(self, row: Array) -> None:
        """Everybody starts from the same weights."""
        self._shard.held.reset(torch.from_numpy(row))

    def read(self, keys: Sequence[Key]) -> Array:
        """Rows for the record."""
        return np.stack([self._shard.row(key).numpy() for key in keys])

    def write(self, keys: Sequence[Key], rows: Array) -> None:
        """Rows from the record."""
        for key, row in zip(keys, torch.from_numpy(rows), strict=True):
            self._shard.row(key).copy_(row)


# The engine ---------------------------------------------------------------------------------------------------------


class RayActors:
    """One large population over actors on many nodes. `workers` actors at most, a CPU each; default: all CPUs."""

    def __init__(
        self,
        world: World,
        hooks: LocalTraining,
        workers: int | None = None,
        extras: dict[str, int] | None = None,
        address: str | None = None,
    ) -> None:
        self._ray = import_ray()
        self._leave = connect(address)
        self._method, self._workers = world.config.method.id, workers
        self._sizes = [float(len(roles.train)) for roles in world.federation.roles]
        with torch.device("meta"):  # shapes without memory
            self._whole = allocate(world, extras, shared_memory=False)
        self._actors: list[Any] = []
        self._home: list[int] = []  # client -> which actor holds it
        self.population = _Scattered(self)
        try:
            self._kit = self._ray.put(_Kit.of(world, hooks, extras, self._whole))
            self._hire()
        except BaseException:
            self.close()
            raise

    # Work -----------------------------------------------------------------------------------------------------------

    def map(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """Run every task where its client's rows are. Others' rows are lent first, so that no actor waits."""
        chunks = [chunk for home in range(len(self._actors)) for chunk in self._chunks(home, tasks)]
        lent = self._lend(sorted({key for _, _, keys in chunks for key in keys}))
        pending = [
            self._actors[home].work.remote([tasks[i] for i in picked], keys, *(lent[key] for key in keys))
            for home, picked, keys in chunks
        ]
        del lent  # rows go as soon as nobody needs them
        results: list[Any] = [None] * len(tasks)
        for (_, picked, _), answers in zip(chunks, self._collect(pending, tasks), strict=True):
            for i, result in zip(picked, answers, strict=True):
                results[i] = result
        return results

    def _chunks(self, home: int, tasks: Sequence[Task[Any]]) -> Iterator[tuple[int, list[int], list[Key]]]:
        """An actor's tasks in stretches that read a bounded number of others' rows: (actor, tasks, rows)."""
        picked: list[int] = []
        guests: dict[Key, None] = {}
        for i, task in enumerate(tasks):
            if self._home[task.client] != home:
                continue
            wanted = {
                (row.tensor, self._whole.slot(row.round), row.client): None
                for row in task.rows()
                if self._home[row.client] != home
            }
            if picked and len(guests | wanted) > GUESTS:
                yield home, picked, list(guests)
                picked, guests = [], {}
            picked.append(i)
            guests |= wanted
        if picked:
            yield home, picked, list(guests)

    def _lend(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """References to rows, put into the object store by those who hold them."""
        lent: dict[Key, Any] = {}
        for home, actor in enumerate(self._actors):
            asked = [key for key in keys if self._home[key[2]] == home]
            for start in range(0, len(asked), GUESTS):
                part = asked[start : start + GUESTS]
                references = actor.lend.options(num_returns=len(part)).remote(part)
                lent |= zip(part, references if len(part) > 1 else [references], strict=True)
        return lent

    def _collect(self, pending: Sequence[Any], tasks: Sequence[Task[Any]]) -> list[Any]:
        try:
            return self.get(pending)
        except NotHereError as error:
            step = type(tasks[0])
            raise EngineError(
                f"method {self._method!r} cannot run on a population in shards: its task {step.__module__}."
                f"{step.__qualname__} {error}. Say in its `rows` whose rows it reads, or use --engine processes"
            ) from None

    def get(self, references: Sequence[Any]) -> list[Any]:
        """The results; an error is the one that the work raised, or says that rows are lost."""
        ray = self._ray.exceptions
        try:
            found: list[Any] = self._ray.get(list(references))
            return found
        except ray.RayError as error:
            cause: Exception = error
            while isinstance(cause, ray.RayTaskError):
                cause = cause.cause
        if not isinstance(cause, ray.RayError):
            raise cause
        gone = (ray.RayActorError, ray.ObjectLostError, ray.NodeDiedError, ray.WorkerCrashedError, ray.OutOfMemoryError)
        if isinstance(cause, gone):
            raise LostRowsError(f"an actor is gone, and its clients' rows with it: {_line(cause)}", self.rebuild)
        raise EngineError(f"Ray could not carry the work out: {_line(cause)}")

    # Actors -----------------------------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Replace dead actors, as far as the cluster has room, and deal all rows anew; they are blank."""
        alive = []
        for actor in self._actors:
            try:
                self._ray.get(actor.ready.remote())
                alive.append(actor)
            except self._ray.exceptions.RayActorError:
                continue
        self._actors = alive
        self._hire()

    def _hire(self) -> None:
        """Actors up to the number wanted, or those that the cluster has room for; then everybody gets clients."""
        wanted = min(self._workers or cpus(), len(self._sizes))
        factory = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(ShardActor)
        hired = [factory.remote(self._kit) for _ in range(min(wanted, cpus()) - len(self._actors))]
        pending = {actor.ready.remote(): actor for actor in hired}
        patience = time.monotonic() + (OTHER_ACTORS if self._actors else FIRST_ACTOR)
        while pending and len(self._actors) < cpus() and time.monotonic() < patience:
            for reference in self._ray.wait(list(pending), timeout=0.5)[0]:
                actor = pending.pop(reference)
                if self._came(reference):
                    self._actors.append(actor)
                    patience = time.monotonic() + OTHER_ACTORS
        for actor in pending.values():
            self._ray.kill(actor)
        if not self._actors:
            raise EngineError(
                f"no actor could start on the Ray cluster, which has {cpus()} CPUs: none was free within "
                f"{FIRST_ACTOR:.0f} s, or sagefl is not installed on its nodes"
            )
        self._settle()

    def _came(self, reference: Any) -> bool:
        try:
            return bool(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            logger.warning("an actor could not start: %s", error)
            return False

    def _settle(self) -> None:
        held = deal(self._sizes, len(self._actors))
        self._home = [0] * len(self._sizes)
        for home, clients in enumerate(held):
            for client in clients:
                self._home[client] = home
        self.get([actor.hold.remote(clients) for actor, clients in zip(self._actors, held, strict=True)])

    def close(self) -> None:
        """End the actors, and leave the cluster if this engine joined it."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        self._kit = None
        self._leave()

    # Rows, for checkpoints --------------------------------------------------------------------------------------------

    def shapes(self) -> Iterator[tuple[str, int, int]]:
        """Tables of the whole population."""
        return self._whole.shapes()

    def by_home(self, keys: Sequence[Key]) -> Iterator[tuple[Any, list[int]]]:
        """Actors, and which of these rows each holds."""
        for home, actor in enumerate(self._actors):
            if picked := [i for i, key in enumerate(keys) if self._home[key[2]] == home]:
                yield actor, picked

    def everywhere(self, row: Tensor) -> None:
        """Let every client start from `row`."""
        reference = self._ray.put(row.numpy())
        self.get([actor.reset.remote(reference) for actor in self._actors])

    @property
    def clients(self) -> int:
        """K, the number of clients."""
        return len(self._sizes)


def _line(error: Exception) -> str:
    """The first, most telling line of Ray's message."""
    return str(error).strip().splitlines()[0]


class _Scattered:
    """The population as checkpoints see it: slices are gathered from, and dealt to, the actors that hold them."""

    def __init__(self, engine: RayActors) -> None:
        self._engine = engine

    def reset(self, row: Tensor) -> None:
        """Everybody starts from the same weights, head included, with a fresh optimiser."""
        self._engine.everywhere(row)

    def shapes(self) -> Iterator[tuple[str, int, int]]:
        """Everything a checkpoint must hold, as (name, rows, columns)."""
        return self._engine.shapes()

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Some rows of a table, in this process for as long as they are wanted."""
        keys = self._keys(name, start, stop)
        columns = {table: columns for table, _, columns in self.shapes()}[name]
        rows = np.empty(len(keys) if name == "steps" else (len(keys), columns), dtype=np.float32)
        for actor, picked in self._engine.by_home(keys):  # one after another: a part is gone before the next is here
            rows[picked] = self._engine.get([actor.read.remote([keys[i] for i in picked])])[0]
        return torch.from_numpy(rows if rows.ndim > 1 else rows[None])

    def write(self, name: str, start: int, rows: Tensor) -> None:
        """Overwrite rows of a table."""
        keys, flat = self._keys(name, start, start + len(rows)), rows[0] if name == "steps" else rows
        shares = self._engine.by_home(keys)
        self._engine.get(
            [actor.write.remote([keys[i] for i in picked], flat[picked].numpy()) for actor, picked in shares]
        )

    def _keys(self, name: str, start: int, stop: int) -> list[Key]:
        """The rows of a flat table one by one; the steps of all clients are a single one."""
        clients = self._engine.clients
        if name == "steps":
            return [(name, 0, client) for client in range(clients)]
        return [(name, *divmod(row, clients)) for row in range(start, stop)]
