"""One batch before any work: whether a model can be trained on the data at all, and what has to be known about it.

What is wrong is said in a sentence that names the tensor and what was expected, before a worker starts or a file is
written. The batch holds the smallest and the largest whole numbers of the inputs, so that a token outside a vocabulary
shows here and not in some round.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..records import record_parts
from ..references import place
from .corpus import model_input, sliced
from .devices import one_thread
from .models import ModelError, copied, training_loss
from .training import Precision, TrainingOptions

SAMPLES = 8


@dataclass(frozen=True)
class BatchTrial:
    """What a batch showed."""

    state: tuple[str, ...]  # buffers that training changes
    lone: bool  # a single sample is no batch: some layer needs more


def try_out(
    model: nn.Module,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    outputs: int,
    precision: Precision = "float32",
) -> BatchTrial:
    """Take one batch of training samples through forward, loss and backward of a copy of `model`."""
    copy, picked = _copied(model), _telling(x)
    given, targets = model_input(x[picked]), torch.from_numpy(y[picked])
    before = {name: b.clone() for name, b in copy.named_buffers()}
    frozen = {name: p._version for name, p in copy.named_parameters() if not p.requires_grad}
    with torch.random.fork_rng(devices=[]), one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training itself will repeat them
        copy.train()
        with torch.no_grad():
            _check_output(copy, _run(copy, x, lambda: copy(given)), len(picked), outputs, y)
        with TrainingOptions(precision=precision).lower(targets.device):
            loss = _run(copy, x, lambda: training_loss(copy, given, targets))
        _check_loss(copy, loss)
        _run(copy, x, lambda: torch.autograd.backward(loss))
        _check_kept(copy, before, frozen)
        state = [n for n, b in copy.named_buffers() if not torch.equal(b, before[n])]
        return BatchTrial(tuple(state), _lone(copy, given, targets))


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copied(model)
    except Exception as error:
        why = (str(error).splitlines() or [""])[0]
        if "graph leaves" in why:
            why = (
                "it holds a tensor that was computed from its parameters, as torch.nn.utils.weight_norm makes it; "
                "torch.nn.utils.parametrizations.weight_norm does not"
            )
        raise ModelError(f"{type(model).__name__} cannot be copied, as it is for every worker: {why}") from error


def _check_kept(model: nn.Module, before: Mapping[str, Tensor], frozen: Mapping[str, int]) -> None:
    """Refuse buffers that have no place in a client's row, and frozen parameters that change."""
    name = type(model).__name__
    for buffer, held in model.named_buffers():
        if buffer not in before:
            raise ModelError(f"{name} makes the buffer {buffer!r} when it is called: register it in __init__")
        if (held.shape, held.dtype) != (before[buffer].shape, before[buffer].dtype):
            shapes = " to ".join(f"{b.dtype} {' x '.join(map(str, b.shape))}" for b in (before[buffer], held))
            raise ModelError(
                f"{name} changes the buffer {buffer!r} from {shapes.replace('torch.', '')} in its first batch; "
                "expected one type and shape throughout"
            )
    for parameter, p in model.named_parameters():
        if parameter in frozen and p._version != frozen[parameter]:
            raise ModelError(
                f"{name} changes the frozen parameter {parameter!r}, which all clients share: make it a buffer, which "
                "belongs to the client"
            )


def _lone(model: nn.Module, given: Any, targets: Tensor) -> bool:
    try:
        with torch.no_grad():
            training_loss(model, sliced(given, slice(1)), targets[:1])
    except Exception:  # whatever a layer says to a batch of one; larger ones have just gone through
        return True
    return False


def _run(model: nn.Module, x: npt.NDArray[Any], step: Any) -> Any:
    try:
        return step()
    except ModelError:
        raise
    except Exception as error:  # a user's module: its first line says what, the rest is torch's inside
        why = (str(error).splitlines() or [""])[0]
        where = f" ({at})" if (at := place(error)) else ""
        hint = f" (whole numbers in the inputs: {_spans(x)})" if isinstance(error, IndexError) else ""
        raise ModelError(
            f"{type(model).__name__} cannot be trained on these data: {type(error).__name__}: {why}{hint}{where}. "
            f"A batch is {_told(x)}; expected a model for that, made from the shape it is given"
        ) from error


def _check_output(model: nn.Module, out: Any, samples: int, outputs: int, y: npt.NDArray[Any]) -> None:
    what = "values" if y.dtype.kind == "f" else "classes"
    wanted = f"expected a tensor, {samples} x {outputs} (samples x {what})"
    name = f"{type(model).__name__}.forward"
    if not isinstance(out, Tensor):
        raise ModelError(f"{name} returned a {type(out).__name__}; {wanted}")
    flat = what == "values" and outputs == 1 and out.shape == (samples,)
    if tuple(out.shape) != (samples, outputs) and not flat:
        raise ModelError(f"{name} returned {' x '.join(map(str, out.shape)) or 'a single number'}; {wanted}")


def _check_loss(model: nn.Module, loss: Any) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = (
            f"a {type(loss).__name__}"
            if not isinstance(loss, Tensor)
            else f"{' x '.join(map(str, loss.shape))} numbers"
        )
        raise ModelError(f"{type(model).__name__}.loss returned {got}; expected one number")
    if not loss.requires_grad:
        own = ". It has a loss of its own, which is called with inputs and targets" if hasattr(model, "loss") else ""
        name = type(model).__name__
        raise ModelError(f"{name} has nothing to train: its loss depends on no parameter with requires_grad=True{own}")
    if not torch.isfinite(loss):
        raise ModelError(
            f"the loss of {type(model).__name__} on its first batch is {float(loss.detach())}: check the scale of the "
            "inputs, the targets and the initial weights"
        )


def _telling(x: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The first samples, and those with the smallest and the largest whole numbers."""
    chosen = list(range(min(SAMPLES, len(x))))
    for _, column in _whole(x):
        flat = column.reshape(len(x), -1)
        chosen += [int(flat.min(axis=1).argmin()), int(flat.max(axis=1).argmax())]
    return np.array(list(dict.fromkeys(chosen)))


def _whole(x: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for part in record_parts(x.dtype, x.shape[1:]):
        if part.dtype.kind in "iu" and not part.image:
            yield part.name, x if not part.name else x[part.name]


def _spans(x: npt.NDArray[Any]) -> str:
    return ", ".join(f"{name + ' ' if name else ''}{column.min()} to {column.max()}" for name, column in _whole(x))


def _told(x: npt.NDArray[Any]) -> str:
    """What a model is given, in words."""
    given = model_input(x[:1])
    named = {"": given} if isinstance(given, Tensor) else given if isinstance(given, dict) else dict(enumerate(given))
    shapes = {name: f"{t.dtype} N x {' x '.join(map(str, t.shape[1:])) or '1'}" for name, t in named.items()}
    told = (shape if name == "" else f"{name}: {shape}" for name, shape in shapes.items())
    return ", ".join(told).replace("torch.", "")
