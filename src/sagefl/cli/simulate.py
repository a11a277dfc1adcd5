"""`sagefl run`, `resume`, `compare`, `replay`, `config` and `columns`: the simulator on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..settings import nested, option_name, parse_options, parse_value, split_list
from .common import console, fail, friendly_errors, number, table
from .progress import RunProgress

if TYPE_CHECKING:
    from ..runs.config import Execution, RunConfig
    from ..runs.rundir import RunDirectory

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    for command in (run, resume, compare, replay, config, columns):
        app.command()(command)


Config = Annotated[Path | None, typer.Option("--config", help="TOML file; flags override it.")]
Dataset = Annotated[str | None, typer.Option(help="From `sagefl data list`, or FILE.npz, module:function, hf:NAME.")]
Alpha = Annotated[float | None, typer.Option(help="Dirichlet concentration; smaller is more heterogeneous.")]
Topology = Annotated[str | None, typer.Option(help="er, ba, ring, regular, ws, torus, complete, file.")]
Clients = Annotated[int | None, typer.Option(help="Number of clients.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
EvalEvery = Annotated[int | None, typer.Option(help="Rounds between evaluations.")]
MaxBatches = Annotated[int | None, typer.Option(help="Cap on local mini-batches a round.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Any config key, section.key=value. Repeatable.")]
Engine = Annotated[str, typer.Option(help="auto, sequential, processes, stacked (all clients as one batch) or ray.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes; default: all cores.")]
Device = Annotated[str | None, typer.Option(help="Where stacked work is done: cpu, cuda, mps; default: the fastest.")]
RayAddress = Annotated[str | None, typer.Option(help="Ray cluster: HOST:PORT, auto or local (with --engine ray).")]
Every = Annotated[int, typer.Option("--checkpoint-every", help="Rounds between checkpoints.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]


def run(
    config: Config = None,
    method: Annotated[str | None, typer.Option(help="Method, with options as id:name=value:...")] = None,
    dataset: Dataset = None,
    alpha: Alpha = None,
    topology: Topology = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seed: Seed = None,
    eval_every: EvalEvery = None,
    max_batches: MaxBatches = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default: runs/METHOD-…-HASH.")] = None,
    engine: Engine = "auto",
    workers: Workers = None,
    device: Device = None,
    ray_address: RayAddress = None,
    checkpoint_every: Every = 10,
    track: Annotated[list[str] | None, typer.Option(help="tensorboard, mlflow or wandb. Repeatable.")] = None,
    quiet: Quiet = False,
) -> None:
    """Train K clients over T rounds under one method; an unfinished run of the same config is continued."""
    with friendly_errors():
        flags = _flags(dataset, alpha, topology, clients, rounds, seed, eval_every, max_batches, set_)
        resolved = _resolve(config, flags, method)
        directory = out or Path("runs") / _name(resolved)
        execution = _execution(engine, workers, device, ray_address, checkpoint_every)
    _simulate(resolved, directory, execution, track or [], quiet=quiet)


def resume(
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    engine: Engine = "auto",
    workers: Workers = None,
    device: Device = None,
    ray_address: RayAddress = None,
    checkpoint_every: Every = 10,
    track: Annotated[list[str] | None, typer.Option(help="tensorboard, mlflow or wandb. Repeatable.")] = None,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run; the result is the same as if it had never stopped."""
    with friendly_errors():
        from ..runs.rundir import RunDirectory

        resolved = RunDirectory(directory).config
        execution = _execution(engine, workers, device, ray_address, checkpoint_every)
    _simulate(resolved, directory, execution, track or [], quiet=quiet)


def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Finished runs, also of a swarm: compare these and run nothing.")
    ] = None,
    methods: Annotated[str, typer.Option(help="Comma-separated methods, options as id:name=value.")] = (
        "local,rg,aq-128,sage-nf,sage-vanilla,sage-os"
    ),
    config: Config = None,
    dataset: Dataset = None,
    alpha: Alpha = None,
    topology: Topology = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seed: Seed = None,
    eval_every: EvalEvery = None,
    max_batches: MaxBatches = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs; default: runs/compare-….")] = None,
    engine: Engine = "auto",
    workers: Workers = None,
    device: Device = None,
    ray_address: RayAddress = None,
    checkpoint_every: Every = 10,
    quiet: Quiet = False,
) -> None:
    """Run several methods in the same world, or read runs that are finished, and print one table."""
    if runs:
        with friendly_errors():
            found, notes = _finished(runs)
        _print_comparison(found, *notes)
        return
    with friendly_errors():
        from ..simulation.comparing import compare as run_all
        from ..simulation.comparing import place_of

        flags = _flags(dataset, alpha, topology, clients, rounds, seed, eval_every, max_batches, set_)
        resolved = _resolve(config, flags, None)
        folder = out or Path("runs") / f"compare-{_world_name(resolved)}"
        execution = _execution(engine, workers, device, ray_address, checkpoint_every)
        shown = console()
        if not quiet:
            shown.print(_describe(resolved))
        with _interruptible():
            results = run_all(
                resolved,
                split_list(methods),
                folder,
                execution,
                lambda label: [RunProgress(label, shown, quiet=quiet)],
            )
    _print_comparison({label: place_of(folder, label) for label in results}, f"Runs are in {folder}")


