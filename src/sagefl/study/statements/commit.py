"""RQ2: selectors that always commit, against gossip."""

from __future__ import annotations

from .. import audit
from ..claims import Above, All, Below, Claim, Computed, Everywhere, Near, Printed, Untestable
from ..measures import column, extreme, gap, median_gap, trend, win_share, wins
from .terms import AQ, COMMIT, NF, OS, POINT, RG

COMMITTING = [
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
