"""`sagefl decide` and `sagefl plan`: the decision core on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from ..selection.theory import DELTA, PROBE_COST, SCHEDULE
from ..settings import parse_method, parse_options, parse_value
from .common import WIDE, console, friendly_errors, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ..selection import Outcome, Stage
    from ..selection.planning import Plan, PlannedStage
    from ..selection.recorded import RecordedLosses
    from ..selection.requests import Peer

MOST_PEERS = 8  # up to which every peer has a column


def decide(
    losses: Annotated[
        Path, typer.Argument(help="Recorded losses: CSV (header = peers, a row per anchor) or NPY (peers x anchors).")
    ],
    method: Annotated[str, typer.Option(help="Selector, with options as id:name=value:...")] = "sage-os",
    delta: Annotated[float | None, typer.Option(help="Failure probability of the decision.")] = None,
    probe_cost: Annotated[
        float | None, typer.Option("--lambda", help="Price of one anchor-peer evaluation in risk units.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other option of the method, name=value."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of ties and gossip draws.")] = 0,
    rounds: Annotated[
        int, typer.Option(min=1, help="Decide so many rounds in a row, for rules that remember; peers answer alike.")
    ] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as one line of JSON.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the decision as an HTML page.")] = None,
) -> None:
    """Decide on recorded losses and say why, stage by stage."""
    from ..selection import replay
    from ..selection.driving import replay_rounds
    from ..selection.recorded import read_losses
    from ..selection.registry import typed

    with friendly_errors():
        id, options = parse_method(method)
        options |= parse_options(set_ or [])
        options |= {k: v for k, v in {"delta": delta, "probe_cost": probe_cost}.items() if v is not None}
        rule = typed(id, options)
        recorded = read_losses(losses)
        if rounds > 1:
            outcomes = replay_rounds(rule, recorded.losses, rounds, seed, peers=recorded.peers)
        else:
            outcomes = [replay(rule, recorded.losses, seed, peers=recorded.peers)]
        if html is not None:
            from .view import write_decision

            write_decision(html, rule, recorded, seed, f"{method} on {losses.name}")
    if json:
        for outcome in outcomes:
            typer.echo(outcome.to_json())
    elif rounds > 1:
        _print_rounds(method, recorded, outcomes)
    else:
        _print_decision(method, recorded, outcomes[0])


def plan(
    degree: Annotated[int, typer.Option(help="Number of active neighbours d.")] = 6,
    delta: Annotated[float, typer.Option(help="Failure probability of a decision.")] = DELTA,
    probe_cost: Annotated[
        float | None,
        typer.Option(
            "--lambda", help="Price of one anchor-peer evaluation in risk units.", show_default=str(PROBE_COST)
        ),
    ] = None,
    schedule: Annotated[str, typer.Option(help="How many anchors each stage has seen by its end.")] = ",".join(
        map(str, SCHEDULE)
    ),
    loss_bound: Annotated[float, typer.Option("--bound", help="M: losses lie in [0, M].")] = 1.0,
    radius: Annotated[str, typer.Option(help="Certificate width: printed or tight.")] = "printed",
    cost: Annotated[str, typer.Option(help="Price of the next stage: incremental or cumulative.")] = "incremental",
    per_minute: Annotated[
        float | None, typer.Option(min=0, help="Risk that a minute of probing may cost; sets --lambda by the network.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="How fast links and peers are: equal, phones, wan, edge or a file (with --per-minute).",
            show_default="equal",
        ),
    ] = None,
    input_bytes: Annotated[
        int | None, typer.Option(min=1, help="Bytes of one anchor input (with --per-minute).", show_default="784")
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="Clients of the network (with --per-minute).", show_default="50, or a file's lines"),
    ] = None,
) -> None:
    """What each stage of SAGE-OS can and cannot decide before any evidence is bought."""
    from ..selection import SageOS
    from ..selection.planning import plan_stages
    from ..selection.registry import build

    with friendly_errors():
        stages = parse_value(schedule)
        of_time = {"--network": network, "--input-bytes": input_bytes, "--clients": clients}
        if per_minute is not None:
            if probe_cost is not None:
                raise UsageError("--lambda and --per-minute both say what an evaluation costs: give one of them")
            first = stages[0] if isinstance(stages, tuple | list) else stages
            probe_cost = _priced(per_minute, network or "equal", clients, degree, int(first), input_bytes or 784)
        elif given := [name for name, value in of_time.items() if value is not None]:
            raise UsageError(f"{given[0]} is about what a minute of probing costs: give --per-minute, too")
        probe_cost = PROBE_COST if probe_cost is None else probe_cost
        options = {"delta": delta, "probe_cost": probe_cost, "schedule": stages, "radius": radius, "cost": cost}
        planned = plan_stages(build(SageOS, options | {"loss_bound": loss_bound}), degree)
    _print_plan(planned)


def _priced(per_minute: float, name: str, clients: int | None, degree: int, anchors: int, input_bytes: int) -> float:
    """Lambda where time is what probing costs: the risk that a minute may cost times the minutes of an evaluation."""
    from ..clock.network import network

    seconds = network(name, clients, 1).evaluation_seconds(degree, anchors, input_bytes, 1)
    price = per_minute * seconds / 60
    look = seconds * anchors * degree
    console().print(
        f"On the network {name!r} a look at {anchors} anchors by {degree} peers takes {look:.2f} s, "
        f"{1e3 * seconds:.3g} ms an evaluation: at {per_minute:g} a minute, lambda = {price:.3g}"
    )
    return price


def _heading(method: str, recorded: RecordedLosses) -> str:
    peers, anchors = recorded.losses.shape
    return f"{method} on {peers} peer{'s' * (peers != 1)}, {anchors} anchor{'s' * (anchors != 1)}"


def _print_rounds(method: str, recorded: RecordedLosses, outcomes: Sequence[Outcome]) -> None:
    """A line per round: how far the proofs for and against each peer are, and what was decided."""
    from ..selection.explain import conclusion, stage_sentence

    out, peers = console(), recorded.peers
    out.print(f"{_heading(method, recorded)}, {len(outcomes)} rounds")
    rows = []
    for number, outcome in enumerate(outcomes, 1):
        last = outcome.trace[-1] if outcome.trace else None
        held = ["" if w is None else f"{w:.1f}" for w in (last and last.wealth) or [None] * len(peers)]
        rows.append([str(number), str(outcome.evaluations), *held, outcome.reason, ", ".join(map(str, outcome.peers))])
    out.print(table(["round", "asked", *map(str, peers), "then", "pull"], rows, left=("then", "pull")))
    last = outcomes[-1].trace[-1] if outcomes[-1].trace else None
    if last is not None and last.test == "memory":
        out.print(
            f"Below each peer: log-capital of the bets that it beats a random draw; {last.threshold:.2f} proves it."
        )
    out.print()
    if last is not None:
        out.print(stage_sentence(last, peers))
    out.print(conclusion(outcomes[-1]), style="bold")


def _print_decision(method: str, recorded: RecordedLosses, outcome: Outcome) -> None:
    from ..selection.explain import conclusion, stage_sentence

    out, peers = console(), recorded.peers
    out.print(_heading(method, recorded))
    if outcome.trace:
        looks = _looks(outcome.trace, peers, each=len(peers) <= MOST_PEERS)
        if out.measure(looks, options=out.options.update(max_width=WIDE)).maximum > out.width:
            looks = _looks(outcome.trace, peers, each=False)
        out.print(looks)
    out.print()
    for stage in outcome.trace:
        out.print(stage_sentence(stage, peers))
    out.print(conclusion(outcome), style="bold")


def _looks(trace: Sequence[Stage], peers: Sequence[Peer], *, each: bool) -> Table:
    """One row per look: the risk of each peer (of many, the lowest, mean and highest), then what the rule weighed."""
    risks = {str(p): [s.risks[i] if s.risks else None for s in trace] for i, p in enumerate(peers)}
    if not each:
        seen = [s.risks for s in trace]
        risks = {
            "lowest": [min(r) if r else None for r in seen],
            "mean": [sum(r) / len(r) if r else None for r in seen],
            "highest": [max(r) if r else None for r in seen],
        }
    weighed = {
        "advantage": [s.advantage for s in trace],
        "gap": [s.gap for s in trace],
        "log-wealth": [max(s.wealth) if s.wealth else None for s in trace],
        "needed": [s.threshold if s.width is None else s.width for s in trace],
        "next cost": [s.next_cost for s in trace],
    }
    used = {name: values for name, values in (risks | weighed).items() if any(v is not None for v in values)}
    rows = [
        (str(s.anchors), *("" if v[i] is None else f"{v[i]:.3f}" for v in used.values()), s.fired)
        for i, s in enumerate(trace)
    ]
    return table(("anchors", *used, "then"), rows, left=("then",))


def _print_plan(planned: Plan) -> None:
    out, rule = console(), planned.rule
    out.print(
        f"SAGE-OS at degree {planned.degree}: delta {rule.delta:g}, lambda {rule.probe_cost:g}, "
        f"losses in [0, {rule.loss_bound:g}], {rule.radius} radius, {rule.cost} cost"
    )
    head = ("anchors", "evaluations", "radius r", "certify if A >", "possible", "next stage costs", "gossip if A <=")
    out.print(table(head, [_planned_row(s, planned.degree) for s in planned.stages]))
    out.print()
    for remark in planned.remarks():
        out.print(remark)


def _planned_row(s: PlannedStage, degree: int) -> tuple[str, ...]:
    last = s.next_cost is None
    return (
        str(s.anchors),
        str(s.anchors * degree),
        f"{s.radius:.4f}",
        f"{s.width:.4f}",
        "yes" if s.can_certify else "no",
        "-" if s.next_cost is None else f"{s.next_cost:.3f}",
        "otherwise" if last else "never" if s.gossip_upto is None else f"{s.gossip_upto:.4f}",
    )
