"""What private answers cost: anchors until a certificate, and how often it is false, by mechanism and epsilon.

    .venv/bin/python benchmarks/private.py [--decisions 20000]      # about two minutes

Labels of ten classes are perturbed and scored as peers and receivers do (`RandomisedResponse`); the rule is `sage-e`
without a stop, looking after every anchor. False certification is counted on nulls in which all risks are equal, so
that a certificate for anybody but peer 0 (the limit of a peer that is better by nothing) is false.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy.stats import beta

from sagefl import SageE, replay
from sagefl.selection.betting import Wealth, paired_differences, threshold
from sagefl.selection.private import RandomisedResponse

CLASSES, DELTA, LEVEL = 10, 0.1, 0.999
MECHANISMS = [RandomisedResponse(eps, CLASSES, how) for how in ("k-rr", "bitwise") for eps in (1, 2, 4)]
LONGEST = 3000  # anchors at most
Draw = Callable[[np.random.Generator, int], np.ndarray]
NULLS: dict[str, tuple[int, Draw]] = {
    "independent .5, d = 7": (7, lambda rng, d: (rng.random((d, 128)) < 0.5).astype(float)),
    "one wrong, d = 2": (2, lambda rng, d: (np.arange(d)[:, None] == rng.integers(d, size=128)).astype(float)),
}


def observed(mechanism: RandomisedResponse | None, losses: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What a receiver sees of these true losses: labels are made, perturbed and scored."""
    if mechanism is None:
        return losses
    truth = rng.integers(CLASSES, size=losses.size)
    wrong = (truth + rng.integers(1, CLASSES, size=losses.size)) % CLASSES
    answers = mechanism.perturb(np.where(losses.ravel() == 1, wrong, truth), rng.random((losses.size, mechanism.draws)))
    return mechanism.losses(answers, truth).reshape(losses.shape)


def anchors_needed(mechanism: RandomisedResponse | None, decisions: int = 200) -> tuple[float, float]:
    """Mean anchors until a peer of risk .1 is certified against one of risk .6, and half its 95 % interval."""
    rule, rng, found = SageE(stop="none", first=1, step=1, largest=LONGEST), np.random.default_rng(6), []
    for seed in range(decisions):
        truth = (rng.random((2, LONGEST)) < np.array([[0.1], [0.6]])).astype(float)
        found.append(replay(rule, observed(mechanism, truth, rng), seed).anchors)
    return float(np.mean(found)), 1.96 * float(np.std(found, ddof=1)) / decisions**0.5


def false_at_most(mechanism: RandomisedResponse, degree: int, draw: Draw, decisions: int) -> float:
    """Upper limit (Clopper-Pearson, one-sided) of the share of decisions that ever certify falsely."""
    rng, count = np.random.default_rng([7, degree]), 0
    for _ in range(decisions):
        wealth = Wealth(degree)
        wealth.bet(paired_differences(observed(mechanism, draw(rng, degree), rng)))
        count += bool((wealth.highest >= threshold(degree, DELTA)).any())
    return float(beta.ppf(LEVEL, count + 1, decisions - count))


def main() -> None:
    parser = argparse.ArgumentParser(description="What private answers cost.")
    parser.add_argument("--decisions", type=int, default=20_000, help="per null")
    decisions = parser.parse_args().decisions
    plain, half = anchors_needed(None)
    print(f"Without noise {plain:.1f} ± {half:.1f} anchors. False certification over {decisions:,} decisions a null,")
    print(f"{LEVEL:.1%} upper limit, delta = {DELTA:.0%}.\n")
    heads = ["mechanism, eps", "M_eff", "M_eff^2", "anchors", "ratio", *(f"false, {name}" for name in NULLS)]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for m in MECHANISMS:
        mean, half = anchors_needed(m)
        limits = [f"{false_at_most(m, degree, draw, decisions):.1%}" for degree, draw in NULLS.values()]
        cells = [f"{m.mechanism}, {m.epsilon:g}", f"{m.effective_bound:.2f}", f"{m.effective_bound**2:.1f}"]
        print(
            "| " + " | ".join([*cells, f"{mean:.1f} ± {half:.1f}", f"{mean / plain:.1f}", *limits]) + " |", flush=True
        )


if __name__ == "__main__":
    main()
