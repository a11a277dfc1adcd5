"""Training on a row is training: it equals torch's own Adam on a plain module, and touches nothing else."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sagefl.learning.corpus import Corpus, as_input
from sagefl.learning.layout import Layout
from sagefl.learning.models import ModelError, build_model
from sagefl.learning.tasks import Answer, Score, Train
from sagefl.learning.training import Local, LocalTraining, TrainingOptions, optimizer_step
from sagefl.learning.workbench import Workbench
from sagefl.selection.scoring import scoring

LATENTS = scoring("latents", "error")

Make = Callable[..., Workbench]


def plainly(
    model: nn.Module,
    corpus: Corpus,
    orders: list[np.ndarray],
    size: int,
    kind: type[torch.optim.Optimizer] = torch.optim.Adam,
    **options: Any,
) -> nn.Module:
    """What most people would write: one module, one optimiser, rounds of mini-batches."""
    module = deepcopy(model)
    optimiser = kind(module.parameters(), **({"lr": 1e-3} | options))
    for order in orders:
        for start in range(0, len(order), size):
            picked = torch.from_numpy(order[start : start + size])
            optimiser.zero_grad()
            F.cross_entropy(module(as_input(corpus.train_x[picked])), corpus.train_y[picked]).backward()
            optimiser.step()
    return module


def orders(bench: Workbench, client: int, rounds: int) -> list[np.ndarray]:
    return [bench.batches(client, t, 0) for t in range(rounds)]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_step_on_a_row_is_torchs_own_bit_for_bit(
    small: nn.Module, decay: float, kind: type[torch.optim.Optimizer]
) -> None:
    plain, layout = deepcopy(small), Layout.of(small)
    optimiser = kind(plain.parameters(), lr=1e-3, weight_decay=decay, fused=True)
    options = TrainingOptions(optimizer="adam" if kind is torch.optim.Adam else "sgd", weight_decay=decay)
    row, first, second = (torch.zeros(layout.width) for _ in range(3))
    gradient, step = torch.zeros(layout.width), torch.zeros(())
    for name, parameter in plain.named_parameters():
        layout.views(row)[name].copy_(parameter.detach())
    for t in range(3):
        for k, (name, parameter) in enumerate(plain.named_parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(10 * t + k))
            layout.views(gradient)[name].copy_(parameter.grad)
        optimiser.step()
        optimizer_step(options, [row], [gradient], [first], [second], [step])
    for name, parameter in plain.named_parameters():
        assert torch.equal(layout.views(row)[name], parameter), name
        assert not torch.equal(parameter, small.get_parameter(name))


def test_training_a_row_equals_adam_on_a_plain_module(make_bench: Make, small: nn.Module, corpus: Corpus) -> None:
    """Up to rounding: on some processors matrix products round by where in memory a tensor lies."""
    plain = deepcopy(small)
    bench = make_bench(batch_size=4)
    for t in range(3):
        Train(2, t).run(bench)
    got = bench.layout.views(bench.population.params[2])
    exact = plainly(plain, corpus, orders(bench, 2, 3), 4, fused=True)
    usual = plainly(plain, corpus, orders(bench, 2, 3), 4, fused=False)
    for name, parameter in exact.named_parameters():
        for other in (parameter, usual.get_parameter(name)):
            assert torch.allclose(got[name], other, rtol=1e-5, atol=1e-7), name
        assert not torch.equal(got[name], plain.get_parameter(name))
    assert bench.population.steps.tolist() == [0, 0, 12, 0]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_training_a_row_equals_sgd_on_a_plain_module(
    make_bench: Make, small: nn.Module, corpus: Corpus, momentum: float, decay: float
) -> None:
    """Up to rounding, as above; with momentum torch's kernel rounds otherwise at a tensor's end, too."""
    plain = deepcopy(small)
    bench = make_bench(batch_size=4, optimizer="sgd", learning_rate=0.1, momentum=momentum, weight_decay=decay)
    for t in range(3):
        Train(2, t).run(bench)
    got = bench.layout.views(bench.population.params[2])
    options = {"lr": 0.1, "momentum": momentum, "weight_decay": decay}
    exact = plainly(plain, corpus, orders(bench, 2, 3), 4, torch.optim.SGD, fused=True, **options)
    usual = plainly(plain, corpus, orders(bench, 2, 3), 4, torch.optim.SGD, **options)
    for name, parameter in exact.named_parameters():
        for other in (parameter, usual.get_parameter(name)):
            assert torch.allclose(got[name], other, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(got[name], plain.get_parameter(name), rtol=1e-2)
    assert bench.population.steps.tolist() == [0, 0, 12, 0]
    assert bench.population.first[2].any() == (momentum > 0)


def test_weight_decay_of_adam_is_that_of_torch(make_bench: Make, small: nn.Module, corpus: Corpus) -> None:
    plain = deepcopy(small)
    bench = make_bench(batch_size=4, weight_decay=0.1)
    Train(2, 0).run(bench)
    exact = plainly(plain, corpus, orders(bench, 2, 1), 4, fused=True, weight_decay=0.1)
    for name, view in bench.layout.views(bench.population.params[2]).items():
        assert torch.allclose(view, exact.get_parameter(name), rtol=1e-5, atol=1e-7), name


def test_the_paper_model_trains_like_a_plain_one(corpus: Corpus) -> None:
    from sagefl.learning.population import Population
    from sagefl.learning.training import TrainingOptions

    x = F.pad(corpus.train_x, (0, 3, 0, 3))
    model = build_model("encoder-decoder", (1, 8, 8), 4, 1, {"widths": (4, 8), "latent": 6})
    plain = deepcopy(model)
    layout = Layout.of(model)
    population = Population.allocate(layout, 1)
    population.reset(layout.flatten(model))
    data = Corpus(x, corpus.train_y, x, corpus.train_y, 4, [np.arange(40)])
    bench = Workbench(model, layout, population, data, TrainingOptions(batch_size=16), LocalTraining(), seed=1)
    Train(0, 0).run(bench)
    optimiser = torch.optim.Adam(plain.parameters(), lr=1e-3, fused=True)
    for part in np.split(bench.batches(0, 0, 0), [16, 32]):
        optimiser.zero_grad()
        plain.loss(as_input(x[part]), corpus.train_y[part]).backward()
        optimiser.step()
    for name, view in layout.views(population.params[0]).items():
        assert torch.equal(view, plain.get_parameter(name)), name


def test_padding_stays_zero_and_other_rows_stay_as_they_were(make_bench: Make) -> None:
    bench = make_bench(batch_size=4)
    before = bench.population.params.clone()
    for t in range(4):
        Train(1, t).run(bench)
    used = torch.zeros(bench.layout.width, dtype=torch.bool)
    for slot in bench.layout.slots:
        used[slot.start : slot.start + slot.size] = True
    for tensor in (bench.population.params, bench.population.first, bench.population.second):
        assert tensor[:, ~used].eq(0).all()
    others = [0, 2, 3]
    assert torch.equal(bench.population.params[others], before[others])
    assert bench.population.first[others].eq(0).all()
    assert not torch.equal(bench.population.params[1], before[1])


def test_training_publishes_the_row(make_bench: Make) -> None:
    bench = make_bench(ages=3)
    for t in range(4):
        Train(0, t).run(bench)
        assert torch.equal(bench.population.snapshots[t % 3, 0], bench.population.params[0])
    assert not torch.equal(bench.population.snapshots[0, 0], bench.population.snapshots[1, 0])


@pytest.mark.parametrize(("cap", "epochs", "seen"), [(None, 1, 15), (2, 1, 8), (None, 3, 45), (1, 2, 8), (99, 1, 15)])
def test_the_cap_counts_batches_of_an_epoch(make_bench: Make, cap: int | None, epochs: int, seen: int) -> None:
    bench = make_bench(batch_size=4, max_batches=cap, epochs=epochs)
    loss, samples = Train(0, 0).run(bench)
    assert samples == seen
    assert bench.population.steps[0] == sum(-(-min(15, 4 * (cap or 99)) // 4) for _ in range(epochs))
    assert 0 < loss < 3


def test_the_loss_is_the_mean_over_every_sample_seen(make_bench: Make) -> None:
    class Told(LocalTraining):
        losses: list[tuple[float, int]] = []  # noqa: RUF012

        def loss(self, local: Local, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            value = super().loss(local, model, x, y)
            self.losses.append((float(value.detach()), len(x)))
            return value

    loss, seen = Train(0, 0).run(make_bench(hooks=Told(), batch_size=4, epochs=2))
    assert seen == sum(n for _, n in Told.losses) == 30
    assert loss == pytest.approx(sum(v * n for v, n in Told.losses) / seen)


def test_resetting_the_optimiser_forgets_moments_and_steps(make_bench: Make) -> None:
    fresh, kept = make_bench(reset_optimizer=True), make_bench(reset_optimizer=False)
    for bench in (fresh, kept):
        for t in range(2):
            Train(0, t).run(bench)
    assert (fresh.population.steps[0], kept.population.steps[0]) == (1, 2)
    assert not torch.equal(fresh.population.params, kept.population.params)


def test_hooks_can_freeze_columns_and_edit_gradients(make_bench: Make) -> None:
    class Frozen(LocalTraining):
        def columns(self, local: Local) -> slice:
            return local.layout.shared

    bench = make_bench(hooks=Frozen())
    before = bench.population.params[0].clone()
    Train(0, 0).run(bench)
    head = slice(bench.layout.shared_stop, None)
    assert torch.equal(bench.population.params[0, head], before[head])
    assert bench.population.first[0, head].eq(0).all()
    assert not torch.equal(bench.population.params[0, bench.layout.shared], before[bench.layout.shared])

    class Still(LocalTraining):
        def gradient(self, local: Local) -> None:
            local.gradient.zero_()

    bench = make_bench(hooks=Still())
    before = bench.population.params[0].clone()
    Train(0, 0).run(bench)
    assert torch.equal(bench.population.params[0], before)


def test_steps_that_a_method_leaves_alone_cost_nothing_per_batch(
    make_bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an object, not of its class, are a method's own as well."""
    called: list[str] = []
    for name in ("columns", "gradient", "stepped"):
        step = getattr(LocalTraining, name)
        monkeypatch.setattr(LocalTraining, name, _noted(name, step, called))
    monkeypatch.setattr(torch, "autocast", _noted("autocast", torch.autocast, called))
    bench = make_bench(batch_size=4)
    Train(0, 0).run(bench)
    assert called == []
    bench.hooks.stepped = lambda local: called.append(f"my own {local.batch}")  # type: ignore[method-assign]
    Train(0, 1).run(bench)
    assert called == ["my own 0", "my own 1", "my own 2", "my own 3"]


