"""The narrow transposed convolution equals torch's own layer, forward and backward, in any memory order."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sagefl.learning.models import Doubling


@pytest.mark.parametrize("channels", [1, 3, 7, 8, 16])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("batch", [1, 5])
def test_it_equals_the_plain_layer(channels: int, order: torch.memory_format, batch: int) -> None:
    torch.manual_seed(channels)
    ours = Doubling(6, channels, 4, stride=2, padding=1)
    plain = nn.ConvTranspose2d(6, channels, 4, stride=2, padding=1)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(batch, 6, 7, 5).to(memory_format=order)
    gradient = torch.randn(batch, channels, 14, 10)
    found = []
    for layer in (ours, plain):
        inputs = x.clone(memory_format=torch.preserve_format).requires_grad_()
        out = layer(inputs)
        out.backward(gradient)
        found.append((out, inputs.grad, layer.weight.grad, layer.bias.grad))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_double_precision_gradients_are_right() -> None:
    layer = Doubling(2, 1, 4, stride=2, padding=1).double()
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))


def test_a_frozen_weight_gets_no_gradient() -> None:
    layer = Doubling(2, 1, 4, stride=2, padding=1)
    layer.weight.requires_grad_(False)
    layer(torch.randn(1, 2, 3, 3)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias is not None
    assert layer.bias.grad is not None
