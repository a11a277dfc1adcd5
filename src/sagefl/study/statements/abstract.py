"""What the abstract and the introduction state."""

from __future__ import annotations

from .. import audit
from ..claims import All, Below, Claim, Compared, Computed, Everywhere, Near, Printed
from ..measures import Measure, Slice, column, gap, wins
from .terms import AQ, COMMIT, EVIDENCE, MODELS, OS, POINT, RG, ratio


def _spend(a: str, b: str) -> Measure:
    """How much less evidence a spends than b, in per cent of b's."""

    def compute(s: Slice) -> float:
        return 100 * (1 - sum(s.column(a, "budget")) / sum(s.column(b, "budget")))

    return Measure(f"evidence {a} spends less than {b} does", ((a, "budget"), (b, "budget")), compute, "%")


def _probe_share(method: str) -> Measure:
    def compute(s: Slice) -> float | None:
        probes = sum(s.column(method, "probe_input_bytes")) + sum(s.column(method, "probe_answer_bytes"))
        models = sum(s.column(method, "model_bytes"))
        return 100 * probes / models if models else None

    kinds = ("probe_input_bytes", "probe_answer_bytes", "model_bytes")
    return Measure(
        f"probe bytes of {method} in per cent of its model bytes", tuple((method, k) for k in kinds), compute, "%"
    )


ABSTRACT = [
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
            Printed(ratio("comm_oh", OS, "pens"), 0.5, 1, slack=0.1),
            Printed(ratio("comm_oh", OS, "pfeddst"), 0.5, 1, slack=0.1),
        ),
        All(
            Near(ratio("comm_oh", OS, "pens"), MODELS, value=0.5),
            Near(ratio("comm_oh", OS, "pfeddst"), MODELS, value=0.5),
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
