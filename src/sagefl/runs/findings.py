"""What a scout found, with what is behind it: in words, by name, and as the sheet that pages draw.

A sheet is kept as `scout.json` in a folder, where `sagefl view` and `sagefl report` find it. A run that recorded losses
has one without a pilot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from .files import RunError, folders_in
from .intervals import estimate, mean_interval
from .kinship import nanmean
from .names import Names
from .recorded_answers import recorded_answers
from .scouting import Need, Pilot, Scouted, ScoutVerdict, judge_answers

KEPT = "scout.json"
LARGEST = 64 * 2**20  # bytes of a sheet; none of ours is as large
ARMS = {"at home": "local", "with kin": "within", "gossip": "gossip"}


@dataclass(frozen=True, eq=False, repr=False)
class ScoutFinding:
    """A verdict with what is behind it."""

    found: Scouted
    source: str
    risks: npt.NDArray[np.float64]  # [receiver, peer]: everybody's error on everybody's samples, NaN where unknown
    pilot: Pilot | None = None
    counts: npt.NDArray[np.int64] | None = None  # [receiver, peer]: on how many samples; None: unknown
    recorded_names: Names | None = None  # what the clients of a recorded run are called

    @property
    def names(self) -> Names | None:
        """What clients are called; None if they have numbers only."""
        return self.recorded_names if self.pilot is None else self.pilot.names

    def intervals(self) -> list[list[tuple[float, float] | None]] | None:
        """Of every pair's risk, 95 % each, by Hoeffding's inequality; None where nothing is known."""
        if self.counts is None:
            return None
        return [
            [mean_interval(risk, int(n)) if n else None for risk, n in zip(*row, strict=True)]
            for row in zip(self.risks.tolist(), self.counts, strict=True)
        ]

    def document(self) -> dict[str, Any]:
        """Everything by name."""
        document = {
            "source": self.source,
            **self.found.document(),
            "map": self.risks,
            "map_intervals": self.intervals(),
        }
        if (p := self.pilot) is not None:
            document["pilot"] = {
                "rounds": p.rounds,
                "samples_per_client": p.samples,
                "accuracy": {name: float(getattr(p, name).mean()) for name in ARMS.values()},
            }
            document["cost"] = p.cost._asdict()
        if self.names is not None:
            document["names"] = list(self.names)
        return document

    def sheet(self) -> dict[str, Any]:
        """The same with what a page draws and says: the map, the pilot's ends with 95 % intervals, the lines."""
        arms = [] if self.pilot is None else [arm(self.pilot, name) for name in ARMS]
        return self.document() | {"arms": arms, "lines": self.lines()}

    def lines(self) -> list[str]:
        """What is behind the sentence, a line each."""
        p, k = self.pilot, self.found.kinship
        made = [self.source]
        if k.between is not None:
            sizes = ", ".join(map(str, k.sizes))
            made.append(f"Groups of {sizes} clients; two halves of the samples agree on them to {k.agreement:.0%}.")
            made.append(
                f"Beside one's own model, those of kin err by {100 * k.within:+.1f} points, "
                f"those of strangers by {100 * k.between:+.1f}."
                if p is not None
                else f"The mean risk of kin's models is {k.within:.3f}, that of strangers' {k.between:.3f}."
            )
        elif p is not None and len(p.local) > 1:
            made.append(f"No groups; beside one's own model, those of others err by {100 * k.within:+.1f} points.")
        if p is not None:
            ends = [f"{name} {getattr(p, key).mean():.3f}" for name, key in ARMS.items()]
            about = "of one's group" if k.between is not None else "of one's own"
            made.append(
                f"After {p.rounds} rounds, on {p.samples} held-out samples a client, {about}: {', '.join(ends)}."
            )
        made += self.found.advice
        if self.found.needs:
            made.append("; ".join(_needed(need) for need in self.found.needs) + ".")
        if p is not None:
            seconds, moved, samples = p.cost
            made.append(
                f"This took {seconds:.1f} s, {moved / 1e6:.0f} MB between clients and {samples:,} training samples."
            )
        return made


def _needed(need: Need) -> str:
    if not need.bytes:
        return f"{need.rule} needs no anchors"
    asked = "could not certify at 128 anchors" if need.anchors is None else f"asks about {need.anchors} anchors a round"
    return f"{need.rule} {asked} (+{need.bytes:.0%} bytes)"


def arm(pilot: Pilot, name: str) -> dict[str, Any]:
    """The clients' mean accuracy in one of the three ways, with its 95 % interval."""
    seen = estimate(getattr(pilot, ARMS[name]).tolist())
    low, high = seen.interval() if seen.standard_error is not None else (seen.mean, seen.mean)
    return {"name": name, "mean": seen.mean, "low": low, "high": high}


def find_in_runs(folders: Sequence[Path], source: str | None = None) -> ScoutFinding:
    """Judge by the losses that a run, or several nodes, recorded."""
    held = recorded_answers(folders)
    found = judge_answers(held.answers, held.harm, held.first_round)
    risks = nanmean(held.answers, 2)
    return ScoutFinding(found, source or held.source, risks, counts=known(held.answers), recorded_names=held.names)


def known(answers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64] | None:
    """On how many samples each pair's risk is known, from [receiver, peer, sample]; None if losses exceed 1."""
    if (answers > 1).any():
        return None
    counts: npt.NDArray[np.int64] = (~np.isnan(answers)).sum(2)
    return counts


# Kept sheets ----------------------------------------------------------------------------------------------------------


def sheets_below(place: Path, depth: int = 4) -> Iterator[Path]:
    """The sheets at or below a folder; run directories are not searched."""
    if (place / KEPT).is_file():
        yield place / KEPT
    if depth > 0 and place.is_dir() and not (place / "run.toml").is_file():
        for inner in folders_in(place):
            yield from sheets_below(inner, depth - 1)


def read_sheet(path: Path) -> dict[str, Any]:
    """A kept sheet. The folder may be a stranger's: what is not as `sagefl scout --out` writes it is refused."""
    try:
        if path.stat().st_size > LARGEST:
            raise RunError(f"{path} is too large for a scout's result")
        sheet = json.loads(path.read_text(encoding="utf-8"))
        if not _is_sheet(sheet):
            raise ValueError("a part is missing or of another form")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is not what `sagefl scout --out` writes ({error}): write it again") from None
    return dict(sheet)


def _is_sheet(sheet: Any) -> bool:
    groups, risks = sheet["groups"], sheet["map"]
    whole = all(isinstance(group, int) and 0 <= group < len(groups) for group in groups)
    square = len(risks) == len(groups) and all(
        len(row) == len(groups) and all(risk is None or isinstance(risk, int | float) for risk in row) for row in risks
    )
    arms = all(isinstance(a["name"], str) and a["low"] <= a["mean"] <= a["high"] for a in sheet["arms"])
    words = all(isinstance(line, str) for line in (sheet["sentence"], sheet["source"], *sheet["lines"]))
    names = sheet.get("names")
    called = names is None or (len(names) == len(groups) and all(isinstance(name, str) for name in names))
    return (
        whole
        and square
        and _are_intervals(sheet.get("map_intervals"), len(groups))
        and arms
        and words
        and called
        and sheet["verdict"] in get_args(ScoutVerdict)
    )


def _are_intervals(rows: Any, clients: int) -> bool:
    return rows is None or (
        len(rows) == clients
        and all(len(row) == clients for row in rows)
        and all(ends is None or 0 <= ends[0] <= ends[1] <= 1 for row in rows for ends in row)
    )
