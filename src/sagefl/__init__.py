"""sagefl: certified peer selection for decentralised federated learning.

Ask before you download: score a few of your own held-out inputs on every neighbour, commit only when a certificate
says the peer beats a random draw, stop when more evidence cannot pay, otherwise gossip.

The names below need NumPy alone. `run`, `compare`, `scout` and `load` are the simulator in a few lines: they come with
the extra `sim` and are loaded when first used. The simulator, the node and the page are subpackages with extras of
their own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .extras import how_to_install, lacking
from .selection import (
    LABEL_ERRORS,
    ME,
    AnchorQuery,
    Decision,
    DecisionError,
    Draws,
    Exchange,
    Hood,
    Inspect,
    LocalOnly,
    Outcome,
    Probe,
    RandomGossip,
    Read,
    Reason,
    SageE,
    SageETrim,
    SageEVanilla,
    SageM,
    SageNF,
    SageOS,
    SageOSTable,
    Scoring,
    Selector,
    Stage,
    VanillaSage,
    drive,
    explain,
    make,
    option,
    replay,
    scoring,
    selector,
    selectors,
)

if TYPE_CHECKING:
    from .api import compare, load, run, scout

__version__ = "0.1.0"

__all__ = [
    "LABEL_ERRORS",
    "ME",
    "AnchorQuery",
    "Decision",
    "DecisionError",
    "Draws",
    "Exchange",
    "Hood",
    "Inspect",
    "LocalOnly",
    "Outcome",
    "Probe",
    "RandomGossip",
    "Read",
    "Reason",
    "SageE",
    "SageETrim",
    "SageEVanilla",
    "SageM",
    "SageNF",
    "SageOS",
    "SageOSTable",
    "Scoring",
    "Selector",
    "Stage",
    "VanillaSage",
    "__version__",
    "compare",
    "drive",
    "explain",
    "load",
    "make",
    "option",
    "replay",
    "run",
    "scoring",
    "scout",
    "selector",
    "selectors",
]


def __getattr__(name: str) -> Any:
    """Load what trains when it is first used."""
    if name not in ("compare", "load", "run", "scout"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(".api", __name__), name)
    except ModuleNotFoundError as error:
        if (extra := lacking(error)) is None:
            raise
        raise ImportError(
            f"sagefl.{name} needs {error.name}, which is not installed: {how_to_install(extra)}"
        ) from None
