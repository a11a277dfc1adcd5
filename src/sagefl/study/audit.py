"""Checks of the paper's numbers that need more than its tables: its formulas and its graphs.

The graphs are those of networkx at seed 1 (K = 50, ER p = .15, BA m = 3), which have exactly one client of degree 1
each, as the printed CommOH requires. Formulas are those of `sagefl.selection.theory`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil, comb, log, sqrt
from statistics import fmean

import numpy as np

from ..selection import theory
from ..selection.theory import DELTA, PROBE_COST, SCHEDULE
from .claims import Finding, Verdict
from .measures import Measure, best_in
from .published import SEED
from .results import ALPHAS, PAPER_METHODS, Configuration, ResultSet

CLIENTS, GRAPH_SEED = 50, 1


@cache
def degrees(topology: str) -> tuple[int, ...]:
    """The degrees of the paper's graph."""
    from ..topology import build

    return tuple(int(d) for d in np.diff(build(topology, CLIENTS, GRAPH_SEED).indptr))


@cache
def firing_degree(stage: int, *, cumulative: bool) -> int | None:
    """The smallest degree at which the cost rule can fire at `stage` at all, that is with A = 0 (eq:gossip-switch)."""
    following = SCHEDULE[SCHEDULE.index(stage) + 1] if stage != SCHEDULE[-1] else None
    if following is None:
        return None
    for degree in range(1, CLIENTS):
        cost = theory.stage_cost(PROBE_COST, degree, stage, following, cumulative=cumulative)
        if cost >= theory.information_bound(0.0, 2 * theory.radius(stage, degree)):
            return degree
    return None


# The evidence table against the printed rule ------------------------------------------------------------------------


@dataclass(frozen=True)
class StopBound:
    """How often SAGE-OS can stop at stage 32 in one configuration, whatever the losses."""

    configuration: Configuration
    printed: float  # Stop@32 of the table
    incremental: float  # the most that the printed cost rule allows
    cumulative: float  # the most that the cumulative reading allows


def stop_bounds(published: ResultSet) -> list[StopBound]:
    """Stop@32 of every configuration and its bounds.

    A stop at 32 is a cost stop or not. Cost stops at 32 are at most Cost-RG of the table, and at most the share of
    clients whose degree lets the rule fire there; everything else is at most 1 - Cost-RG.
    """
    bounds = []
    for c in published.configurations:
        printed = published.value(c, "sage-os", "stop_32", SEED)
        cost = published.value(c, "sage-os", "cost_rg", SEED)
        if printed is not None and cost is not None:
            allowed = [1 - cost + min(cost, _can_fire(c.topology, 32, cumulative=kind)) for kind in (False, True)]
            bounds.append(StopBound(c, printed, *allowed))
    return bounds


def evidence_table(*, cumulative: bool) -> Callable[[ResultSet], Finding]:
    """Whether the table's Stop@32 is possible at all under one reading of the cost rule."""

    def test(published: ResultSet) -> Finding:
        bounds = stop_bounds(published)
        limit = {b.configuration: b.cumulative if cumulative else b.incremental for b in bounds}
        broken = [b for b in bounds if b.printed > limit[b.configuration] + 1e-9]
        first = {m: firing_degree(m, cumulative=cumulative) for m in SCHEDULE[:-1]}
        rule = f"with A = 0 the rule can fire at stage {', '.join(f'{m} only for d >= {d}' for m, d in first.items())}"
        if not broken:
            return Finding(Verdict.SUPPORTED, f"{rule}; every Stop@32 of the table is possible")
        cells = "; ".join(
            f"{b.configuration}: Stop@32 = {b.printed:.1%} in the table, at most {limit[b.configuration]:.1%} possible"
            for b in sorted(broken, key=lambda b: -b.printed)
        )
        return Finding(Verdict.CONTRADICTED, f"{rule}. {cells}. {_needed(broken[0], first[32], cumulative)}")

    return test


