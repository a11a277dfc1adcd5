"""Many clients as one batched computation (`torch.func.vmap` over rows of the population matrix).

`StackedBench` does many tasks at once: local training, answers to probes,
inspections and evaluation. The random streams are the workbench's own, so every client trains on the same batches in
the same order; sums are taken in another order, so results agree within floating-point tolerance, not bit for bit.

Nothing is padded while training: a model may have a loss of its own that averages over the batch, and a padded sample
would weigh in it. At every step clients whose batches have the same length are stacked, ragged last batches by their
exact length; that is exact for any module. Inference is padded where a sample's output does not depend on its company,
which is tried out once (a batch norm without running statistics does depend on it: there, too, equal lengths only).

The population stays in host memory and visits the device in chunks, so it may be larger than the device, and whatever
is not stacked (mixing, a method's own steps, scores of latents) works on it as ever. Two more
things are done client by client: the training of a method with hooks of its own, and whatever vmap refuses or does not
get right (dropout, whose draws are per client; data-dependent control flow; changed buffers). Both are found out once,
by doing a small step both ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from .corpus import NARROWED, sliced
from .devices import CPU
from .models import copied, plain, training_loss
from .tasks import Answer, Evaluate, Gram, InspectModels, Result, Tally, Task, Train, carry_out
from .training import LocalTraining, optimizer_step
from .workbench import CHUNK, Indices, Workbench, finite, normal_gram

MOST = 256  # clients in a chunk; more only makes it larger, not faster
SHARE = 0.5  # of the memory that is free, for a chunk
CPU_ROOM = 64 << 20  # bytes of a chunk on a CPU: beyond its caches larger chunks are slower
Finish = Callable[[int, Tensor], Any]


class _Calling(nn.Module):
    """Lets `functional_call` reach any function of a model, not only its forward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Tensor], *args: Any) -> Tensor:
        return function(self.model, *args)


@dataclass
class _Chunk:
    """Some clients on the device: what `Train` changes of a population, and scratch for gradients."""

    rows: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor

    def __post_init__(self) -> None:
        self.gradient = torch.zeros_like(self.rows)  # padding between parameters is never written

    def of(self, members: Sequence[int]) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """Views of some clients' numbers, as the optimiser takes them."""
        rows, first, second, steps = (
            [tensor[i] for i in members] for tensor in (self.rows, self.first, self.second, self.steps)
        )
        return rows, first, second, steps


