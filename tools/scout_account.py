"""What scout's recorded verdicts came to on the worlds of a study, beside what was aimed at; for `results_page.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from judge_scout import headroom_of, read, references, scored

from sagefl.selection.theory import DELTA


class Aim(NamedTuple):
    """A target that was set beforehand."""

    bound: float
    least: bool  # at least so much, or at most

    def missed(self, value: float) -> bool:
        """Whether a share is on the wrong side."""
        return value < self.bound if self.least else value > self.bound

    def __str__(self) -> str:
        return f" (at {'least' if self.least else 'most'} {100 * self.bound:.0f} %)"


IN_VAIN = '"choose" where there is nothing to choose'
SCORES: Mapping[str, tuple[str, Aim | None]] = {  # what the tool prints, its heading, what was aimed at
    "right": ("right", Aim(0.9, True)),
    "unsure": ("unsure", Aim(0.15, False)),
    IN_VAIN: ('"choose" where there is nothing', Aim(DELTA, False)),
    "headroom within its interval": ("headroom within the interval", Aim(0.85, True)),
    "right, by the mean over a world's seeds": ("right by the mean of a world's seeds", None),
}


class ScoutAccount:
    """Verdicts, a line each, against the references of finished runs."""

    heads = tuple(f"{head}{aim or ''}" for head, aim in SCORES.values())

    def __init__(self, verdicts: Path, cells: Path) -> None:
        self.rows, self.measured = read(verdicts), references(cells)
        self.lines = list(scored(self.rows, self.measured))
        told = (line.split(": ", 1) for line in self.lines)
        self.told = {line[0]: line[1].replace("%", " %") for line in told if line[0] in SCORES}

    @property
    def shares(self) -> list[str]:
        """A cell for every heading, with a word where a target was missed."""
        return [f"{said}{', **missed**' if name in self.missed else ''}" for name, said in self.told.items()]

    @property
    def missed(self) -> list[str]:
        """The targets that were."""
        found = {name: float(said.split("= ")[1].split(" %")[0]) / 100 for name, said in self.told.items()}
        return [name for name, value in found.items() if (aim := SCORES[name][1]) and aim.missed(value)]

    @property
    def in_vain(self) -> str:
        """In how many cases there was nothing to choose."""
        return self.told[IN_VAIN].split(" of ")[1].split(" ")[0]

    @property
    def uncovered(self) -> list[str]:
        """The worlds of the intervals that did not hold, as often as they did not."""
        return [line.split(maxsplit=1)[1].split(", seed")[0] for line in self.lines if "NOT covered" in line]

    @property
    def wrong(self) -> str:
        """The worlds in which scout was wrong or unsure."""
        found = [line.split(";")[0].split(maxsplit=1) for line in self.lines if line[:5] in ("WRONG", "unsur")]
        return " ".join(f"{mark.capitalize()}: {said}." for mark, said in found if ", seed" in said)

    def chose(self, *worlds: str) -> tuple[int, int]:
        """In how many pilots of some worlds it said *choose*, and how many there were."""
        said = [row["verdict"] for row in self.rows if row["world"] in worlds]
        return said.count("choose"), len(said)

    def all_too_low(self) -> bool:
        """Whether every headroom was larger than scout thought possible."""
        return all(headroom_of(self.measured[r["world"], int(r["seed"])]) > float(r["high"]) for r in self.rows)
