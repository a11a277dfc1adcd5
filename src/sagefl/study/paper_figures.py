"""Figures about the paper alone: its stopping rule, and what that rule allows its evidence table to say."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from ..selection import theory
from ..selection.theory import PROBE_COST, SCHEDULE
from .audit import stop_bounds
from .canvas import INK, MUTED, Drawn, colour, drawing, marker, save, tidy
from .published import counterpart
from .results import show_method

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .design import Findings

DEGREE = 6  # the paper's representative degree


def stopping(findings: Findings) -> Drawn:
    """One decision of SAGE-OS, and where its price passes the width."""
    with drawing(9.2, 4.1) as figure:
        flow, curves = figure.subplots(1, 2, width_ratios=(1.15, 1))
        _flow(flow)
        _curves(curves)
        return save(
            figure,
            "stopping",
            "The stopping rule",
            f"(a) One decision of SAGE-OS. (b) The width 2r against the price of the next stage at d = {DEGREE}. The "
            "printed price (incremental) passes 2r only at stage 64: at stage 32, where half of all decisions end in "
            "the evidence table, it cannot stop at this degree whatever the losses. The cumulative price passes it at "
            "32.",
        )


def _flow(axes: Axes) -> None:
    axes.set(xlim=(-1.1, 10), ylim=(0.4, 10), title="(a) one decision")
    axes.axis("off")
    blue, green, grey = "#0072B2", "#009E73", MUTED
    _box(axes, 3.3, 9.0, "ask every neighbour about the next anchors\n(m = 16, 32, 64, 128)", INK)
    _box(axes, 3.3, 6.6, "advantage A > 2r ?", blue)
    _box(axes, 3.3, 4.2, "was it the last stage ?", blue)
    _box(axes, 3.3, 1.5, "price of next stage\n$\\lambda d\\,(m_{next} - m) \\geq A + 2r$ ?", blue)
    _box(axes, 8.4, 6.6, "select\nthe best peer", green)
    _box(axes, 8.4, 4.2, "gossip:\nexhausted", grey)
    _box(axes, 8.4, 1.5, "gossip:\ncannot pay", grey)
    for y0, y1 in ((8.3, 7.05), (6.15, 4.65), (3.75, 2.2)):
        _arrow(axes, (3.3, y0), (3.3, y1), "" if y0 > 8 else "no", (0.35, 0.0))
    for y, x in ((6.6, 4.75), (4.2, 4.9), (1.5, 5.05)):
        _arrow(axes, (x, y), (7.35, y), "yes", (0.0, 0.35))
    axes.plot([1.55, -0.35, -0.35], [1.5, 1.5, 9.0], color=INK, lw=1.1, solid_joinstyle="miter")
    axes.annotate("", (0.0, 9.0), (-0.4, 9.0), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.1})
    axes.text(-0.75, 5.2, "no: buy the next stage", rotation=90, ha="center", va="center", fontsize=8)


def _box(axes: Axes, x: float, y: float, text: str, edge: str) -> None:
    style = {"boxstyle": "round,pad=0.45", "facecolor": "#ffffff", "edgecolor": edge, "linewidth": 1.3}
    axes.text(x, y, text, ha="center", va="center", fontsize=8.5, bbox=style)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str, off: tuple[float, float]
) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.1})
    middle = ((start[0] + end[0]) / 2 + off[0], (start[1] + end[1]) / 2 + off[1])
    axes.text(*middle, text, ha="center", va="center", fontsize=8)


def _curves(axes: Axes) -> None:
    smooth = [16 * 2 ** (i / 20) for i in range(61)]
    width = [2 * theory.radius(16, DEGREE) * (16 / m) ** 0.5 for m in smooth]
    axes.plot(smooth, width, color="#0072B2", label="width $2r$: what evidence could still resolve")
    stages = SCHEDULE[:-1]
    for kind, tone, shape in (("incremental", "#D55E00", "s"), ("cumulative", "#7B61C4", "h")):
        costs = [
            theory.stage_cost(PROBE_COST, DEGREE, m, n, cumulative=kind == "cumulative")
            for m, n in zip(SCHEDULE, SCHEDULE[1:], strict=False)
        ]
        said = "as printed" if kind == "incremental" else "as the evidence table needs it"
        axes.plot(stages, costs, color=tone, marker=shape, linestyle="--", label=f"{kind} price, {said}")
        at = next(i for i, m in enumerate(stages) if costs[i] >= 2 * theory.radius(m, DEGREE))
        axes.plot(stages[at], costs[at], marker="o", markersize=15, fillstyle="none", color=tone)
        left = kind == "cumulative"
        axes.annotate(
            f"first fires at {stages[at]}", (stages[at], costs[at]), (-10, 14) if left else (14, 2),
            textcoords="offset points", ha="right" if left else "left", color=tone, fontsize=8.5,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set(title=f"(b) at d = {DEGREE}, A = 0", xlabel="anchors m", ylabel="risk units", ylim=(0, 2.1))
    axes.set_xticks(SCHEDULE, [str(m) for m in SCHEDULE])
    axes.minorticks_off()
    axes.legend(loc="upper left", fontsize=8)
    tidy(axes)


def stop32(findings: Findings) -> Drawn:
    """Stop@32 of the evidence table against the most that the printed rule allows."""
    bounds, ours = stop_bounds(findings.published), findings.ours
    with drawing(8.4, 4.0) as figure:
        axes = figure.subplots()
        names = [" ".join((*b.configuration.labels[:2], f"{b.configuration.alpha:g}")) for b in bounds]
        rows = range(len(bounds))
        axes.barh(rows, [100 * b.incremental for b in bounds], color="#D55E00", alpha=0.25, height=0.7,
                  label="most that the printed price allows")  # fmt: skip
        axes.plot([100 * b.printed for b in bounds], rows, "D", color=INK, label="Stop@32 in the paper's table")
        for method, face in (("sage-os", colour("sage-os")), ("sage-os-table", colour("sage-os-table"))):
            found = [
                (100 * fmean(v.values()), row)
                for row, b in enumerate(bounds)
                for c in ours.configurations
                if counterpart(c) == b.configuration and (v := ours.by_seed(c, method, "stop_32"))
            ]
            if found:
                axes.plot(*zip(*found, strict=True), marker(method), color=face, markersize=8,
                          label=f"measured, {show_method(method)}")  # fmt: skip
        for row, b in zip(rows, bounds, strict=True):
            if b.printed > b.incremental:
                axes.text(100 * b.printed + 1.5, row, "impossible", color="#D55E00", va="center", fontsize=8.5)
        axes.set_yticks(list(rows), names)
        axes.invert_yaxis()
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        axes.set(xlim=(0, 102), xlabel="share of decisions that stop at stage 32, %")
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.14), ncols=2, fontsize=8)
        tidy(axes)
        return save(
            figure, "stop32", "Stop@32 and what the printed rule allows",
            "Bars: the largest share of decisions that can stop at stage 32 under the printed cost rule, whatever the "
            "losses, given the table's own Cost-RG and the degrees of the graph. What lies beyond is impossible. Ours "
            "are at the scale of these runs.",
        )  # fmt: skip
