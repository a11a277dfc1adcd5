"""What the paper states in numbers: abstract, introduction, theory, results and limitations, claim by claim.

Quotes are the paper's words with LaTeX taken out. Bands are ours: 1 accuracy point (the paper's own "sub-point margins
are ties"), 5 points of evidence, 10 points of a stopping share, .1 of a model exchange.
"""

from __future__ import annotations

from statistics import fmean

from . import audit
from .claims import (
    Above,
    All,
    Below,
    Claim,
    Compared,
    Computed,
    Everywhere,
    Exactly,
    Finding,
    Near,
    NotRun,
    Printed,
    Untestable,
    Verdict,
)
from .measures import (
    Measure,
    Slice,
    column,
    extreme,
    gap,
    matched,
    median_gap,
    smallest_step,
    trend,
    win_share,
    wins,
)
from .published import SEED
from .results import Configuration, Results

__all__ = ["STATEMENTS"]

OS, VANILLA, NF, AQ, RG = "sage-os", "sage-vanilla", "sage-nf", "aq-128", "rg"
COMMIT, ABSTAIN = (AQ, NF), (VANILLA, OS)
POINT, EVIDENCE, STOPS, MODELS = 1.0, 5.0, 10.0, 0.1
OUTLIER = Configuration("cifar10", "er", 0.05)
TEXT_ONLY = NotRun("about what the text says of its own tables")


def _at(alpha: float, measure: Measure) -> Measure:
    return measure.on(lambda c: c.alpha == alpha, f"at alpha {alpha:g}")


def _in(configuration: Configuration, measure: Measure) -> Measure:
    return measure.on(lambda c: c == configuration, f"on {configuration}")


def _without_outlier(measure: Measure) -> Measure:
    return measure.on(lambda c: c != OUTLIER, f"without {OUTLIER}")


def _topology(topology: str, measure: Measure) -> Measure:
    return measure.on(lambda c: c.topology == topology, f"on {topology.upper()}")


def _dataset(dataset: str, measure: Measure) -> Measure:
    return measure.on(lambda c: c.dataset == dataset, f"on {dataset}")


def _spend(a: str, b: str) -> Measure:
    """How much less evidence a spends than b, in per cent of b's."""

    def compute(s: Slice) -> float:
        return 100 * (1 - sum(s.column(a, "budget")) / sum(s.column(b, "budget")))

    return Measure(f"evidence {a} spends less than {b} does", ((a, "budget"), (b, "budget")), compute, "%")


def _ratio(metric: str, a: str, b: str) -> Measure:
    def compute(s: Slice) -> float | None:
        below = sum(s.column(b, metric))
        return sum(s.column(a, metric)) / below if below else None

    return Measure(f"{metric} of {a} over {b}", ((a, metric), (b, metric)), compute)


def _exchange_rate() -> Measure:
    def compute(s: Slice) -> float | None:
        lost = sum(s.gaps("accuracy", VANILLA, OS))
        return sum(s.gaps("saving", OS, VANILLA)) / lost if lost else None

    needs = tuple((m, k) for m in (OS, VANILLA) for k in ("accuracy", "saving"))
    return Measure("points of evidence saved per accuracy point conceded", needs, compute)


def _probe_share(method: str) -> Measure:
    def compute(s: Slice) -> float | None:
        probes = sum(s.column(method, "probe_input_bytes")) + sum(s.column(method, "probe_answer_bytes"))
        models = sum(s.column(method, "model_bytes"))
        return 100 * probes / models if models else None

    kinds = ("probe_input_bytes", "probe_answer_bytes", "model_bytes")
    return Measure(
        f"probe bytes of {method} in per cent of its model bytes", tuple((method, k) for k in kinds), compute, "%"
    )


def _single_outlier(published: Results) -> Finding:
    """Whether SAGE-OS is no longer behind gossip once the outlier is left out."""
    os, rg = (_without_outlier(column(m, "accuracy")).at(published, SEED) for m in (OS, RG))
    assert os is not None
    assert rg is not None
    verdict = Verdict.SUPPORTED if os.value >= rg.value else Verdict.CONTRADICTED
    return Finding(verdict, f"without {OUTLIER}: sage-os {os.value:.4f}, rg {rg.value:.4f}")


def _harder(method: str) -> Measure:
    """By how many points SAGE-OS's lead over `method` is larger on CIFAR-10 than on FMNIST."""

    def compute(s: Slice) -> float | None:
        leads = {
            d: [s.get(c, OS, "accuracy") - s.get(c, method, "accuracy") for c in s.configurations if c.dataset == d]
            for d in ("cifar10", "fmnist")
        }
        if not all(leads.values()):
            return None
        return 100 * (fmean(leads["cifar10"]) - fmean(leads["fmnist"]))

    name = f"lead of sage-os over {method} on cifar10 minus that on fmnist"
    return Measure(name, ((OS, "accuracy"), (method, "accuracy")), compute, "points")