class StackedBench:
    """A workbench for many clients at once; `chunk` fixes how many (default: what fits into memory)."""

    def __init__(self, bench: Workbench, device: torch.device, chunk: int | None = None) -> None:
        self.bench, self.device, self._fixed = bench, device, chunk
        self.model = plain(bench.model, device)
        self._calling = _Calling(self.model)
        self._gradient_of_one = grad_and_value(self._loss, has_aux=True)
        self._gradients = vmap(self._gradient_of_one)
        corpus, free = bench.corpus, SHARE * available_memory(device, bench)
        self._room = min(free, CPU_ROOM) if device.type == "cpu" else free
        held = sum(t.nbytes for t in (corpus.train_x, corpus.test_x))
        wide = corpus.train_x.dtype in NARROWED  # such arrays stay in their files
        home = device if held < free / 2 and not wide else CPU  # where the images stay
        self._train_x, self._test_x = corpus.train_x.to(home), corpus.test_x.to(home)
        self._train_y = corpus.train_y.to(device)
        self.training_trouble = _hooked(bench.hooks) or self._try_training()
        self.inference_trouble = self._try_inference()
        self._sample_bytes = self._measure_sample()

    # The engine's side --------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """Why some of the work that could be stacked is done per client; None where all of it is stacked."""
        return self.training_trouble or self.inference_trouble

    def run(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """All tasks, which are of one kind, stacked where they can be."""
        stacked: dict[type[Any], Callable[[Any], list[Any]]] = {}
        if self.training_trouble is None:
            stacked |= {Train: self.train}
        if self.inference_trouble is None:
            stacked |= {Answer: self.answer, InspectModels: self.inspect, Evaluate: self.evaluate}
            stacked |= {Tally: self.test, Gram: self.gram}
        if tasks and (work := stacked.get(type(tasks[0]))) is not None:
            return work(tasks)
        return carry_out(tasks, self.bench)

    # Training -----------------------------------------------------------------------------------------------------

    def train(self, tasks: Sequence[Train]) -> list[tuple[float, int]]:
        """`Train` of many clients: chunks of clients in the same round with similar numbers of samples."""
        shards, options = self.bench.corpus.shards, self.bench.options
        longest = max((len(shards[task.client]) for task in tasks), default=0)
        at_once = self._fit(min(options.batch_size, longest), rows=6)
        results: list[Any] = [None] * len(tasks)
        for round in dict.fromkeys(task.round for task in tasks):
            here = [i for i, task in enumerate(tasks) if task.round == round]
            order = sorted(here, key=lambda i: -len(shards[tasks[i].client]))
            for start in range(0, len(order), at_once):
                chosen = order[start : start + at_once]
                trained = self._train_chunk([tasks[i].client for i in chosen], round)
                for i, result in zip(chosen, trained, strict=True):
                    results[i] = result
        self.bench.refuse_changed_constants(self.model)
        return results

    def _train_chunk(self, clients: list[int], round: int) -> list[tuple[float, int]]:
        p, o = self.bench.population, self.bench.options
        picked = torch.tensor(clients)
        stored = (p.params, p.first, p.second, p.steps)
        moved = [tensor[picked].to(self.device) for tensor in stored]
        if o.reset_optimizer:
            for moment in moved[1:]:
                moment.zero_()
        chunk = _Chunk(*moved)
        book: list[tuple[list[int], int, Tensor]] = []
        seen = np.zeros(len(clients), dtype=np.int64)
        self.model.train()
        for epoch in range(o.epochs):
            orders = [self.bench.batches(client, round, epoch) for client in clients]
            seen += [len(order) for order in orders]
            batches = [o.batches(len(order)) for order in orders]
            for number in range(max(map(len, batches))):
                for members, picks in _equal_batches(orders, batches, number):
                    book.append((members, picks.shape[1], self._step(chunk, members, picks)))
        published = p.snapshots[p.slot(round)]
        for tensor, held in zip((published, *stored), (moved[0], *moved), strict=True):
            tensor.index_copy_(0, picked, held.cpu())
        totals = np.zeros(len(clients))
        for members, samples, losses in book:
            totals[members] += losses.cpu().double().numpy() * samples
        return [(float(total), int(n)) for total, n in zip(totals / seen, seen, strict=True)]

    def _step(self, chunk: _Chunk, members: list[int], picks: Indices) -> Tensor:
        """One mini-batch of some clients of a chunk; returns their losses before it."""
        index, trained = torch.from_numpy(picks), self.bench.layout.trained
        x, y = self._inputs(self._train_x, index), self._train_y[index.to(self.device)]
        rows = chunk.rows if len(members) == len(chunk.rows) else chunk.rows[members]
        with self.bench.options.lower(self.device):
            gradients, (losses, state) = self._gradients(self._views(rows), self._views(rows, state=True), x, y)
        flat = chunk.gradient[: len(members)]
        for name, view in self._views(flat).items():
            view.copy_(gradients[name])
        with torch.no_grad():
            for name, view in self._views(rows, state=True).items():
                view.copy_(state[name])
            if state and rows is not chunk.rows:
                chunk.rows[members] = rows
            mine, first, second, steps = chunk.of(members)
            mine, flats = [row[trained] for row in mine], [row[trained] for row in flat.unbind()]
            optimizer_step(self.bench.options, mine, flats, first, second, steps)
        kept: Tensor = losses.detach()
        return kept

    def _loss(
        self, views: dict[str, Tensor], state: dict[str, Tensor], x: Any, y: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the buffers as training leaves them."""

        def trained(model: nn.Module, x: Any, y: Tensor) -> Any:
            loss = training_loss(model, x, y)
            return loss, {name: self._calling.get_buffer(name) for name in state}

        fresh = {name: buffer.clone() for name, buffer in state.items()}
        found: tuple[Tensor, dict[str, Tensor]] = functional_call(self._calling, views | fresh, (trained, x, y))
        return found

    # Inference ----------------------------------------------------------------------------------------------------

    def answer(self, tasks: Sequence[Answer]) -> list[Any]:
        """`Answer` of many peers."""
        p, results = self.bench.population, [None] * len(tasks)
        for form in dict.fromkeys(task.scoring for task in tasks):
            at = [i for i, task in enumerate(tasks) if task.scoring == form]
            chosen = [tasks[i] for i in at]
            asked = [(p.voices[p.slot(t.round, t.age), t.client], t.indices) for t in chosen]
            answers = self._each(asked, self._train_x, form.part, lambda _, out, form=form: form.answer(out))  # type: ignore[misc]
            for i, answer in zip(at, answers, strict=True):
                results[i] = answer
        return results

    def inspect(self, tasks: Sequence[InspectModels]) -> list[npt.NDArray[np.float64]]:
        """`InspectModels`: the models a client has before it, in one pass each client."""
        return [task.run(self.bench) if task.metric == "distance" else self._inspect(task) for task in tasks]

    def _inspect(self, task: InspectModels) -> npt.NDArray[np.float64]:
        asked = [(row, task.indices) for row in task.candidates(self.bench)]
        return finite(
            self._each(asked, self._train_x, "forward", lambda _, out: self.bench.judge(out, task.indices, task.metric))
        )

    def evaluate(self, tasks: Sequence[Evaluate]) -> list[tuple[float, float]]:
        """`Evaluate` of many clients; mixtures one by one."""
        if any(task.ensemble for task in tasks):
            return carry_out(tasks, self.bench)
        asked = [(self.bench.population.params[task.client], task.indices) for task in tasks]
        tested = any(task.tested for task in tasks)  # all of them or none

        def worth(i: int, out: Tensor) -> tuple[float, float]:
            return self.bench.evaluate(out, tasks[i].indices, tested=tested)

        return self._each(asked, self._test_x if tested else self._train_x, "forward", worth)

    def test(self, tasks: Sequence[Tally]) -> list[Any]:
        """`Tally` of many clients, who usually see the same samples; mixtures one by one."""
        if any(task.ensemble for task in tasks):
            return carry_out(tasks, self.bench)
        asked = [(self.bench.population.params[task.client], task.subset) for task in tasks]
        return self._each(asked, self._test_x, "forward", lambda i, out: self.bench.tally(out, tasks[i].subset))

    def gram(self, tasks: Sequence[Gram]) -> list[Any]:
        """`Gram` of many clients."""
        pulse = self.bench.pulse
        asked = [(self.bench.population.params[task.client], pulse) for task in tasks]
        return self._each(asked, self._test_x, "latent", lambda _, out: normal_gram(out))

    def _each(self, asked: Sequence[tuple[Tensor, Indices]], images: Tensor, part: str, finish: Finish) -> list[Any]:
        """`finish(i, output)` for every (row, samples): the outputs of a chunk of rows come from one pass."""
        results: list[Any] = [None] * len(asked)
        for chosen in self._chunks([len(samples) for _, samples in asked]):
            rows = torch.stack([asked[i][0] for i in chosen]).to(self.device)
            outputs = self._outputs(rows, images, [asked[i][1] for i in chosen], part).cpu()
            for i, output in zip(chosen, outputs, strict=True):
                results[i] = finish(i, output[: len(asked[i][1])])
        return results

    def _chunks(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Which rows go together: of one length, or (where padding is harmless) of at least half the longest."""
        chosen: list[int] = []
        room = shortest = 0
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            if chosen and (len(chosen) == room or lengths[i] < shortest):
                yield chosen
                chosen = []
            if not chosen:
                room = self._fit(min(lengths[i], CHUNK), rows=2)
                shortest = lengths[i] // 2 if self._unmoved_by_company else lengths[i]
            chosen.append(i)
        if chosen:
            yield chosen

    def _outputs(self, rows: Tensor, images: Tensor, samples: Sequence[Indices], part: str) -> Tensor:
        """(rows, longest, ...): every row's outputs, shorter ones padded with their last sample's."""
        if part != "forward":
            self.bench.part(part)  # says what is missing
        one = all(s is samples[0] for s in samples)
        longest = max(map(len, samples))
        picks = samples[0] if one else _padded(samples, longest)
        index, views = torch.from_numpy(picks), self._views(rows) | self._views(rows, state=True)
        forward = vmap(partial(_output, part), in_dims=(None, 0, None if one else 0))
        self.model.eval()
        with torch.no_grad():
            starts = range(0, longest, CHUNK)
            parts = [forward(self._calling, views, self._inputs(images, index[..., s : s + CHUNK])) for s in starts]
            return torch.cat(parts, dim=1)

    # Tools --------------------------------------------------------------------------------------------------------

    def _views(self, rows: Tensor, *, state: bool = False) -> dict[str, Tensor]:
        """The parameters (or buffers) of many rows as views, by the names `_Calling` knows them by."""
        return {f"model.{s.name}": s.of(rows) for s in self.bench.layout.slots if bool(s.buffer) == state}

    def _inputs(self, samples: Tensor, index: Tensor) -> Any:
        chosen = samples.index_select(0, index.flatten().to(samples.device)).view(*index.shape, *samples.shape[1:])
        return self.bench.corpus.form.inputs((chosen.float() if chosen.dtype in NARROWED else chosen).to(self.device))

    def _fit(self, samples: int, rows: int) -> int:
        """How many clients a chunk may hold when each needs so many samples and copies of its row."""
        if self._fixed is not None:
            return self._fixed
        return clients_that_fit(self._room, 4 * rows * self.bench.layout.width + samples * self._sample_bytes)

    # Trying out ---------------------------------------------------------------------------------------------------

    def _trial(self) -> tuple[Tensor, Any, Tensor]:
        """Two clients with different weights and three samples each."""
        row = self.bench.layout.flatten(self.bench.model).to(self.device)
        index = torch.arange(6).remainder(len(self._train_y)).view(2, 3)
        x, y = self._inputs(self._train_x, index), self._train_y[index.to(self.device)]
        rows = torch.stack([row, row])
        rows[1, self.bench.layout.trained] *= 0.9
        return rows, x, y

    def _try_training(self) -> str | None:
        """What is wrong with stacked training of this model: one step of two clients, both ways."""
        rows, x, y = self._trial()
        self.model.train()
        try:
            gradients, (losses, states) = self._gradients(self._views(rows), self._views(rows, state=True), x, y)
            for i in range(2):
                one, kept = self._views(rows[i]), self._views(rows[i], state=True)
                gradient, (loss, state) = self._gradient_of_one(one, kept, sliced(x, i), y[i])
                _agree(losses[i], loss)
                whole = float(torch.stack([part.norm() for part in gradient.values()]).norm())
                for name, part in gradient.items():  # of a bias before BatchNorm it is nothing but rounding
                    _agree(gradients[name][i], part, slack=1e-5 * whole)
                for name, part in state.items():
                    _agree(states[name][i].double(), part.double())
            self.bench.refuse_changed_constants(self.model)
        except Exception as error:  # from vmap or a user's module; working client by client will show it in full
            return f"the model's training cannot be stacked: {_first_line(error)}"
        return None

    def _try_inference(self) -> str | None:
        """What is wrong with stacked inference; also finds out whether an output depends on the other samples."""
        rows, x, _ = self._trial()
        self._unmoved_by_company = False
        self.model.eval()
        views = self._views(rows) | self._views(rows, state=True)
        try:
            for part in ("forward", *(["latent"] if hasattr(self.model, "latent") else [])):
                forward = partial(_output, part)
                with torch.no_grad():
                    stacked = vmap(forward, in_dims=(None, 0, 0))(self._calling, views, x)
                    one = {name: view[0] for name, view in views.items()}
                    _agree(stacked[0], forward(self._calling, one, sliced(x, 0)))
                    fewer = forward(self._calling, one, sliced(sliced(x, 0), slice(2)))
            self._unmoved_by_company = _alike(fewer, stacked[0, :2])
        except Exception as error:
            return f"the model's inference cannot be stacked: {_first_line(error)}"
        return None

    def _measure_sample(self) -> int:
        """Bytes a sample takes while a batch is trained: the layers' outputs, kept for and doubled by the way back."""
        floats = 0

        def count(module: nn.Module, args: Any, output: Any) -> None:
            nonlocal floats
            floats += output.numel() if isinstance(output, Tensor) else 0

        _, x, y = self._trial()
        model = copied(self.model)  # buffers may change
        leaves = [m for m in model.modules() if not list(m.children())]
        handles = [m.register_forward_hook(count) for m in leaves]
        # A model that fails here also fails in training, with a better explanation.
        with suppress(Exception), torch.no_grad(), torch.random.fork_rng(devices=[]):
            training_loss(model, sliced(x, 0), y[0])
        for handle in handles:
            handle.remove()
        given = sum(
            t[0, 0].numel() for t in ([x] if isinstance(x, Tensor) else x.values() if isinstance(x, dict) else x)
        )
        return 4 * (3 * floats // len(y[0]) + 2 * given)


def available_memory(device: torch.device, bench: Workbench) -> float:
    """Bytes that are free on a device; in host memory less what the population has not touched yet."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return float(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    reserved = sum(tensor.nbytes for _, tensor in bench.population.tensors()) + bench.population.snapshots.nbytes
    return max(0.0, _host_memory() - reserved)


def _host_memory() -> float:
    """Bytes a process can still get, as Linux estimates it; elsewhere what the machine has."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def clients_that_fit(free: float, each: int) -> int:
    """A power of two (so that small changes of what is free change nothing), at least 1 and at most `MOST`."""
    fit = max(1, min(MOST, int(free // max(each, 1))))
    return int(1 << (fit.bit_length() - 1))


def _equal_batches(
    orders: Sequence[Indices], batches: Sequence[list[slice]], number: int
) -> Iterator[tuple[list[int], Indices]]:
    """The batches of this number, stacked by exact length, and whose they are."""
    members: dict[int, list[int]] = {}
    for i, mine in enumerate(batches):
        if number < len(mine):
            members.setdefault(mine[number].stop - mine[number].start, []).append(i)
    for _, group in sorted(members.items(), reverse=True):
        yield group, np.stack([orders[i][batches[i][number]] for i in group])


def _padded(samples: Sequence[Indices], longest: int) -> Indices:
    """A row each, filled up with the last sample."""
    picks = np.empty((len(samples), longest), dtype=np.int64)
    for row, mine in zip(picks, samples, strict=True):
        row[: len(mine)], row[len(mine) :] = mine, mine[-1]
    return picks


def _output(part: str, calling: _Calling, views: dict[str, Tensor], x: Any) -> Tensor:
    """What one function of the model gives; its forward is called as the model, so that hooks run."""
    out: Tensor = functional_call(
        calling, views, (lambda model, x: model(x) if part == "forward" else getattr(model, part)(x), x)
    )
    return out


def _hooked(hooks: LocalTraining) -> str | None:
    if type(hooks) is LocalTraining:
        return None
    return f"the method trains in a way of its own ({type(hooks).__name__})"


def _agree(ours: Tensor, theirs: Tensor, slack: float = 1e-6) -> None:
    if not _alike(ours, theirs, slack):
        raise ValueError("stacked and single results differ")


def _alike(a: Tensor, b: Tensor, slack: float = 1e-6) -> bool:
    return bool((a - b).norm() <= 1e-3 * b.norm() + slack)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
