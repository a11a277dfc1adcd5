"""Draw every world that `[world]` can make, for `docs/worlds.md`: `python tools/draw_worlds.py`.

Three test images as each group sees them, with what it calls them where that differs; bars where groups differ in what
they hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from sagefl.data import SHIFTS, Dealt, load
from sagefl.runs.config import RunConfig

mpl.use("agg")
import matplotlib.pyplot as plt

TARGET = Path(__file__).parent.parent / "docs" / "images" / "worlds.png"
GROUPS = {"flip": 2, "invert": 2}  # of the others three
NAMES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
SHOWN = (1, 8, 9)  # one image of each of these classes
INK, BAR = "#24292f", "#0072B2"


def main() -> None:
    plain = load("fmnist-mini")
    picked = [int(np.flatnonzero(plain.test_y == c)[0]) for c in SHOWN]
    figure, axes = plt.subplots(len(SHIFTS), 3, figsize=(7.2, 9.6), gridspec_kw={"wspace": 0.06, "hspace": 0.5})
    for row, shift in zip(axes, SHIFTS, strict=True):
        groups = GROUPS.get(shift, 3)
        world = {"shift": shift, "groups": groups}
        config = RunConfig.parse({"clients": 30, "data": {"partition": "iid"}, "world": world})
        found = config.dealt(plain)
        for group, ax in enumerate(row):
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if group < groups:
                draw(ax, found, group, picked, shift)
        row[0].set_ylabel(shift, rotation=0, ha="right", va="center", fontsize=10, color=INK, labelpad=8)
    for group, ax in enumerate(axes[0]):
        ax.set_title(f"group {group}", fontsize=10, color=INK)
    TARGET.parent.mkdir(exist_ok=True)
    figure.savefig(TARGET, dpi=110, bbox_inches="tight", pad_inches=0.05, metadata={"Software": None})
    print(f"{TARGET}: {TARGET.stat().st_size / 1e3:.0f} kB")


def draw(ax: Any, found: Dealt, group: int, picked: list[int], shift: str) -> None:
    """One group: what it sees and how it calls it, or what it holds."""
    data, test = found.federation.dataset, found.grouping.tests[group]
    members = found.grouping.groups == group
    if shift in ("label-set", "quantity"):
        counts = found.federation.label_counts[members].mean(0)
        ax.bar(range(10), counts, color=BAR, width=0.8)
        ax.set(ylim=(0, 60), xlim=(-0.7, 9.7))
        held = [NAMES[c] for c in np.flatnonzero(counts)]
        ax.set_xlabel(", ".join(held) if shift == "label-set" else f"{counts.sum():.0f} samples a client", fontsize=7.5)
        ax.axhline(0, color=INK, linewidth=0.8)
        return
    seen = np.concatenate([data.test_x[test[i], 0] for i in picked], axis=1)
    ax.imshow(seen, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    called = [NAMES[data.test_y[test[i]]] for i in picked]
    if shift in ("labels", "flip"):
        ax.set_xlabel("      ".join(called), fontsize=7.5)


if __name__ == "__main__":
    main()