def _certified_falls(published: Results) -> Finding:
    """Whether Vanilla SAGE certifies less often at every step to a larger alpha."""
    rises = []
    for c in published.configurations:
        further = [d for d in published.configurations if d[:2] == c[:2] and d.alpha > c.alpha]
        here = published.value(c, VANILLA, "certified", SEED)
        there = published.value(further[0], VANILLA, "certified", SEED) if further else None
        if here is not None and there is not None and there >= here:
            rises.append(f"{c.dataset}/{c.topology}: {here:.1%} at {c.alpha:g}, {there:.1%} at {further[0].alpha:g}")
    if rises:
        return Finding(Verdict.CONTRADICTED, f"certification rises with alpha in {'; '.join(rises)}")
    return Finding(Verdict.SUPPORTED, "certification falls at every step to a larger alpha")


_ABSTRACT = [
    Claim(
        "commit-loses",
        "Selectors that always act on their evidence lose to gossip in every configuration tested.",
        "Abstract; RQ2",
        Printed(wins("accuracy", RG, *COMMIT), 12),
        Everywhere("accuracy", RG, COMMIT),
    ),
    Claim(
        "matches-gossip",
        "SAGE-OS matches gossip",
        "Abstract; Limitations (sub-point margins are ties)",
        All(Compared(gap("accuracy", OS, RG), ">", -POINT), Compared(gap("accuracy", OS, RG), "<", POINT)),
        Near(gap("accuracy", OS, RG), POINT, value=0.0),
    ),
    Claim(
        "saving-nominal",
        "75.5% less evidence than a fixed budget [of nominally 128 anchors per peer]",
        "Abstract; eq:probesaving",
        Printed(column(OS, "saving", percent=True), 75.5, 1),
        Near(column(OS, "saving", percent=True), EVIDENCE),
    ),
    Claim(
        "saving-actual",
        "75.5% less evidence than a fixed budget [as the fixed-budget selector AQ-128 spends it]",
        "Abstract; Introduction (roughly a quarter of the evidence a fixed budget spends)",
        Printed(_spend(OS, AQ), 75.5, 1),
        Near(_spend(OS, AQ), EVIDENCE, value=75.5),
    ),
    Claim(
        "half-communication",
        "at half the communication overhead of two published selectors",
        "Abstract; RQ1 (roughly half the model-bearing traffic)",
        All(
            Printed(_ratio("comm_oh", OS, "pens"), 0.5, 1, slack=0.1),
            Printed(_ratio("comm_oh", OS, "pfeddst"), 0.5, 1, slack=0.1),
        ),
        All(
            Near(_ratio("comm_oh", OS, "pens"), MODELS, value=0.5),
            Near(_ratio("comm_oh", OS, "pfeddst"), MODELS, value=0.5),
        ),
    ),
    Claim(
        "every-metric",
        "Selectors that always act on their evidence are beaten by uniform gossip on every metric in every "
        "configuration.",
        "Introduction, fourth contribution",
        Computed(audit.every_metric),
        All(*(Everywhere(metric, RG, COMMIT) for metric in ("accuracy", "macro_f1", "client", "weak"))),
    ),
    Claim(
        "probes-cheap",
        "scoring a candidate on a handful of held-out examples costs only a few predictions",
        "Introduction; fig:setting (the probe channel is cheap)",
        Computed(audit.probe_bytes),
        All(Below(_probe_share(OS), 10.0), Below(_probe_share(AQ), 10.0)),
    ),
]

