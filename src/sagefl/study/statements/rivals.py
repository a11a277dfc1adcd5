"""RQ1: against the published selectors."""

from __future__ import annotations

from statistics import fmean

from .. import audit
from ..claims import Above, All, Claim, Compared, Computed, Exactly, Near, Printed
from ..measures import Measure, Slice, column, gap, win_share, wins
from ..results import Configuration
from .terms import MODELS, OS, TEXT_ONLY, on, on_dataset


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


RIVALS = [
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
                Printed(on(Configuration("cifar10", "ba", 0.3), column(m, k)), v, 4)
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
                Above(on(Configuration("cifar10", "ba", 0.3), gap(k, OS, m)))
                for m in ("pens", "pfeddst")
                for k in ("accuracy", "macro_f1")
            )
        ),
    ),
    Claim(
        "pfeddst-leads-fmnist",
        "On FMNIST PFedDST leads in three configurations",
        "RQ1",
        Printed(on_dataset("fmnist", wins("accuracy", "pfeddst", OS)), 3),
        TEXT_ONLY,
    ),
]
