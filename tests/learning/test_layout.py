"""How parameters lie in a row: aligned, without copies, the shared block first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sagefl.learning.layout import ALIGN, Layout
from sagefl.learning.models import ModelError, build_model
from sagefl.learning.population import Population


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 5), st.integers(0, 4))
def test_every_parameter_and_row_is_aligned_and_none_overlap(
    widths: list[int], clients: int, shared_layers: int
) -> None:
    layers = {f"layer{i}": nn.Linear(a, b) for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False))}
    model = nn.ModuleDict(layers)
    layout = Layout.of(model, [f"layer{i}" for i in range(min(shared_layers, len(layers) - 1) + 1)])
    taken = torch.zeros(layout.width, dtype=torch.int64)
    for slot in layout.slots:
        assert slot.start % ALIGN == 0
        taken[slot.start : slot.start + slot.size] += 1
    assert taken.max() == 1
    assert layout.shared_size + layout.local_size == sum(p.numel() for p in model.parameters()) == taken.sum()
    population = Population.allocate(layout, clients)
    for tensor in (population.params, population.first, population.second, *population.snapshots):
        for row in tensor:
            assert row.data_ptr() % (4 * ALIGN) == 0


def test_the_shared_block_comes_first_whatever_the_order_of_declaration() -> None:
    model = nn.ModuleDict({"head": nn.Linear(3, 2), "body": nn.Linear(5, 3)})
    layout = Layout.of(model, ["body"])
    assert [slot.name for slot in layout.slots] == ["body.weight", "body.bias", "head.weight", "head.bias"]
    assert all((slot.start < layout.shared_stop) == slot.name.startswith("body") for slot in layout.slots)
    assert (layout.shared_size, layout.local_size) == (18, 8)


def test_flatten_then_bind_gives_the_same_function_and_padding_is_zero(small: nn.Module) -> None:
    x = torch.rand(3, 1, 5, 5)
    expected = small(x).detach().clone()
    layout = Layout.of(small)
    row = layout.flatten(small)
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.fill_(9.0)
    layout.bind(small, row)
    assert torch.equal(small(x), expected)
    used = torch.zeros(layout.width, dtype=torch.bool)
    for slot in layout.slots:
        used[slot.start : slot.start + slot.size] = True
    assert not used.all()
    assert row[~used].eq(0).all()


def test_bound_parameters_are_views_of_the_row_and_gradients_of_the_buffer(small: nn.Module) -> None:
    layout = Layout.of(small)
    row, gradient = layout.flatten(small), torch.zeros(layout.width)
    layout.bind(small, row, gradient)
    row[layout.slots[0].start] = 123.0
    assert small.get_parameter(layout.slots[0].name).flatten()[0] == 123.0
    small(torch.rand(4, 1, 5, 5)).square().sum().backward()
    for slot in layout.slots:
        parameter = small.get_parameter(slot.name)
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() == gradient.data_ptr() + 4 * slot.start
        assert torch.equal(gradient[slot.start : slot.start + slot.size].view(slot.shape), parameter.grad)
        assert parameter.grad.abs().sum() > 0


def test_equal_digests_mean_exchangeable_rows(small: nn.Module) -> None:
    assert Layout.of(small).digest == Layout.of(type(small)()).digest
    assert Layout.of(small).digest != Layout.of(small, ["body", "head"]).digest
    mlp = build_model("mlp", (1, 4, 4), 3, 1, {})
    assert Layout.of(mlp).digest != Layout.of(build_model("mlp", (1, 4, 4), 3, 1, {"hidden": 33})).digest


def test_a_model_may_have_no_local_part_at_all(small: nn.Module) -> None:
    layout = Layout.of(small, ["body", "head"])
    assert layout.shared == slice(0, layout.width)
    assert layout.local_size == 0


def test_a_single_name_is_as_good_as_a_list(small: nn.Module) -> None:
    assert Layout.of(small, "body") == Layout.of(small, ["body"])


@pytest.mark.parametrize(
    ("shared", "message"),
    [((), "declare the shared part"), (("bdy",), "'bdy' names no parameter"), (("body", "hed"), "'hed'")],
)
def test_a_missing_or_misspelt_shared_part_is_refused(small: nn.Module, shared: tuple[str, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Layout.of(small, shared)


@pytest.mark.parametrize("declared", [None, 3, [3]])
def test_a_declaration_that_names_nothing_is_refused(small: nn.Module, declared: Any) -> None:
    small.shared = declared
    with pytest.raises(ModelError, match=r"\.shared is .*; expected name prefixes, or '\*' for everything"):
        Layout.of(small)


def test_a_prefix_is_a_whole_name_not_the_beginning_of_one() -> None:
    model = nn.ModuleDict({"body": nn.Linear(2, 2), "body2": nn.Linear(2, 2)})
    assert Layout.of(model, ["body"]).shared_size == 6


def test_tied_parameters_take_one_place() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    layout = Layout.of(model, ["a"])
    row = layout.flatten(model)
    layout.bind(model, row)
    assert model["a"].weight.data_ptr() == model["b"].weight.data_ptr() == row.data_ptr()
