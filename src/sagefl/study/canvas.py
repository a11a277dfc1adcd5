"""How figures look: a palette that colour-blind readers can tell apart, one ink, and SVG that fits into a page.

Colours are Okabe and Ito's (jfly.uni-koeln.de/color), each with a marker of its own, so that nothing depends on
colour alone. Drawn without pyplot: no global state, no display.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..extras import how_to_install
from .errors import StudyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
INK, MUTED = "#1a1a2e", "#8a8a99"  # replaced by the page's own colours where a figure is put into one
_PALETTE = {
    "local": ("#999999", "x"),
    "rg": (INK, "o"),
    "pens": ("#E69F00", "v"),
    "pfeddst": ("#56B4E9", "^"),
    "aq-128": ("#D55E00", "s"),
    "sage-nf": ("#CC79A7", "D"),
    "sage-vanilla": ("#009E73", "P"),
    "sage-os": ("#0072B2", "*"),
    "sage-os-table": ("#7B61C4", "h"),
    "sage-m": ("#8A2B2B", "<"),
    "sage-m:outside=home": ("#C2185B", "d"),
}
_OTHERS = (("#B8860B", "<"), ("#5F9EA0", ">"), ("#8B4513", "p"), ("#708090", "d"))
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": MUTED,
    "grid.alpha": 0.25,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "sagefl",
    "savefig.transparent": False,
}


@dataclass(frozen=True)
class Drawn:
    """A finished figure."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes

    def write(self, folder: Path) -> None:
        """Both formats into a folder."""
        (folder / f"{self.name}.svg").write_text(self.svg, encoding="utf-8")
        (folder / f"{self.name}.png").write_bytes(self.png)


def colour(method: str) -> str:
    """A method's colour."""
    return _style(method)[0]


def marker(method: str) -> str:
    """A method's marker."""
    return _style(method)[1]


def styles(methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each of several methods, no two of them alike."""
    found = {method: _PALETTE[method] for method in methods if method in _PALETTE}
    colours = [ink for ink, _ in (*_OTHERS, *_PALETTE.values())]
    for method in methods:
        if method not in found:
            spare = ((ink, sign) for sign in "><pdvsP^XDho*" for ink in colours)
            found[method] = next(style for style in (_style(method), *spare) if style not in found.values())
    return found


def _style(method: str) -> tuple[str, str]:
    if method in _PALETTE:
        return _PALETTE[method]
    return _OTHERS[sum(map(ord, method)) % len(_OTHERS)]


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """An empty figure in the house style, in inches."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise StudyError(f"figures need matplotlib: {how_to_install('study')}") from None
    with matplotlib.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def tidy(axes: Axes, *, zero: bool = False) -> None:
    """No tick marks; a line at zero where zero means something."""
    axes.tick_params(length=0)
    if zero:
        axes.axhline(0, color=INK, linewidth=0.9, zorder=1)


def save(figure: Figure, name: str, title: str, caption: str) -> Drawn:
    """The figure as SVG and PNG; the same figure gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    svg, png = io.StringIO(), io.BytesIO()
    figure.savefig(svg, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    figure.savefig(png, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return Drawn(name, title, caption, svg.getvalue(), png.getvalue())


def check_picture(path: Path | str) -> None:
    """Refuse a file that no picture can be written to, before anything is run for it."""
    if Path(path).suffix.lower() not in PICTURES:
        raise UsageError(f"{path}: a picture is a file that ends in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")


def handed_over(figure: Figure, path: Path | str | None) -> Figure:
    """The figure as a caller gets it: written to `path` if one is given, and shown by notebooks."""
    if path is not None:
        check_picture(path)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100, facecolor="white")
    setattr(figure, "_repr_png_", picture.getvalue)  # noqa: B010 (notebooks show figures of pyplot only)
    return figure


def inline(drawn: Drawn) -> str:
    """The SVG for a page: no prologue, no metadata, ids of its own, ink in the page's colour, no background."""
    svg = drawn.svg[drawn.svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<g id="patch_1">\s*<path[^>]*style=")fill: #ffffff', r"\1fill: none", svg, count=1)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{drawn.name}-\1"', svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\1#{drawn.name}-", svg)
    svg = svg.replace(INK, "currentColor").replace(MUTED, "var(--muted)").replace("#ffffff", "var(--paper)")
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    found = re.search(r' width="([\d.]+)pt"', svg)
    assert found is not None
    size = f' role="img" aria-label="{drawn.title}" style="max-width: {float(found[1]) / 12:.1f}rem"'
    return svg.replace(found[0], size, 1)
