"""What `sagefl study time` came to, for `results_page.py`: minutes and accuracy by world and method, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

from sagefl.runs.config import RunConfig
from sagefl.runs.intervals import Estimate, estimate
from sagefl.study.account import title_of
from sagefl.study.design import Findings
from sagefl.study.results import Configuration

GOSSIP, TOTAL = "rg", "minutes"
OF_A_WORLD = ("dataset", "topology", "alpha", "seed")
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class MinutesAccount:
    """Minutes of one study; `level` is the measure of its primary comparison, minutes to some accuracy."""

    findings: Findings

    @property
    def level(self) -> str:
        """Minutes to which accuracy."""
        return self.findings.trial.primary[0].measure

    def values(self, world: Configuration, method: str, measure: str) -> dict[int, float]:
        """By seed; seeds in which a level was not reached have none."""
        return self.findings.ours.by_seed(world, method, measure)

    def difference(self, world: Configuration, method: str, other: str, measure: str) -> Estimate | None:
        """Paired by seed; pairs of which one never got there drop out."""
        own, theirs = self.values(world, method, measure), self.values(world, other, measure)
        pairs = [own[seed] - theirs[seed] for seed in own if seed in theirs]
        return estimate(pairs) if pairs else None

    def interval(self, found: Estimate) -> tuple[float, float] | None:
        """At the study's level; None with a single pair."""
        return None if found.standard_error is None else found.interval(self.findings.trial.level)

    # The table ----------------------------------------------------------------------------------------------------

    def table(self) -> list[str]:
        """A row per world and method that was run there."""
        trial = self.findings.trial
        others = [trial.against, GOSSIP]
        against = [f"{MINUS} {trial.show(other)}" for other in others]
        more = [m for m in trial.report if m.startswith("minutes_to_") and m != self.level]
        levels = [f"{title_of(m)} (seeds)" for m in (self.level, *more)]
        head = ["world", "method", levels[0], *against, *levels[1:], f"{TOTAL} in all", *against, "accuracy"]
        rows = [head, ["---"] * len(head)]
        for world in trial.worlds:
            for method in trial.methods:
                if there := self.values(world, method, "accuracy"):
                    cells = [*self._cells(world, method, self.level, others)]
                    cells += [c for m in more for c in self._cells(world, method, m, [])]
                    cells += self._cells(world, method, TOTAL, others)
                    rows.append([str(world), trial.show(method), *cells, f"{100 * fmean(there.values()):.1f} %"])
        return [f"| {' | '.join(row)} |".replace("  ", " ") for row in rows]

    def _cells(self, world: Configuration, method: str, measure: str, others: list[str]) -> Iterator[str]:
        seen = list(self.values(world, method, measure).values())
        yield f"{fmean(seen):.2f} ({len(seen)})" if seen else "never"
        for other in others:
            found = None if other == method else self.difference(world, method, other, measure)
            yield "" if found is None else self.told(found)

    def told(self, found: Estimate) -> str:
        """Minutes, and their interval where there is one."""
        ends = self.interval(found)
        return signed(found.mean) + (f" [{signed(ends[0])}, {signed(ends[1])}]" if ends is not None else "")

    # The answer ---------------------------------------------------------------------------------------------------

    def answer(self) -> str:
        """Whether stopping early pays in minutes, and where, against asking for everything and against gossip."""
        trial = self.findings.trial
        method = trial.primary[0].method
        others = [m for m in trial.methods if m not in (trial.against, GOSSIP, method)]
        both = (trial.against, GOSSIP)
        level = [f"against {trial.show(o)} {self._where(method, o, self.level, True)}" for o in both]
        whole = [f"{trial.show(m)} {self._where(m, trial.against, TOTAL)}" for m in (method, *others)]
        return (
            f"Does stopping early pay in minutes, and where? In {title_of(self.level)}, of {len(trial.worlds)} worlds, "
            f"{trial.show(method)} is {'; '.join(level)}. In minutes for all rounds against "
            f"{trial.show(trial.against)}: {'; '.join(whole)}."
        )

    def _where(self, method: str, other: str, measure: str, named: bool = False) -> str:
        found: dict[str, list[str]] = {"sooner": [], "later": [], "undecided": []}
        for world in self.findings.trial.worlds:
            made = self.difference(world, method, other, measure)
            ends = self.interval(made) if made is not None else None
            word = "sooner" if ends and ends[1] < 0 else "later" if ends and ends[0] > 0 else "undecided"
            found[word].append(str(world))
        names = {
            word: f" ({'; '.join(where)})" for word, where in found.items() if named and word != "undecided" and where
        }
        return ", ".join(f"{word} in {len(where)}{names.get(word, '')}" for word, where in found.items())