def _needed(broken: StopBound, least: int | None, cumulative: bool) -> str:
    """What the graph would have to look like for one impossible cell."""
    limit = broken.cumulative if cumulative else broken.incremental
    has = _can_fire(broken.configuration.topology, 32, cumulative=cumulative)
    return (
        f"For {broken.configuration} {broken.printed - limit + has:.1%} of the clients would need degree {least} or "
        f"more; {has:.1%} have it (ER(50, .15): {binomial_tail(CLIENTS - 1, 0.15, least or CLIENTS):.1%} expected)"
    )


def _can_fire(topology: str, stage: int, *, cumulative: bool) -> float:
    least = firing_degree(stage, cumulative=cumulative)
    return 0.0 if least is None else fmean(d >= least for d in degrees(topology))


# Communication ------------------------------------------------------------------------------------------------------


def comm_oh(method: str, printed: float) -> Callable[[ResultSet], Finding]:
    """Whether a reading of the method reproduces the printed CommOH on the paper's graphs."""

    def test(published: ResultSet) -> Finding:
        found = {f"{what} ({t.upper()})": value for t in ("er", "ba") for what, value in _exchanges(method, t).items()}
        met = [f"{what} = {value:.3f}" for what, value in found.items() if abs(value - printed) <= 5e-4]
        if met:
            return Finding(Verdict.SUPPORTED, f"printed {printed:.3f}; " + "; ".join(met))
        shown = "; ".join(f"{what} = {value:.3f}" for what, value in found.items())
        return Finding(Verdict.CONTRADICTED, f"printed {printed:.3f}, but {shown}")

    return test


def _exchanges(method: str, topology: str) -> dict[str, float]:
    """Models per client-round under plausible readings; RG moves one wherever there is a neighbour."""
    d = np.array(degrees(topology))
    if method == "pfeddst":
        return {"two peers a round, one where there is one neighbour": float(np.minimum(d, 2).mean())}
    if method == "pens":
        models, merges = np.minimum(d, 3).mean(), np.minimum(d, 2).mean()
        return {
            "models moved, 3 sampled in 100 rounds, then 1": float(0.4 * models + 0.6),
            "models merged, 2 in 200 rounds, then 1": float(0.8 * merges + 0.2),
        }
    return {"one peer a round": 1.0}


# Theory -------------------------------------------------------------------------------------------------------------


def degree_condition(published: ResultSet) -> Finding:
    """Whether eq:degcond holds at every stage for d >= 3, and for every client of both graphs."""
    pairs = list(zip(SCHEDULE, SCHEDULE[1:], strict=False))
    holds = {d: all(theory.degree_condition(m, n, d) for m, n in pairs) for d in range(1, CLIENTS)}
    first = min(d for d in holds if all(holds[e] for e in holds if e >= d))
    low = {t: sum(not holds[d] for d in degrees(t)) for t in ("er", "ba")}
    detail = f"it holds at every stage for d >= {first}, and fails for d < {first}; such clients: " + ", ".join(
        f"{n} of {CLIENTS} ({t.upper()})" for t, n in low.items()
    )
    everywhere = first <= 3 and not any(low.values())
    return Finding(Verdict.SUPPORTED if everywhere else Verdict.CONTRADICTED, detail)


def dominance(published: ResultSet) -> Finding:
    """Lambda d m_1 at d = 6 (eq:dominance)."""
    value = theory.dominance_threshold(PROBE_COST, 6, SCHEDULE[0])
    verdict = Verdict.SUPPORTED if round(value, 2) == 0.19 else Verdict.CONTRADICTED
    return Finding(verdict, f"lambda d m_1 = {PROBE_COST:g} x 6 x {SCHEDULE[0]} = {value:.3f}")


def curves_cross(published: ResultSet) -> Finding:
    """Where 2r falls below the price of the next stage at d = 6, the panel of the paper's figure."""
    crossing = {
        kind: next(
            (
                m
                for m, n in zip(SCHEDULE, SCHEDULE[1:], strict=False)
                if theory.stage_cost(PROBE_COST, 6, m, n, cumulative=kind == "cumulative") >= 2 * theory.radius(m, 6)
            ),
            None,
        )
        for kind in ("incremental", "cumulative")
    }
    detail = (
        f"at d = 6 the printed (incremental) price passes 2r first at stage {crossing['incremental']}, "
        f"the cumulative one at stage {crossing['cumulative']}"
    )
    return Finding(Verdict.SUPPORTED if crossing["incremental"] == 32 else Verdict.CONTRADICTED, detail)


