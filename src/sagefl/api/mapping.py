"""The map that a scout draws: whose model errs on whose samples, clients by group, and what the pilot came to."""

from __future__ import annotations

import html
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.findings import ARMS, arm
from ..study.canvas import INK, MUTED, drawing, handed_over, inline, save, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .scouting import Scouting

TITLE = "Everybody's error on everybody's samples"
LONGEST = 16  # letters of a name beside the map
INKS = ("#999999", "#0072B2", "#D55E00")  # of the arms


def drawn_map(scouting: Scouting, path: Path | str | None = None) -> Figure:
    """The figure, written to `path` if one is given; notebooks show it."""
    return handed_over(_figure(scouting), path)


def map_page(scouting: Scouting) -> str:
    """One HTML file with the verdict, the lines behind it and the map."""
    drawn = save(_figure(scouting), "scout-map", TITLE, scouting.sentence)
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in scouting.lines())
    style = (
        ":root{color-scheme:light dark;--muted:#8a8a99;--paper:Canvas}"
        "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}svg{width:100%}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>sagefl scout</title>'
        f"<style>{style}</style></head>\n<body><h1>{html.escape(scouting.sentence)}</h1>\n{inline(drawn)}\n"
        f"{lines}\n</body></html>\n"
    )


def _figure(scouting: Scouting) -> Figure:
    wide = scouting.pilot is not None
    with drawing(8.4 if wide else 5.2, 4.3) as figure:
        axes = figure.subplots(1, 2, width_ratios=(1.5, 1)) if wide else [figure.subplots()]
        paint_map(axes[0], scouting)
        if wide:
            paint_arms(axes[1], scouting)
        figure.suptitle(fill(scouting.sentence, 92 if wide else 56), x=0.01, ha="left", fontsize=11, color=INK)
    return figure


def paint_map(axes: Any, scouting: Scouting) -> None:
    """Risks as a matrix, clients sorted by group, groups framed."""
    from matplotlib.patches import Rectangle

    groups = np.array(scouting.groups)
    order = np.argsort(groups, kind="stable")
    shown = axes.imshow(scouting.risks[np.ix_(order, order)], cmap="cividis_r", vmin=0, vmax=1)
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        size = stop - start
        axes.add_patch(
            Rectangle((start - 0.5, start - 0.5), size, size, fill=False, edgecolor="#D55E00", linewidth=1.6)
        )
    called = scouting.names or tuple(map(str, range(len(order))))
    names = [_short(called[k]) for k in order] if len(order) <= 24 else []
    axes.set_xticks(range(len(names)), names, fontsize=6.5, rotation=0 if scouting.names is None else 90)
    axes.set_yticks(range(len(names)), names, fontsize=6.5)
    axes.set(xlabel="whose model", ylabel="on whose samples")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    tidy(axes)
    bar = axes.figure.colorbar(shown, ax=axes, shrink=0.75, pad=0.02)
    bar.set_label("error", color=INK)
    bar.outline.set_visible(False)
    axes.set_title("whose model errs on whose samples", fontsize=9)


def _short(name: str) -> str:
    """What fits beside a row; a dollar would begin a formula."""
    return (name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…").replace("$", r"\$")


def paint_arms(axes: Any, scouting: Scouting) -> None:
    """Accuracy at home, with kin and under gossip at the end of the pilot, with 95 % intervals over clients."""
    assert scouting.pilot is not None
    for at, (name, ink) in enumerate(zip(ARMS, INKS, strict=True)):
        seen = arm(scouting.pilot, name)
        axes.bar(at, seen["mean"], color=ink, width=0.62)
        axes.plot([at, at], [seen["low"], seen["high"]], color=INK, linewidth=1.4)
        said = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(f"{seen['mean']:.2f}", (at, seen["high"]), (0, 3), **said)
    axes.set_xticks(range(len(ARMS)), list(ARMS))
    axes.set(ylim=(0, 1.05), ylabel="accuracy")
    axes.set_title(f"after {scouting.pilot.rounds} rounds", fontsize=9)
    axes.spines["bottom"].set_color(MUTED)
    tidy(axes)
