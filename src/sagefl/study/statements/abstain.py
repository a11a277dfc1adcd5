"""RQ2: selectors that may abstain; and where Vanilla SAGE, which has no price, remains the better choice."""

from __future__ import annotations

from .. import audit
from ..claims import Above, All, Below, Claim, Compared, Computed, Everywhere, Finding, Near, Printed, Verdict
from ..measures import column, gap, median_gap, trend, win_share, wins
from ..published import SEED
from ..results import ResultSet
from .terms import (
    ABSTAIN,
    AQ,
    COMMIT,
    NF,
    OS,
    OUTLIER,
    POINT,
    RG,
    TEXT_ONLY,
    VANILLA,
    at_alpha,
    on_topology,
    without_outlier,
)


def _single_outlier(published: ResultSet) -> Finding:
    """Whether SAGE-OS is no longer behind gossip once the outlier is left out."""
    os, rg = (without_outlier(column(m, "accuracy")).at(published, SEED) for m in (OS, RG))
    assert os is not None
    assert rg is not None
    verdict = Verdict.SUPPORTED if os.value >= rg.value else Verdict.CONTRADICTED
    return Finding(verdict, f"without {OUTLIER}: sage-os {os.value:.4f}, rg {rg.value:.4f}")


ABSTAINING = [
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
        Above(without_outlier(gap("accuracy", OS, RG))),
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
        All(
            *(
                Printed(at_alpha(a, gap("accuracy", OS, RG)), v, 2)
                for a, v in ((0.05, -1.10), (0.1, -0.16), (0.3, 0.31))
            )
        ),
        All(
            *(Near(at_alpha(a, gap("accuracy", OS, RG)), POINT) for a in (0.05, 0.1, 0.3)),
            Above(trend("accuracy", OS, RG)),
        ),
    ),
    Claim(
        "os-three-of-four",
        "at 0.30 winning three of four",
        "Outcome and cost",
        Printed(at_alpha(0.3, wins("accuracy", OS, RG)), 3),
        Above(at_alpha(0.3, win_share("accuracy", OS, RG))),
    ),
    Claim(
        "published-vs-alpha",
        "The published selectors move the other way, PFedDST from -0.16 to -0.99 and PENS from -0.67 to -2.25",
        "Outcome and cost",
        All(
            Printed(at_alpha(0.05, gap("accuracy", "pfeddst", RG)), -0.16, 2),
            Printed(at_alpha(0.3, gap("accuracy", "pfeddst", RG)), -0.99, 2),
            Printed(at_alpha(0.05, gap("accuracy", "pens", RG)), -0.67, 2),
            Printed(at_alpha(0.3, gap("accuracy", "pens", RG)), -2.25, 2),
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
            Printed(on_topology("er", wins("accuracy", OS, RG)), 5),
            Printed(on_topology("ba", wins("accuracy", OS, RG)), 2),
        ),
        Above(on_topology("er", win_share("accuracy", OS, RG))),
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

# Where Vanilla SAGE remains the better choice: the weakest client, and other measures than accuracy.
WEAK = [
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
