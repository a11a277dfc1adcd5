"""What is true about the clients of a simulated world, which no rule may know: who is in whose group, who misbehaves.

It is written to `truth.json` in the run directory, and read from there by tables, reports and the page. Methods that
are made to know it (`Method.needs_truth`) are told by the simulator alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import RunError, explained, write_text

FILE = "truth.json"


@dataclass(frozen=True)
class Truth:
    """The group of every client (0 where there is one only), and who is not to be trusted."""

    groups: tuple[int, ...]
    misbehaving: frozenset[int] = frozenset()  # what they do is in the config, network.misbehaviour
    noisy: frozenset[int] = frozenset()  # part of their labels is wrong

    @property
    def culprits(self) -> frozenset[int]:
        """Whose model one does not want: it misbehaves, or it was trained on wrong labels."""
        return self.misbehaving | self.noisy

    @property
    def plain(self) -> bool:
        """Whether there is nothing to know."""
        return not self.culprits and len(set(self.groups)) < 2

    def helps(self, me: int, peer: int) -> bool:
        """Whether the peer is of my group and no culprit."""
        return self.groups[me] == self.groups[peer] and peer not in self.culprits

    def pulls(self, decisions: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
        """The shares of exchanged models that came from one's own group, and from culprits; None without exchanges.

        A decision is a row of the audit: its `client` and the peers it has `chosen`.
        """
        pairs = [(row["client"], peer) for row in decisions for peer in row["chosen"] or ()]
        if not pairs:
            return {"kin": None, "culprits": None}
        kin = sum(self.groups[client] == self.groups[peer] for client, peer in pairs)
        return {"kin": kin / len(pairs), "culprits": sum(peer in self.culprits for _, peer in pairs) / len(pairs)}


def write_truth(directory: Path, truth: Truth) -> None:
    """Write it down once; a world without groups and culprits has nothing to write."""
    if truth.plain or (directory / FILE).exists():
        return
    known = {"groups": truth.groups, "misbehaving": sorted(truth.misbehaving), "noisy": sorted(truth.noisy)}
    with explained(f"truth in {directory}"):
        write_text(directory / FILE, json.dumps(known) + "\n")


def read_truth(directory: Path, clients: int) -> Truth | None:
    """The truth about a run, None where there is nothing to know; a file that does not fit the run is refused."""
    path = directory / FILE
    if not path.is_file():
        return None
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        truth = Truth(
            tuple(map(int, known["groups"])),
            frozenset(map(int, known["misbehaving"])),
            frozenset(map(int, known["noisy"])),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read as the truth about a run: {error}") from None
    named = {*range(len(truth.groups))}
    if len(truth.groups) != clients or not truth.culprits <= named or min(truth.groups, default=0) < 0:
        raise RunError(f"{path} is about {len(truth.groups)} clients and does not fit this run, which has {clients}")
    return truth
