"""What the paper states in numbers: abstract, introduction, theory, results and limitations, claim by claim.

Quotes are the paper's words with LaTeX taken out. Bands are ours: 1 accuracy point (the paper's own "sub-point margins
are ties"), 5 points of evidence, 10 points of a stopping share, .1 of a model exchange.
"""

from __future__ import annotations

from ..claims import Claim
from .abstain import ABSTAINING, WEAK
from .abstract import ABSTRACT
from .commit import COMMITTING
from .regimes import REGIMES
from .rivals import RIVALS
from .stopping import STOPPING
from .theory import THEORY

__all__ = ["STATEMENTS"]

STATEMENTS: tuple[Claim, ...] = (
    *ABSTRACT,
    *THEORY,
    *COMMITTING,
    *ABSTAINING,
    *STOPPING,
    *WEAK,
    *RIVALS,
    *REGIMES,
)
