"""All clients as one matrix: a row per client; another row each for Adam's moments.

Modules train through views of their row, mixing is arithmetic on rows, a checkpoint is a few tensors. `snapshots`
holds the rows as published to neighbours after local training; older slots serve links with delay. Probes are
answered from `voices`, which are the snapshots themselves unless somebody hands over another model than the one it
speaks with. A method's own per-client arrays (masks, replicas ...) live in `extras`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from .layout import ALIGN, Layout


class Storage(Protocol):
    """A population as seen from outside: named tables of rows, wherever the rows lie."""

    def reset(self, row: Tensor) -> None:
        """Everybody starts from the same weights, head included, with a fresh optimiser."""

    def shapes(self) -> Iterator[tuple[str, int, int]]:
        """Everything a checkpoint must hold, as (name, rows, columns)."""

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Some rows of a table."""

    def write(self, name: str, start: int, rows: Tensor) -> None:
        """Overwrite rows of a table."""


@dataclass
class Population:
    """Every client's numbers. `params`: clients x width; `first`, `second`: its trained columns; `steps`: clients."""

    params: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor
    snapshots: Tensor
    voices: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def allocate(
        cls,
        layout: Layout,
        clients: int,
        *,
        ages: int = 1,
        two_faced: bool = False,
        extras: Mapping[str, int] | None = None,
        shared_memory: bool = False,
    ) -> Population:
        """Zeroed storage for `clients` rows and `ages` snapshots; `two_faced` keeps voices apart from snapshots.

        Extras are (name -> columns).
        """

        def zeros(*shape: int) -> Tensor:
            tensor = torch.zeros(shape)
            if shared_memory:
                tensor.share_memory_()  # type: ignore[no-untyped-call]
            return tensor

        snapshots = zeros(ages, clients, layout.width)
        return cls(
            params=zeros(clients, layout.width),
            first=zeros(clients, layout.trained_width),
            second=zeros(clients, layout.trained_width),
            steps=zeros(clients),
            snapshots=snapshots,
            voices=zeros(ages, clients, layout.width) if two_faced else snapshots,
            extras={name: zeros(clients, -(-n // ALIGN) * ALIGN) for name, n in (extras or {}).items()},
        )

    @property
    def clients(self) -> int:
        """Number of rows."""
        return len(self.params)

    def reset(self, row: Tensor) -> None:
        """Everybody starts from the same weights, head included, with a fresh optimiser."""
        self.params.copy_(row.expand_as(self.params))
        for tensor in (self.first, self.second, self.steps, self.snapshots, self.voices, *self.extras.values()):
            tensor.zero_()

    def slot(self, round: int, age: int = 0) -> int:
        """Which snapshot was published `age` rounds before `round`."""
        return (round - age) % len(self.snapshots)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything a checkpoint must hold, by name. Snapshots count only where delays read old ones."""
        yield "params", self.params
        yield "first", self.first
        yield "second", self.second
        yield "steps", self.steps
        if len(self.snapshots) > 1:
            yield "snapshots", self.snapshots
            if self.voices is not self.snapshots:
                yield "voices", self.voices
        for name, tensor in self.extras.items():
            yield f"extras.{name}", tensor

    def shapes(self) -> Iterator[tuple[str, int, int]]:
        """`tensors` as flat tables: (name, rows, columns)."""
        for name, tensor in self.tensors():
            rows, columns = _flat(tensor).shape
            yield name, rows, columns

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Some rows of a flat table; nothing is copied."""
        return _flat(dict(self.tensors())[name])[start:stop]

    def write(self, name: str, start: int, rows: Tensor) -> None:
        """Overwrite rows of a flat table."""
        self.read(name, start, start + len(rows)).copy_(rows)


def _flat(tensor: Tensor) -> Tensor:
    return tensor.view(-1, tensor.shape[-1]) if tensor.dim() > 1 else tensor.view(1, -1)
