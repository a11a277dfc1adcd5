"""A run's configuration: everything that decides its result, with a description on every field.

Two runs with equal configs give equal results, and `RunConfig.digest` is the address under which a study finds a run.
How a run is carried out (engine, workers, where it is written) is not part of it: see `Execution`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field, model_validator

from ..data import Dataset, Dealt, Owners, WorldKind, deal
from ..settings import flat, parse_method
from ..streams import stream
from ..topology import Graph
from .sections import (
    ClockConfig,
    ConfigError,
    ConfigSection,
    DataConfig,
    EvaluationConfig,
    MethodConfig,
    ModelConfig,
    NetworkConfig,
    PrivacyConfig,
    TopologyConfig,
    TrainingConfig,
    WorldConfig,
)

LATER_IN_TRAINING = ("optimizer", "momentum", "weight_decay", "precision")
LATER: dict[str, tuple[str, ...]] = {
    "network": ("stale", "churn"),
    "world": tuple(WorldConfig.model_fields),
    "clock": tuple(ClockConfig.model_fields),
    "data": ("task", "clip", "loss", "loss_max"),
    "model": ("buffers",),
    "training": ("precision",),
}
"""Fields that came after the first runs: at their defaults they are neither hashed nor written."""


class RunConfig(ConfigSection):
    """One run: a world, a method, a number of rounds."""

    clients: int = Field(default=50, ge=1, description="number of clients K")
    rounds: int = Field(default=250, ge=1, description="number of rounds T")
    seed: int = Field(default=1, ge=0, description="seed of everything random")
    data: DataConfig = DataConfig()
    topology: TopologyConfig = TopologyConfig()
    network: NetworkConfig = NetworkConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    method: MethodConfig = MethodConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    world: WorldConfig = WorldConfig()
    clock: ClockConfig = ClockConfig()

    @model_validator(mode="after")
    def _fits(self) -> RunConfig:
        self.world.check(self.clients)
        if self.topology.kind == "file" and not self.topology.file:
            raise ValueError("topology.kind = file needs topology.file")
        if self.clock.schedule != "rounds" and (given := self.network.in_rounds):
            raise ValueError(
                f"network.{given} counts in rounds, which clock.schedule = {self.clock.schedule} does not keep: leave "
                "it out, or use schedule = rounds"
            )
        return self

    @classmethod
    def read(cls, path: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
        """A config from a TOML file; `overrides` (nested) win."""
        return cls.parse(merged(read_toml(path), overrides or {}))

    def dealt(self, dataset: Dataset, graph: Graph | None = None) -> Dealt:
        """The data set as the clients of this world hold it, and the truth about them; `graph` if it is known."""
        kind, data, clients = WorldKind(**self.world.model_dump()), self.data, self.clients
        neighbours: list[list[int]] = []
        if kind.assign == "graph":
            graph = graph or self.topology.graph(clients, self.seed, self.names(dataset))
            neighbours = [graph.neighbours(client).tolist() for client in range(clients)]
        parts = (data.partitioner(dataset), clients, self.seed, data.anchor, data.eval)
        return deal(kind, dataset, *parts, neighbours)

    def names(self, dataset: Dataset) -> tuple[str, ...] | None:
        """What the clients are called, where they are owners that the data name."""
        if self.data.partition != "owners" or dataset.owner_names is None:
            return None
        dealt = self.data.partitioner(dataset)
        assert isinstance(dealt, Owners)
        return tuple(dataset.owner_names[k] for k in dealt.chosen(self.clients, stream(self.seed, "partition")))

    def to_toml(self) -> str:
        """The full resolved config; what has no value, and a world or clock that is not set, are left out."""
        return tomli_w.dumps(_without_none(self.values()))

    def values(self) -> dict[str, Any]:
        """All settings as plain values; those added later are left out while they are at their defaults."""
        return self._without_defaults(self.model_dump(mode="json"), LATER)

    def described(self, seeds: Sequence[int] = ()) -> str:
        """The world in a line."""
        c = self
        spread = f"Dirichlet({c.data.alpha:g})" if c.data.partition == "dirichlet" else c.data.partition
        groups = f" in {c.world.groups} groups by {c.world.shift}" if c.world.grouped else ""
        where = f"{c.clients} client{'s' * (c.clients != 1)}{groups} on {c.topology.kind}"
        several = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {(*seeds, c.seed)[0]}"
        return f"{c.data.dataset}, {spread}, {where}, {c.rounds} rounds, {several}"

    @property
    def code(self) -> tuple[str, ...]:
        """Whose Python code this config would import: references of the form module:name."""
        named = (self.data.dataset, self.model.name, self.data.loss or "")
        return tuple(name for name in named if ":" in name and not name.startswith("hf:"))

    @property
    def digest(self) -> str:
        """The address of this run: a hash of everything that decides its result."""
        return self._hashed("run", set())

    @property
    def world_digest(self) -> str:
        """As `digest`, the method left out: runs with equal worlds can be compared."""
        return self._hashed("world", {"method"})

    @property
    def setting_digest(self) -> str:
        """As `world_digest`, the seed left out, too: runs of one setting are replicates."""
        return self._hashed("setting", {"method", "seed"})

    def _hashed(self, what: str, without: set[str]) -> str:
        """Fields added later enter the hash only when they are set, so that older runs keep their addresses."""
        values = self.model_dump(mode="json", exclude=without)
        if self.privacy.epsilon is None:
            del values["privacy"]
        values = self._without_defaults(values, LATER | {"training": LATER_IN_TRAINING})
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(f"sagefl-{what}-1 {text}".encode()).hexdigest()[:16]

    def _without_defaults(self, values: dict[str, Any], later: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """`values` without those fields that are at their defaults, and without a world or clock that is empty then."""
        for section, names in later.items():
            fields = type(getattr(self, section)).model_fields
            for name in names:
                if getattr(getattr(self, section), name) == fields[name].default:
                    del values[section][name]
        for section in ("world", "clock"):
            if not values[section]:
                del values[section]
        return values


class Execution(ConfigSection):
    """How a run is carried out; none of it changes the result (`stacked`: beyond floating-point rounding)."""

    engine: str = Field(
        default="auto",
        description="who carries out the work: auto, sequential, processes, stacked, ray, or one of yours",
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        description="worker processes (stacked on a CPU: threads); default: the cores of this machine",
    )
    device: str | None = Field(
        default=None,
        description="where clients train and answer: cpu, cuda, cuda:1, mps (not ray); default: the CPU, or for "
        "stacked work an accelerator if there is one",
    )
    ray_address: str | None = Field(
        default=None,
        description="Ray cluster to join (ray): HOST:PORT, auto or local; default: one that is found, else a local one",
    )
    checkpoint_every: int = Field(default=10, ge=1, description="rounds between checkpoints")


def differences(there: RunConfig, here: RunConfig) -> list[str]:
    """The keys in which two configs differ, each with both values."""
    one, two = flat(there.model_dump(mode="json")), flat(here.model_dump(mode="json"))
    shown = {key: (one.get(key), two.get(key)) for key in {**one, **two}}
    return [f"{key} ({_word(a)} there, {_word(b)} here)" for key, (a, b) in shown.items() if a != b]


def _word(value: Any) -> str:
    return "not set" if value is None else str(value)


def read_toml(path: Path) -> dict[str, Any]:
    """The plain values of a config file; what is wrong with it is said in one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def method_config(spec: str) -> dict[str, Any]:
    """`sage-os:probe_cost=0:radius=tight` as the config section of a method."""
    id, options = parse_method(spec)
    return {"id": id, "options": options}


def method_label(section: Mapping[str, Any]) -> str:
    """The inverse of `method_config`, for tables and directory names."""
    return ":".join([section["id"], *(f"{k}={v}" for k, v in section["options"].items())])


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid upon `base`, section by section."""
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return result


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_none(v) for v in value]
    return value
