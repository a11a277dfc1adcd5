"""Studies: many runs, one answer. `Study(design).run().report()`.

A study goes through these files, one idea each:

- `design`: what a study is, as data, and what it finds; `study`: planning, running, collecting and reporting it;
- `spec`: a study as a TOML file; `designs/` holds those that come with sagefl, `paper` the paper's claims and charts;
- `matrix`: a cell, which is one run; `runner` (or `distributed`, on Ray) carries cells out, each by `work`; `pace` says
  how far it is; `collect` gathers what they came to;
- `published`: the paper's own tables, shipped as reference data; `results`: one shape for theirs and ours;
- `measures`, `intervals`, `claims`, `statements`, `audit`: numbers per seed, verdicts, and what the paper states;
- `comparing`: methods against one of them, paired and corrected; `account`: what is written about it;
- `tables`, `render`, `canvas`, `figures`, `paper_figures`, `sweeps`, `report`: what people look at.

Beside studies of runs: `synthetic`, worlds of probe losses whose true risks are known; `regret`, how far rules are from
optimal stopping. Everything here reads run directories or recorded losses; nothing here trains or decides by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .design import Design
    from .study import Study

__all__ = ["Design", "Study"]


def __getattr__(name: str) -> Any:
    """Load `Design` and `Study` when they are first used: `regret` needs NumPy alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{name.lower()}", __name__), name)