_THEORY = [
    Claim(
        "dominance-threshold",
        "At the operating point (lambda = 2e-3, m_1 = 16, d_k = 6) the threshold is G_k = 0.19.",
        "After prop:dominance; RQ5 (roughly 19 points)",
        Computed(audit.dominance),
        NotRun("arithmetic"),
    ),
    Claim(
        "degree-condition",
        "Condition (eq:degcond) holds at every stage of the schedule for d_k >= 3, hence throughout both graph "
        "families",
        "After prop:degree",
        Computed(audit.degree_condition),
        NotRun("arithmetic on the graphs"),
    ),
    Claim(
        "mean-degrees",
        "mean degrees 7.35 [ER] and 5.64 [scale-free]",
        "Setup; after prop:degree",
        Computed(audit.mean_degrees),
        NotRun("arithmetic on the graphs"),
    ),
    Claim(
        "evidence-table-printed-rule",
        "Cost-RG the subset triggered by the cost rule [lambda d (m_next - m) >= A + 2r]",
        "tab:evidence; Algorithm 1",
        Computed(audit.evidence_table(cumulative=False)),
        All(
            Near(column(OS, "stop_32", percent=True), STOPS),
            Near(column(OS, "cost_rg", percent=True), STOPS),
            Near(column(OS, "budget", percent=True), EVIDENCE),
        ),
    ),
    Claim(
        "evidence-table-cumulative-rule",
        "[our reading: the table was made with the cumulative price lambda d m_next]",
        "tab:evidence, audit",
        Computed(audit.evidence_table(cumulative=True)),
        All(
            *(
                Near(column("sage-os-table", k, percent=True), band, published_as=column(OS, k, percent=True))
                for k, band in (("stop_32", STOPS), ("cost_rg", STOPS), ("budget", EVIDENCE))
            )
        ),
    ),
    Claim(
        "stage-32-decides",
        "SAGE-OS determines at stage 32 that no certificate is attainable",
        "RQ3; fig:stopping (drawn at d_k = 6)",
        Computed(audit.curves_cross),
        Above(gap("stop_32", OS, VANILLA)),
    ),
    Claim(
        "every-stage",
        "At each stage the receiver may certify a peer, buy the next anchor batch, or abandon probing for gossip.",
        "fig:stopping",
        Computed(audit.stage_16),
        Above(column(OS, "decided_16", percent=True)),
    ),
    Claim(
        "never-worse",
        "the selector never returns a peer worse than random gossip with high probability",
        "Abstract; thm:noharm; Conclusion",
        Untestable(
            "the theorem bounds an expectation, R_RG + delta M; a gossip draw is worse than the neighbourhood mean "
            "about half the time. Read here pointwise: at most delta = 10 % of pulled peers are worse on evaluation "
            "data"
        ),
        Below(column(OS, "pulled_worse", percent=True), 10.0),
    ),
    Claim(
        "safe-in-expectation",
        "E[R] <= R_RG + delta M",
        "thm:noharm (eq:noharm)",
        Untestable("risks of pulled peers are not in the tables"),
        All(
            Below(column(OS, "pulled_excess", percent=True), 10.0),
            Below(column(VANILLA, "pulled_excess", percent=True), 10.0),
        ),
    ),
    Claim(
        "certified-is-better",
        "the empirically best peer is guaranteed to have lower true anchor risk than uniform random gossip",
        "prop:gossip-cert, with probability 1 - delta",
        Untestable(
            "not in the tables. Anchors are reused for 250 rounds and past choices feed back, so that the guarantee is "
            "approximate; measured here on each client's evaluation data, which no rule ever sees"
        ),
        Below(column(OS, "certified_worse", percent=True), 10.0),
    ),
    Claim(
        "no-bound-for-commit",
        "No such bound exists for always-commit rules: the conclusion genuinely fails.",
        "rem:nocommit",
        Computed(audit.commit_bound),
        Above(column(AQ, "pulled_excess", percent=True), 10.0),
    ),
]

_COMMIT = [
    Claim(
        "means-commit",
        "mean accuracy 0.3509 and 0.3531 against 0.3782 for RG",
        "RQ2",
        All(
            Printed(column(AQ, "accuracy"), 0.3509, 4),
            Printed(column(NF, "accuracy"), 0.3531, 4),
            Printed(column(RG, "accuracy"), 0.3782, 4),
        ),
        All(Below(gap("accuracy", AQ, RG)), Below(gap("accuracy", NF, RG))),
    ),
    Claim(
        "commit-loses-f1",
        "RG also beats both of them 12/12 on macro-F1",
        "RQ2",
        Printed(wins("macro_f1", RG, *COMMIT), 12),
        Everywhere("macro_f1", RG, COMMIT),
    ),
    Claim(
        "commit-loses-client",
        "and 12/12 on mean client accuracy",
        "RQ2",
        Printed(wins("client", RG, *COMMIT), 12),
        Everywhere("client", RG, COMMIT),
    ),
    Claim(
        "pens-below-gossip",
        "PENS falls below RG in 11/12 configurations",
        "RQ2; Outcome and cost (above gossip once)",
        Printed(wins("accuracy", RG, "pens"), 11),
        Above(win_share("accuracy", RG, "pens")),
    ),
    Claim(
        "gap-widens",
        "the gap widens where neighbourhoods are hardest to separate",
        "RQ2",
        Computed(audit.gap_by_alpha),
        Above(trend("accuracy", RG, AQ)),
    ),
    Claim(
        "medians-commit",
        "The medians of AQ-128 and SAGE-NF are -2.11 and -2.09 points",
        "Outcome and cost",
        All(
            Printed(median_gap("accuracy", AQ), -2.11, 2),
            Printed(median_gap("accuracy", NF), -2.09, 2),
        ),
        All(Near(median_gap("accuracy", AQ), POINT), Near(median_gap("accuracy", NF), POINT)),
    ),
    Claim(
        "worst-commit",
        "with worst cases approaching -5.7",
        "Outcome and cost",
        All(
            Printed(extreme("accuracy", AQ, min, RG), -5.7, 1),
            Printed(extreme("accuracy", NF, min, RG), -5.7, 1, slack=0.1),
        ),
        Near(extreme("accuracy", AQ, min, RG), POINT),
    ),
    Claim(
        "medians-f1",
        "Macro-F1 agrees: its median is -0.01 points, PFedDST sits at -0.45, the committing variants near -2.2",
        "Outcome and cost",
        All(
            Printed(median_gap("macro_f1", OS), -0.01, 2),
            Printed(median_gap("macro_f1", "pfeddst"), -0.45, 2),
            Printed(median_gap("macro_f1", AQ), -2.2, 1),
            Printed(median_gap("macro_f1", NF), -2.2, 1),
        ),
        All(*(Near(median_gap("macro_f1", m), POINT) for m in (OS, "pfeddst", AQ, NF))),
    ),
    Claim(
        "pulls-concentrate",
        "exchanges concentrate on a few locally attractive peers",
        "RQ2, mechanisms (named, not measured)",
        Untestable("the paper does not measure it"),
        Above(gap("pull_gini", AQ, RG)),
    ),
    Claim(
        "diversity-erodes",
        "and erode the representation diversity that gossip supplies",
        "RQ2, mechanisms (named, not measured)",
        Untestable("the paper does not measure it"),
        Above(gap("diversity", RG, AQ)),
    ),
    Claim(
        "proxy-noisy",
        "Anchor risk is a noisy proxy for post-mixing utility",
        "RQ2, mechanisms; Limitations (named, not measured)",
        Untestable("the paper does not measure it; read here as: advantage and gain correlate at less than .3"),
        Below(column(AQ, "advantage_gain_correlation"), 0.3),
    ),
]

