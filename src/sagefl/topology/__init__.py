"""Who can talk to whom, who is there in a round, which messages get lost, and who misbehaves.

Four small files, one question each:

- `graphs`: the fixed graph of possible exchanges, `build("er", clients=50, seed=1)`;
- `availability`: which clients are active in a round (`Always`, `Bernoulli`, `Trace`, `Churn`);
- `links`: which directed links work in a round, how old the answers are, and which neighbours that leaves every client
  (`neighbourhoods`);
- `misbehaviour`: which clients lie, poison, ride free or lag behind, and the pure functions that do it.

Everything here is a description in NumPy arrays. Nothing knows about models, data or selectors, and no draw depends on
the method under test: the same `(seed, round)` gives every method the same conditions. Rounds count from 0. networkx is
imported only when a random graph is built.
"""

from ._common import Seed, TopologyError
from .availability import Always, Availability, Bernoulli, Churn, Trace
from .graphs import Graph, GraphKind, build
from .links import Links, LinkState, View, neighbourhoods
from .misbehaviour import Misbehaviour, MisbehaviourKind, false_answers, poison_row, wrong_labels

__all__ = [
    "Always",
    "Availability",
    "Bernoulli",
    "Churn",
    "Graph",
    "GraphKind",
    "LinkState",
    "Links",
    "Misbehaviour",
    "MisbehaviourKind",
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
