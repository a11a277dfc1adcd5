"""CHOCO-SGD: gossip with compressed messages and public replicas of everybody's model.

A. Koloskova, S. U. Stich, M. Jaggi. Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
Communication. ICML 2019. arXiv:1902.00340. For deep networks: A. Koloskova, T. Lin, S. U. Stich, M. Jaggi.
Decentralized Deep Learning with Arbitrary Communication Compression. ICLR 2020. arXiv:1907.09356. Read: the abstract
of the first, and the authors' code of both (epfml/ChocoSGD: `fit` in convex_code/logistic.py with the step sizes of its
experiments, `search_gamma` in dl_code/pcode/tools/tune_consensus_stepsize.py, dl_code/pcode/optim/parallel_choco.py).

Established. After a gradient step, q_k = C(x_k - x^_k) is sent to all neighbours, every holder of the replica adds it,
and x_k <- x_k + gamma sum_j w_kj (x^_j - x^_k) with symmetric, doubly stochastic w. C may be biased: top-k, or the sign
scaled by the mean magnitude. Without compression and with gamma = 1 this is D-PSGD.

Ours. w are D-PSGD's Metropolis-Hastings weights. The step is a local epoch of Adam; only the shared block takes part.
Replicas start from the common initial weights, which everybody knows, as in the authors' convex code (zero where they
tune gamma). A round sends and then steps, as above; the authors' code steps towards the replicas as they were and sends
afterwards, which for gossip alone is the same sequence. The sign has one scale for the whole block. ratio = .1 and
gamma = .2 are ours: at this ratio plain gossip on the SAGE paper's graphs contracts best at .2 to .3, hardly at .4, and
diverges at .5 (measured, 150 rounds of gossip on random vectors); the authors have .04 for 1% of the coordinates on a
ring of 9. A message is counted once per receiver: top-k as value and position (8 bytes a coordinate), sign as 1 bit a
coordinate plus the scale. A client that missed messages (it was away, the link had failed) is charged for them when it
is back, together at most the whole block. Delayed links are not modelled: messages arrive in the round they are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..exchange import ExchangeLayer
from ..exchange.compression import Compression, Compressor
from ..selection import option
from ..selection.d_psgd import DPSGD
from .base import Method


class Choco(Method):
    """Compressed gossip with replicas."""

    id: ClassVar[str] = "choco"
    rule = DPSGD
    evidence: ClassVar[str] = "none (neighbours' degrees)"
    communication: ClassVar[str] = "d / d, compressed"
    fidelity: ClassVar[str] = "adapted: a local epoch of Adam is the step, heads stay local"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """How messages are compressed, and how far a round moves."""

        compression: Compression = option("top-k", "how messages are compressed")
        ratio: float = option(0.1, "share of the coordinates that top-k keeps", gt=0, le=1)
        gamma: float = option(0.2, "consensus step: how far a model moves towards the replicas around", gt=0, le=1)

    options: Options

    def make_exchange(self) -> ExchangeLayer:
        """Messages and replicas."""
        return Compressor(self.options.compression, self.options.ratio, self.options.gamma)
