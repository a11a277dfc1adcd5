"""`sagefl node` and `sagefl swarm`: real peers on the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..settings import nested, parse_options
from .common import Group, console, fail, friendly_errors, number, table

group = typer.Typer(cls=Group, help="A real peer: identities, running, status.", no_args_is_help=True)


@group.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The federation's folder; its authority is created if there is none.")],
    names: Annotated[list[str], typer.Argument(help="Nodes to make identities for: a-z, 0-9 and hyphens.")],
    days: Annotated[float, typer.Option(min=0, help="How long the certificates are valid.")] = 365,
) -> None:
    """Make a federation's certificate authority and an identity for each node, for a federation without a keeper."""
    with friendly_errors():
        from ..node.errors import NodeError
        from ..node.identity import Authority, check_name, fingerprint

        for name in names:
            check_name(name)
        if (folder / "roster.json").is_file():
            way = f"sagefl node invite {folder} {names[0]}"
            raise NodeError(f"{folder} has a keeper, who would not know {names[0]}: {way} lets it in")
        home = folder / "authority"
        authority = Authority(home) if (home / "ca.key").exists() else Authority.create(home)
        out = console()
        for name in names:
            made = authority.issue(name, folder / name, days)
            out.print(f"{folder / name}  key {fingerprint(made)}")
        out.print(f"Copy each folder to its node (identity = ...). Keep {home} off the nodes: it can make members.")


@group.command()
def keep(
    folder: Annotated[
        Path, typer.Argument(help="The federation's folder; made if there is none. It can make members.")
    ],
    listen: Annotated[str, typer.Option(help="host:port to serve on.")] = "127.0.0.1:7440",
    address: Annotated[
        str | None, typer.Option(help="host:port where members reach it; default: as it listens.")
    ] = None,
    degree: Annotated[int | None, typer.Option(min=1, help="Neighbours of each member; default: 4.")] = None,
    members_invite: Annotated[bool, typer.Option("--members-invite", help="Let members make tickets, too.")] = False,
) -> None:
    """Keep a federation people can join: sign who has a ticket, and tell members who their neighbours are."""
    with friendly_errors():
        from ..node.keeper import run_keeper

        run_keeper(folder, listen, address, degree, invites=members_invite)


@group.command()
def invite(
    where: Annotated[Path, typer.Argument(help="The federation's folder, or the config of a member.")],
    name: Annotated[str, typer.Argument(help="The new member: a-z, 0-9 and hyphens.")],
    minutes: Annotated[float, typer.Option(help="How long the ticket is good for.")] = 60.0,
) -> None:
    """Print a ticket, with which one machine can join once."""
    with friendly_errors():
        if where.is_dir():
            from ..node.registry import Registry

            ticket = str(Registry(where).invite(name, minutes))
        else:
            from ..node.config import NodeConfig
            from ..node.joining import kept_by

            ticket = kept_by(NodeConfig.read(where)).invite(name, minutes)
    typer.echo(ticket)


@group.command()
def join(
    ticket: Annotated[str, typer.Argument(help="As sagefl node invite printed it.")],
    folder: Annotated[Path | None, typer.Option(help="For the node's config and identity; default: its name.")] = None,
    listen: Annotated[str, typer.Option(help="host:port to serve on.")] = "127.0.0.1:7443",
    address: Annotated[
        str | None, typer.Option(help="host:port where others reach it; default: as it listens.")
    ] = None,
) -> None:
    """Join a federation: make a key here, have it signed, and get the first neighbours."""
    with friendly_errors():
        from ..node.joining import join, kept_members

        made, home = join(ticket, folder, listen, address)
        around = ", ".join(kept_members(home / "identity")[0]) or "nobody yet"
    out = console()
    out.print(f"{made.name} is member {made.number}; its neighbours: {around}")
    out.print(f"Put your data and model into {home / 'node.toml'}, then: sagefl node run {home / 'node.toml'}")


@group.command()
def leave(
    config: Annotated[Path, typer.Argument(help="The node's TOML config.")],
) -> None:
    """Leave a federation: the certificate is revoked, and the neighbours hear of it."""
    with friendly_errors():
        from ..node.config import NodeConfig
        from ..node.joining import kept_by

        found = NodeConfig.read(config)
        kept_by(found).leave()
    console().print(f"{found.name} is a member no longer; its neighbours hear of it within seconds.")


