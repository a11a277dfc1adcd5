"""One batch before any work: what is wrong is a sentence, and what a model needs is found out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sagefl.learning.models import ModelError
from sagefl.learning.trial import try_out

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12) % 2
VALUES = X[:, :1].copy()


class Gives(nn.Module):
    """Whatever a function makes of the outputs."""

    def __init__(self, change: Any = lambda out: out, outputs: int = 2) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(3, outputs), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.layer(x))


class Words(nn.Module):
    """An embedding of ten words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x).sum(1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda out: (out, out), "Gives.forward returned a tuple; expected a tensor, 8 x 2 .samples x classes."),
        (lambda out: out[:, :1], "Gives.forward returned 8 x 1; expected a tensor, 8 x 2"),
        (lambda out: out.mean(), "Gives.forward returned a single number; expected"),
        (lambda out: out / 0, "the loss of Gives on its first batch is nan: check the scale of the inputs"),
        (lambda out: out.detach(), "Gives has nothing to train: its loss depends on no parameter"),
        (lambda out: out @ out, r"Gives cannot be trained on these data: RuntimeError: .* A batch is float32 N x 3"),
    ],
)
def test_an_output_that_does_not_fit_is_named(change: Any, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        try_out(Gives(change), X, Y, 2)


def test_a_word_outside_the_vocabulary_shows_wherever_it_stands() -> None:
    tokens = np.ones((50, 4), np.int32)
    try_out(Words(), tokens, np.arange(50) % 2, 2)
    for bad in (-1, 10):
        tokens[40, 2] = bad
        with pytest.raises(
            ModelError, match=rf"IndexError.*whole numbers in the inputs: {min(bad, 1)} to {max(bad, 1)}"
        ):
            try_out(Words(), tokens, np.arange(50) % 2, 2)


def test_whole_numbers_for_a_model_of_floats_are_refused_by_their_type() -> None:
    with pytest.raises(ModelError, match=r"Gives cannot be trained .* A batch is int64 N x 3"):
        try_out(Gives(), X.astype(np.int64), Y, 2)


def test_values_may_come_as_a_vector() -> None:
    try_out(Gives(lambda out: out[:, 0], 1), X, VALUES, 1)
    with pytest.raises(ModelError, match=r"returned 8 x 2; expected a tensor, 8 x 1 .samples x values."):
        try_out(Gives(), X, VALUES, 1)


def test_it_finds_state_and_layers_that_need_company() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    before = [b.clone() for b in model.buffers()]
    found = try_out(model, X, Y, 2)
    assert found.state == ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert found.lone
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))  # tried on a copy
    plain = try_out(Gives(), X, Y, 2)
    assert (plain.state, plain.lone) == ((), False)


class Keeps(Gives):
    """Does something to its state with every batch."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what, self.base = what, nn.Linear(3, 2).requires_grad_(False)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.what(self)
        return self.layer(x)


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        (
            lambda m: setattr(m, "seen", torch.cat([m.seen, m.seen])),
            "Keeps changes the buffer 'seen' from float32 1 to",
        ),
        (
            lambda m: setattr(m, "seen", m.seen.long()),
            "from float32 1 to int64 1 in its first batch; expected one type",
        ),
        (lambda m: m.register_buffer("late", torch.zeros(1)), "makes the buffer 'late' when it is called: register it"),
        (lambda m: m.base.weight.mul_(0.9), "changes the frozen parameter 'base.weight', which all clients share"),
    ],
)
def test_state_that_no_client_could_keep_is_refused(what: Any, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        try_out(Keeps(what), X, Y, 2)


def test_a_batch_is_tried_in_the_precision_of_training() -> None:
    def spread(out: Tensor) -> Tensor:
        return torch.zeros(len(out), 2).index_add(0, torch.arange(len(out)), out)

    try_out(Gives(spread), X, Y, 2)
    with pytest.raises(ModelError, match=r"RuntimeError: index_add_.*BFloat16"):
        try_out(Gives(spread), X, Y, 2, "bfloat16")


def test_a_model_that_cannot_be_copied_is_named_with_the_reason() -> None:
    model = Gives()
    model.doubled = model.layer.weight * 2
    with pytest.raises(ModelError, match=r"Gives cannot be copied.*: it holds a tensor that was computed from its par"):
        try_out(model, X, Y, 2)


def test_a_loss_that_is_called_with_outputs_is_explained() -> None:
    model = Gives()
    model.loss = nn.CrossEntropyLoss()
    with pytest.raises(ModelError, match=r"nothing to train.* a loss of its own, which is called with inputs"):
        try_out(model, X, Y, 2)


def test_a_batch_is_tried_on_one_thread_and_threads_are_given_back() -> None:
    """Starting threads for a few samples took longer than all else before a small run."""
    before, seen = torch.get_num_threads(), list[int]()

    def noted(out: Tensor) -> Tensor:
        seen.append(torch.get_num_threads())
        return out

    torch.set_num_threads(2)
    try:
        try_out(Gives(noted), X, Y, 2)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