def _finished(runs: Sequence[Path]) -> tuple[dict[str, RunDirectory], list[str]]:
    """Finished runs by names that tell them apart, and notes for the reader of the table."""
    from ..runs.config import method_label
    from ..runs.rundir import RunDirectory

    directories = [RunDirectory(path) for path in runs]
    configs = [directory.config for directory in directories]
    labels = [method_label(config.method.model_dump()) for config in configs]
    found: dict[str, RunDirectory] = {}
    for directory, label in zip(directories, labels, strict=True):
        if directory.summary is None:
            raise UsageError(f"{directory.path} is not finished: `sagefl resume {directory.path}` continues it")
        found[label if labels.count(label) == 1 else f"{label} ({directory.path})"] = directory
    notes = []
    if len({config.world_digest for config in configs}) > 1:
        notes.append("These runs differ in more than their method (data, graph, scale or seed): compare with care.")
    return found, notes


def replay(
    directory: Annotated[Path, typer.Argument(help="A run directory with recorded losses.")],
    method: Annotated[str, typer.Option(help="Rule, with options as id:name=value:...")] = "sage-os",
    lambda_: Annotated[str | None, typer.Option("--lambda", help="Prices to sweep, e.g. 0,5e-4,2e-3.")] = None,
    delta: Annotated[str | None, typer.Option(help="Failure probabilities to sweep, e.g. .05,.1.")] = None,
    sweep: Annotated[list[str] | None, typer.Option(help="Any option to sweep, name=v1,v2. Repeatable.")] = None,
) -> None:
    """Try other rules on recorded losses: sweep their options without training again."""
    with friendly_errors():
        from ..runs.config import method_config
        from ..runs.replaying import replay_run
        from ..runs.rundir import RunDirectory
        from ..selection import make

        axes: dict[str, list[Any]] = {}
        for name, text in (("probe_cost", lambda_), ("delta", delta), *(_axis(s) for s in sweep or [])):
            if text is not None:
                axes[name] = [parse_value(v) for v in split_list(text)]
        section = method_config(method)
        rules = []
        for values in product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            label = " ".join(
                [method, *(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in point.items())]
            )
            rules.append((label, make(section["id"], **(section["options"] | point))))
        results = replay_run(RunDirectory(directory), rules)
    _print_replay(results)


def config(
    file: Config = None,
    set_: Set = None,
) -> None:
    """Print the resolved config as TOML; without arguments, a file to edit with every key, its meaning and choices."""
    with friendly_errors():
        from ..runs.config import RunConfig
        from ..runs.schema import template

        if file is None and not set_:
            typer.echo(template(RunConfig), nl=False)
        else:
            typer.echo(_resolve(file, nested(parse_options(set_ or [])), None).to_toml())


def columns(
    only: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="metrics, decisions, clients, timings.")] = None,
) -> None:
    """Print what the tables of a run hold: every column with its type, unit and meaning."""
    from ..runs.columns import TABLES, WRITERS
    from ..runs.columns import columns as columns_of

    if only is not None and only not in TABLES:
        fail(f"there is no table {only!r}: {', '.join(TABLES)}")
    out, head = console(), ("column", "type", "unit", "meaning")
    for name in TABLES if only is None else (only,):
        rows = [(c.name, str(c.dtype), c.unit, c.explained) for c in columns_of(name, *WRITERS)]
        out.print(f"{name}.parquet: {TABLES[name]}", table(head, rows, left=head), "", sep="\n")


# Steps ------------------------------------------------------------------------------------------------------------


def _simulate(resolved: RunConfig, directory: Path, execution: Execution, track: Sequence[str], *, quiet: bool) -> None:
    from ..runs.rundir import RunDirectory
    from ..simulation.simulator import Simulator
    from ..simulation.trackers import make_tracker

    out = console()
    target = RunDirectory(directory)
    with friendly_errors():
        target.check(resolved)  # the run creates it, once nothing else can go wrong
        if target.summary is not None:
            out.print(f"{directory} is already finished:")
            _print_comparison({resolved.method.id: target}, f"Runs are in {directory}")
            return
        if not quiet:
            out.print(_describe(resolved))
        trackers = [make_tracker(name, directory) for name in track]
        callbacks = [RunProgress(resolved.method.id, out, quiet=quiet), *trackers]
        simulator = Simulator(resolved, target, execution, callbacks=callbacks)
    with _interruptible():
        simulator.run()
    _print_comparison({resolved.method.id: target}, f"Runs are in {directory}")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Report a run that was stopped as a shell reports Ctrl-C, and a user's mistake in one line."""
    from ..simulation.simulator import InterruptedRunError

    with friendly_errors():
        try:
            yield
        except InterruptedRunError as error:
            fail(str(error), code=130)


