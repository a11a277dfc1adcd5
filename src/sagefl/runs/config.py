"""A run's configuration: everything that decides its result, with a description on every field.

Two runs with equal configs give equal results, and `RunConfig.digest` is the address under which a study finds a run.
How a run is carried out (engine, workers, where it is written) is not part of it: see `Execution`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..data import IID, AnchorMode, Dataset, Dirichlet, Federation, Owners, Partitioner, Shards, dataset_names
from ..errors import SageflError
from ..selection.private import RandomisedResponse
from ..selection.registry import nearest
from ..settings import option_name, parse_method
from ..streams import stream
from ..topology import Graph, GraphKind, MisbehaviourKind, build

Section = TypeVar("Section", bound=BaseModel)

__all__ = [
    "ConfigError",
    "DataConfig",
    "EvaluationConfig",
    "Execution",
    "MethodConfig",
    "ModelConfig",
    "NetworkConfig",
    "PrivacyConfig",
    "RunConfig",
    "TopologyConfig",
    "TrainingConfig",
    "checked",
    "merged",
    "method_config",
    "method_label",
    "read_toml",
]


class ConfigError(SageflError, ValueError):
    """A config that does not fit, said field by field."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DataConfig(_Section):
    """Which samples, dealt how."""

    dataset: str = Field(
        default="fmnist-mini", description=f"{', '.join(dataset_names())}, FILE.npz, module:function or hf:NAME"
    )
    partition: Literal["dirichlet", "shards", "iid", "owners"] = Field(
        default="dirichlet", description="how the training split is dealt; owners: as the data themselves say"
    )
    alpha: float = Field(default=0.1, gt=0, description="Dirichlet concentration: smaller is more heterogeneous")
    min_samples: int = Field(
        default=10,
        ge=3,
        description="redraw the Dirichlet partition until every client has this many; owners with fewer take no part",
    )
    shards: int = Field(default=2, ge=1, description="label shards per client (partition = shards)")
    anchor: float = Field(default=0.1, gt=0, lt=1, description="share of a client's samples held out as anchors")
    eval: float = Field(default=0.1, gt=0, lt=1, description="share of a client's samples held out for evaluation")
    anchor_order: AnchorMode = Field(default="shuffle", description="reshuffle the anchor pool every round, or not")

    def partitioner(self, dataset: Dataset) -> Partitioner:
        """How this data set is dealt to clients."""
        if self.partition == "owners":
            if dataset.owners is None:
                raise ConfigError(
                    f"data.partition = owners, but {dataset.name} does not say whose its samples are: give an array "
                    "`owners` beside the four, or deal it with dirichlet, shards or iid"
                )
            return Owners(dataset.owners, self.min_samples)
        if self.partition == "dirichlet":
            return Dirichlet(self.alpha, self.min_samples)
        return Shards(self.shards) if self.partition == "shards" else IID()

    def federation(self, dataset: Dataset, clients: int, seed: int) -> Federation:
        """The data set dealt to clients, each part with its three roles."""
        return Federation.build(dataset, self.partitioner(dataset), clients, seed, self.anchor, self.eval)


class TopologyConfig(_Section):
    """Who is whose neighbour."""

    kind: GraphKind = Field(default="er", description="graph family")
    p: float | None = Field(
        default=None, ge=0, le=1, description="edge probability (er, default .15) or rewiring (ws, default .1)"
    )
    degree: float | None = Field(default=None, gt=0, description="mean degree instead of p (er)")
    m: int | None = Field(default=None, ge=1, description="edges per new node (ba, default 3)")
    k: int | None = Field(default=None, ge=1, description="degree (regular, ws; default 4)")
    file: str | None = Field(default=None, description="edge list, one pair per line (kind = file)")
    seed: int | None = Field(default=None, ge=0, description="graph seed; default: the run's seed")

    def graph(self, clients: int, seed: int) -> Graph:
        """The graph of a run with this seed."""
        options = {"p": self.p, "degree": self.degree, "m": self.m, "k": self.k, "path": self.file}
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        return build(self.kind, clients, seed if self.seed is None else self.seed, **given)


class NetworkConfig(_Section):
    """What the network does to messages and who misbehaves."""

    available: float = Field(default=1.0, gt=0, le=1, description="probability that a client is reachable in a round")
    trace: str | None = Field(default=None, description="availability trace: a 0/1 line per round, a column per client")
    drop: float = Field(default=0.0, ge=0, le=1, description="probability that a link fails in a round")
    delay: float = Field(default=0.0, ge=0, le=1, description="probability that a link answers from an older snapshot")
    max_delay: int = Field(default=1, ge=1, description="how many rounds old such a snapshot can be")
    misbehaviour: MisbehaviourKind = Field(default="none", description="what misbehaving peers do")
    misbehaving: float = Field(default=0.0, ge=0, le=1, description="share of clients that misbehave")


