"""sagefl: certified peer selection for decentralised federated learning.

Ask before you download: score a few of your own held-out inputs on every neighbour, commit only when a certificate
says the peer beats a random draw, stop when more evidence cannot pay, otherwise gossip.

The names below need NumPy alone. The simulator, the command line and the node live in subpackages with their extras.
"""

from .selection import (
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
    SageNF,
    SageOS,
    SageOSTable,
    Selector,
    Stage,
    VanillaSage,
    drive,
    explain,
    make,
    option,
    replay,
    selector,
    selectors,
)

__version__ = "0.1.0"

__all__ = [
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
    "SageNF",
    "SageOS",
    "SageOSTable",
    "Selector",
    "Stage",
    "VanillaSage",
    "__version__",
    "drive",
    "explain",
    "make",
    "option",
    "replay",
    "selector",
    "selectors",
]