_ABSTAIN = [
    Claim(
        "vanilla-near-gossip",
        "Vanilla SAGE reaches mean accuracy 0.3763, within 0.2 points of RG",
        "RQ2, abstention",
        All(Printed(column(VANILLA, "accuracy"), 0.3763, 4), Compared(gap("accuracy", VANILLA, RG), ">", -0.2)),
        Near(gap("accuracy", VANILLA, RG), POINT, value=0.0),
    ),
    Claim(
        "vanilla-beats-commit",
        "and beats both always-commit variants everywhere on accuracy and macro-F1 alike",
        "RQ2, abstention",
        All(Printed(wins("accuracy", VANILLA, *COMMIT), 12), Printed(wins("macro_f1", VANILLA, *COMMIT), 12)),
        All(Everywhere("accuracy", VANILLA, COMMIT), Everywhere("macro_f1", VANILLA, COMMIT)),
    ),
    Claim(
        "os-7-of-12",
        "SAGE-OS reaches 0.3750 and is ahead of RG in 7 of 12 configurations",
        "RQ2, abstention; Outcome and cost",
        All(Printed(column(OS, "accuracy"), 0.3750, 4), Printed(wins("accuracy", OS, RG), 7)),
        Above(win_share("accuracy", OS, RG)),
    ),
    Claim(
        "os-median",
        "with a positive median of +0.03",
        "Outcome and cost",
        Printed(median_gap("accuracy", OS), 0.03, 2),
        Above(median_gap("accuracy", OS)),
    ),
    Claim(
        "single-outlier",
        "Its negative mean comes from a single outlier, not from a systematic deficit.",
        "Outcome and cost",
        Computed(_single_outlier),
        Above(_without_outlier(gap("accuracy", OS, RG))),
    ),
    Claim(
        "decline-gap",
        "the 2.3-point mean accuracy gap between them [Vanilla SAGE 0.3763 vs SAGE-NF 0.3531]",
        "RQ2, abstention",
        Printed(gap("accuracy", VANILLA, NF), 2.3, 1),
        All(Above(gap("accuracy", VANILLA, NF)), Near(gap("accuracy", VANILLA, NF), POINT)),
    ),
    Claim(
        "commit-abstain-gap",
        "the always-commit-versus-abstain gap (about 2.3 points)",
        "Limitations",
        Printed(gap("accuracy", ABSTAIN, COMMIT), 2.3, 1, slack=0.1),
        All(Above(gap("accuracy", ABSTAIN, COMMIT)), Near(gap("accuracy", ABSTAIN, COMMIT), POINT)),
    ),
    Claim(
        "commit-abstain-12",
        "[the always-commit-versus-abstain gap is] 12/12 in direction on three metrics",
        "Limitations (read as Vanilla SAGE against AQ-128 and SAGE-NF)",
        All(*(Printed(wins(metric, VANILLA, *COMMIT), 12) for metric in ("accuracy", "macro_f1", "client"))),
        All(*(Everywhere(metric, VANILLA, COMMIT) for metric in ("accuracy", "macro_f1", "client"))),
    ),
    Claim(
        "os-vs-alpha",
        "At alpha 0.05 SAGE-OS averages -1.10 points against gossip; at 0.10, -0.16; at 0.30, +0.31",
        "Outcome and cost",
        All(*(Printed(_at(a, gap("accuracy", OS, RG)), v, 2) for a, v in ((0.05, -1.10), (0.1, -0.16), (0.3, 0.31)))),
        All(
            *(Near(_at(a, gap("accuracy", OS, RG)), POINT) for a in (0.05, 0.1, 0.3)),
            Above(trend("accuracy", OS, RG)),
        ),
    ),
    Claim(
        "os-three-of-four",
        "at 0.30 winning three of four",
        "Outcome and cost",
        Printed(_at(0.3, wins("accuracy", OS, RG)), 3),
        Above(_at(0.3, win_share("accuracy", OS, RG))),
    ),
    Claim(
        "published-vs-alpha",
        "The published selectors move the other way, PFedDST from -0.16 to -0.99 and PENS from -0.67 to -2.25",
        "Outcome and cost",
        All(
            Printed(_at(0.05, gap("accuracy", "pfeddst", RG)), -0.16, 2),
            Printed(_at(0.3, gap("accuracy", "pfeddst", RG)), -0.99, 2),
            Printed(_at(0.05, gap("accuracy", "pens", RG)), -0.67, 2),
            Printed(_at(0.3, gap("accuracy", "pens", RG)), -2.25, 2),
        ),
        All(Below(trend("accuracy", "pfeddst", RG)), Below(trend("accuracy", "pens", RG))),
    ),
    Claim(
        "easier-to-separate",
        "SAGE-OS improves as neighbourhoods become easier to separate [towards alpha 0.3]",
        "fig:results; Outcome and cost (the advantage grows as neighbourhoods become separable)",
        Computed(audit.separable),
        Above(trend("certified", VANILLA)),
    ),
    Claim(
        "er-five-of-six",
        "on Erdos-Renyi SAGE-OS beats gossip in five of six configurations, against two of six on scale-free graphs",
        "Outcome and cost",
        All(
            Printed(_topology("er", wins("accuracy", OS, RG)), 5),
            Printed(_topology("ba", wins("accuracy", OS, RG)), 2),
        ),
        Above(_topology("er", win_share("accuracy", OS, RG))),
    ),
    Claim(
        "outright",
        "SAGE-OS wins outright more often than any other method: it is the best of all eight selectors in four of "
        "twelve configurations, against three each for gossip, PFedDST and Vanilla SAGE",
        "Outcome and cost",
        Computed(audit.outright_wins),
        TEXT_ONLY,
    ),
]

