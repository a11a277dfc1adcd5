"""What a node has published: immutable snapshots by digest, each with its own model, and how they answer.

Training continues in place on another row; a snapshot is a copy that never changes, so all answers and pulls of one
digest come from the same model. The last few are kept, because neighbours decide at their own pace.

Requests that wait at the same time are answered in one pass, on threads of their own; callers' threads only wait.
Running inference in them would take 15 % longer, because each would touch its own memory, and because a forward pass
releases the interpreter's lock at every layer, which costs most when many small requests take turns.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save
from torch import Tensor, nn

from ..learning.corpus import model_input, placed
from ..learning.layout import Layout
from ..learning.models import copied, plain

CPU = torch.device("cpu")
TOGETHER = 512  # inputs in one forward pass, unless one request alone has more
OVER_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def block_digest(block: Tensor, layout: Layout) -> bytes:
    """The name of a snapshot: SHA-256 over the layout's digest and the shared block's bytes, padding included."""
    content = np.ascontiguousarray(block.numpy(), dtype="<f4")
    return hashlib.sha256(layout.digest.encode() + content.tobytes()).digest()


def payload(row: Tensor, layout: Layout, *, full: bool) -> bytes:
    """The shared parameters (or all of them) by name, as safetensors."""
    views = layout.views(row)
    names = [slot.name for slot in layout.slots if full or slot.start < layout.shared_stop]
    return save({name: views[name].contiguous() for name in names})


@dataclass(frozen=True)
class Snapshot:
    """One published model; it never changes."""

    round: int
    row: Tensor
    layout: Layout
    model: nn.Module
    digest: bytes
    loss: float = 0.0  # mean training loss and samples seen in the round that made it
    samples: int = 0
    device: torch.device = CPU  # where the module answers

    @classmethod
    def of(
        cls,
        template: nn.Module,
        layout: Layout,
        row: Tensor,
        round: int,
        loss: float,
        samples: int,
        device: torch.device = CPU,
    ) -> Snapshot:
        """A snapshot of `row` as it is now, with its own module whose parameters are that copy."""
        kept = row.detach().clone()
        model = copied(template) if device == CPU else plain(template, device)
        layout.bind(model, kept.to(device))
        model.eval().requires_grad_(False)
        return cls(round, kept, layout, model, block_digest(kept[layout.shared], layout), loss, samples, device)

    def infer(self, inputs: npt.NDArray[Any], part: str = "forward") -> Tensor:
        """What a function of the model gives for raw inputs. Safe from several threads: nothing is written."""
        with torch.inference_mode():
            x = placed(model_input(inputs), self.device)
            out: Tensor = self.model(x) if part == "forward" else getattr(self.model, part)(x)
            return out.cpu()

    @cached_property
    def by_row(self) -> bool:
        """Whether an answer depends on its own input alone, and not on the others in the batch."""
        over = (module for module in self.model.modules() if isinstance(module, OVER_BATCHES))
        return all(module.running_mean is not None for module in over)

    def told(self, what: str) -> float:
        """The training loss or the number of samples as others see it; a loss that diverged is a very large number."""
        value = float(getattr(self, what))
        return value if isfinite(value) else float(np.finfo(np.float32).max)

    @cached_property
    def block(self) -> bytes:
        """The shared block as it is sent."""
        return payload(self.row, self.layout, full=False)

    @property
    def whole(self) -> bytes:
        """The full model as it is sent."""
        return payload(self.row, self.layout, full=True)


class Snapshots:
    """The newest snapshots; many threads read them, one writes."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._kept: OrderedDict[bytes, Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def publish(self, snapshot: Snapshot) -> None:
        """Add a snapshot as the newest; the oldest is dropped when there are too many."""
        with self._lock:
            self._kept.pop(snapshot.digest, None)
            self._kept[snapshot.digest] = snapshot
            while len(self._kept) > self.keep:
                self._kept.popitem(last=False)

    def find(self, digest: bytes = b"") -> Snapshot | None:
        """The snapshot with a digest, or the newest for an empty one; None if it is not, or no longer, kept."""
        with self._lock:
            if digest:
                return self._kept.get(digest)
            return next(reversed(self._kept.values()), None)

    def digests(self) -> set[bytes]:
        """The digests of all snapshots kept."""
        with self._lock:
            return set(self._kept)


# Answers --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Question:
    snapshot: Snapshot
    inputs: npt.NDArray[Any]
    part: str  # which function of the model
    answer: Future[Tensor] = field(default_factory=Future)

    def goes_with(self, other: _Question) -> bool:
        return self.snapshot is other.snapshot and self.part == other.part and self.snapshot.by_row


class Answering:
    """At most `threads` forward passes at once, because training needs some of the machine too."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="answer")
        self._waiting: deque[_Question] = deque()
        self._lock = threading.Lock()

    def ask(self, snapshot: Snapshot, inputs: npt.NDArray[Any], part: str) -> Tensor:
        """What `snapshot.infer` gives, to within the rounding of another batch size; waits for its turn."""
        question = _Question(snapshot, inputs, part)
        with self._lock:
            self._waiting.append(question)
        self._threads.submit(self._answer_next)
        return question.answer.result()

    def close(self) -> None:
        """Take no more questions; those already waiting are still answered."""
        self._threads.shutdown(wait=False)

    def _answer_next(self) -> None:
        batch = self._take()
        if not batch:  # answered together with an earlier one
            return
        try:
            answers = _together(batch)
        except Exception:  # a user's model may fail on one request; that must not fail the others
            for question in batch:
                _alone(question)
        else:
            for question, answer in zip(batch, answers, strict=True):
                question.answer.set_result(answer)

    def _take(self) -> list[_Question]:
        """The question that has waited longest, and others that fit into the same pass."""
        with self._lock:
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            taken, rows = [first], len(first.inputs)
            for other in list(self._waiting):
                if other.goes_with(first) and rows + len(other.inputs) <= TOGETHER:
                    self._waiting.remove(other)
                    taken.append(other)
                    rows += len(other.inputs)
            return taken


def _together(batch: Sequence[_Question]) -> Sequence[Tensor]:
    first = batch[0]
    inputs = first.inputs if len(batch) == 1 else np.concatenate([question.inputs for question in batch])
    out = first.snapshot.infer(inputs, first.part)
    parts: Sequence[Tensor] = torch.split(out, [len(question.inputs) for question in batch])
    return parts


def _alone(question: _Question) -> None:
    try:
        question.answer.set_result(question.snapshot.infer(question.inputs, question.part))
    except Exception as error:
        question.answer.set_exception(error)
