"""`sagefl decide` and `sagefl plan`: the decision core on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..settings import parse_options
from .common import console, friendly_errors

if TYPE_CHECKING:
    from ..selection import Outcome
    from ..selection.planning import Plan
    from ..selection.recorded import RecordedLosses

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    app.command()(decide)
    app.command()(plan)


def decide(
    losses: Annotated[
        Path, typer.Argument(help="Recorded losses: CSV (header = peers, a row per anchor) or NPY (peers x anchors).")
    ],
    method: Annotated[str, typer.Option(help="Selector id.")] = "sage-os",
    delta: Annotated[float | None, typer.Option(help="Failure probability of the decision.")] = None,
    probe_cost: Annotated[
        float | None, typer.Option("--lambda", help="Price of one anchor-peer evaluation in risk units.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other option of the method, name=value.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of ties and gossip draws.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as one line of JSON.")] = False,
) -> None:
    """Decide on recorded losses and say why, stage by stage."""
    from ..selection import make, replay
    from ..selection.recorded import read_losses

    with friendly_errors():
        options = parse_options(set_ or [])
        options |= {k: v for k, v in {"delta": delta, "probe_cost": probe_cost}.items() if v is not None}
        rule = make(method, **options)
        recorded = read_losses(losses)
        outcome = replay(rule, recorded.losses, seed, peers=recorded.peers)
    if json:
        typer.echo(outcome.to_json())
    else:
        _print_decision(method, recorded, outcome)


def plan(
    degree: Annotated[int, typer.Option(help="Number of active neighbours d.")] = 6,
    delta: Annotated[float, typer.Option(help="Failure probability of a decision.")] = 0.1,
    probe_cost: Annotated[
        float, typer.Option("--lambda", help="Price of one anchor-peer evaluation in risk units.")
    ] = 2e-3,
    schedule: Annotated[str, typer.Option(help="Nested anchor schedule.")] = "16,32,64,128",
    loss_bound: Annotated[float, typer.Option("--bound", help="M: losses lie in [0, M].")] = 1.0,
    radius: Annotated[str, typer.Option(help="printed | tight")] = "printed",
    cost: Annotated[str, typer.Option(help="incremental | cumulative")] = "incremental",
) -> None:
    """What each stage of SAGE-OS can and cannot decide before any evidence is bought."""
    from ..selection import SageOS
    from ..selection.planning import plan_stages

    with friendly_errors():
        stages = tuple(int(m) for m in schedule.split(","))
        options: dict[str, Any] = {"radius": radius, "cost": cost, "loss_bound": loss_bound}
        rule = SageOS(delta=delta, probe_cost=probe_cost, schedule=stages, **options)
        planned = plan_stages(rule, degree)
    _print_plan(planned)


def _print_decision(method: str, recorded: RecordedLosses, outcome: Outcome) -> None:
    from rich.table import Table

    from ..selection.explain import conclusion, stage_sentence

    out = console()
    out.print(f"{method} on {len(recorded.peers)} peers, {recorded.losses.shape[1]} anchors")
    if outcome.trace:
        table = Table(title=None, box=None, pad_edge=False, header_style="bold")
        table.add_column("anchors", justify="right")
        for peer in recorded.peers:
            table.add_column(str(peer), justify="right")
        for name in ("advantage", "gap", "needed", "next cost", "then"):
            table.add_column(name, justify="left" if name == "then" else "right")
        for stage in outcome.trace:
            numbers = (stage.advantage, stage.gap, stage.width, stage.next_cost)
            risks = [f"{risk:.3f}" for risk in stage.risks or ()]
            table.add_row(str(stage.anchors), *risks, *("" if v is None else f"{v:.3f}" for v in numbers), stage.fired)
        out.print(table)
    out.print()
    for stage in outcome.trace:
        out.print(stage_sentence(stage, recorded.peers))
    out.print(conclusion(outcome), style="bold")


def _print_plan(planned: Plan) -> None:
    from rich.table import Table

    out, rule = console(), planned.rule
    out.print(
        f"SAGE-OS at degree {planned.degree}: delta {rule.delta:g}, lambda {rule.probe_cost:g}, "
        f"losses in [0, {rule.loss_bound:g}], {rule.radius} radius, {rule.cost} cost"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "anchors",
        "evaluations",
        "radius r",
        "certify if A >",
        "possible",
        "next stage costs",
        "gossip if A <=",
    ):
        table.add_column(name, justify="right")
    for s in planned.stages:
        table.add_row(
            str(s.anchors),
            str(s.anchors * planned.degree),
            f"{s.radius:.4f}",
            f"{s.width:.4f}",
            "yes" if s.can_certify else "no",
            "-" if s.next_cost is None else f"{s.next_cost:.3f}",
            "otherwise" if s.next_cost is None else "never" if s.gossip_upto is None else f"{s.gossip_upto:.4f}",
        )
    out.print(table)
    out.print()
    for remark in planned.remarks():
        out.print(remark)
