"""`sagefl regret`: each stopping rule's distance from optimal stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from ..selection.theory import DELTA, PROBE_COST
from .common import console, friendly_errors, table

if TYPE_CHECKING:
    from ..selection.bellman import Prior
    from ..study.regret import RegretReport


def regret(
    probe_cost: Annotated[
        float, typer.Option("--lambda", help="Price of one anchor-peer evaluation in risk units.")
    ] = PROBE_COST,
    prior: Annotated[
        str, typer.Option(help="Dirichlet pseudo-counts of a win, a loss and a concordant anchor for the first peer.")
    ] = "1,1,2",
    delta: Annotated[float, typer.Option(help="Failure probability of a decision.")] = DELTA,
    decisions: Annotated[int, typer.Option(help="Simulated decisions; more make narrower intervals.")] = 400,
    seed: Annotated[int, typer.Option(help="Seed of the simulated worlds.")] = 0,
) -> None:
    """Expected cost of every stopping rule against exact optimal stopping, for two neighbours."""
    from ..study.regret import measure_regret

    with friendly_errors():
        report = measure_regret(_prior(prior), probe_cost, delta, decisions, seed)
    _print(report)


def _prior(text: str) -> Prior:
    from ..selection.bellman import Prior

    try:
        win, loss, concordant = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--prior takes three numbers win,loss,concordant, got {text!r}") from None
    return Prior(win, loss, concordant)


def _print(report: RegretReport) -> None:
    out, prior = console(), report.prior
    out.print(
        f"Two neighbours, up to 128 anchors; prior Dirichlet({prior.win:g}, {prior.loss:g}, {prior.concordant:g}) on "
        f"(win, loss, concordant), lambda {report.probe_cost:g}, delta {report.delta:g}"
    )
    out.print("Cost = risk taken - gossip's risk + lambda per evaluation; below 0 deciding pays.")
    out.print()
    head = ("rule", "taken", "evaluations", "cost", "above certified", "above free")
    rows: list[tuple[str, ...]] = [
        ("optimal stopping, free", "", "", f"{report.unconstrained_cost:+.4f} exactly", "", ""),
        ("optimal stopping, certified peers only", "", "", f"{report.certified_cost:+.4f} exactly", "", ""),
    ]
    for rule in sorted(report.rules, key=lambda r: r.cost):
        distances = (rule.cost - report.certified_cost, rule.cost - report.unconstrained_cost)
        words = (rule.label, f"{rule.taken:.1%}", f"{rule.evaluations:.1f}", f"{rule.cost:+.4f} ± {rule.error:.4f}")
        rows.append((*words, *(f"{d:+.4f}" for d in distances)))
    out.print(table(head, rows, left=("rule",)))
    out.print()
    out.print(f"Means over the same {report.decisions} simulated decisions, with paired 95 % intervals.")
    out.print("aq-128 and sage-e-vanilla may take peers that the betting certificate does not cover.")
