"""The decision core: which neighbour, and is the evidence good enough? NumPy only, no I/O.

What lives here: the contract of a selector (`selector`, `requests`, `outcome`), its decisions and their drivers
(`decision`, `driving`), the rules, one file each, the paper's formulas (`theory`), and the registry. What does not:
data, models, networks, files.
"""

from .anchor_query import AnchorQuery
from .decision import Decision, DecisionError, Ledger
from .driving import drive, replay
from .explain import explain
from .local_only import LocalOnly
from .options import option
from .outcome import Exchange, Outcome, Reason, Stage, State
from .random_gossip import RandomGossip
from .registry import make, selector, selectors
from .requests import ME, Inspect, Probe, Read, Request
from .sage_e import SageE
from .sage_e_trim import SageETrim
from .sage_e_vanilla import SageEVanilla
from .sage_m import SageM
from .sage_nf import SageNF
from .sage_os import SageOS, SageOSTable
from .sage_vanilla import VanillaSage
from .scoring import LABEL_ERRORS, Scoring, scoring
from .selector import Deciding, Draws, Hood, Selector

__all__ = [
    "LABEL_ERRORS",
    "ME",
    "AnchorQuery",
    "Deciding",
    "Decision",
    "DecisionError",
    "Draws",
    "Exchange",
    "Hood",
    "Inspect",
    "Ledger",
    "LocalOnly",
    "Outcome",
    "Probe",
    "RandomGossip",
    "Read",
    "Reason",
    "Request",
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
    "State",
    "VanillaSage",
    "drive",
    "explain",
    "make",
    "option",
    "replay",
    "scoring",
    "selector",
    "selectors",
]
