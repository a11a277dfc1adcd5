"""The narrow transposed convolution equals torch's own layer, forward and backward, at any precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sagefl.learning.models import Doubling, build_model


@pytest.mark.parametrize("channels", [1, 3, 7, 8, 16])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("batch", [1, 5])
def test_it_equals_the_plain_layer(channels: int, order: torch.memory_format, batch: int) -> None:
    torch.manual_seed(channels)
    ours = Doubling(6, channels)
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


@pytest.mark.parametrize(("inputs", "channels", "height", "width"), [(16, 1, 14, 14), (32, 3, 16, 16), (8, 7, 5, 9)])
@pytest.mark.parametrize("batch", [1, 5, 64])
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="bits are those of MKL's products")
def test_it_has_the_bits_of_torch_own_kernel(inputs: int, channels: int, height: int, width: int, batch: int) -> None:
    torch.manual_seed(batch)
    layer = Doubling(inputs, channels)
    x = torch.randn(batch, inputs, height, width).relu().to(memory_format=torch.channels_last)
    with torch.no_grad():
        ours = layer(x)
        theirs = torch.ops.aten.slow_conv_transpose2d(x, layer.weight, [4, 4], layer.bias, [2, 2], [1, 1])
    assert torch.equal(ours, theirs)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_the_encoder_decoder_trains_in_bfloat16(shape: tuple[int, int, int]) -> None:
    model = build_model("encoder-decoder", shape, 10, 0, {})
    x, y = torch.rand(4, *shape), torch.arange(4)
    losses = []
    for precision in (torch.float32, torch.bfloat16):
        model.zero_grad()
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            losses.append(model.loss(x, y))  # type: ignore[operator]
        losses[-1].backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=0.01)


def test_double_precision_gradients_are_right() -> None:
    layer = Doubling(2, 1).double()
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))


def test_a_frozen_weight_gets_no_gradient() -> None:
    layer = Doubling(2, 1)
    layer.weight.requires_grad_(False)
    layer(torch.randn(1, 2, 3, 3)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias is not None
    assert layer.bias.grad is not None
