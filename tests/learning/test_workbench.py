"""The tasks on rows: probes without labels, scores through one's own head, inspections, mixing of shared blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from sagefl.learning.corpus import Corpus, as_input
from sagefl.learning.layout import Layout
from sagefl.learning.models import ModelError
from sagefl.learning.population import Population
from sagefl.learning.targets import clipped_ce
from sagefl.learning.tasks import Answer, InspectModels, MixBlocks, ReadPart, Score, Train
from sagefl.learning.training import LocalTraining, TrainingOptions
from sagefl.learning.workbench import Workbench
from sagefl.selection.scoring import scoring

LABELS = scoring("labels", "error")
LATENTS = scoring("latents", "error")
PROBS = scoring("probs", "error")
FORMS = {form.kind: form for form in (LABELS, LATENTS, PROBS)}

Make = Callable[..., Workbench]
ALL = np.arange(60)


@pytest.fixture
def bench(make_bench: Make) -> Workbench:
    """Four clients with models of their own, published in rounds 0 and 1."""
    made = make_bench(batch_size=4, ages=2, learning_rate=0.05)
    for t in range(2):
        for k in range(4):
            Train(k, t).run(made)
    return made


def logits(bench: Workbench, row: torch.Tensor, indices: np.ndarray) -> torch.Tensor:
    """The obvious way: a model of its own with these weights."""
    model = type(bench.model)()
    with torch.no_grad():
        for name, view in bench.layout.views(row).items():
            model.get_parameter(name).copy_(view)
        return model(as_input(bench.corpus.train_x[torch.from_numpy(indices)]))


# Probes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["labels", "latents", "probs"])
def test_answers_do_not_depend_on_labels_and_no_argument_carries_any(bench: Workbench, kind: str) -> None:
    told = Answer(1, 1, 0, ALL, FORMS[kind]).run(bench)
    wrong = (bench.corpus.train_y + 1) % 4
    bench.corpus = replace(bench.corpus, train_y=wrong, test_y=(bench.corpus.test_y + 1) % 4)
    assert np.array_equal(told, Answer(1, 1, 0, ALL, FORMS[kind]).run(bench))
    assert [f.name for f in fields(Answer)] == ["client", "round", "age", "indices", "scoring"]


def test_answers_are_those_of_the_published_model(bench: Workbench) -> None:
    row = bench.population.snapshots[1, 2].clone()
    expected = logits(bench, row, ALL)
    bench.population.params[2].add_(1.0)  # what happens to the row after publishing is nobody's business
    assert np.array_equal(Answer(2, 1, 0, ALL, LABELS).run(bench), expected.argmax(1).numpy())
    assert np.allclose(Answer(2, 1, 0, ALL, PROBS).run(bench), expected.log_softmax(1).numpy(), atol=1e-6)


def test_a_stale_link_is_answered_from_the_older_snapshot(bench: Workbench) -> None:
    old = Answer(2, 1, 1, ALL, PROBS).run(bench)
    assert np.array_equal(old, Answer(2, 0, 0, ALL, PROBS).run(bench))
    assert not np.array_equal(old, Answer(2, 1, 0, ALL, PROBS).run(bench))


def test_latents_are_scored_through_the_receivers_own_head(bench: Workbench) -> None:
    z = Answer(3, 1, 0, ALL, LATENTS).run(bench)
    head = bench.layout.views(bench.population.snapshots[1, 0])
    through = torch.from_numpy(z) @ head["head.weight"].T + head["head.bias"]
    y = bench.corpus.train_y[:60]
    error, ce = (Score(0, 1, z[None], ALL, scoring("latents", loss)).run(bench)[0] for loss in ("error", "ce"))
    assert np.array_equal(error, (through.argmax(1) != y).float().numpy())
    assert np.allclose(ce, clipped_ce(through, y).numpy(), atol=1e-6)
    assert not np.array_equal(error, Score(3, 1, z[None], ALL, scoring("latents", "error")).run(bench)[0])


def test_inference_does_not_depend_on_the_order_in_which_clients_are_served(bench: Workbench) -> None:
    calls = [(k, 1, 0, ALL[k : k + 20], PROBS) for k in range(4)]
    forwards = [Answer(*call).run(bench) for call in calls]
    backwards = [Answer(*call).run(bench) for call in calls[::-1]][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(forwards, backwards, strict=True))


def test_clipped_cross_entropy_lies_in_the_unit_interval() -> None:
    hopeless, uniform = torch.tensor([[100.0, 0, 0, 0]]), torch.zeros(1, 4)
    right, wrong = torch.tensor([0]), torch.tensor([1])
    assert clipped_ce(hopeless, right).item() == pytest.approx(0)
    assert clipped_ce(hopeless, wrong).item() == 1
    assert clipped_ce(uniform, wrong).item() == pytest.approx(0.5)
    assert clipped_ce(torch.tensor([[-log(3), 0.0, -90, -90]]), right).item() == pytest.approx(log(4) / (2 * log(4)))
    assert clipped_ce(torch.full((1, 4), torch.nan), right).item() == 1


def test_models_without_latents_say_what_they_lack(make_bench: Make) -> None:
    class Bare(nn.Module):
        shared = ("body",)

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(25, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

    bench = make_bench(Bare())
    Train(0, 0).run(bench)
    assert Answer(0, 0, 0, ALL, LABELS).run(bench).shape == (60,)
    with pytest.raises(ModelError, match=r"latent\(x\) and head\(z\); Bare has no latent"):
        Answer(0, 0, 0, ALL, LATENTS).run(bench)
    with pytest.raises(ModelError, match="Bare has no head"):
        Score(0, 0, np.zeros((1, 60, 4), np.float32), ALL, "error").run(bench)
    with pytest.raises(ModelError, match="no head to publish"):
        ReadPart(0, 0, "head").run(bench)


# Inspections and readings ---------------------------------------------------------------------------------------------


def test_inspection_judges_whole_models_on_ones_own_samples(bench: Workbench) -> None:
    y = bench.corpus.train_y[:60]
    rows = [bench.population.snapshots[1, 0], bench.population.snapshots[0, 2]]
    models = [None, (2, 1)]
    outs = [logits(bench, row, ALL) for row in rows]
    expected = {
        "error": [(out.argmax(1) != y).double().mean() for out in outs],
        "ce": [F.cross_entropy(out, y) for out in outs],
        "losses": [F.cross_entropy(out, y, reduction="none") for out in outs],
        "distance": [0.0, (rows[1] - rows[0])[bench.layout.shared].norm()],
    }
    for metric, values in expected.items():
        found = InspectModels(0, 1, models, None, ALL, metric).run(bench)
        assert np.allclose(found, np.stack([np.asarray(v) for v in values]), atol=1e-5), metric


def test_a_group_is_judged_as_its_average_under_ones_own_head(bench: Workbench) -> None:
    p = bench.population
    average = p.snapshots[1, 0].clone()
    average[bench.layout.shared] = (p.snapshots[1, 1] + p.snapshots[1, 3])[bench.layout.shared] / 2
    expected = F.cross_entropy(logits(bench, average, ALL), bench.corpus.train_y[:60])
    found = InspectModels(0, 1, [(1, 0), (3, 0), None], [[0, 1], [2]], ALL, "ce").run(bench)
    own = InspectModels(0, 1, [None], None, ALL, "ce").run(bench)
    assert found[0] == pytest.approx(expected.item(), abs=1e-6)
    assert found[1] == own[0]


def test_a_diverged_model_measures_badly_but_finitely(bench: Workbench) -> None:
    bench.population.snapshots[1, 2].fill_(torch.nan)
    for metric in ("error", "ce", "losses", "distance"):
        assert np.isfinite(InspectModels(0, 1, [(2, 0)], None, ALL, metric).run(bench)).all()
    assert InspectModels(0, 1, [(2, 0)], None, ALL, "ce").run(bench)[0] > 1e30
    assert np.isfinite(ReadPart(2, 1, "head").run(bench)).all()


def test_readings_are_the_head_and_its_last_layer(bench: Workbench) -> None:
    views = bench.layout.views(bench.population.snapshots[1, 3])
    head = ReadPart(3, 1, "head").run(bench)
    assert np.array_equal(head, torch.cat([views["head.weight"].flatten(), views["head.bias"]]).numpy())
    assert np.array_equal(ReadPart(3, 1, "last-layer").run(bench), views["head.weight"].flatten().numpy())
    assert np.array_equal(ReadPart(3, 1, "head", 1).run(bench), ReadPart(3, 0, "head").run(bench))
    assert not np.array_equal(ReadPart(3, 1, "head", 1).run(bench), head)
    with pytest.raises(ValueError, match="it does: head, last-layer"):
        ReadPart(3, 1, "diary").run(bench)


# Mixing ---------------------------------------------------------------------------------------------------------------


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    """A row-stochastic 4 x 4 matrix; zeros off the diagonal stand for peers that are not pulled."""
    rows = []
    for k in range(4):
        weights = draw(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.3]), min_size=4, max_size=4))
        weights[k] = 0.0
        rows.append([*weights[:k], 1 - sum(weights), *weights[k + 1 :]])
    return np.array(rows)


def mixable(ages: int = 1) -> Workbench:
    torch.manual_seed(0)
    layout = Layout.of(nn.ModuleDict({"head": nn.Linear(3, 5), "body": nn.Linear(6, 3)}), ["body"])
    population = Population.allocate(layout, 4, ages=ages)
    population.params.copy_(torch.rand_like(population.params))
    population.snapshots.copy_(torch.rand_like(population.snapshots))
    population.snapshots[0].copy_(population.params)
    nothing = torch.zeros(1)
    corpus = Corpus(nothing, nothing, nothing, nothing, 2, [])
    return Workbench(nn.Linear(1, 1), layout, population, corpus, TrainingOptions(), LocalTraining(), seed=1)


def pulls(row: Sequence[float], client: int, age: int = 0) -> tuple[tuple[int, int, float], ...]:
    return tuple((j, age, w) for j, w in enumerate(row) if j != client and w != 0)


@settings(max_examples=60)
@given(matrices(), st.permutations(range(4)))
def test_mixing_is_one_dense_matrix_product_in_any_order_and_spares_heads(matrix: np.ndarray, order: list[int]) -> None:
    bench = mixable()
    before = bench.population.params.clone()
    for k in order:
        MixBlocks(k, 0, matrix[k, k], pulls(matrix[k], k)).run(bench)
    shared = bench.layout.shared
    expected = matrix @ before[:, shared].double().numpy()
    assert np.allclose(bench.population.params[:, shared].numpy(), expected, atol=1e-6)
    head = slice(bench.layout.shared_stop, None)
    assert torch.equal(bench.population.params[:, head], before[:, head])
    assert torch.equal(bench.population.snapshots[0], before)
    again = mixable()
    for k in range(4):
        MixBlocks(k, 0, matrix[k, k], pulls(matrix[k], k)).run(again)
    assert torch.equal(again.population.params, bench.population.params)


def test_a_stale_pull_takes_the_older_block() -> None:
    bench = mixable(ages=2)
    mine, old = bench.population.params[0].clone(), bench.population.snapshots[1, 3].clone()
    MixBlocks(0, 2, 0.5, ((3, 1, 0.5),)).run(bench)  # round 2 publishes into slot 0, round 1 did into slot 1
    shared = bench.layout.shared
    assert torch.allclose(bench.population.params[0, shared], (mine + old)[shared] / 2)


def test_the_whole_way_of_a_head_is_training_alone(make_bench: Make) -> None:
    """Two clients that mix every round end with the very heads of two that are told the same blocks by hand."""
    bench = make_bench()
    head = slice(bench.layout.shared_stop, None)
    for t in range(3):
        for k in range(4):
            Train(k, t).run(bench)
        trained = bench.population.params[:, head].clone()
        for k in range(4):
            MixBlocks(k, t, 0.5, (((k + 1) % 4, 0, 0.5),)).run(bench)
        assert torch.equal(bench.population.params[:, head], trained)
        assert len({tuple(row.tolist()) for row in trained}) == 4