_STOPPING = [
    Claim(
        "os-beats-commit",
        "It beats AQ-128 and SAGE-NF in 11 of 12 configurations on both accuracy and macro-F1",
        "RQ3",
        All(*(Printed(wins(metric, OS, *COMMIT), 11) for metric in ("accuracy", "macro_f1"))),
        All(*(Above(win_share(metric, OS, *COMMIT)) for metric in ("accuracy", "macro_f1"))),
    ),
    Claim(
        "os-matches-vanilla",
        "and matches or exceeds Vanilla SAGE in 8 of 12",
        "RQ3",
        Printed(wins("accuracy", OS, VANILLA, ties=True), 8),
        Above(win_share("accuracy", OS, VANILLA)),
    ),
    Claim(
        "savings",
        "mean saving 75.50% against 50.48% and 47.67%",
        "RQ3",
        All(
            *(Printed(column(m, "saving", percent=True), v, 2) for m, v in ((OS, 75.5), (VANILLA, 50.48), (AQ, 47.67)))
        ),
        All(*(Near(column(m, "saving", percent=True), EVIDENCE) for m in (OS, VANILLA, AQ))),
    ),
    Claim(
        "budgets",
        "SAGE-OS consumes 24.5% of the fixed anchor budget, against 49.5% for Vanilla SAGE and 52.3% for AQ-128",
        "Outcome and cost",
        All(*(Printed(column(m, "budget", percent=True), v, 1) for m, v in ((OS, 24.5), (VANILLA, 49.5), (AQ, 52.3)))),
        All(*(Near(column(m, "budget", percent=True), EVIDENCE) for m in (OS, VANILLA, AQ))),
    ),
    Claim(
        "sequential-saves",
        "does sequential probing use less evidence than fixed-m_max AQ-128 without degrading performance?",
        "RQ2",
        All(Compared(gap("budget", VANILLA, AQ), "<"), Compared(gap("accuracy", VANILLA, AQ), ">=")),
        All(Below(gap("budget", VANILLA, AQ)), Above(gap("accuracy", VANILLA, AQ), -POINT)),
    ),
    Claim(
        "cost-rule-saves",
        "does cost-aware stopping reduce evidence use beyond confidence gating alone?",
        "RQ3",
        Printed(wins("saving", OS, VANILLA), 12),
        Everywhere("saving", OS, (VANILLA,)),
    ),
    Claim(
        "concedes",
        "SAGE-OS concedes 0.13 accuracy points to Vanilla SAGE and saves 25.0 points of evidence",
        "RQ3; Limitations (about 25-point Saving gap)",
        All(Printed(gap("accuracy", VANILLA, OS), 0.13, 2), Printed(gap("saving", OS, VANILLA), 25.0, 1)),
        All(Near(gap("accuracy", VANILLA, OS), POINT), Near(gap("saving", OS, VANILLA), EVIDENCE)),
    ),
    Claim(
        "exchange-rate",
        "about 190 points of evidence per accuracy point conceded",
        "RQ3",
        Printed(_exchange_rate(), 190, 0, slack=10),
        NotRun("a ratio to a difference that the limitations call a tie"),
    ),
    Claim(
        "three-hundredths",
        "trading a 0.03-point mean accuracy difference for a 25-point increase in evidence saving",
        "Where Vanilla SAGE remains the better choice",
        All(Printed(gap("accuracy", VANILLA, OS), 0.03, 2), Printed(gap("saving", OS, VANILLA), 25, 0)),
        TEXT_ONLY,
    ),
    Claim(
        "fmnist-sf-03",
        "On FMNIST/scale-free at 0.3 both land within 0.004 accuracy of one another; Vanilla exhausts the budget on "
        "33.9%, SAGE-OS never reaches 128",
        "RQ3",
        All(
            Compared(_in(Configuration("fmnist", "ba", 0.3), gap("accuracy", OS, VANILLA)), "<=", 0.4),
            Compared(_in(Configuration("fmnist", "ba", 0.3), gap("accuracy", OS, VANILLA)), ">=", -0.4),
            Printed(_in(Configuration("fmnist", "ba", 0.3), column(VANILLA, "stop_128", percent=True)), 33.9, 1),
            Printed(_in(Configuration("fmnist", "ba", 0.3), column(OS, "stop_128", percent=True)), 0.0, 1),
        ),
        All(
            Near(_in(Configuration("fmnist", "ba", 0.3), gap("accuracy", OS, VANILLA)), 0.4, value=0.0),
            Near(_in(Configuration("fmnist", "ba", 0.3), column(VANILLA, "stop_128", percent=True)), STOPS),
            Near(_in(Configuration("fmnist", "ba", 0.3), column(OS, "stop_128", percent=True)), 2.0),
        ),
    ),
    Claim(
        "fmnist-sf-03-gossips",
        "Vanilla SAGE and SAGE-OS both end up gossiping on more than 97% of decisions",
        "RQ3",
        All(
            Compared(_in(Configuration("fmnist", "ba", 0.3), column(VANILLA, "rg_fallback", percent=True)), ">", 97),
            Untestable("SAGE-OS's total gossip rate is not in the tables"),
        ),
        All(
            Above(_in(Configuration("fmnist", "ba", 0.3), column(VANILLA, "rg_fallback", percent=True)), 97),
            Above(_in(Configuration("fmnist", "ba", 0.3), column(OS, "rg_fallback", percent=True)), 97),
        ),
    ),
    Claim(
        "mean-anchors",
        "after probing to a mean of 78.00 anchors; stops at a mean of 45.19 anchors",
        "RQ3, FMNIST/scale-free at 0.3",
        Untestable("the tables weight anchors by degree (budget consumed); the plain mean is not in them"),
        All(
            Near(_in(Configuration("fmnist", "ba", 0.3), column(VANILLA, "mean_anchors")), 6.0, value=78.0),
            Near(_in(Configuration("fmnist", "ba", 0.3), column(OS, "mean_anchors")), 6.0, value=45.19),
        ),
    ),
    Claim(
        "exhausts",
        "Vanilla SAGE exhausts the budget on 24-34% of decisions while SAGE-OS does so on at most 2.0%",
        "RQ3",
        All(
            Printed(extreme("stop_128", VANILLA, min), 24, 0),
            Printed(extreme("stop_128", VANILLA, max), 34, 0),
            Printed(extreme("stop_128", OS, max), 2.0, 1),
        ),
        All(
            Near(column(VANILLA, "stop_128", percent=True), EVIDENCE),
            Below(extreme("stop_128", OS, max), 2.05),
        ),
    ),
    Claim(
        "twofold",
        "What separates them is cost, and the margin is roughly twofold on both axes.",
        "Outcome and cost; Conclusion (at twice the cost)",
        All(
            Printed(_ratio("budget", VANILLA, OS), 2, 0, slack=0.25),
            Printed(_ratio("comm_oh", "pens", OS), 2, 0, slack=0.25),
            Printed(_ratio("comm_oh", "pfeddst", OS), 2, 0, slack=0.25),
        ),
        All(
            Near(_ratio("budget", VANILLA, OS), 0.25, value=2.0),
            Near(_ratio("comm_oh", "pens", OS), 0.25, value=2.0),
            Near(_ratio("comm_oh", "pfeddst", OS), 0.25, value=2.0),
        ),
    ),
]