class ModelConfig(_Section):
    """What clients train."""

    name: str = Field(
        default="encoder-decoder",
        description="encoder-decoder, mlp, one that an installed package adds, or module:callable",
    )
    shared: tuple[str, ...] | None = Field(
        default=None, description="name prefixes of the shared parameters; default: the model's own"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keyword options of the model")


class TrainingConfig(_Section):
    """How clients train and mix."""

    learning_rate: float = Field(default=1e-3, gt=0, description="the optimiser's step size")
    batch_size: int = Field(default=64, ge=1, description="mini-batch size")
    epochs: int = Field(default=1, ge=1, description="local epochs a round")
    max_batches: int | None = Field(
        default=None, ge=1, description="cap on mini-batches per epoch; none: the whole epoch"
    )
    reset_optimizer: bool = Field(default=False, description="forget moments and momentum every round")
    mixing: float = Field(default=0.5, ge=0, le=1, description="weight of a pulled peer (alpha_mix)")
    optimizer: Literal["adam", "sgd"] = Field(default="adam", description="what takes the steps")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(default=0.0, ge=0, description="times the weights is added to the gradient")

    @model_validator(mode="after")
    def _fits(self) -> TrainingConfig:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError("training.momentum is SGD's: set training.optimizer = sgd, or leave it out")
        return self


LATER_IN_TRAINING = ("optimizer", "momentum", "weight_decay")


class MethodConfig(_Section):
    """The method under test."""

    id: str = Field(default="sage-os", description="method id; `sagefl methods` lists them")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the method")

    @field_validator("options")
    @classmethod
    def _words(cls, options: dict[str, Any]) -> dict[str, Any]:
        """By their true names; TOML knows no null and would lose it: the option value none is a word."""
        return {option_name(name): "none" if value is None else value for name, value in options.items()}


class EvaluationConfig(_Section):
    """When and on what accuracy is measured, and what is recorded."""

    every: int = Field(default=10, ge=1, description="evaluate every so many rounds; the last round always")
    subset: int = Field(
        default=2000, ge=0, description="test images used along the way (0: all); the last round uses all"
    )
    mechanisms: bool = Field(
        default=True, description="measure pull concentration, diversity and proxy quality at evaluations"
    )
    losses: Literal["asked", "full", "none"] = Field(
        default="asked", description="record probe losses: those asked, all up to the largest stage, or none"
    )

    def test_subset(self, total: int, seed: int, *, last: bool) -> npt.NDArray[np.int64]:
        """The test samples an evaluation uses: a fixed, evenly spread subset along the way, all at the end."""
        if last or self.subset == 0 or self.subset >= total:
            return np.arange(total)
        return np.sort(stream(seed, "test-subset").choice(total, self.subset, replace=False))


class PrivacyConfig(_Section):
    """How peers perturb the labels they answer with; the audit's risks and advantages are then of what was told."""

    epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="privacy loss of one answer; none: peers answer plainly"
    )
    mechanism: Literal["k-rr", "bitwise"] = Field(
        default="k-rr", description="randomised response over the classes, or on every bit of the one-hot label"
    )

    def response(self, classes: int) -> RandomisedResponse | None:
        """How peers perturb their labels, or None where they answer plainly."""
        return None if self.epsilon is None else RandomisedResponse(self.epsilon, classes, self.mechanism)


class RunConfig(_Section):
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

    @model_validator(mode="after")
    def _fits(self) -> RunConfig:
        if self.topology.kind == "file" and not self.topology.file:
            raise ValueError("topology.kind = file needs topology.file")
        return self

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> RunConfig:
        """A config from plain values; every mistake is named, unknown keys with the nearest known one."""
        return checked(cls, document)

    @classmethod
    def read(cls, path: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
        """A config from a TOML file; `overrides` (nested) win."""
        return cls.parse(merged(read_toml(path), overrides or {}))

    def to_toml(self) -> str:
        """The full resolved config; fields without a value are left out."""
        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))

    @property
    def digest(self) -> str:
        """The address of this run: a hash of everything that decides its result."""
        return self._hashed("run", set())

    @property
    def world_digest(self) -> str:
        """As `digest`, the method left out: runs with equal worlds can be compared."""
        return self._hashed("world", {"method"})

    def _hashed(self, what: str, without: set[str]) -> str:
        """Fields added later enter the hash only when they are set, so that older runs keep their addresses."""
        values = self.model_dump(mode="json", exclude=without)
        if self.privacy.epsilon is None:
            del values["privacy"]
        for name in LATER_IN_TRAINING:
            if values["training"][name] == TrainingConfig.model_fields[name].default:
                del values["training"][name]
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(f"sagefl-{what}-1 {text}".encode()).hexdigest()[:16]


class Execution(_Section):
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
        default=None, description="where stacked work is done: cpu, cuda, cuda:1, mps; default: an accelerator if any"
    )
    ray_address: str | None = Field(
        default=None,
        description="Ray cluster to join (ray): HOST:PORT, auto or local; default: one that is found, else a local one",
    )
    checkpoint_every: int = Field(default=10, ge=1, description="rounds between checkpoints")


def checked(cls: type[Section], document: Mapping[str, Any]) -> Section:
    """A validated section; every mistake is named."""
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        raise ConfigError("\n".join(_mistakes(cls, error))) from None


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


def _mistakes(cls: type[BaseModel], error: ValidationError) -> Iterator[str]:
    for item in error.errors():
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _fields_at(cls, item["loc"][:-1])
            close = nearest(str(item["loc"][-1]), known)
            option = not close and len(item["loc"]) == 1 and "method" in known
            also = f"; an option of the method is method.options.{path}" if option else ""
            yield f"unknown key {path!r}{close}; known here: {', '.join(known)}{also}"
        else:
            got = "" if isinstance(item["input"], dict) else f", got {item['input']!r}"
            yield f"{path or 'config'}: {item['msg']}{got}"


def _fields_at(cls: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    for part in path:
        inner = cls.model_fields[str(part)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        cls = inner
    return list(cls.model_fields)