@dataclass(frozen=True)
class RetimedAccount:
    """Minutes of the paper's own cells, counted afterwards (`sagefl minutes`), beside what they came to."""

    rows: list[dict[str, str]]  # of minutes.csv
    cells: list[dict[str, str]]  # of cells.csv in the same folder

    @property
    def first(self) -> dict[str, str]:
        """The finished cell that the file begins with."""
        return next(c for c in self.cells if c["digest"] == self.rows[0]["run"])

    @property
    def there(self) -> dict[tuple[str, str], dict[str, str]]:
        """Finished cells of its world and seed, by method and network."""
        world = [c for c in self.cells if all(c[key] == self.first[key] for key in OF_A_WORLD)]
        accuracy = {c["digest"]: c["accuracy"] for c in world}
        return {
            (r["method"], r["network"]): r | {"accuracy": accuracy[r["run"]]} for r in self.rows if r["run"] in accuracy
        }

    @property
    def networks(self) -> list[str]:
        """As in the file."""
        return list(dict.fromkeys(r["network"] for r in self.rows))

    @property
    def levels(self) -> list[str]:
        """Accuracies in per cent."""
        return [name.removeprefix("to_") for name in self.rows[0] if name.startswith("to_")]

    @property
    def config(self) -> RunConfig:
        """Of the first cell."""
        return RunConfig.model_validate_json(self.first["config"])

    @property
    def world(self) -> str:
        """What was run, in a line."""
        c, first = self.config, self.first
        where = Configuration(first["dataset"], first["topology"], float(first["alpha"]))
        return f"{where}, K = {c.clients}, T = {c.rounds}, whole epochs"

    @property
    def every(self) -> int:
        """Rounds between evaluations."""
        return self.config.evaluation.every

    def share(self, method: str, level: str) -> float:
        """Which share of its time a method needs to a level, on the network that the file begins with."""
        row = self.there[method, self.networks[0]]
        return float(row[f"to_{level}"]) / float(row["minutes"])

    def table(self, level: str, show: Callable[[str], str]) -> Iterator[str]:
        """A row per method: accuracy, and on each network minutes to a level and in all."""
        named = [f"{n}: {what}" for n in self.networks for what in (f"to {level} %", "in all")]
        yield f"| method | accuracy | {' | '.join(named)} |"
        yield "|---" * (2 + len(named)) + "|"
        for method in dict.fromkeys(m for m, _ in self.there):
            rows = [self.there[method, network] for network in self.networks]
            times = [f"{float(v):.1f}" if v else "never" for r in rows for v in (r[f"to_{level}"], r["minutes"])]
            yield f"| {show(method)} | {100 * float(rows[0]['accuracy']):.2f} % | {' | '.join(times)} |"

    def difference(self, method: str, other: str, column: str) -> str:
        """Minutes of one method minus another's, network by network."""
        pairs = [(n, self.there[method, n][column], self.there[other, n][column]) for n in self.networks]
        return ", ".join(f"{signed(float(a) - float(b))} ({n})" for n, a, b in pairs)


def signed(minutes: float) -> str:
    """With a true minus."""
    return f"{minutes:+.2f}".replace("-", MINUS)