_WEAK = [
    Claim(
        "vanilla-leads-weak",
        "On worst-client accuracy Vanilla SAGE is the strongest method, averaging 0.6557 against 0.6275 for SAGE-OS "
        "and 0.6164 for RG",
        "Where Vanilla SAGE remains the better choice",
        All(
            Printed(column(VANILLA, "weak"), 0.6557, 4),
            Printed(column(OS, "weak"), 0.6275, 4),
            Printed(column(RG, "weak"), 0.6164, 4),
            *(Compared(gap("weak", VANILLA, m), ">") for m in (AQ, NF)),
        ),
        All(*(Above(gap("weak", VANILLA, m)) for m in (OS, RG, AQ, NF))),
    ),
    Claim(
        "weak-6-4-2",
        "beating SAGE-OS 6-4-2 (win-tie-loss)",
        "Where Vanilla SAGE remains the better choice",
        All(
            Printed(wins("weak", VANILLA, OS), 6),
            Printed(wins("weak", VANILLA, OS, ties=True), 10),
            Printed(wins("weak", OS, VANILLA), 2),
        ),
        Above(win_share("weak", VANILLA, OS)),
    ),
    Claim(
        "client-means",
        "mean client accuracy shows the same weaker ordering (0.9117 vs 0.9089)",
        "Where Vanilla SAGE remains the better choice",
        All(Printed(column(VANILLA, "client"), 0.9117, 4), Printed(column(OS, "client"), 0.9089, 4)),
        Above(gap("client", VANILLA, OS)),
    ),
    Claim(
        "f1-splits",
        "Macro-F1 shows the same compression, SAGE-OS splitting 6-6 with both Vanilla SAGE and PFedDST",
        "Where Vanilla SAGE remains the better choice",
        All(Printed(wins("macro_f1", OS, VANILLA), 6), Printed(wins("macro_f1", OS, "pfeddst"), 6)),
        All(
            Near(win_share("macro_f1", OS, VANILLA), 25.0, value=0.0),
            Near(win_share("macro_f1", OS, "pfeddst"), 25.0, value=0.0),
        ),
    ),
]

