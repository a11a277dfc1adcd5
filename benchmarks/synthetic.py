"""Rules on the calibrated synthetic world: certified share, evaluations, cost, time; with confidence intervals.

    .venv/bin/python benchmarks/synthetic.py [--draws 5] [--markdown FILE]      # about a minute per draw

The world (`sagefl.study.synthetic`) is rebuilt from its description: 24 kinds of world, two fresh ones each. The kinds
are fixed and the worlds of a kind are drawn, so a world is the unit of replication (its decisions share a partition and
a graph) and 95 % intervals come from how much worlds of one kind differ. Every comparison is paired: both rules decide
on the same losses. The history gate remembers from draw to draw, so it needs many.

Cost = risk of what is taken - R_RG + lambda evaluations, with true risks. Times are CPU time of a whole decision,
driver included, inference not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sagefl import SageE, SageETrim, SageEVanilla, SageOS, Selector, VanillaSage, replay
from sagefl.runs.intervals import t_quantile
from sagefl.streams import stream
from sagefl.study.synthetic import SyntheticCell, cells, neighbourhoods

LAMBDA = 2e-3
PAPER, PAPER_FREE = "paper SAGE-OS", "paper SAGE-OS, lambda = 0"
RULE_A, RULE_AB, RULE_AB_CHEAP = "A, every 4", "A + B, every 4", "A + B, every 4, lambda = 1e-12"
RULES: dict[str, Selector] = {
    PAPER_FREE: SageOS(probe_cost=0),
    PAPER: SageOS(),
    "Vanilla SAGE": VanillaSage(),
    "A' (sign tests), stages": SageEVanilla(),
    "A, stages": SageE(looks="stages", stop="none"),
    RULE_A: SageE(stop="none"),
    "A + B0, stages": SageE(looks="stages", stop="voi"),
    RULE_AB: SageE(),
    "A + B + screening": SageE(screen=8),
    "A + B + screening + gate": SageE(screen=8, gate=True),
    "trimmed gossip": SageETrim(),
    RULE_AB_CHEAP: SageE(probe_cost=1e-12),  # weighs every look (at 0 there is nothing to weigh)
}


@dataclass
class Tally:
    """One rule in one world: sums over its decisions, and the time of each."""

    decisions: int = 0
    certified: float = 0.0
    evaluations: float = 0.0
    cost: float = 0.0
    times: list[tuple[int, float]] = field(default_factory=list)  # anchors, milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Rules on the calibrated synthetic world.")
    parser.add_argument("--draws", type=int, default=5, help="decisions per receiver")
    parser.add_argument("--worlds", type=int, default=2, help="fresh worlds per kind, at least 2")
    parser.add_argument("--markdown", type=Path, help="also write the tables there")
    arguments = parser.parse_args()
    tallies = [run_world(cell, arguments.draws) for cell in cells(arguments.worlds)]
    lines = [*table(tallies), "", *statements(tallies), "", *timings(tallies)]
    print("\n".join(lines))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_world(cell: SyntheticCell, draws: int) -> dict[str, Tally]:
    """Every rule on the same losses of one world."""
    tallies = {name: Tally() for name in RULES}
    for index, hood in enumerate(neighbourhoods(cell)):
        states = dict.fromkeys(RULES)
        for draw in range(draws):
            losses = hood.draw(stream(cell.seed, "losses", index, draw))
            for name, rule in RULES.items():
                began = time.process_time()
                outcome = replay(rule, losses, (cell.seed, index, draw), state=states[name])
                took = 1e3 * (time.process_time() - began)
                states[name] = states[name] if outcome.state is None else outcome.state
                tally, risks = tallies[name], hood.risks
                gain = float(risks[list(outcome.peers)].mean() - risks.mean()) if outcome.selected else 0.0
                tally.decisions += 1
                tally.certified += outcome.reason == "certified"
                tally.evaluations += outcome.evaluations
                tally.cost += gain + LAMBDA * outcome.evaluations
                tally.times.append((outcome.anchors, took))
    return tallies


def ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float]:
    """sum(above)/sum(below) over worlds (kinds x worlds of a kind) and half its 95 % interval.

    Linearised, so worlds may differ in size; the variance is that between worlds of one kind.
    """
    value = above.sum() / below.sum()
    kinds, worlds = above.shape
    variance = worlds * (above - value * below).var(axis=1, ddof=1).sum()
    half = t_quantile(0.975, kinds * (worlds - 1)) * variance**0.5 / below.sum()
    return float(value), float(half)


def per_world(tallies: list[dict[str, Tally]], rule: str, what: str) -> np.ndarray:
    """A number per world, a row per kind; the worlds of a kind follow one another."""
    kinds = len({(c.alpha, c.graph, c.per_class, c.a_max) for c in cells(1)})
    return np.array([float(getattr(world[rule], what)) for world in tallies]).reshape(kinds, -1)


def table(tallies: list[dict[str, Tally]]) -> Iterator[str]:
    total = int(per_world(tallies, PAPER, "decisions").sum())
    yield f"{total:,} decisions a row, in {len(tallies)} worlds; delta = .1; costs at lambda = {LAMBDA:g}."
    yield ""
    yield "| rule | certified | evaluations | cost | CPU ms, median |"
    yield "|---|---|---|---|---|"
    for rule in RULES:
        n = per_world(tallies, rule, "decisions")
        share, evaluations, cost = (
            ratio(per_world(tallies, rule, what), n) for what in ("certified", "evaluations", "cost")
        )
        middle = np.median([ms for world in tallies for _, ms in world[rule].times])
        yield (
            f"| {rule} | {share[0]:.1%} ± {share[1]:.1%} | {evaluations[0]:.1f} ± {evaluations[1]:.1f} "
            f"| {cost[0]:+.3f} ± {cost[1]:.3f} | {middle:.2f} |"
        )


def statements(tallies: list[dict[str, Tally]]) -> Iterator[str]:
    """What is claimed, each with the interval of the paired ratio or difference."""

    def of(rule: str, what: str) -> np.ndarray:
        return per_world(tallies, rule, what)

    fewer, fewer_error = ratio(of(RULE_AB, "evaluations"), of(PAPER, "evaluations"))
    cheaper, cheaper_error = ratio(of(RULE_AB, "cost") - of(PAPER, "cost"), of(PAPER, "decisions"))
    oftener, oftener_error = ratio(of(RULE_A, "certified"), of(PAPER_FREE, "certified"))
    yield (
        f"- Evaluations at lambda = {LAMBDA:g}, A + B against the paper's rule: {1 - fewer:.1%} fewer "
        f"(± {fewer_error:.1%}); claimed: at least 75 %. {verdict(1 - fewer - fewer_error >= 0.75)}"
    )
    yield (
        f"- Total cost at lambda = {LAMBDA:g}, A + B minus the paper's rule: {cheaper:+.3f} ± {cheaper_error:.3f}; "
        f"claimed: below 0. {verdict(cheaper + cheaper_error < 0)}"
    )
    yield (
        f"- Certified share at lambda = 0, A against the paper's rule: {oftener:.2f} times (± {oftener_error:.2f}); "
        f"claimed: at least 4. {verdict(oftener - oftener_error >= 4)}"
    )


def verdict(holds: bool) -> str:
    return "**Holds**, interval included." if holds else "**Does not hold** with its interval."


def timings(tallies: list[dict[str, Tally]]) -> Iterator[str]:
    times = np.array([ms for world in tallies for _, ms in world[RULE_AB].times])
    longest = max(anchors for world in tallies for anchors, _ in world[RULE_AB].times)
    yield (
        f"- A decision of A + B at lambda = {LAMBDA:g}: median {np.median(times):.2f} ms, 95th percentile "
        f"{np.quantile(times, 0.95):.2f} ms; goal: a median of at most 2 ms. The longest bought {longest} anchors."
    )
    whole = [ms for world in tallies for anchors, ms in world[RULE_AB_CHEAP].times if anchors == 128]
    if whole:
        yield (
            f"- At lambda = 1e-12, {len(whole)} decisions of A + B went through all 128 anchors: median "
            f"{np.median(whole):.1f} ms, 95th percentile {np.quantile(whole, 0.95):.1f} ms; goal: at most 15 ms."
        )


if __name__ == "__main__":
    main()
