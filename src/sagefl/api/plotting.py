"""Curves of several methods, one line each, with a band over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import polars as pl

from ..errors import UsageError
from ..runs.columns import BYTES
from ..selection.registry import nearest
from ..study.canvas import drawing, handed_over, styles, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .results import Results

Over = Literal["round", "minutes", "bytes"]


def curves(results: Results, metric: str, path: Path | str | None, over: Over = "round") -> Figure:
    """A metric over rounds, minutes or bytes: the mean over seeds, and a band from the lowest to the highest."""
    rounds = results.rounds()
    if over not in get_args(Over):
        raise UsageError(f"curves are drawn over {', '.join(get_args(Over))}, not over {over!r}")
    if over == "minutes" and "minutes" not in rounds.columns:
        raise UsageError("these runs have no clock: set clock.network, such as clock.network=wan")
    moved = pl.sum_horizontal(BYTES).cum_sum().over("method", "seed", order_by="round")
    rounds = rounds.with_columns(bytes=moved)
    if metric not in rounds.columns:
        raise UsageError(f"there is no column {metric!r}{nearest(metric, rounds.columns)} (`sagefl columns metrics`)")
    with drawing(7, 4) as figure:
        from matplotlib.ticker import MaxNLocator

        axes = figure.subplots()
        styled = styles(results.methods)
        for method in results.methods:
            _line(axes, method, styled[method], rounds.filter(pl.col("method") == method), metric, over)
        tidy(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=over == "round"))
        axes.set_xlabel(over)
        axes.set_ylabel(metric)
        title = f"{metric} by {over}"
        axes.set_title(f"{title}, mean and range of {len(results.seeds)} seeds" if len(results.seeds) > 1 else title)
        axes.legend()
        return handed_over(figure, path)


def _line(axes: Any, method: str, style: tuple[str, str], rows: pl.DataFrame, metric: str, over: str) -> None:
    value = pl.col(metric)
    spread = (
        rows.filter(value.is_not_null())
        .group_by("round")
        .agg(at=pl.col(over).mean(), mean=value.mean(), low=value.min(), high=value.max(), seeds=value.len())
        .sort("round")
    )
    x, (ink, sign) = spread["at"].to_list(), style
    axes.plot(x, spread["mean"].to_list(), color=ink, marker=sign if len(x) <= 40 else "", label=method)
    if (spread["seeds"] > 1).any():
        axes.fill_between(x, spread["low"].to_list(), spread["high"].to_list(), color=ink, alpha=0.15, linewidth=0)