_PUBLISHED_SELECTORS = [
    Claim(
        "os-vs-pens",
        "SAGE-OS exceeds PENS in 10/12 configurations on global accuracy; mean 0.3750 against 0.3625",
        "RQ1",
        All(Printed(wins("accuracy", OS, "pens"), 10), Printed(column("pens", "accuracy"), 0.3625, 4)),
        All(Above(win_share("accuracy", OS, "pens")), Above(gap("accuracy", OS, "pens"))),
    ),
    Claim(
        "os-vs-pfeddst",
        "and PFedDST in 8/12; mean 0.3750 against 0.3730",
        "RQ1",
        All(Printed(wins("accuracy", OS, "pfeddst"), 8), Printed(column("pfeddst", "accuracy"), 0.3730, 4)),
        All(Above(win_share("accuracy", OS, "pfeddst")), Above(gap("accuracy", OS, "pfeddst"))),
    ),
    Claim(
        "comm-oh-os",
        "It does so at CommOH = 1.000",
        "RQ1",
        Computed(audit.comm_oh(OS, 1.0)),
        Exactly(column(OS, "comm_oh"), 1.0),
    ),
    Claim(
        "comm-oh-pens",
        "against 1.784 for PENS",
        "RQ1",
        Computed(audit.comm_oh("pens", 1.784)),
        Near(column("pens", "comm_oh"), MODELS, value=1.784),
    ),
    Claim(
        "comm-oh-pfeddst",
        "and 1.980 for PFedDST",
        "RQ1",
        Computed(audit.comm_oh("pfeddst", 1.980)),
        Near(column("pfeddst", "comm_oh"), MODELS, value=1.980),
    ),
    Claim(
        "harder-task-margin",
        "The margin is largest on the harder task",
        "RQ1",
        All(*(Compared(_harder(m), ">") for m in ("pens", "pfeddst"))),
        All(*(Above(_harder(m)) for m in ("pens", "pfeddst"))),
    ),
    Claim(
        "cifar-sf-03",
        "on CIFAR-10/scale-free at 0.3 SAGE-OS reaches 0.4319 accuracy and 0.3651 macro-F1 against 0.3927/0.3247 for "
        "PENS and 0.4080/0.3411 for PFedDST",
        "RQ1",
        All(
            *(
                Printed(_in(Configuration("cifar10", "ba", 0.3), column(m, k)), v, 4)
                for m, k, v in (
                    (OS, "accuracy", 0.4319),
                    (OS, "macro_f1", 0.3651),
                    ("pens", "accuracy", 0.3927),
                    ("pens", "macro_f1", 0.3247),
                    ("pfeddst", "accuracy", 0.4080),
                    ("pfeddst", "macro_f1", 0.3411),
                )
            )
        ),
        All(
            *(
                Above(_in(Configuration("cifar10", "ba", 0.3), gap(k, OS, m)))
                for m in ("pens", "pfeddst")
                for k in ("accuracy", "macro_f1")
            )
        ),
    ),
    Claim(
        "pfeddst-leads-fmnist",
        "On FMNIST PFedDST leads in three configurations",
        "RQ1",
        Printed(_dataset("fmnist", wins("accuracy", "pfeddst", OS)), 3),
        TEXT_ONLY,
    ),
]

