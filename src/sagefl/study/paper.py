"""The paper's study: the matrix of `designs/paper.toml`, its claims, tables and figures, and our runs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .answer import five_lines, headroom_sheet
from .design import Design, Findings, made_by
from .figures import CHARTS
from .matrix import Cell
from .paper_figures import stop32, stopping
from .published import published
from .statements import STATEMENTS

PAPER = Design(
    "paper",
    "Does the paper hold? SAGE: Optimal-Stopping Peer Selection for Decentralised Federated Learning",
    claims=STATEMENTS,
    charts=(stopping, stop32, *CHARTS),
    published=published,
    answer=five_lines,
    opening=headroom_sheet,
    scale=("the paper: K = 50, T = 250, whole local epochs, encoder-decoder, one run per cell",),
    sweeps=True,
)
"""Everything but the cells: those depend on the scale."""


def design(preset: str | None = None, **axes: Any) -> Design:
    """The paper's study at a preset's scale; axes as of `Design.read`, those left empty are the preset's own."""
    read = Design.read("paper", preset, **axes)
    return replace(PAPER, name=read.name, cells=read.cells, small=read.small, keeps=not read.small, source=read.source)


def plan(preset: str, **axes: Any) -> Sequence[Cell]:
    """The cells of that study."""
    return design(preset, **axes).cells


def audit(command: str = "") -> Findings:
    """The paper by its own tables alone: nothing is run."""
    return Findings(PAPER, provenance=made_by(command))
