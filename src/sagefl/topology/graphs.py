"""Graphs of possible exchanges: connected random families, regular lattices, and edge lists from a file.

The random families are networkx's, so `(kind, clients, seed)` names the same graph that networkx itself gives. networkx
gets the seed unchanged; if the graph is not connected, it gets seed + 1000, seed + 2000, and so on (`ATTEMPTS` draws in
all). Erdos-Renyi is drawn here: the same graph, without its import; for speed another one beyond `EXACT_ER_CLIENTS`
clients, see `_er`.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from os import PathLike
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..extras import how_to_install
from ..selection.registry import nearest
from ..streams import stream
from ._common import IntArray, TopologyError, frozen, number, numbered_fields, probability, whole

GraphKind = Literal["er", "ba", "ring", "regular", "ws", "torus", "complete", "file"]
KINDS = get_args(GraphKind)

ATTEMPTS = 300
"""How many seeds are tried for a connected graph. Erdos-Renyi with 10,000 clients of mean degree 8 is
connected about once in 28 draws, so all 300 fail with probability 2e-5."""

EXACT_ER_CLIENTS = 1_000
"""Up to this size `er` is exactly `networkx.erdos_renyi_graph`, which flips K(K-1)/2 coins."""


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected simple graph over clients 0 .. clients - 1, as compressed rows.

    The neighbours of client k are `indices[indptr[k]:indptr[k + 1]]`, in ascending order, so every undirected edge
    appears twice, once per direction. Entry e of `indices` is the directed link `receivers[e] <- indices[e]`; `links`
    draws in this order. All arrays are read-only.
    """

    clients: int
    indptr: IntArray
    indices: IntArray
    seed_used: int | None = None
    """The seed that gave this graph, after retries; None if nothing was drawn (ring, torus, file, ...)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", whole("clients", self.clients, 1))
        for name in ("indptr", "indices"):
            given = np.asarray(getattr(self, name))
            if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
                raise TopologyError(f"{name} must be a flat array of whole numbers, got {given.dtype}{given.shape}")
            object.__setattr__(self, name, frozen(given))
        self._check_rows()
        self._check_simple()

    def _check_rows(self) -> None:
        shape = (self.clients + 1,)
        if self.indptr.shape != shape:
            raise TopologyError(f"indptr must have clients + 1 = {shape[0]} entries, got {self.indptr.size}")
        if self.indptr[0] != 0 or self.indptr[-1] != self.indices.size or (np.diff(self.indptr) < 0).any():
            raise TopologyError(f"indptr must rise from 0 to the {self.indices.size} entries of indices")

    def _check_simple(self) -> None:
        _check_range(self.indices, self.clients)
        if (self.receivers == self.indices).any():
            culprit = int(self.indices[self.receivers == self.indices][0])
            raise TopologyError(f"client {culprit} is its own neighbour; remove the self-loop")
        links = self.receivers * self.clients + self.indices
        if (np.diff(links) <= 0).any():
            raise TopologyError("neighbours must be in ascending order without repeats; Graph.from_edges sorts them")
        if not np.array_equal(np.sort(self.indices * self.clients + self.receivers), links):
            raise TopologyError("the graph must be undirected: every a-b needs b-a; Graph.from_edges adds it")

    @classmethod
    def from_edges(cls, clients: int, edges: npt.ArrayLike, seed_used: int | None = None) -> Graph:
        """A graph from a list of pairs in any order; a pair given twice (or both ways) is one edge.

        >>> Graph.from_edges(3, [(2, 0)]).neighbours(0)
        array([2])
        """
        clients = whole("clients", clients, 1)
        pairs = np.asarray(edges)
        if pairs.size and not np.issubdtype(pairs.dtype, np.integer):
            raise TopologyError(f"edges must be pairs of whole numbers, got {pairs.dtype}")
        if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
            raise TopologyError(f"edges must be pairs, an array of shape (edges, 2), got {pairs.shape}")
        pairs = pairs.reshape(-1, 2).astype(np.int64)
        _check_range(pairs, clients)
        a, b = pairs[:, 0], pairs[:, 1]
        links = np.sort(np.concatenate([a * clients + b, b * clients + a]))
        links = links[np.diff(links, prepend=-1) > 0]  # like np.unique, which is many times slower here
        indptr = np.zeros(clients + 1, dtype=np.int64)
        np.cumsum(np.bincount(links // clients, minlength=clients), out=indptr[1:])
        return cls(clients, indptr, links % clients, seed_used)

    def __eq__(self, other: object) -> bool:
        """Same clients and same edges, whichever seed gave them."""
        if not isinstance(other, Graph):
            return NotImplemented
        same_rows = np.array_equal(self.indptr, other.indptr)
        return same_rows and np.array_equal(self.indices, other.indices)

    def __hash__(self) -> int:
        return hash((self.clients, self.indices.tobytes()))

    def __repr__(self) -> str:
        return f"Graph(clients={self.clients}, edges={self.indices.size // 2}, seed_used={self.seed_used})"

    def neighbours(self, client: int) -> IntArray:
        """The neighbours of one client, in ascending order."""
        if not 0 <= client < self.clients:
            raise TopologyError(f"no client {client}: they are numbered 0 to {self.clients - 1}")
        return self.indices[self.indptr[client] : self.indptr[client + 1]]

    @cached_property
    def degrees(self) -> IntArray:
        """The number of neighbours of every client."""
        return frozen(np.diff(self.indptr))

    @cached_property
    def receivers(self) -> IntArray:
        """The client at the receiving end of every entry of `indices`."""
        return frozen(np.repeat(np.arange(self.clients), np.diff(self.indptr)))

    @cached_property
    def edges(self) -> IntArray:
        """Every undirected edge once, as rows `(a, b)` with a < b, in ascending order."""
        once = self.receivers < self.indices
        return frozen(np.stack([self.receivers[once], self.indices[once]], axis=1))

    @cached_property
    def connected(self) -> bool:
        """Whether every client can reach every other. A single client is connected."""
        return self.clients == 1 or (bool(self.degrees.all()) and self.parts == 1)

    @cached_property
    def parts(self) -> int:
        """How many parts there are between which no path leads; a client without neighbours is one."""
        reached, parts = np.zeros(self.clients, dtype=np.bool_), 0
        for start in range(self.clients):
            if reached[start]:
                continue
            reached[start], frontier, parts = True, [start], parts + 1
            while frontier:
                peers = self.neighbours(frontier.pop())
                fresh = peers[~reached[peers]]
                reached[fresh] = True
                frontier.extend(fresh.tolist())
        return parts


def build(kind: str, clients: int, seed: int, *, connected: bool | None = None, **options: Any) -> Graph:
    """The graph of one kind over `clients` clients.

    Kinds and their options (a default shrinks to fit few clients; a value that you give is kept or refused):

    - `er`, Erdos-Renyi: `p` = .15, the probability of an edge, or `degree`, the mean degree
    - `ba`, Barabasi-Albert: `m` = 3 edges per new node, m < clients
    - `ring`: no options; two clients share one edge
    - `regular`, random regular: `k` = 4 neighbours each, k < clients, k * clients even
    - `ws`, Watts-Strogatz: `k` = 4 nearest neighbours (even, k < clients; 2 also works for two clients), every edge
      rewired with probability `p` = .1
    - `torus`: `rows` x `cols` = clients with wrap-around, by default as close to a square as possible. A side of 1
      makes a ring; a side of 2 has single edges where the wrap would double them
    - `complete`: no options; the number of edges grows with the square of clients
    - `file`: `path` of an edge list with one `a b` or `a,b` per line, clients numbered from 0 or, where they have
      `names`, by name (in quotes if it has a comma), # comments; repeated edges count once

    By default graphs must be connected, except for `file`, where clients may be isolated. `connected=False` takes the
    first draw as it is. A single client is one isolated node of any kind.
    """
    builder = _builder(kind, options)
    clients, seed = whole("clients", clients, 1), whole("seed", seed)
    must_connect = kind != "file" if connected is None else connected
    if clients == 1 and kind != "file":
        return Graph.from_edges(1, [])
    if kind not in _RANDOM:
        graph = Graph.from_edges(clients, builder(clients, seed, **options))
        if must_connect and not graph.connected:
            alone = int((graph.degrees == 0).sum())
            raise TopologyError(
                f"the {kind} graph is not connected ({alone} clients have no neighbour); "
                "add edges or pass connected=False"
            )
        return graph
    for attempt in range(ATTEMPTS if must_connect else 1):
        tried = seed + 1000 * attempt
        graph = Graph.from_edges(clients, builder(clients, tried, **options), tried)
        if not must_connect or graph.connected:
            return graph
        if _hopeless(kind, graph):
            break
    raise TopologyError(_not_connected(kind, clients, attempt + 1, seed, graph))


def _hopeless(kind: str, graph: Graph) -> bool:
    """Whether further draws would only waste time."""
    if kind != "er":
        return graph.indices.size // 2 < graph.clients - 1  # the number of edges is the same for every seed
    # Isolated nodes are nearly Poisson: with a mean that can show more than 20 (say 12), one draw in 10^5 has none.
    return int((graph.degrees == 0).sum()) > 20


def _not_connected(kind: str, clients: int, draws: int, seed: int, graph: Graph) -> str:
    advice = "raise its degree"
    if kind == "er":
        # n exp(-degree) isolated nodes are expected, so with a degree of log n + 3, 95 % of the draws are connected.
        advice = f"raise p or degree (a mean degree of {min(clients - 1, math.log(clients) + 3):.1f} is enough)"
    return (
        f"no connected {kind} graph over {clients} clients in {draws} draws starting at seed {seed} "
        f"(mean degree of the last: {graph.degrees.mean():.2f}); {advice} or pass connected=False"
    )


def _builder(kind: str, options: dict[str, Any]) -> Callable[..., IntArray]:
    """The function that makes the edges of a kind, after checking the names of its options."""
    if kind not in _BUILDERS:
        raise TopologyError(f"unknown topology {kind!r}{nearest(kind, KINDS)}; known: {', '.join(KINDS)}")
    builder = _BUILDERS[kind]
    names = [p.name for p in inspect.signature(builder).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in names:
            takes = ", ".join(names) or "no options"
            raise TopologyError(f"topology {kind!r} has no option {name!r}{nearest(name, names)}; it takes {takes}")
    return builder


def _check_range(nodes: IntArray, clients: int) -> None:
    outside = nodes[(nodes < 0) | (nodes >= clients)]
    if outside.size:
        raise TopologyError(f"no client {int(outside[0])}: they are numbered 0 to {clients - 1}")


def _networkx() -> Any:
    try:
        import networkx
    except ModuleNotFoundError as problem:
        raise ModuleNotFoundError(f"random graphs need networkx: {how_to_install('sim')}", name="networkx") from problem
    return networkx


def _er(clients: int, seed: int, *, p: float | None = None, degree: float | None = None) -> IntArray:
    """Erdos-Renyi.

    Large graphs are drawn from our own stream instead of networkx: the same distribution, but in NumPy and in time
    proportional to the number of edges, because it takes dozens of draws until a sparse large graph is connected.
    """
    if p is not None and degree is not None:
        raise TopologyError(f"er takes p or degree, not both; got p = {p!r} and degree = {degree!r}")
    if degree is not None:
        p = number("degree", degree, 0, clients - 1) / (clients - 1)
    p = 0.15 if p is None else probability("p", p)
    if clients <= EXACT_ER_CLIENTS:
        coins = random.Random(seed)  # as networkx tosses them; it takes a fifth of a second to import
        return _pairs(pair for pair in combinations(range(clients), 2) if coins.random() < p)
    return _sparse_er(clients, p, stream(seed, "graph"))


def _sparse_er(clients: int, p: float, rng: np.random.Generator) -> IntArray:
    """G(n, p) by jumping from edge to edge with geometric steps over the numbered pairs.

    Batagelj and Brandes, Efficient generation of large random networks, Phys. Rev. E 71, 036113, 2005.
    """
    total, last, found = clients * (clients - 1) // 2, -1, [np.empty(0, dtype=np.int64)]
    while p > 0 and last < total - 1:
        expected = (total - 1 - last) * p
        steps = rng.geometric(p, size=int(expected + 4 * math.sqrt(expected)) + 8)
        # A step beyond the end ends the draw; clipping it there keeps the sums from overflowing if p is tiny.
        found.append(last + np.cumsum(np.minimum(steps, total + 1)))
        last = int(found[-1][-1])
    position = np.concatenate(found)
    position = position[position < total]
    # Pair number i is (a, b) with b < a and i = a (a - 1) / 2 + b; the root is rounded, hence the two corrections.
    a = ((1 + np.sqrt(1 + 8 * position.astype(np.float64))) / 2).astype(np.int64)
    a -= a * (a - 1) // 2 > position
    a += a * (a + 1) // 2 <= position
    return np.stack([position - a * (a - 1) // 2, a], axis=1)


def _ba(clients: int, seed: int, *, m: int | None = None) -> IntArray:
    m = min(3, clients - 1) if m is None else whole("m", m, 1)
    if m >= clients:
        raise TopologyError(f"ba needs m < clients, got m = {m} with {clients} clients; lower m or leave it out")
    return _pairs(_networkx().barabasi_albert_graph(clients, m, seed=seed).edges)


def _ring(clients: int, seed: int) -> IntArray:
    nodes = np.arange(clients)
    return np.stack([nodes, (nodes + 1) % clients], axis=1)


def _regular(clients: int, seed: int, *, k: int | None = None) -> IntArray:
    k = min(4, clients - 1) if k is None else whole("k", k)
    if k >= clients:
        raise TopologyError(f"regular needs k < clients, got k = {k} with {clients} clients; lower k")
    if k * clients % 2:
        raise TopologyError(f"no {k}-regular graph over {clients} clients: k * clients must be even; change one by 1")
    nx = _networkx()
    if 2 * k < clients:
        return _pairs(nx.random_regular_graph(k, clients, seed=seed).edges)
    # Dense graphs as a complement: drawing them directly would almost never give a simple graph.
    return _pairs(nx.complement(nx.random_regular_graph(clients - 1 - k, clients, seed=seed)).edges)


def _ws(clients: int, seed: int, *, k: int | None = None, p: float = 0.1) -> IntArray:
    k = max(2, min(4, (clients - 1) // 2 * 2)) if k is None else whole("k", k, 2)
    p = probability("p", p)
    if k % 2:
        raise TopologyError(f"ws needs an even k (half on each side of the ring), got {k}; use {k - 1} or {k + 1}")
    if k >= max(clients, 3):
        raise TopologyError(f"ws needs k < clients, got k = {k} with {clients} clients; lower k or leave it out")
    return _pairs(_networkx().watts_strogatz_graph(clients, k, p, seed=seed).edges)


def _torus(clients: int, seed: int, *, rows: int | None = None, cols: int | None = None) -> IntArray:
    rows, cols = _sides(clients, rows, cols)
    node = np.arange(clients).reshape(rows, cols)
    wraps = [np.stack([node, np.roll(node, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
    edges: IntArray = np.concatenate(wraps)
    loops = edges[:, 0] == edges[:, 1]  # a side of length 1 wraps onto itself
    return np.delete(edges, loops, axis=0)


def _sides(clients: int, rows: int | None, cols: int | None) -> tuple[int, int]:
    if rows is None and cols is None:
        rows = next(r for r in range(math.isqrt(clients), 0, -1) if clients % r == 0)
    rows = clients // whole("cols", cols, 1) if rows is None else whole("rows", rows, 1)
    cols = clients // rows if cols is None else whole("cols", cols, 1)
    if rows * cols != clients:
        raise TopologyError(f"a torus of {rows} x {cols} has {rows * cols} clients, not {clients}; change one")
    return rows, cols


def _complete(clients: int, seed: int) -> IntArray:
    return np.stack(np.triu_indices(clients, 1), axis=1)


def _file(
    clients: int, seed: int, *, path: str | PathLike[str] | None = None, names: Sequence[str] | None = None
) -> IntArray:
    if path is None:
        raise TopologyError("topology 'file' needs path, an edge list with one 'a b' pair per line")
    edges = []
    known = {name: k for k, name in enumerate(names or ())}
    for line, fields in numbered_fields(path, "edge list", commas_first=bool(known)):
        where = f"{str(path)!r}, line {line}"
        numbered = all(field.isascii() and field.isdecimal() for field in fields)
        if known and len(fields) == 2 and not (numbered and not known.keys() & set(fields)):
            if stranger := next((field for field in fields if field not in known), None):
                raise TopologyError(f"{where}: no client is called {stranger!r}; there are {_few(list(known))}")
            a, b = (known[field] for field in fields)
        elif len(fields) != 2 or not numbered:
            also = ", or two owners, 'a,b'" if known else ""
            raise TopologyError(f"{where}: expected two client numbers, 'a b' or 'a,b'{also}, got {' '.join(fields)!r}")
        else:
            a, b = int(fields[0]), int(fields[1])
        if max(a, b) >= clients:
            numbers = f"they are numbered 0 to {clients - 1}"
            raise TopologyError(f"{where}: no client {max(a, b)}, {numbers}; fix the line or raise clients")
        if a == b:
            raise TopologyError(f"{where}: client {fields[0]} is connected to itself; remove the line")
        edges.append((a, b))
    return _pairs(edges)


def _few(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _pairs(edges: Iterable[tuple[int, int]]) -> IntArray:
    return np.array(list(edges), dtype=np.int64).reshape(-1, 2)


_BUILDERS: dict[str, Callable[..., IntArray]] = {
    "er": _er,
    "ba": _ba,
    "ring": _ring,
    "regular": _regular,
    "ws": _ws,
    "torus": _torus,
    "complete": _complete,
    "file": _file,
}
_RANDOM = frozenset({"er", "ba", "regular", "ws"})
