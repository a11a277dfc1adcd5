"""Inference for callers on separate threads; requests that wait at the same time are answered in one pass.

Callers' threads only wait. Running inference in them would take 15 % longer, because each would touch its own memory,
and because a forward pass releases the interpreter's lock at every layer, which costs most when many small requests
take turns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .snapshots import Snapshot

TOGETHER = 512  # inputs in one forward pass, unless one request alone has more


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
