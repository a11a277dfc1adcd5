"""Flags that several commands take: which world, and how it is carried out. A command names the group it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from ..settings import nested, parse_options

if TYPE_CHECKING:
    from ..runs.config import Execution, RunConfig

Command = Callable[..., None]
Config = Annotated[Path | None, typer.Option("--config", help="TOML file; flags override it.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any config key, section.key=value. Repeatable.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]


def grouped(command: Command) -> Command:
    """A command whose parameters that are groups of flags appear as these flags."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    flags: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if name not in groups:
            flags.append(own.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        of_group = get_type_hints(groups[name], include_extras=True)
        for f in fields(groups[name]):
            flag = inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default)
            flags.append(flag.replace(annotation=of_group[f.name]))

    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        command(**given)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__annotations__ = {flag.name: flag.annotation for flag in flags}
    call.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    return call


@dataclass(frozen=True)
class WorldFlags:
    """The world of a run: a file, and flags on top of it."""

    config: Config = None
    dataset: Annotated[
        str | None,
        typer.Option(
            help="From `sagefl data list`, or FILE.npz, .csv, .parquet, a folder of .npy, module:function, hf:NAME."
        ),
    ] = None
    alpha: Annotated[float | None, typer.Option(help="Dirichlet concentration; smaller is more heterogeneous.")] = None
    topology: Annotated[str | None, typer.Option(help="er, ba, ring, regular, ws, torus, complete, file.")] = None
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None
    max_batches: Annotated[int | None, typer.Option(help="Cap on local mini-batches a round.")] = None
    set_: Set = None

    KEYS: ClassVar[dict[str, str]] = {
        "dataset": "data.dataset",
        "alpha": "data.alpha",
        "topology": "topology.kind",
        "clients": "clients",
        "rounds": "rounds",
        "seed": "seed",
        "max_batches": "training.max_batches",
    }

    @property
    def keys(self) -> dict[str, Any]:
        """The flags that were typed as config keys; --set can name any other key."""
        named = {key: getattr(self, name) for name, key in self.KEYS.items()}
        return nested({k: v for k, v in named.items() if v is not None} | parse_options(self.set_ or []))

    def resolve(self, method: str | None = None) -> RunConfig:
        """The config, for a method."""
        return resolve(self.config, self.keys, method)


@dataclass(frozen=True)
class MeasuredWorldFlags(WorldFlags):
    """One that is measured as it goes."""

    eval_every: Annotated[int | None, typer.Option(help="Rounds between evaluations.")] = None

    KEYS: ClassVar[dict[str, str]] = WorldFlags.KEYS | {"eval_every": "evaluation.every"}


@dataclass(frozen=True)
class How:
    """How work is carried out, whatever it is."""

    engine: Annotated[
        str, typer.Option(help="auto, sequential, processes, stacked (all clients as one batch) or ray.")
    ] = "auto"
    workers: Annotated[int | None, typer.Option(help="Worker processes; default: all cores.")] = None
    device: Annotated[
        str | None,
        typer.Option(help="Where work is done: cpu, cuda, mps; default: the CPU, or for stacked work an accelerator."),
    ] = None

    @property
    def execution(self) -> Execution:
        """As the library takes it."""
        from ..runs.config import Execution

        return Execution.parse(vars(self))


@dataclass(frozen=True)
class HowToRun(How):
    """How runs are carried out."""

    ray_address: Annotated[
        str | None, typer.Option(help="Ray cluster: HOST:PORT, auto or local (with --engine ray).")
    ] = None
    checkpoint_every: Annotated[int, typer.Option("--checkpoint-every", help="Rounds between checkpoints.")] = 10


def resolve(file: Path | None, keys: dict[str, Any], method: str | None = None) -> RunConfig:
    """The config of a file with keys on top of it, for a method."""
    from ..runs.config import RunConfig, merged, method_config

    config = RunConfig.read(file, keys) if file is not None else RunConfig.parse(keys)
    if not method:
        return config
    section = merged(method_config(method), keys.get("method", {}))  # a file's options belong to the file's method
    return RunConfig.parse(config.model_dump() | {"method": section})