def _noted(name: str, function: Callable[..., Any], called: list[str]) -> Callable[..., Any]:
    def noted(*args: Any, **options: Any) -> Any:
        called.append(name)
        return function(*args, **options)

    return noted


class Noisy(nn.Module):
    """Dropout in body and head draws from torch's global generator."""

    shared = ("body",)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(25, 6), nn.Dropout(0.5))
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 4))

    def latent(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def test_dropout_depends_on_round_and_client_only(make_bench: Make) -> None:
    """What else was drawn before, or who trained before, must not matter; nor must the caller's generator move."""
    first = make_bench(Noisy())
    initial = first.population.params.clone()
    Train(0, 0).run(first)
    Train(1, 0).run(first)
    second = make_bench(Noisy())
    second.population.params.copy_(initial)
    torch.rand(17)
    state = torch.get_rng_state()
    Train(1, 0).run(second)
    Train(0, 0).run(second)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.population.params, second.population.params)
    assert not torch.equal(second.population.params[0], second.population.params[1])


def test_probes_and_scores_are_without_dropout(make_bench: Make) -> None:
    bench = make_bench(Noisy())
    Train(0, 0).run(bench)
    Train(1, 0).run(bench)
    indices = np.arange(20)
    z = Answer(1, 0, 0, indices, LATENTS).run(bench)
    bench.model.train()
    scores = Score(0, 0, z[None], indices, scoring("latents", "ce")).run(bench)
    bench.model.train()
    assert np.array_equal(scores, Score(0, 0, z[None], indices, scoring("latents", "ce")).run(bench))
    assert np.array_equal(z, Answer(1, 0, 0, indices, LATENTS).run(bench))


def test_a_constant_that_changes_is_refused_and_one_that_does_not_is_not(make_bench: Make, small: nn.Module) -> None:
    class Counting(type(small)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += len(x)
            return super().forward(x)

    with pytest.raises(ModelError, match="'seen' changed during training"):
        Train(0, 0).run(make_bench(Counting()))
    assert any(b.dtype == torch.int64 for b in small.buffers())
    Train(0, 0).run(make_bench(small))
