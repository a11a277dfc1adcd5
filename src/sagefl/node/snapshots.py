"""What a node has published: immutable snapshots by digest, each with its own model to answer from.

Training continues in place on another row; a snapshot is a copy that never changes, so all answers and pulls of one
digest come from the same model. The last few are kept, because neighbours decide at their own pace.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save
from torch import Tensor, nn

from ..learning.corpus import model_input, placed
from ..learning.layout import Layout
from ..learning.models import copied, plain

CPU = torch.device("cpu")
OVER_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def block_digest(block: Tensor, layout: Layout) -> bytes:
    """The name of a snapshot: SHA-256 over the layout's digest and the shared block's bytes, padding included."""
    content = np.ascontiguousarray(block.numpy(), dtype="<f4")
    return hashlib.sha256(layout.digest.encode() + content.tobytes()).digest()


def payload(row: Tensor, layout: Layout, *, full: bool) -> bytes:
    """The shared parameters (or all of them) by name, as safetensors."""
    views = layout.views(row)
    names = [slot.name for slot in layout.slots if full or slot.start < layout.shared_stop]
    return save({name: views[name].contiguous() for name in names})


@dataclass(frozen=True)
class Snapshot:
    """One published model; it never changes."""

    round: int
    row: Tensor
    layout: Layout
    model: nn.Module
    digest: bytes
    loss: float = 0.0  # mean training loss and samples seen in the round that made it
    samples: int = 0
    device: torch.device = CPU  # where the module answers

    @classmethod
    def of(
        cls,
        template: nn.Module,
        layout: Layout,
        row: Tensor,
        round: int,
        loss: float,
        samples: int,
        device: torch.device = CPU,
    ) -> Snapshot:
        """A snapshot of `row` as it is now, with its own module whose parameters are that copy."""
        kept = row.detach().clone()
        model = copied(template) if device == CPU else plain(template, device)
        layout.bind(model, kept.to(device))
        model.eval().requires_grad_(False)
        return cls(round, kept, layout, model, block_digest(kept[layout.shared], layout), loss, samples, device)

    def infer(self, inputs: npt.NDArray[Any], part: str = "forward") -> Tensor:
        """What a function of the model gives for raw inputs. Safe from several threads: nothing is written."""
        with torch.inference_mode():
            x = placed(model_input(inputs), self.device)
            out: Tensor = self.model(x) if part == "forward" else getattr(self.model, part)(x)
            return out.cpu()

    @cached_property
    def by_row(self) -> bool:
        """Whether an answer depends on its own input alone, and not on the others in the batch."""
        over = (module for module in self.model.modules() if isinstance(module, OVER_BATCHES))
        return all(module.running_mean is not None for module in over)

    def told(self, what: str) -> float:
        """The training loss or the number of samples as others see it; a loss that diverged is a very large number."""
        value = float(getattr(self, what))
        return value if isfinite(value) else float(np.finfo(np.float32).max)

    @cached_property
    def block(self) -> bytes:
        """The shared block as it is sent."""
        return payload(self.row, self.layout, full=False)

    @property
    def whole(self) -> bytes:
        """The full model as it is sent."""
        return payload(self.row, self.layout, full=True)


class Snapshots:
    """The newest snapshots; many threads read them, one writes."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._kept: OrderedDict[bytes, Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def publish(self, snapshot: Snapshot) -> None:
        """Add a snapshot as the newest; the oldest is dropped when there are too many."""
        with self._lock:
            self._kept.pop(snapshot.digest, None)
            self._kept[snapshot.digest] = snapshot
            while len(self._kept) > self.keep:
                self._kept.popitem(last=False)

    def find(self, digest: bytes = b"") -> Snapshot | None:
        """The snapshot with a digest, or the newest for an empty one; None if it is not, or no longer, kept."""
        with self._lock:
            if digest:
                return self._kept.get(digest)
            return next(reversed(self._kept.values()), None)

    def digests(self) -> set[bytes]:
        """The digests of all snapshots kept."""
        with self._lock:
            return set(self._kept)
