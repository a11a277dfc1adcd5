from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from driving import Given, drive

from sagefl.learning.layout import Layout
from sagefl.learning.models import Mlp, training_loss
from sagefl.learning.training import Local, LocalTraining, TrainingOptions, run_epoch
from sagefl.methods import method
from sagefl.methods.dflstar import TEACHER, DFLStarRule, SelfDistillation
from sagefl.selection import ME, Reason

LAYERS = {ME: (1.0, 0.0), "a": (3.0, 0.0), "b": (-1.0, 0.0), "c": (0.5, sqrt(3) / 2)}  # cosines 1, -1, 1/2


def test_the_least_or_the_most_similar_last_layers():
    answers = Given(readings={"last-layer": LAYERS})
    outcome = drive(DFLStarRule(k=2).begin("abc", 0), answers)
    assert outcome.peers == ("b", "c")
    assert outcome.weights == {"b": 1 / 3, "c": 1 / 3}
    assert (outcome.inspected, outcome.reads) == ((), {"last-layer": 3})
    assert drive(DFLStarRule(k=2, prefer="similar").begin("abc", 0), answers).peers == ("a", "c")


def test_few_neighbours():
    answers = Given(readings={"last-layer": LAYERS})
    assert drive(DFLStarRule().begin((), 0), answers).reason is Reason.NONE
    assert drive(DFLStarRule(k=2).begin("a", 0), answers).peers == ("a",)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"prefer": "both"}, {"mu": -1.0}, {"temperature": 0.0}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        method("dflstar-lite", **wrong)


def test_no_term_no_hook():
    assert isinstance(method("dflstar-lite").training, SelfDistillation)
    assert not isinstance(method("dflstar-lite", mu=0.0).training, SelfDistillation)


@pytest.fixture(autouse=True)
def one_thread():
    """As in every engine; tiny tensors on a busy machine only wait for each other otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Bench:
    """A client in training."""

    def __init__(self, round: int) -> None:
        torch.manual_seed(0)
        self.model = Mlp((6,), 3, hidden=5)
        layout = Layout.of(self.model)
        self.row, gradient = layout.flatten(self.model), torch.zeros(layout.width)
        layout.bind(self.model, self.row, gradient)
        self.local = Local(0, round, layout, self.row, gradient, {})
        self.moments = (torch.zeros(layout.width), torch.zeros(layout.width), torch.zeros(()))
        self.x, self.y = torch.randn(8, 6), torch.arange(8) % 3

    def epoch(self, hooks: LocalTraining) -> float:
        options = TrainingOptions(batch_size=4)
        return run_epoch(self.model, self.local, self.moments, self.x, self.y, options, hooks)


def test_the_term_is_mu_t_squared_times_the_divergence_from_the_aggregate():
    bench, hooks = Bench(round=1), SelfDistillation(mu=0.7, temperature=2.0)
    hooks.begin(bench.local, bench.model)
    plain = training_loss(bench.model, bench.x, bench.y).item()
    assert hooks.loss(bench.local, bench.model, bench.x, bench.y).item() == pytest.approx(plain)  # still the teacher
    teacher = bench.model(bench.x).detach().numpy()
    with torch.no_grad():
        bench.row += 0.3 * torch.randn(len(bench.row))
    student = bench.model(bench.x).detach().numpy()

    def log_probabilities(logits: np.ndarray) -> np.ndarray:
        z = logits / 2.0
        return z - np.log(np.exp(z).sum(axis=1, keepdims=True))

    p, q = log_probabilities(teacher), log_probabilities(student)
    divergence = float((np.exp(p) * (p - q)).sum(axis=1).mean())
    expected = training_loss(bench.model, bench.x, bench.y).item() + 0.7 * 4 * divergence
    assert divergence > 0.01
    assert hooks.loss(bench.local, bench.model, bench.x, bench.y).item() == pytest.approx(expected, rel=1e-5)


def test_the_teacher_stays_what_mixing_left_over_batches_and_epochs():
    bench = Bench(round=1)
    before = bench.row.clone()
    hooks = SelfDistillation(mu=0.5, temperature=2.0)
    bench.epoch(hooks)
    bench.epoch(hooks)
    assert torch.equal(bench.local.extras[TEACHER], before)
    assert not torch.equal(bench.row, before)
    assert bench.model.training


def test_a_teacher_holds_the_student_back():
    def moved(hooks: LocalTraining) -> float:
        bench = Bench(round=1)
        start = bench.model(bench.x).detach()
        for _ in range(10):
            bench.epoch(hooks)
        return float((bench.model(bench.x).detach() - start).norm())

    assert moved(SelfDistillation(mu=50.0, temperature=1.0)) < 0.5 * moved(LocalTraining())


def test_before_anything_was_aggregated_training_is_plain():
    distilled, plain = Bench(round=0), Bench(round=0)
    assert distilled.epoch(SelfDistillation(mu=0.5, temperature=2.0)) == plain.epoch(LocalTraining())
    assert torch.equal(distilled.row, plain.row)