@group.command()
def revoke(
    folder: Annotated[Path, typer.Argument(help="The federation's folder.")],
    names: Annotated[list[str], typer.Argument(help="Nodes whose certificates are no longer accepted.")],
) -> None:
    """Put nodes on the revocation list."""
    with friendly_errors():
        from ..node.identity import Authority, certificate_in
        from ..node.registry import Registry

        if (folder / "roster.json").is_file():
            for name in names:
                Registry(folder).dismiss(name)
            console().print("Revoked; members hear of it from the keeper within seconds.")
            return
        authority = Authority(folder / "authority")
        listed = folder / "authority" / "revoked.pem"
        for name in names:
            authority.revoke(certificate_in(folder / name / "node.pem"))
        console().print(f"Copy {listed} over revoked.pem in every node's identity folder; running nodes read it anew.")


@group.command()
def run(
    config: Annotated[Path, typer.Argument(help="The node's TOML config.")],
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS; loopback addresses only.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or mps, whatever the config says.")] = None,
) -> None:
    """Run a node until its last round, or until it is stopped; a stopped node continues where it was."""
    with friendly_errors():
        from ..node.running import run_node

        status = run_node(config, insecure=insecure, device=device)
    raise typer.Exit(status)


@group.command()
def status(
    where: Annotated[Path, typer.Argument(help="The node's config or its run directory.")],
    json_: Annotated[bool, typer.Option("--json", help="The whole status as JSON.")] = False,
) -> None:
    """Say what a node is doing: round, accuracy, last decision, events, privacy account."""
    import json

    with friendly_errors():
        from ..node.config import NodeConfig
        from ..node.status import read_status

        directory = where if where.is_dir() else Path(NodeConfig.read(where).directory)
        found = read_status(directory)
    if json_:
        typer.echo(json.dumps(found, indent=1))
        return
    for line in _status_lines(found):
        typer.echo(line)


@group.command()
def renew(
    folder: Annotated[Path, typer.Argument(help="The federation's folder.")],
    names: Annotated[list[str], typer.Argument(help="Nodes whose certificates get a new term.")],
    days: Annotated[float, typer.Option(min=0, help="How long the new certificates are valid.")] = 365,
) -> None:
    """Give nodes new certificates for the keys they have."""
    with friendly_errors():
        from ..node.errors import NodeError
        from ..node.identity import Authority

        if (folder / "roster.json").is_file() and not (folder / names[0]).is_dir():
            raise NodeError("nodes that joined by ticket renew their certificates themselves, in the last 30 days")
        authority = Authority(folder / "authority")
        for name in names:
            made = authority.renew(folder / name, days)
            console().print(f"{folder / name / 'node.pem'}  until {made.not_valid_after_utc:%F}")
        console().print("Copy each node.pem over the one in its node's identity folder; running nodes read it anew.")


@group.command()
def health(
    config: Annotated[Path, typer.Argument(help="The node's TOML config.")],
    live: Annotated[bool, typer.Option("--live", help="Whether it runs at all, not whether it is ready.")] = False,
) -> None:
    """Ask a running node by its health service, with its own certificate; exit status 0 if it is ready, else 1."""
    with friendly_errors():
        from ..node.client import ask_health
        from ..node.config import NodeConfig

        answer = ask_health(NodeConfig.read(config), "live" if live else "ready")
    typer.echo(answer)
    raise typer.Exit(0 if answer == "serving" else 1)


@group.command()
def verify(
    where: Annotated[Path, typer.Argument(help="The node's config or its run directory.")],
) -> None:
    """Check a node's audit log: the chain of its hashes, and every recorded decision against it."""
    with friendly_errors():
        from ..node.audit import heads, verify
        from ..node.config import NodeConfig

        directory = where if where.is_dir() else Path(NodeConfig.read(where).directory)
        rounds, wrong = verify(directory, heads(directory))
    for line in wrong:
        typer.echo(line)
    typer.echo(f"{rounds} rounds, {len(wrong)} found wrong" if wrong else f"{rounds} rounds, all as they were recorded")
    raise typer.Exit(1 if wrong else 0)


@group.command("config")
def config_() -> None:
    """Print a node's config as a TOML file to edit: every key with its meaning, default and choices."""
    with friendly_errors():
        from ..node.config import NodeConfig
        from ..runs.schema import template

        typer.echo(template(NodeConfig), nl=False)


