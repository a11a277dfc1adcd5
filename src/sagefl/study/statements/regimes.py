"""RQ4, RQ5 and limitations: graphs, heterogeneity and the outlier."""

from __future__ import annotations

from .. import audit
from ..claims import Above, All, Below, Claim, Compared, Computed, Finding, Near, Printed, Verdict
from ..measures import column, extreme, gap, matched, smallest_step, trend
from ..published import SEED
from ..results import Configuration, ResultSet
from .terms import AQ, EVIDENCE, OS, OUTLIER, RG, TEXT_ONLY, VANILLA, at_alpha, on, without_outlier


def _certified_falls(published: ResultSet) -> Finding:
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


REGIMES = [
    Claim(
        "certified-severe",
        "Certified selection occurs on roughly 16-26% of decisions at alpha 0.05",
        "RQ5",
        Computed(audit.certified_range(0.05, 16, 26, (0, 0))),
        Near(at_alpha(0.05, column(VANILLA, "certified", percent=True)), EVIDENCE),
    ),
    Claim(
        "certified-moderate",
        "but collapses to 0.2-5% at alpha 0.3",
        "RQ5",
        Computed(audit.certified_range(0.3, 0.2, 5, (1, 0))),
        Near(at_alpha(0.3, column(VANILLA, "certified", percent=True)), EVIDENCE),
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
                Printed(on(Configuration(d, t, 0.1), column(OS, "saving", percent=True)), v, 2)
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
                Printed(on(OUTLIER, column(m, "accuracy")), v, 4)
                for m, v in ((OS, 0.1791), (VANILLA, 0.2056), (AQ, 0.1902), (RG, 0.2081))
            )
        ),
        All(*(Below(on(OUTLIER, gap("accuracy", OS, m))) for m in (VANILLA, AQ, RG))),
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
            Printed(without_outlier(column(OS, "accuracy")), 0.3928, 4),
            Printed(without_outlier(column(VANILLA, "accuracy")), 0.3918, 4),
        ),
        Above(without_outlier(gap("accuracy", OS, VANILLA))),
    ),
]
