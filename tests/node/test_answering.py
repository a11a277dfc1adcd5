"""Answers to many callers at once: each gets its own, whatever it was computed together with."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sagefl.learning.layout import Layout
from sagefl.node.snapshots import TOGETHER, Answering, Snapshot


@dataclass(eq=False)
class Slow:
    """A snapshot whose first pass waits until it is let go, so that others come to wait behind it."""

    by_row: bool = True
    passes: list[tuple[str, int]] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def infer(self, inputs: np.ndarray, kind: str) -> Tensor:
        self.started.set()
        assert self.go.wait(30)
        self.passes.append((kind, len(inputs)))
        if (inputs < 0).any():
            raise ValueError("this model knows no negative numbers")
        return torch.from_numpy(inputs) * (2.0 if kind == "forward" else 3.0)


def inputs(value: float, rows: int) -> np.ndarray:
    return np.full((rows, 2), value, dtype=np.float32)


def ask_while_busy(snapshot: Any, questions: list[tuple[Any, np.ndarray, str]]) -> list[Any]:
    """Ask one question, the others while it is being answered, in their order; all answers or errors."""
    answering = Answering(threads=1)
    with ThreadPoolExecutor(1 + len(questions)) as callers:
        asked = [callers.submit(answering.ask, snapshot, inputs(0, 1), "forward")]
        assert snapshot.started.wait(30)
        for number, question in enumerate(questions):
            asked.append(callers.submit(answering.ask, *question))
            while len(answering._waiting) <= number:
                threading.Event().wait(0.001)
        for each in {id(snapshot): snapshot, **{id(q[0]): q[0] for q in questions}}.values():
            each.go.set()
        answers = [each.exception(30) or each.result() for each in asked]
    answering.close()
    return answers[1:]


def test_requests_that_wait_together_are_answered_together_each_with_its_own() -> None:
    snapshot = Slow()
    answers = ask_while_busy(snapshot, [(snapshot, inputs(i, i), "forward") for i in (1, 2, 3)])
    assert snapshot.passes == [("forward", 1), ("forward", 6)]
    for i, answer in zip((1, 2, 3), answers, strict=True):
        assert torch.equal(answer, torch.full((i, 2), 2.0 * i))


def test_another_kind_and_another_snapshot_are_answered_apart_and_nobody_is_overtaken_for_long() -> None:
    snapshot, other = Slow(), Slow()
    wanted = [(snapshot, "forward"), (snapshot, "latent"), (other, "forward"), (snapshot, "forward")]
    answers = ask_while_busy(snapshot, [(s, inputs(i, 1), kind) for i, (s, kind) in enumerate(wanted)])
    assert snapshot.passes == [("forward", 1), ("forward", 2), ("latent", 1)]
    assert other.passes == [("forward", 1)]
    assert [float(answer[0, 0]) for answer in answers] == [0.0, 3.0, 4.0, 6.0]


def test_a_model_that_looks_at_its_whole_batch_sees_one_request_at_a_time() -> None:
    snapshot = Slow(by_row=False)
    ask_while_busy(snapshot, [(snapshot, inputs(i, i), "forward") for i in (1, 2, 3)])
    assert [rows for _, rows in snapshot.passes] == [1, 1, 2, 3]


@pytest.mark.parametrize("normalised", [False, True])
def test_which_models_look_at_their_whole_batch(normalised: bool) -> None:
    layers = [nn.Flatten(), nn.Linear(4, 3)]
    layers += [nn.BatchNorm1d(3, track_running_stats=False)] if normalised else [nn.LayerNorm(3)]
    snapshot = Snapshot(0, torch.zeros(0), cast(Layout, None), nn.Sequential(*layers).eval(), b"")
    x = np.random.default_rng(0).random((6, 4), dtype=np.float32)
    with torch.inference_mode():
        alike = torch.allclose(snapshot.model(torch.from_numpy(x))[:2], snapshot.model(torch.from_numpy(x[:2])))
    assert snapshot.by_row is alike is (not normalised)


def test_a_pass_has_a_limit_and_a_larger_request_goes_alone() -> None:
    snapshot = Slow()
    ask_while_busy(snapshot, [(snapshot, inputs(1, rows), "forward") for rows in (TOGETHER - 1, TOGETHER + 5, 2, 1)])
    assert [rows for _, rows in snapshot.passes] == [1, TOGETHER, TOGETHER + 5, 2]


def test_a_request_that_fails_fails_alone() -> None:
    snapshot = Slow()
    fine, bad, fine_too = ask_while_busy(snapshot, [(snapshot, inputs(v, 2), "forward") for v in (1, -1, 2)])
    assert torch.equal(fine, torch.full((2, 2), 2.0))
    assert torch.equal(fine_too, torch.full((2, 2), 4.0))
    assert isinstance(bad, ValueError)


@pytest.mark.parametrize("threads", [1, 3])
def test_under_load_everybody_gets_the_right_answer(threads: int) -> None:
    snapshot, answering = Slow(), Answering(threads)
    snapshot.go.set()
    sizes = np.random.default_rng(0).integers(1, 200, 300)
    with ThreadPoolExecutor(16) as callers:
        asked = [callers.submit(answering.ask, snapshot, inputs(i, n), "forward") for i, n in enumerate(sizes)]
        for i, (n, each) in enumerate(zip(sizes, asked, strict=True)):
            assert torch.equal(each.result(30), torch.full((int(n), 2), 2.0 * i))
    assert sum(rows for _, rows in snapshot.passes) == sizes.sum()
    answering.close()