def stage_16(published: ResultSet) -> Finding:
    """Whether every stage can certify or abandon at some degree of the graphs: stage 16 is the one in doubt."""
    there = sorted({d for t in ("er", "ba") for d in degrees(t) if d > 1})
    certify = [d for d in there if theory.can_certify(2 * theory.radius(SCHEDULE[0], d), d)]
    least = firing_degree(SCHEDULE[0], cumulative=False)
    abandon = [d for d in there if least is not None and d >= least]
    best = min(2 * theory.radius(SCHEDULE[0], d) - (d - 1) / d for d in there)
    detail = (
        f"stage {SCHEDULE[0]}: 2r exceeds the largest possible advantage (d - 1)/d by {best:.3f} or more at every "
        f"degree, so it certifies at {len(certify)} of {len(there)} degrees, and abandons at {len(abandon)} (it would "
        f"take d >= {least})"
    )
    return Finding(Verdict.SUPPORTED if certify and abandon else Verdict.CONTRADICTED, detail)


def probe_bytes(published: ResultSet) -> Finding:
    """What a full look costs on the wire beside one model, FMNIST: inputs uint8, answers one byte, weights float32."""
    peers, anchors, pixels, latent, small = 7, SCHEDULE[-1], 28 * 28, 64, 32 * 7 * 7
    encoder = (9 * 1 + 1) * 16 + (9 * 16 + 1) * 32 + (small + 1) * latent
    decoder = (latent + 1) * small + (16 * 32 * 16 + 16) + (16 * 16 * 1 + 1)
    probes, model = peers * anchors * (pixels + 1), 4 * (encoder + decoder)
    return Finding(
        Verdict.UNTESTABLE,
        f"the tables count evaluations, not bytes; probing {peers} peers with {anchors} FMNIST anchors moves "
        f"{probes / 1e6:.2f} MB beside a model of {model / 1e6:.2f} MB. Cheap is read here as: at most a tenth",
    )


def commit_bound(published: ResultSet) -> Finding:
    """Whether eq:noharm fails for a rule that takes the empirically best of d peers on all m anchors.

    Its expected excess over the best peer is at most that of the largest of d centred means: sqrt(log d / 2m).
    """
    anchors = SCHEDULE[-1]
    excess = {d: sqrt(log(d) / (2 * anchors)) for t in ("er", "ba") for d in degrees(t)}
    within = {t: sum(excess[d] <= DELTA for d in degrees(t)) for t in ("er", "ba")}
    detail = (
        f"the expected excess of AQ-128 over the best peer, and so over gossip, is at most sqrt(log d / 2m) = "
        f"{sqrt(log(7) / (2 * anchors)):.3f} at d = 7 and m = {anchors}: below delta M = {DELTA:g}, so eq:noharm holds "
        f"for it, too, for every d <= {max(d for d in range(1, CLIENTS) if log(d) <= 2 * anchors * DELTA**2)}: "
        + ", ".join(f"{n} of {CLIENTS} clients ({t.upper()})" for t, n in within.items())
        + f". (With fewer anchors it is more: d = 7 needs {ceil(log(7) / (2 * DELTA**2))}.)"
    )
    return Finding(Verdict.CONTRADICTED if min(within.values()) > 0 else Verdict.SUPPORTED, detail)


def pointwise(published: ResultSet) -> Finding:
    """How often a gossip draw must be worse than the mean of its neighbourhood, by how often the tables say it is made.

    Of d peers that are not all alike at least one is worse than their mean, and a uniform draw hits it with
    probability 1/d or more.
    """
    odds = {t: fmean(1 / d for d in degrees(t) if d > 1) for t in ("er", "ba")}
    drawn = {
        (c, m): share
        for c in published.configurations
        for m, metric in (("sage-vanilla", "rg_fallback"), ("sage-os", "cost_rg"))
        if (share := published.value(c, m, metric, SEED)) is not None
    }
    worse = {key: odds[key[0].topology] * share for key, share in drawn.items()}
    above = {m: [v for (_, of), v in worse.items() if of == m] for m in ("sage-vanilla", "sage-os")}
    counted = ", ".join(
        f"{m} at least {min(v):.0%} to {max(v):.0%}, above delta in {sum(x > DELTA for x in v)} of {len(v)}"
        for m, v in above.items()
    )
    detail = (
        "among d peers that are not all alike one or more are worse than their mean, so that a gossip draw is worse "
        "with probability 1/d or more. By RG fallback and Cost-RG of the table, returned peers worse than gossip: "
        f"{counted} configurations. Only a bound on the mean excess follows (eq:noharm)"
    )
    return Finding(Verdict.CONTRADICTED if max(worse.values()) > DELTA else Verdict.SUPPORTED, detail)


