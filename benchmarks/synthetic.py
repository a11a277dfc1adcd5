"""Rules on the calibrated synthetic world: certified share, evaluations, cost; with confidence intervals.

python benchmarks/synthetic.py [--draws 20]     # about a minute per 5 draws
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from sagefl import SageOS, replay
from sagefl.selection.sage_e import SageE
from sagefl.selection.selector import Selector
from sagefl.streams import stream
from sagefl.study.synthetic import cells, neighbourhoods

RULES: dict[str, Selector] = {
    "paper SAGE-OS, lambda=0": SageOS(probe_cost=0),
    "paper SAGE-OS": SageOS(),
    "A at the stages, lambda=0": SageE(looks="stages", stop="none"),
    "A, looks every 4, lambda=0": SageE(stop="none"),
    "A + B0 at the stages": SageE(looks="stages", stop="voi"),
    "A + B, looks every 4": SageE(),
    "A + B + screening + gate": SageE(screen=8, gate=True),
}
LAMBDA = 2e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5, help="decisions per receiver")
    parser.add_argument("--worlds", type=int, default=2, help="fresh worlds per cell")
    draws, worlds = (args := parser.parse_args()).draws, args.worlds
    rows: dict[str, list[list[tuple[float, float, float]]]] = {name: [] for name in RULES}
    seconds = dict.fromkeys(RULES, 0.0)
    for cell in cells(worlds):
        per_cell = run_cell(cell, draws, seconds)
        for name, results in per_cell.items():
            rows[name].append(results)
    report(rows, seconds)


def run_cell(cell, draws: int, seconds: dict[str, float]) -> dict[str, list[tuple[float, float, float]]]:
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in RULES}
    for index, hood in enumerate(neighbourhoods(cell)):
        risks = hood.risks
        states = dict.fromkeys(RULES)
        for draw in range(draws):
            losses = hood.draw(stream(cell.seed, "losses", index, draw))
            for name, rule in RULES.items():
                began = time.perf_counter()
                outcome = replay(rule, losses, (cell.seed, index, draw), state=states[name])
                seconds[name] += time.perf_counter() - began
                states[name] = outcome.state
                gain = float(risks[list(outcome.peers)].mean() - risks.mean()) if outcome.selected else 0.0
                results[name].append((outcome.reason == "certified", outcome.evaluations, gain + LAMBDA * outcome.evaluations))
    return results


def report(rows, seconds) -> None:
    print(f"{'rule':<30} {'decisions':>9} {'certified':>16} {'evaluations':>18} {'cost at 2e-3':>20} {'ms':>6}")
    for name, worlds in rows.items():
        table = np.array([r for w in worlds for r in w])
        # The world is the unit of replication: decisions in one share a partition and a graph.
        means = np.array([np.mean(w, axis=0) for w in worlds])
        error = 1.96 * means.std(axis=0, ddof=1) / len(means) ** 0.5
        mean = means.mean(axis=0)
        print(
            f"{name:<30} {len(table):>9} {mean[0]:>8.1%} ± {error[0]:.1%} {mean[1]:>10.1f} ± {error[1]:.1f}"
            f" {mean[2]:>+12.3f} ± {error[2]:.3f} {1e3 * seconds[name] / len(table):>6.2f}"
        )


if __name__ == "__main__":
    main()
