"""What a run, or several nodes, recorded of neighbours' answers, as one table of losses [receiver, peer, sample]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .files import RunError
from .losses import Recorded, read_losses
from .names import FILE, Names, read_names
from .rundir import RunDirectory, runs_below

LOOKED = 10  # the last so many rounds that recorded anything are put together


class RecordedAnswers(NamedTuple):
    """Losses, and what is known about the run they are from."""

    answers: npt.NDArray[np.float64]  # NaN where nothing was asked
    first_round: int  # the earliest one in it, from 1
    harm: float | None  # what mixing cost in the last evaluation, as a share of the clients' own samples
    source: str
    names: Names | None = None  # what the clients are called


def recorded_answers(folders: Sequence[Path]) -> RecordedAnswers:
    """From the folder of one run, or of several nodes; the last rounds that recorded anything."""
    found = [place for folder in folders for place in runs_below(folder)]
    if not found:
        raise UsageError(f"no run in {', '.join(map(str, folders))}: name the folder of a run, or those of nodes")
    records: list[tuple[int, Recorded]] = []
    for place in found:
        last = sorted((place / "losses").glob("round-*.safetensors"))[-LOOKED:]
        records += [(int(path.stem.split("-")[1]) + 1, record) for path in last for record in read_losses(path)]
    if not records:
        raise RunError(f"{found[0]} has no recorded losses: run with --set evaluation.losses=full to record them")
    keys = {(round, record.client) for round, record in records}
    if len(keys) < len(records):
        raise UsageError(f"{len(found)} runs of the same clients: name one run, or the folders of different nodes")
    clients = 1 + max(max(record.client, int(record.peers.max(initial=0))) for _, record in records)
    held: dict[tuple[int, int], list[npt.NDArray[np.float64]]] = {}
    for _, record in records:
        for peer, row in zip(record.peers.tolist(), record.losses, strict=True):
            held.setdefault((record.client, peer), []).append(row[~np.isnan(row)])
    rows = {pair: np.concatenate(parts) for pair, parts in held.items()}
    answers = np.full((clients, clients, max(len(row) for row in rows.values())), np.nan)
    for (client, peer), row in rows.items():
        answers[client, peer, : len(row)] = row
    said = str(found[0]) if len(found) == 1 else f"{len(found)} folders"
    return RecordedAnswers(answers, min(round for round, _ in records), _harm(found), said, _names(found, clients))


def _names(found: Sequence[Path], clients: int) -> Names | None:
    """What the first so many clients of a run are called; None for numbers, and where several nodes are looked at."""
    if len(found) > 1 or not (found[0] / FILE).is_file():
        return None
    names = read_names(found[0], RunDirectory(found[0]).config.clients)
    return None if names is None else names[:clients]


def _harm(found: Sequence[Path]) -> float | None:
    """What mixing cost on clients' own samples in the last evaluation; None where several nodes are looked at."""
    if len(found) > 1:
        return None
    metrics = RunDirectory(found[0]).table("metrics")
    if "before_client" not in metrics.columns:
        return None
    last = metrics.drop_nulls("before_client").tail(1)
    return float(last["before_client"][0] - last["client"][0]) if len(last) else None