def cost_stop(published: ResultSet) -> Finding:
    """What a cost-triggered gossip gives up by not taking the empirically best peer (thm:exists, iii).

    With independent uniform priors on the risks, J_RG - J_sel after m anchors is m A / (m + 2): positive whenever A is.
    """
    lost = []
    for m, n in zip(SCHEDULE, SCHEDULE[1:], strict=False):
        largest = theory.stage_cost(PROBE_COST, 6, m, n) - 2 * theory.radius(m, 6)
        if largest > 0:
            lost.append(f"{m * largest / (m + 2):.3f} at stage {m} (A = {largest:.3f})")
    detail = (
        "stopping is right on the lemma's event, gossiping is not: by thm:exists (iii) it is optimal only if J_RG <= "
        "J_sel, and with independent uniform priors on the risks J_RG - J_sel = m A / (m + 2), so the empirically best "
        f"peer is better by any A > 0. At d = 6 the rule fires up to a loss of {', '.join(lost)}"
    )
    return Finding(Verdict.CONTRADICTED if lost else Verdict.SUPPORTED, detail)


def spread(published: ResultSet) -> Finding:
    """Whether an observed spread can certify dominance: spread + 2r <= lambda d m_1 after the first stage."""
    first = SCHEDULE[0]
    able = [d for d in range(2, CLIENTS) if theory.dominance_threshold(PROBE_COST, d) >= 2 * theory.radius(first, d)]
    most = max(max(degrees(t)) for t in ("er", "ba"))
    width, threshold = 2 * theory.radius(first, 6), theory.dominance_threshold(PROBE_COST, 6)
    detail = (
        f"from {first} anchors the spread of true risks is known up to 2r = {width:.3f} at d = 6, and would have to be "
        f"below lambda d m_1 = {threshold:.3f}: impossible. Even an observed spread of 0 needs d >= {min(able)}; the "
        f"largest degree of both graphs is {most}. And those {first} anchors are what dominance says not to buy"
    )
    return Finding(Verdict.SUPPORTED if min(able) <= 6 else Verdict.CONTRADICTED, detail)


def mean_degrees(published: ResultSet) -> Finding:
    """Expected and realised mean degrees."""
    er, ba = 0.15 * (CLIENTS - 1), 2 * 3 * (CLIENTS - 3) / CLIENTS
    found = {t: fmean(degrees(t)) for t in ("er", "ba")}
    right = abs(er - 7.35) < 5e-3 and abs(ba - 5.64) < 5e-3 and abs(found["ba"] - ba) < 1e-9
    detail = f"ER: p(K - 1) = {er:.2f}, realised {found['er']:.2f} at seed 1; SF: 2m(K - m)/K = {found['ba']:.2f}"
    return Finding(Verdict.SUPPORTED if right else Verdict.CONTRADICTED, detail)


# Tables read together -----------------------------------------------------------------------------------------------


def certified_range(alpha: float, low: float, high: float, digits: tuple[int, int]) -> Callable[[ResultSet], Finding]:
    """Whether certified selection of Vanilla SAGE spans what is printed at one alpha."""

    def test(published: ResultSet) -> Finding:
        found = [
            100 * v
            for c in published.configurations
            if c.alpha == alpha and (v := published.value(c, "sage-vanilla", "certified", SEED)) is not None
        ]
        ends = zip((min(found), max(found)), (low, high), digits, strict=True)
        met = all(abs(value - printed) <= 0.5 * 10**-d + 1e-9 for value, printed, d in ends)
        detail = f"printed {low:g} to {high:g} %, table {min(found):.1f} to {max(found):.1f} %"
        return Finding(Verdict.SUPPORTED if met else Verdict.CONTRADICTED, detail)

    return test


