"""What a process holds after a round of clients with adapters on a frozen base; prints it as JSON.

python tests/simulation/base_memory.py CLIENTS
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sagefl.data import Dataset
from sagefl.learning.tasks import MixBlocks, Train
from sagefl.learning.training import LocalTraining
from sagefl.runs.config import RunConfig
from sagefl.simulation.engines import Sequential
from sagefl.simulation.world import World

WIDTH, RANK, INPUTS = 1000, 160, 1000  # rows large enough to be told from the noise of a process


class Based(nn.Module):
    """Two frozen layers, adapters for each, a head."""

    shared = ("down", "up")

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.base = nn.ModuleList([nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, WIDTH)]).requires_grad_(False)
        self.down = nn.ModuleList([nn.Linear(INPUTS, RANK, bias=False), nn.Linear(WIDTH, RANK, bias=False)])
        self.up = nn.ModuleList([nn.Linear(RANK, WIDTH, bias=False), nn.Linear(RANK, WIDTH, bias=False)])
        self.top = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class logits."""
        for base, down, up in zip(self.base, self.down, self.up, strict=True):
            x = torch.relu(base(x) + up(down(x)))
        return self.top(x)


def resident() -> int:
    """Bytes of memory that the process has now."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


def main(clients: int) -> None:
    """Build the world, train and mix once, count."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(1600, INPUTS)).astype(np.float32), rng.integers(2, size=1600)
    data = Dataset.from_arrays("made", x, y, x[:10], y[:10])
    sys.modules["base_memory"] = sys.modules["__main__"]
    world = World.build(
        RunConfig.parse(
            {
                "clients": clients,
                "data": {"partition": "iid"},
                "model": {"name": "base_memory:Based"},
                "topology": {"kind": "ring"},
            }
        ),
        data,
    )
    engine = Sequential(world, LocalTraining())
    engine.population.reset(world.initial)
    engine.map([Train(k, 0) for k in range(clients)])
    engine.map([MixBlocks(k, 0, 0.5, [((k + 1) % clients, 0, 0.5)]) for k in range(clients)])
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if isinstance(thing, Tensor):
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    frozen = [p for p in world.model.parameters() if not p.requires_grad]
    models = {id(m): m for m in (world.model, engine._bench.model)}.values()
    bases = {m.base[0].weight.untyped_storage().data_ptr() for m in models}
    told = {"frozen": sum(p.numel() for p in frozen), "bases": len(bases), "trained": world.layout.width}
    print(json.dumps(told | {"tensors": sum(storages.values()), "resident": resident()}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
