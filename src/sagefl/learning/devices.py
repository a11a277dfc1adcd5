"""Where numbers are computed: the CPU, or an accelerator that torch knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import SageflError

CPU = torch.device("cpu")


class DeviceError(SageflError, RuntimeError):
    """A device that is not there."""


def accelerator() -> torch.device | None:
    """CUDA's or Apple's device, if there is one."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps") if torch.backends.mps.is_available() else None


def find_device(name: str | None) -> torch.device:
    """The device of a name; by default the accelerator if there is one, else the CPU."""
    found = accelerator()
    if name is None:
        return found or CPU
    kind, _, number = name.partition(":")
    known = ("cpu",) if found is None else ("cpu", found.type)
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if kind not in known or (number and not (number.isdecimal() and int(number) < count)):
        raise DeviceError(f"there is no device {name!r} here: use {' or '.join(known)}")
    return torch.device(name)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with a single thread: for a few batches starting more costs far more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
