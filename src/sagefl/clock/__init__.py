"""Virtual time: how fast clients and links are, and when everything that clients do begins and ends.

Nothing here trains or asks. `Network` says how fast everybody is, a `Script` what a client does after it has trained,
and `Clockwork` puts one to the other: looks that follow each other pay a round trip each, transfers share uplinks and
downlinks, and a peer that is still training keeps those waiting that ask for its new model.
"""

from .clockwork import Clockwork, Ended, Trained, play
from .network import NETWORKS, Network, network
from .script import Call, Script, TimedLook, evidence, transfer

__all__ = [
    "NETWORKS",
    "Call",
    "Clockwork",
    "Ended",
    "Network",
    "Script",
    "TimedLook",
    "Trained",
    "evidence",
    "network",
    "play",
    "transfer",
]
