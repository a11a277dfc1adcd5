"""The graph and who holds which labels, rebuilt from a run's config: data, partition and topology, no torch.

What cannot be rebuilt is left out with a note: without the data set there are no label shares, without the graph file
the edges are those that decisions mention. Code that a run directory names (`module:function`) is never run here, and
data from a hub is not loaded; data sets with a name, from sagefl or an installed package, are.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl

from ..data import DataError, dataset_names
from ..data.tables import is_table
from ..errors import SageflError
from ..runs.config import RunConfig
from ..runs.names import read_names
from ..runs.truth import read_truth
from ..topology import TopologyError
from .plain import numbers
from .shelf import Run

EDGES = 100_000  # a page that has more to draw shows nothing
LIST = 20 * EDGES  # bytes of a file with edges
SPRING = 400  # up to this many clients the layout is computed with springs


def world(run: Run) -> dict[str, Any]:
    """Edges, positions and label counts, the truth where there is one, and notes on what had to be left out."""
    notes: list[str] = []
    config = run.config
    edges = _edges(run, config, notes)
    labels, classes = _labels(config, notes)
    key = tuple(map(tuple, edges))
    found = {
        "clients": config.clients,
        "edges": edges,
        "positions": [numbers(point, 4) for point in _layout(config.clients, key)],
        "labels": labels,
        "classes": classes,
        "notes": notes,
    }
    if (names := read_names(run.path, config.clients)) is not None:
        found["names"] = names
    if (truth := read_truth(run.path, config.clients)) is not None:
        found |= {"groups": truth.groups, "shift": config.world.shift, "noisy": sorted(truth.noisy)}
        found |= {"misbehaving": sorted(truth.misbehaving), "misbehaviour": config.network.misbehaviour}
    return found


def is_code(dataset: str) -> bool:
    """Whether loading a data set would run code that the run directory names, or download it."""
    return dataset not in dataset_names() and not dataset.endswith(".npz") and not is_table(dataset)


def _edges(run: Run, config: RunConfig, notes: list[str]) -> list[list[int]]:
    expected = config.topology.expected_edges(config.clients)
    file = config.topology.file
    if file is not None and Path(file).is_file() and Path(file).stat().st_size > LIST:
        notes.append("The edge list is too long to be drawn; shown are links that decisions mention.")
        return _mentioned(run)
    if expected > EDGES:
        notes.append(f"A graph of about {expected:,.0f} edges is not drawn; shown are links that decisions mention.")
        return _mentioned(run)
    try:
        graph = config.topology.graph(config.clients, config.seed, read_names(run.path, config.clients))
    except (TopologyError, OSError, ValueError) as error:
        notes.append(f"The graph could not be rebuilt ({error}); shown are the links that decisions mention.")
        return _mentioned(run)
    edges: list[list[int]] = graph.edges.tolist()
    return edges


def _mentioned(run: Run) -> list[list[int]]:
    """At most as many as are drawn."""
    pairs = run.table("decisions").select("client", peer="peers").explode("peer").drop_nulls()
    pairs = pairs.filter(pl.col("peer").is_between(0, run.config.clients - 1) & (pl.col("peer") != pl.col("client")))
    ends = pairs.select(a=pl.min_horizontal("client", "peer"), b=pl.max_horizontal("client", "peer"))
    return [list(pair) for pair in ends.unique().sort("a", "b").head(EDGES).iter_rows()]


def _labels(config: RunConfig, notes: list[str]) -> tuple[list[list[int]] | None, list[str]]:
    name = config.data.dataset
    if is_code(name):
        notes.append(f"Label shares are not shown: {name} is loaded by code, which looking at a run does not execute.")
        return None, []
    try:
        counts, classes = _label_counts(config.model_dump_json(exclude={"method", "training", "evaluation"}))
    except (DataError, SageflError, ValueError, OSError, ImportError) as error:
        notes.append(f"Label shares are not shown: {str(error).splitlines()[0]}")
        return None, []
    return [list(row) for row in counts], list(classes)


@lru_cache(maxsize=32)
def _label_counts(settings: str) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    config = RunConfig.model_validate_json(settings)
    dataset = config.data.load()
    counts = config.dealt(dataset).federation.label_counts
    word = "class" if dataset.task == "classification" else "tenth"  # values are told by the tenths they lie in
    return tuple(map(tuple, counts.tolist())), tuple(f"{word} {c}" for c in range(counts.shape[1]))


@lru_cache(maxsize=32)
def _layout(clients: int, edges: tuple[tuple[int, ...], ...]) -> tuple[tuple[float, float], ...]:
    """A position in [-1, 1]^2 for every client, the same at every call."""
    if clients > SPRING:
        angles = [2 * math.pi * k / clients for k in range(clients)]
        return tuple((math.cos(a), math.sin(a)) for a in angles)
    graph = nx.Graph()
    graph.add_nodes_from(range(clients))
    graph.add_edges_from(edges)
    start = nx.circular_layout(graph)
    placed = nx.spring_layout(graph, pos=start, seed=1, iterations=200, k=2.4 / math.sqrt(clients))
    points = np.array([placed[k] for k in range(clients)])
    points -= (points.max(axis=0) + points.min(axis=0)) / 2
    points /= np.maximum(np.abs(points).max(axis=0), 1e-9)
    points = np.sign(points) * np.abs(points) ** 0.8  # a few far ones must not crowd the others together
    return tuple((float(x), float(y)) for x, y in points)