def swarm(
    nodes: Annotated[int, typer.Option(min=2, help="Number of node processes.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds each node trains.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Folder for configs, identities and runs.")] = None,
    method: Annotated[str, typer.Option(help="Method, with options as id:name=value:...")] = "sage-m",
    alpha: Annotated[float, typer.Option(help="Dirichlet concentration of the data.")] = 0.3,
    degree: Annotated[int, typer.Option(min=1, help="Neighbours of each node.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    minutes: Annotated[float, typer.Option(help="Give up after this long.")] = 15.0,
    device: Annotated[str, typer.Option(help="Where nodes train and answer: cpu, cuda, mps.")] = "cpu",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any node config key, section.key=value.")
    ] = None,
) -> None:
    """Start real nodes on this machine, with identities and mutual TLS, and watch them learn from each other."""
    with friendly_errors():
        from ..node.swarm import Swarm
        from ..runs.config import merged, method_config

        folder = out or Path("runs") / time.strftime("swarm-%Y%m%d-%H%M%S")
        base: dict[str, Any] = {"rounds": rounds, "device": device, "data": {"alpha": alpha}}
        base["method"] = method_config(method)
        made = Swarm(folder, nodes, merged(base, nested(parse_options(set_ or []))), degree, seed)
        shown = console()
        try:
            with made, _view(shown, rounds) as show:
                shown.print(f"{nodes} nodes, {rounds} rounds, {method}; mutual TLS on 127.0.0.1; files in {folder}")
                made.watch(show, 60 * minutes)
        except KeyboardInterrupt:
            fail(f"stopped; every node left a checkpoint in {folder}/nodes")
        summary = made.merge()
    _print_end(folder, summary)


# How it looks -----------------------------------------------------------------------------------------------------


def _status_lines(found: Mapping[str, Any]) -> list[str]:
    last = found.get("last") or {}
    state = found["phase"] if found["running"] or found["phase"] == "stopped" else "not running (ended without notice)"
    lines = [
        f"{found['name']}: {state}, round {found['round']} of {found['rounds']}, {found['age']:.0f} s ago",
        f"serving on port {found['port']}; metrics on port {found['metrics_port'] or '-'}",
    ]
    if last:
        lines.append(f"last decision: {_decision(last)}; {_told(last)}")
    if privacy := found.get("privacy"):
        lines.append(
            f"privacy: epsilon {privacy['per_answer']:g} an answer, {privacy['total']:g} in all, "
            f"{privacy['worst']:g} towards the neighbour who asked most"
        )
    lines.append("events: " + (", ".join(f"{k} {v}" for k, v in found["events"].items()) or "none"))
    return lines


class _view:  # noqa: N801 (used like a function)
    """A live table on a terminal, a line per node and round elsewhere."""

    def __init__(self, out: Any, rounds: int) -> None:
        self.out, self.rounds = out, rounds
        self._seen: dict[str, int] = {}
        self._live: Any = None

    def __enter__(self) -> Callable[[Mapping[str, dict[str, Any] | None]], None]:
        if self.out.is_terminal:
            from rich.live import Live

            self._live = Live(console=self.out, refresh_per_second=4)
            self._live.start()
        return self._show

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _show(self, statuses: Mapping[str, dict[str, Any] | None]) -> None:
        if self._live is not None:
            head = ("node", "round", "measured", "decision", "neighbours", "bytes")
            self._live.update(table(head, [_row(n, s) for n, s in statuses.items()], ("node", "decision")))
            return
        for name, status in statuses.items():
            if status is not None and status["round"] > self._seen.get(name, 0):
                self._seen[name] = status["round"]
                _, round, measured, decision, degree, size = _row(name, status)
                self.out.print(
                    f"{name}: round {round}/{self.rounds}  {measured}  {decision}  {degree} neighbours  {size}"
                )


def _row(name: str, status: Mapping[str, Any] | None) -> tuple[str, ...]:
    last = (status or {}).get("last") or {}
    if not status or not last:
        return name, "starting", "", "", "", ""
    size = f"{last['wire_bytes'] / 1024:.0f} kB"
    return name, str(status["round"]), _told(last), _decision(last), str(last["degree"]), size


def _told(last: Mapping[str, Any]) -> str:
    """How good the model was, where the last round measured it."""
    lead = "accuracy" if last.get("mae") is None else "mae"
    return f"{'accuracy' if lead == 'accuracy' else 'MAE'} {number(last.get(lead))}"


def _decision(last: Mapping[str, Any]) -> str:
    chosen = ", ".join(last.get("chosen") or ()) or "nobody"
    return f"{last.get('reason')} -> {chosen}"


def _print_end(folder: Path, summary: Mapping[str, Any]) -> None:
    out = console()
    from ..runs.columns import leading

    test, own = leading(summary)
    out.print(
        f"\n{test} {number(summary[test])}, own data {number(summary[own])}, certified "
        f"{summary['certified']:.1%}, evidence {summary['budget']:.1%} of the fixed budget, "
        f"{summary['bytes'] / 1e6:.1f} MB moved"
    )
    out.print(f"All nodes as one run: {folder / 'run'}   (look at it: sagefl view {folder / 'run'})")
    out.print(f"Each node: {folder / 'nodes'}/*/run; logs beside it")