_REGIMES = [
    Claim(
        "certified-severe",
        "Certified selection occurs on roughly 16-26% of decisions at alpha 0.05",
        "RQ5",
        Computed(audit.certified_range(0.05, 16, 26, (0, 0))),
        Near(_at(0.05, column(VANILLA, "certified", percent=True)), EVIDENCE),
    ),
    Claim(
        "certified-moderate",
        "but collapses to 0.2-5% at alpha 0.3",
        "RQ5",
        Computed(audit.certified_range(0.3, 0.2, 5, (1, 0))),
        Near(_at(0.3, column(VANILLA, "certified", percent=True)), EVIDENCE),
    ),
    Claim(
        "certified-rarer",
        "certification should become rarer as neighbourhoods become harder to separate; the table confirms this",
        "RQ5",
        Computed(_certified_falls),
        Below(trend("certified", VANILLA)),
    ),
    Claim(
        "cost-rg-monotone",
        "its Cost-RG rate rises monotonically with alpha in every dataset-topology pair",
        "RQ5",
        Compared(smallest_step("cost_rg", OS), ">"),
        Above(trend("cost_rg", OS)),
    ),
    Claim(
        "er-above-ba",
        "At every matched dataset and heterogeneity level, the ER graph triggers more cost-based gossip than the "
        "scale-free graph",
        "RQ4",
        Compared(matched("cost_rg", OS, min), ">"),
        Above(matched("cost_rg", OS)),
    ),
    Claim(
        "er-saves-more",
        "Savings follow the same ordering, 73.86% versus 72.29% and 76.62% versus 73.85%",
        "RQ4",
        All(
            Compared(matched("saving", OS, min), ">"),
            *(
                Printed(_in(Configuration(d, t, 0.1), column(OS, "saving", percent=True)), v, 2)
                for d, t, v in (
                    ("fmnist", "er", 73.86),
                    ("fmnist", "ba", 72.29),
                    ("cifar10", "er", 76.62),
                    ("cifar10", "ba", 73.85),
                )
            ),
        ),
        Above(matched("saving", OS)),
    ),
    Claim(
        "outlier",
        "On CIFAR-10/ER at 0.05 SAGE-OS reaches 0.1791 accuracy against 0.2056 for Vanilla SAGE, 0.1902 for AQ-128 and "
        "0.2081 for RG",
        "Where aggressive stopping hurts",
        All(
            *(
                Printed(_in(OUTLIER, column(m, "accuracy")), v, 4)
                for m, v in ((OS, 0.1791), (VANILLA, 0.2056), (AQ, 0.1902), (RG, 0.2081))
            )
        ),
        All(*(Below(_in(OUTLIER, gap("accuracy", OS, m))) for m in (VANILLA, AQ, RG))),
    ),
    Claim(
        "largest-saving",
        "despite recording the largest evidence saving in the matrix (80.53%)",
        "Where aggressive stopping hurts",
        Printed(extreme("saving", OS, max), 80.53, 2),
        TEXT_ONLY,
    ),
    Claim(
        "without-outlier",
        "excluding it, SAGE-OS averages 0.3928 against 0.3918 for Vanilla SAGE",
        "Where aggressive stopping hurts",
        All(
            Printed(_without_outlier(column(OS, "accuracy")), 0.3928, 4),
            Printed(_without_outlier(column(VANILLA, "accuracy")), 0.3918, 4),
        ),
        Above(_without_outlier(gap("accuracy", OS, VANILLA))),
    ),
]

STATEMENTS: tuple[Claim, ...] = (
    *_ABSTRACT,
    *_THEORY,
    *_COMMIT,
    *_ABSTAIN,
    *_STOPPING,
    *_WEAK,
    *_PUBLISHED_SELECTORS,
    *_REGIMES,
)
