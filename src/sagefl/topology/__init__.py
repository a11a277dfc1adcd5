"""Who can talk to whom, who is there in a round, what the network loses, and who does not play fair.

Four small files, one question each:

- `graphs`: the fixed graph of possible exchanges, `build("er", clients=50, seed=1)`;
- `availability`: which clients are active in a round (`Always`, `Bernoulli`, `Trace`);
- `links`: which directed links work in a round, how stale the answers are, and what is left of every
  neighbourhood after both (`neighbourhoods`);
- `misbehaviour`: which clients lie or poison, and the pure functions that do it.

Everything here is a description in NumPy arrays. Nothing knows models, data or selectors, and no draw
depends on the method under test: the same ``(seed, round)`` gives every method the same world. Rounds count
from 0. networkx is imported only when a random graph is built.
"""

from sagefl.topology._common import Seed, TopologyError
from sagefl.topology.availability import Always, Availability, Bernoulli, Trace
from sagefl.topology.graphs import KINDS, Graph, build
from sagefl.topology.links import Links, LinkState, View, neighbourhoods
from sagefl.topology.misbehaviour import Misbehaviour, false_answers, poison_row, wrong_labels

__all__ = [
    "KINDS",
    "Always",
    "Availability",
    "Bernoulli",
    "Graph",
    "LinkState",
    "Links",
    "Misbehaviour",
    "Seed",
    "TopologyError",
    "Trace",
    "View",
    "build",
    "false_answers",
    "neighbourhoods",
    "poison_row",
    "wrong_labels",
]
