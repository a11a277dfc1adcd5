"""Where Vanilla SAGE remains the better choice: the weakest client, and other measures than accuracy."""

from __future__ import annotations

from ..claims import Above, All, Claim, Compared, Near, Printed
from ..measures import column, gap, win_share, wins
from .terms import AQ, NF, OS, RG, VANILLA

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
