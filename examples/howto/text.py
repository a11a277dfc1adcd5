"""Text with natural owners: the next letter of a speech, speaker by speaker.

`Reader` is trained whole. `Adapted` has a frozen base, which `python text.py` trains first on speakers who take no
part, and low-rank adapters on it: only they are trained and exchanged, and the base is stored once for everybody.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sagefl.data import Dataset, load

BASE = Path("base.pt")
APART = ("Abraham Lincoln", "Woodrow Wilson")  # the base is trained on what they said


class Reader(nn.Module):
    """An embedding of letters, a recurrent layer and a head; the head stays at home."""

    shared = ("letters", "memory")

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 32) -> None:
        super().__init__()
        self.letters = nn.Embedding(classes, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next letter; `x` holds a row of letters per sample, as whole numbers."""
        return self.head(self.memory(self.letters(x))[0][:, -1])


class Base(nn.Module):
    """What is trained first: letters by place, one wide layer, and a head."""

    def __init__(self, length: int, classes: int, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(classes, 16)
        self.wide = nn.Linear(16 * length, width)
        self.drop = nn.Dropout(0.5)  # or the little text would be learnt by heart
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next letter."""
        return self.head(self.drop(torch.relu(self.wide(self.letters(x).flatten(1)))))


class Adapted(nn.Module):
    """The frozen base with a low-rank change to its wide layer; the change is exchanged."""

    shared = ("down", "up")

    def __init__(self, shape: tuple[int, ...], classes: int, rank: int = 4, width: int = 256) -> None:
        super().__init__()
        self.base = Base(shape[0], classes, width)
        if BASE.is_file():
            self.base.load_state_dict(torch.load(BASE, weights_only=True))
        self.base.requires_grad_(False)
        self.down = nn.Linear(16 * shape[0], rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next letter."""
        seen = self.base.letters(x).flatten(1)
        return self.base.head(torch.relu(self.base.wide(seen) + self.up(self.down(seen))))


def speakers() -> Dataset:
    """`sotu-mini` without those on whom the base is trained."""
    data = load("sotu-mini")
    names = np.array(data.owner_names)[data.owners]
    kept = ~np.isin(names, APART)
    return Dataset.from_arrays(
        "speakers", data.train_x[kept], data.train_y[kept], data.test_x, data.test_y, data.classes, names[kept]
    )


def beginnings(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """Every letter of every window is one to be guessed from those before it, with spaces in front."""
    whole, length = np.concatenate([x, y[:, None]], axis=1).astype(np.int64), x.shape[1]
    seen = [np.pad(whole[:, :stop], ((0, 0), (length - stop, 0))) for stop in range(1, length + 1)]
    return torch.from_numpy(np.concatenate(seen)), torch.from_numpy(np.concatenate(list(whole[:, 1:].T)))


def train_base(steps: int = 300, width: int = 256) -> tuple[int, float]:
    """Train the base; returns how many weights it has, and how often it is right on the test samples."""
    data = load("sotu-mini")
    held = np.isin(np.array(data.owner_names)[data.owners], APART)
    x, y = beginnings(data.train_x[held], data.train_y[held])
    torch.manual_seed(1)
    base = Base(data.train_x.shape[1], data.classes, width)
    optimiser = torch.optim.Adam(base.parameters(), 1e-3)
    for _ in range(steps):
        picked = torch.randint(len(x), (128,))
        loss = nn.functional.cross_entropy(base(x[picked]), y[picked])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.save(base.state_dict(), BASE)
    with torch.no_grad():
        said = base.eval()(torch.from_numpy(data.test_x).long()).argmax(1).numpy()
    return sum(p.numel() for p in base.parameters()), float((said == data.test_y).mean())


if __name__ == "__main__":
    size, right = train_base()
    letters = np.bincount(load("sotu-mini").test_y)
    baseline = letters.max() / letters.sum()
    print(f"{BASE}: {size} weights, trained on {' and '.join(APART)}")
    print(f"accuracy by itself {right:.4f}, of always answering the commonest letter {baseline:.4f}")
