"""The networks that clients train, and what a user's own module must provide.

A model is made by `Model(shape, classes, **options)`. `shape` is that of one sample without the batch (a dictionary or
tuple of shapes where a sample has several arrays); `classes` is the number of classes, in regression the number of
values to be predicted; options come from `model.options` of the config. The result is an `nn.Module` with

* `forward(x)`, which gives logits, N x classes, or predicted values, N x values. `x` is a batch: floats, whole numbers,
  images as floats in [0, 1], or a dictionary or tuple of such tensors;
* `shared`: the name prefixes of the parameters that are exchanged (omega); the rest (phi, the head) never leaves the
  client. `"*"`, or no declaration at all, shares everything; `model.shared` in the run's config wins;
* optionally `loss(x, y) -> scalar` for training (default: cross-entropy of logits, mean squared error of values);
* optionally `latent(x)` and `head(z)`, needed for representation probes.

Parameters with `requires_grad=False` are frozen: stored once for everybody, never trained, exchanged or checkpointed.
Buffers that training changes (BatchNorm's running statistics) belong to the client, whose row keeps them; constant
buffers are stored once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from math import prod
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.amp import custom_fwd
from torch.nn import functional as F

from ..errors import SageflError
from ..reading import watched
from ..references import MODELS as GROUP
from ..references import load
from ..selection.registry import add_entry_points, nearest
from .targets import batch_loss

VECTOR = 8  # floats in a register of the usual CPU


class ModelError(SageflError, ValueError):
    """A module that cannot be trained as a population; the message says what to change."""


class ChannelsLast(nn.Module):
    """Puts channels last in memory, so that oneDNN's small convolutions need no reordering; no number changes."""

    plain = False  # see `plain` below

    def forward(self, x: Tensor) -> Tensor:
        """The same tensor, channels innermost."""
        if self.plain:
            return x
        return x.to(memory_format=torch.channels_last)  # .contiguous would leave a single channel as it is