def _flags(
    dataset: str | None,
    alpha: float | None,
    topology: str | None,
    clients: int | None,
    rounds: int | None,
    seed: int | None,
    eval_every: int | None,
    max_batches: int | None,
    set_: list[str] | None,
) -> dict[str, Any]:
    """The common flags as config keys; --set can name any other key."""
    given = {
        "data.dataset": dataset,
        "data.alpha": alpha,
        "topology.kind": topology,
        "clients": clients,
        "rounds": rounds,
        "seed": seed,
        "evaluation.every": eval_every,
        "training.max_batches": max_batches,
    }
    return nested({k: v for k, v in given.items() if v is not None} | parse_options(set_ or []))


def _resolve(file: Path | None, flags: Mapping[str, Any], method: str | None) -> RunConfig:
    from ..runs.config import RunConfig, merged, method_config

    config = RunConfig.read(file, flags) if file is not None else RunConfig.parse(flags)
    if not method:
        return config
    section = merged(method_config(method), flags.get("method", {}))  # a file's options belong to the file's method
    return RunConfig.parse(config.model_dump() | {"method": section})


def _execution(
    engine: str, workers: int | None, device: str | None, ray_address: str | None, checkpoint_every: int
) -> Execution:
    from ..runs.config import Execution, checked

    given = {"engine": engine, "workers": workers, "device": device, "ray_address": ray_address}
    return checked(Execution, given | {"checkpoint_every": checkpoint_every})


def _axis(text: str) -> tuple[str, str]:
    name, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"a sweep is written name=v1,v2, got {text!r}")
    return option_name(name), values


def _world_name(c: RunConfig) -> str:
    data = Path(c.data.dataset).stem.replace(":", "_")
    spread = f"a{c.data.alpha:g}" if c.data.partition == "dirichlet" else c.data.partition
    return f"{data}-{c.topology.kind}-{spread}-K{c.clients}-T{c.rounds}-s{c.seed}-{c.world_digest[:8]}"


def _name(c: RunConfig) -> str:
    return f"{c.method.id}-{_world_name(c)}-{c.digest[:8]}"


def _describe(c: RunConfig) -> str:
    spread = f"Dirichlet({c.data.alpha:g})" if c.data.partition == "dirichlet" else c.data.partition
    return f"{c.data.dataset}, {spread}, {c.clients} clients on {c.topology.kind}, {c.rounds} rounds, seed {c.seed}"


# Tables -----------------------------------------------------------------------------------------------------------


def _print_comparison(runs: Mapping[str, RunDirectory], *notes: str) -> None:
    from ..runs.columns import known_metrics
    from ..runs.summary import gossip_share

    results = {
        label: {**(run.summary or {}), "gossip": gossip_share(run.table("decisions"))} for label, run in runs.items()
    }
    measured = [metric for metric in known_metrics() if metric.title]
    shown: list[tuple[str, Any]] = [
        *((m.title, lambda s, m=m: number(s.get(m.name), m.format)) for m in measured),
        ("certify", lambda s: f"{s['certified']:.1%}"),
        ("gossip", lambda s: f"{s['gossip']:.1%}"),
        ("evidence", lambda s: f"{s['budget']:.1%}"),
        ("probes MB", lambda s: f"{(s['probe_input_bytes'] + s['probe_answer_bytes']) / 1e6:.1f}"),
        ("models MB", lambda s: f"{s['model_bytes'] / 1e6:.1f}"),
    ]
    rows = [(label, *(show(summary) for _, show in shown)) for label, summary in results.items()]
    out = console()
    names = [name.replace(" ", "\n") if out.is_terminal else name for name, _ in shown]
    made = table(("method", *names), rows, left=("method",))
    made.padding = (0, 1, 0, 0)  # so that it fits eighty columns
    out.print()
    out.print(made)
    meanings = "; ".join(f"{metric.title}: {metric.meaning}" for metric in measured)
    rest = (
        "certify, gossip: shares of decisions, the rest committed uncertified or exchanged nothing; evidence: share "
        "of a fixed budget of 128 anchors per neighbour."
    )
    out.print("\n" + fill(f"{meanings}; {rest}", 110))
    for note in notes:
        out.print(note)


def _print_replay(results: Sequence[Any]) -> None:
    ends = ("certified", "committed", "cost", "exhausted", "no anchors", "unasked")
    head = ("rule", "covered", *ends, "evaluations", "evidence")
    rows = []
    for r in results:
        shares = (r.covered, r.certified, r.committed, r.cost, r.exhausted, r.no_anchors, r.unasked)
        rows.append((r.label, *(f"{v:.1%}" for v in shares), f"{r.evaluations:.1f}", f"{r.budget:.1%}"))
    out = console()
    out.print(f"{results[0].decisions} recorded decisions")
    out.print(table(head, rows, left=("rule",)))
    if any(r.covered < 1 for r in results):
        out.print(
            "\ncovered: decisions whose evidence was recorded; the others asked for more and are left out. The shares\n"
            "are of the covered decisions, which are those that end early, and not of all: compare rows at equal\n"
            "coverage only, and record everything with --set evaluation.losses=full."
        )
