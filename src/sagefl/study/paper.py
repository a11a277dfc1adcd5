"""The paper's study: its matrix, its claims, its tables and its figures, with our runs beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .design import Design, Findings, made_by
from .figures import CHARTS
from .matrix import plan, preset_of
from .paper_figures import stop32, stopping
from .published import published
from .statements import STATEMENTS

__all__ = ["PAPER", "audit", "design"]

PAPER = Design(
    "study-paper",
    "Does the paper hold? SAGE: Optimal-Stopping Peer Selection for Decentralised Federated Learning",
    claims=STATEMENTS,
    charts=(stopping, stop32, *CHARTS),
    published=published,
    scale=("the paper: K = 50, T = 250, whole local epochs, encoder-decoder, one run per cell",),
    sweeps=True,
)
"""Everything but the cells: those depend on the scale."""


def design(
    preset: str = "smoke",
    *,
    datasets: Sequence[str] = (),
    topologies: Sequence[str] = (),
    alphas: Sequence[float] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Design:
    """The paper's study at a preset's scale; axes that are left empty are the preset's own."""
    axes: dict[str, Any] = {"datasets": datasets, "topologies": topologies, "alphas": alphas}
    cells = plan(preset, **axes, methods=methods, seeds=seeds, overrides=overrides)
    return replace(PAPER, name=f"study-{preset}", cells=cells, small=preset_of(preset).small)


def audit(command: str = "") -> Findings:
    """The paper by its own tables alone: nothing is run."""
    return Findings(PAPER, provenance=made_by(command))