def _doubled(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A transposed 4 x 4 convolution, stride 2, padding 1: what every tap makes of every pixel, summed four by four.

    The same products in the same order as in torch's own kernel for channels last, and so the same bits; but one
    product for the whole batch, and sums along whole planes. A border of zeros lets all planes be shifted alike.
    """
    (n, channels, height, width), out = x.shape, weight.shape[1]
    border = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1)).reshape(-1, channels)
    taps = weight.flip(2, 3).reshape(channels, -1).t() @ border.t()
    pixels, line = len(border), width + 2
    inner = pixels - 2 * (line + 1)
    strides = (16 * pixels, 4 * pixels + line, pixels + 1, 1)  # by channel, row and column within 2 x 2, pixel

    def shifted(row: int, column: int) -> Tensor:
        start = (8 * row + 2 * column) * pixels + row * line + column
        return taps.as_strided((out, 2, 2, inner), strides, start)

    sums = x.new_empty(out, 2, 2, pixels)
    whole = sums[..., line + 1 : -line - 1]
    torch.add(shifted(0, 0), shifted(0, 1), out=whole).add_(shifted(1, 0)).add_(shifted(1, 1))
    planes = sums.view(out, 2, 2, n, height + 2, line)[..., 1:-1, 1:-1]
    doubled = torch.empty((n, out, 2 * height, 2 * width), dtype=x.dtype, memory_format=torch.channels_last)
    doubled.permute(0, 2, 3, 1).view(n, height, 2, width, 2, out).copy_(planes.permute(3, 4, 1, 5, 2, 0))
    return doubled.add_(bias[:, None, None])


class _NarrowDoubling(torch.autograd.Function):
    """`_doubled` in float32 even where the rest is bfloat16, with oneDNN's backward; see `Doubling`."""

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _doubled(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight = ctx.saved_tensors
        geometry = ([2, 2], [1, 1], [1, 1], True, [0, 0], 1)  # stride, padding, dilation, transposed, more, groups
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        backward = torch.ops.aten.convolution_backward
        return backward(gradient, x, weight, [weight.shape[1]], *geometry, list(ctx.needs_input_grad))


class Doubling(nn.ConvTranspose2d):
    """A transposed convolution that doubles height and width, and is not slow with few output channels.

    For fewer output channels than a vector register holds oneDNN's forward kernel is far slower than a matrix product
    and sums (4.1 against 0.25 ms for 64 images, 16 -> 1 channels), but its backward kernels are fast.
    """

    plain = False  # see `plain` below

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 4, stride=2, padding=1)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """As `nn.ConvTranspose2d`."""
        if self.plain or self.out_channels >= VECTOR or x.device.type != "cpu":
            return super().forward(x, output_size)
        return cast(Tensor, _NarrowDoubling.apply(x, self.weight, self.bias))  # type: ignore[no-untyped-call]


class EncoderDecoder(nn.Module):
    """The paper's convolutional encoder-decoder with a local two-layer head.

    The parent study that defines it is not public; this is our reading: 3x3 stride-2 convolutions with ReLU, a linear
    layer to the latent, a mirrored decoder of 4x4 stride-2 transposed convolutions, head latent -> latent -> classes.
    Loss: cross-entropy + beta * reconstruction MSE on inputs in [0, 1]. omega = encoder + decoder, phi = head.
    """

    shared = ("encoder", "decoder")

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        *,
        latent: int = 64,
        widths: tuple[int, ...] = (16, 32),
        beta: float = 1.0,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        factor = 2 ** len(widths)
        if height % factor or width % factor:
            raise ModelError(
                f"images of {height}x{width} cannot be halved {len(widths)} times: pad them to a multiple of {factor}"
            )
        self.beta = beta
        small = (widths[-1], height // factor, width // factor)
        flat = small[0] * small[1] * small[2]
        chain = (channels, *widths)
        down: list[nn.Module] = []
        for a, b in zip(chain, chain[1:], strict=False):
            down += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
        # Flatten before the last ReLU: its gradient comes from a linear layer and then has the same memory order.
        *down, last = down
        self.encoder = nn.Sequential(ChannelsLast(), *down, nn.Flatten(), last, nn.Linear(flat, latent))
        up: list[nn.Module] = [nn.Linear(latent, flat), nn.ReLU(inplace=True), nn.Unflatten(1, small), ChannelsLast()]
        back = chain[::-1]
        for a, b in zip(back, back[1:], strict=False):
            up += [Doubling(a, b), nn.ReLU(inplace=True)]
        up[-1] = nn.Sigmoid()
        self.decoder = nn.Sequential(*up)
        self.head = nn.Sequential(nn.Linear(latent, latent), nn.ReLU(), nn.Linear(latent, classes))

    def latent(self, x: Tensor) -> Tensor:
        """The representation that mixing imports."""
        return cast(Tensor, self.encoder(x))

    def forward(self, x: Tensor) -> Tensor:
        """Class logits."""
        return cast(Tensor, self.head(self.encoder(x)))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy (of values: squared error) + beta * reconstruction error."""
        z = self.encoder(x)
        return batch_loss(self.head(z), y) + self.beta * F.mse_loss(self.decoder(z), x)


class Mlp(nn.Module):
    """A small perceptron with a shared body and a local head, for quick or very large runs."""

    shared = ("body",)

    def __init__(self, shape: Any, classes: int, *, hidden: int = 32) -> None:
        super().__init__()
        if isinstance(shape, dict) or any(isinstance(side, tuple) for side in shape):
            raise ModelError(f"mlp takes one array per sample, the data has several ({shape}): write a model for them")
        inputs = prod(shape)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, classes)

    def latent(self, x: Tensor) -> Tensor:
        """The hidden layer."""
        return cast(Tensor, self.body(x))

    def forward(self, x: Tensor) -> Tensor:
        """Class logits."""
        return cast(Tensor, self.head(self.body(x)))


def _encoder_decoder(
    shape: tuple[int, ...],
    classes: int,
    *,
    latent: int | None = None,
    widths: tuple[int, ...] | None = None,
    beta: float = 1.0,
) -> nn.Module:
    if len(shape) != 3 or isinstance(shape, dict):
        raise ModelError(
            f"the encoder-decoder takes images (channels, height, width), the data is {shape}: use mlp, or give floats "
            "as samples x channels x height x width"
        )
    # The paper's two sizes: Fashion-MNIST 64-dim latent, width 16; CIFAR-10 128-dim latent, width 32.
    usual_latent, usual_widths = (128, (32, 64, 128)) if shape[0] == 3 else (64, (16, 32))
    images = (shape[0], shape[1], shape[2])
    return EncoderDecoder(images, classes, latent=latent or usual_latent, widths=widths or usual_widths, beta=beta)


MODELS: dict[str, Callable[..., nn.Module]] = {"encoder-decoder": _encoder_decoder, "mlp": Mlp}
"""Every model with a name, as what makes one from an input shape, a number of classes and options. To add a model,
write its entry here; other packages add theirs in the entry-point group `sagefl.models`."""


def models() -> Mapping[str, Callable[..., nn.Module]]:
    """Every model with a name; installed packages' last."""
    _discover()
    return MODELS


@cache
def _discover() -> None:
    add_entry_points(GROUP, "model", MODELS, _checked)


def _checked(name: str, offered: Any) -> Callable[..., nn.Module]:
    if not callable(offered):
        raise TypeError(f"{offered!r} is not callable")
    return cast("Callable[..., nn.Module]", offered)


def build_model(name: str, shape: Any, classes: int, seed: int, options: Mapping[str, Any]) -> nn.Module:
    """A fresh model whose initial weights depend only on `seed`. `name` is one of `models` or `module:callable`."""
    with watched(f"model {name}"), torch.random.fork_rng(devices=[]):
        make = models().get(name) or _import(name)
        if isinstance(make, nn.Module) or not callable(make):
            raise ModelError(
                f"model {name} is a {type(make).__name__}; expected its class, or a function that makes one"
            )
        try:
            inspect.signature(make).bind(shape, classes, **options)
        except TypeError as error:
            what = "these options" if options else "the shape of an input and the number of classes"
            raise ModelError(f"model {name} does not take {what}: {error}") from None
        torch.manual_seed(seed)
        model = make(shape, classes, **options)
    check_model(model)
    return model


def _import(name: str) -> Callable[..., nn.Module]:
    if ":" not in name:
        known = [name for name in models() if "@" not in name]  # those are classes of this session
        raise ModelError(f"unknown model {name!r}{nearest(name, known)}; known: {', '.join(known)}, or module:callable")
    return cast("Callable[..., nn.Module]", load("model", name, ModelError))


def check_model(model: nn.Module) -> None:
    """Refuse what a population cannot hold."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"a model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError(f"{model.original_name} is compiled by torch.jit: give the module that it was made from")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ModelError(f"parameter {name!r} has no shape yet: lazy modules cannot be laid out in a matrix")
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise ModelError(
                f"parameter {name!r} is {str(parameter.dtype).removeprefix('torch.')}; trained ones must be float32 "
                "(training.precision = bfloat16 saves time)"
            )


def copied(model: nn.Module) -> nn.Module:
    """A copy with parameters and buffers of its own, but for frozen parameters: those are stored once."""
    return deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})


def plain(model: nn.Module, device: torch.device) -> nn.Module:
    """A copy on a device with torch's own layers, without the CPU shortcuts for single clients, which `vmap` refuses.

    Elsewhere frozen parameters are copied, too: to move those that are shared would move everybody's.
    """
    copy = copied(model) if device.type == "cpu" else deepcopy(model).to(device)
    for module in copy.modules():
        if isinstance(module, ChannelsLast | Doubling):
            module.plain = True
    return copy


def training_loss(model: nn.Module, x: Any, y: Tensor) -> Tensor:
    """The model's own loss if it has one, else cross-entropy of labels or the mean squared error of values."""
    own = getattr(model, "loss", None)
    return cast(Tensor, own(x, y)) if own is not None else batch_loss(model(x), y)