def outright_wins(published: ResultSet) -> Finding:
    """Whether SAGE-OS is alone the best in four configurations, and three others in three each."""
    printed = {"sage-os": 4, "rg": 3, "pfeddst": 3, "sage-vanilla": 3}
    alone = {m: _count(best_in("accuracy", m, PAPER_METHODS, strict=True), published) for m in printed}
    shared = {m: _count(best_in("accuracy", m, PAPER_METHODS, strict=False), published) for m in printed}
    detail = "best alone (ties included): " + ", ".join(f"{m} {alone[m]} ({shared[m]})" for m in printed)
    claimed, there = sum(printed.values()), len(published.configurations)
    if claimed > there:
        detail += f"; {claimed} wins outright do not fit into {there} configurations"
    return Finding(Verdict.SUPPORTED if alone == printed else Verdict.CONTRADICTED, detail)


def separable(published: ResultSet) -> Finding:
    """Whether neighbourhoods get easier to separate as alpha rises, by how often Vanilla SAGE certifies."""
    rates = {a: _mean(published, "sage-vanilla", "certified", a) for a in ALPHAS}
    rising = rates[0.05] < rates[0.1] < rates[0.3]
    detail = "certified by Vanilla SAGE: " + ", ".join(f"{v:.1%} at alpha {a:g}" for a, v in rates.items())
    return Finding(Verdict.SUPPORTED if rising else Verdict.CONTRADICTED, detail)


def gap_by_alpha(published: ResultSet) -> Finding:
    """Whether the commit-versus-abstain gap is widest where peers are hardest to separate (alpha = .3)."""

    def gap(alpha: float) -> float:
        vanilla, os, aq, nf = (
            _mean(published, m, "accuracy", alpha) for m in ("sage-vanilla", "sage-os", "aq-128", "sage-nf")
        )
        return 50 * (vanilla + os - aq - nf)

    gaps = {a: gap(a) for a in ALPHAS}
    certified = {a: _mean(published, "sage-vanilla", "certified", a) for a in ALPHAS}
    hardest, widest = min(certified, key=lambda a: certified[a]), max(gaps, key=lambda a: gaps[a])
    detail = (
        "abstaining minus committing: "
        + ", ".join(f"{v:+.2f} points at alpha {a:g}" for a, v in gaps.items())
        + f"; fewest certificates at alpha {hardest:g}, widest gap at {widest:g}"
    )
    return Finding(Verdict.SUPPORTED if hardest == widest else Verdict.CONTRADICTED, detail)


def every_metric(published: ResultSet) -> Finding:
    """Whether gossip beats both always-commit rules on all four metrics everywhere."""
    lost: dict[str, int] = {}
    total = 0
    for metric in ("accuracy", "macro_f1", "client", "weak"):
        for c in published.configurations:
            rg = published.value(c, "rg", metric, SEED)
            for m in ("aq-128", "sage-nf"):
                other = published.value(c, m, metric, SEED)
                if rg is not None and other is not None:
                    total += 1
                    lost[metric] = lost.get(metric, 0) + (other >= rg - 1e-9)
    broken = {m: n for m, n in lost.items() if n}
    detail = f"gossip is not ahead in {sum(broken.values())} of {total} comparisons" + (
        f": {', '.join(f'{n} on {m}' for m, n in broken.items())}" if broken else ""
    )
    return Finding(Verdict.CONTRADICTED if broken else Verdict.SUPPORTED, detail)


def _count(measure: Measure, published: ResultSet) -> int:
    found = measure.at(published, SEED)
    return 0 if found is None else int(found.value)


def _mean(published: ResultSet, method: str, metric: str, alpha: float) -> float:
    found = [published.value(c, method, metric, SEED) for c in published.configurations if c.alpha == alpha]
    return fmean(v for v in found if v is not None)


def binomial_tail(n: int, p: float, least: int) -> float:
    """P(Bin(n, p) >= least): the chance of a degree that high in an ER graph."""
    return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1))
