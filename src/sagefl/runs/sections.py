"""The sections of a run's configuration, each with its checks and what it makes: a graph, a partition, a mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..clock import NETWORKS, Network, network
from ..data import (
    IID,
    AnchorMode,
    Assign,
    DataError,
    Dataset,
    Dirichlet,
    Owners,
    Partitioner,
    Shards,
    ShiftKind,
    TaskKind,
    dataset_names,
    load,
)
from ..data.groups import apportion
from ..data.shifts import chosen
from ..errors import SageflError
from ..selection.private import RandomisedResponse
from ..selection.registry import nearest
from ..settings import option_name
from ..streams import stream
from ..topology import Graph, GraphKind, MisbehaviourKind, build
from .own_losses import own_loss


class ConfigError(SageflError, ValueError):
    """A config that does not fit, said field by field."""


class ConfigSection(BaseModel):
    """What all sections share: no unknown keys, no changes, and `none` as a word where a key knows it."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _none_is_a_word(cls, values: Any) -> Any:
        """Command lines read `none` as no value; where it is one of a key's words, the word is meant."""
        if not isinstance(values, Mapping):
            return values
        words = {n for n, f in cls.model_fields.items() if "none" in get_args(f.annotation)}
        return {k: "none" if v is None and k in words else v for k, v in values.items()}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """A section from plain values; every mistake is named, unknown keys with the nearest known one."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise ConfigError("\n".join(_mistakes(cls, error))) from None


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
            said = item["msg"].removeprefix("Value error, ")  # pydantic's words
            named = path and said.startswith((f"{path}.", f"{path}:"))
            yield f"{said}{got}" if named else f"{path or 'config'}: {said}{got}"


def _fields_at(cls: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    for part in path:
        inner = cls.model_fields[str(part)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        cls = inner
    return list(cls.model_fields)


class DataConfig(ConfigSection):
    """Which samples, dealt how."""

    dataset: str = Field(
        default="fmnist-mini",
        description=f"{', '.join(dataset_names())}, FILE.npz, .csv or .parquet, a folder of .npy files, "
        "module:function or hf:NAME",
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
    task: TaskKind | None = Field(
        default=None, description="what is learnt; default: classes from whole numbers, regression from floats"
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        description="where errors of regression are cut off for certificates; default: twice the targets' spread",
    )
    loss: str | None = Field(
        default=None,
        description="your own loss for certificates, file.py:function of predictions and targets; default: errors",
    )
    loss_max: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="the largest value of data.loss")

    @model_validator(mode="after")
    def _fits(self) -> DataConfig:
        if self.loss is None and self.loss_max != DataConfig.model_fields["loss_max"].default:
            raise ValueError("data.loss_max is the largest value of a loss of your own: set data.loss, or leave it out")
        return self

    def load(self) -> Dataset:
        """The data set, as the task that these settings make of it."""
        return self.meant(load(self.dataset))

    def meant(self, dataset: Dataset) -> Dataset:
        """A data set that is loaded already, as the task that these settings make of it."""
        made = dataset.meant_as(self.task, self.clip)
        return made if self.loss is None else replace(made, loss=own_loss(self.loss, self.loss_max))

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


class TopologyConfig(ConfigSection):
    """Who is whose neighbour."""

    kind: GraphKind = Field(default="er", description="graph family")
    p: float | None = Field(
        default=None, ge=0, le=1, description="edge probability (er, default .15) or rewiring (ws, default .1)"
    )
    degree: float | None = Field(default=None, gt=0, description="mean degree instead of p (er)")
    m: int | None = Field(default=None, ge=1, description="edges per new node (ba, default 3)")
    k: int | None = Field(default=None, ge=1, description="degree (regular, ws; default 4)")
    file: str | None = Field(default=None, description="edge list, a pair of clients or owners per line (kind = file)")
    seed: int | None = Field(default=None, ge=0, description="graph seed; default: the run's seed")

    def graph(self, clients: int, seed: int, names: Sequence[str] | None = None) -> Graph:
        """The graph of a run with this seed; `names` are the clients', by which an edge list may call them."""
        options: dict[str, Any] = {"p": self.p, "degree": self.degree, "m": self.m, "k": self.k, "path": self.file}
        options |= {"names": names} if self.kind == "file" else {}
        given = {name: value for name, value in options.items() if value is not None}
        return build(self.kind, clients, seed if self.seed is None else self.seed, **given)

    def expected_edges(self, clients: int) -> float:
        """About how many edges such a graph has; of a file nobody knows before it is read."""
        all_pairs = clients * (clients - 1) / 2
        each = {
            "er": 0.15 * clients if self.p is None else self.p * clients,
            "ba": 2 * (self.m or 3),
            "complete": clients,
        }
        degree = self.degree if self.degree is not None else each.get(self.kind, self.k or 4)
        return 0.0 if self.kind == "file" else min(all_pairs, degree * clients / 2)


class NetworkConfig(ConfigSection):
    """What the network does to messages and who misbehaves."""

    available: float = Field(default=1.0, gt=0, le=1, description="probability that a client is reachable in a round")
    trace: str | None = Field(default=None, description="availability trace: a 0/1 line per round, a column per client")
    drop: float = Field(default=0.0, ge=0, le=1, description="probability that a link fails in a round")
    delay: float = Field(default=0.0, ge=0, le=1, description="probability that a link answers from an older snapshot")
    max_delay: int = Field(default=1, ge=1, description="how many rounds old such a snapshot can be")
    misbehaviour: MisbehaviourKind = Field(default="none", description="what misbehaving peers do")
    misbehaving: float = Field(default=0.0, ge=0, le=1, description="share of clients that misbehave")
    stale: int = Field(
        default=5, ge=1, description="how many rounds old a stale peer's model is (misbehaviour = stale)"
    )
    churn: float = Field(
        default=0.0, ge=0, le=1, description="share of clients that are not there all along: half join late, half leave"
    )

    @model_validator(mode="after")
    def _fits(self) -> NetworkConfig:
        if self.stale != NetworkConfig.model_fields["stale"].default and self.misbehaviour != "stale":
            raise ValueError("network.stale is about stale peers: set network.misbehaviour = stale, or leave it out")
        return self

    @property
    def in_rounds(self) -> str | None:
        """A setting that has a meaning only where all clients keep the same rounds."""
        set_ = {"delay": self.delay, "trace": self.trace, "churn": self.churn, "stale": self.misbehaviour == "stale"}
        return next((name for name, value in set_.items() if value), None)


class ClockConfig(ConfigSection):
    """Virtual time: how fast machines and links are, and who waits for whom."""

    network: str | None = Field(
        default=None, description=f"{', '.join(NETWORKS)}, or a file with a line per client; none: no clock"
    )
    schedule: Literal["rounds", "deadline", "async"] = Field(
        default="rounds",
        description="all wait for all; stragglers are skipped; or everybody at their own pace",
    )
    deadline: float | None = Field(
        default=None, gt=0, description="seconds that a round waits for training (schedule = deadline)"
    )

    @model_validator(mode="after")
    def _fits(self) -> ClockConfig:
        if self.network is None and (self.schedule != "rounds" or self.deadline is not None):
            raise ValueError("clock.schedule needs to know how fast everybody is: set clock.network, such as equal")
        if (self.schedule == "deadline") != (self.deadline is not None):
            raise ValueError("clock.deadline and clock.schedule = deadline belong together: set both, or neither")
        return self

    def made(self, clients: int, seed: int) -> Network | None:
        """The machines and links of a run with this seed; None without a clock."""
        return None if self.network is None else network(self.network, clients, seed)


class WorldConfig(ConfigSection):
    """What clients differ in: groups whose data differ, and clients whose labels are partly wrong."""

    shift: ShiftKind = Field(default="none", description="in what the groups differ; none: there are no groups")
    groups: int = Field(default=2, ge=2, description="number of groups (with a shift)")
    strength: float | None = Field(
        default=None,
        description="how much they differ, in the unit of the shift (docs/worlds.md); default: the shift's",
    )
    sizes: tuple[float, ...] | None = Field(
        default=None, description="the groups' shares of the clients; default: equal"
    )
    assign: Assign = Field(default="random", description="groups drawn at random, or patches of the graph")
    label_noise: float = Field(default=0.0, ge=0, le=1, description="share of a noisy client's labels that are wrong")
    noisy: float = Field(default=0.0, ge=0, le=1, description="share of clients whose labels are noisy")

    @model_validator(mode="after")
    def _fits(self) -> WorldConfig:
        if bool(self.label_noise) != bool(self.noisy):
            raise ValueError("world.label_noise and world.noisy belong together: how many labels, of how many clients")
        if self.shift == "none":
            given = [name for name in _OF_GROUPS if getattr(self, name) != WorldConfig.model_fields[name].default]
            if given:
                raise ValueError(f"world.{given[0]} is about groups, and there are none: set world.shift")
            return self
        if self.sizes is not None and len(self.sizes) != self.groups:
            raise ValueError(f"world.sizes has {len(self.sizes)} shares for {self.groups} groups")
        with _as_value_error():
            chosen(self.shift, self.groups, self.strength)
        return self

    def check(self, clients: int) -> None:
        """Refuse groups that so few clients cannot form."""
        if self.shift != "none":
            if self.groups > clients:
                raise ValueError(f"world.groups is {self.groups} for {clients} clients: every group needs at least one")
            with _as_value_error():
                apportion(clients, self.sizes or (1.0,) * self.groups)

    @property
    def grouped(self) -> bool:
        """Whether there are groups, so that accuracy means that on one's own group's test set."""
        return self.shift != "none"


_OF_GROUPS = ("groups", "strength", "sizes", "assign")


@contextmanager
def _as_value_error() -> Iterator[None]:
    """Mistakes that the data find, among those that pydantic collects."""
    try:
        yield
    except DataError as error:
        raise ValueError(f"world: {error}") from None


class ModelConfig(ConfigSection):
    """What clients train."""

    name: str = Field(
        default="encoder-decoder",
        description="encoder-decoder, mlp, one that an installed package adds, or module:callable",
    )
    shared: tuple[str, ...] | None = Field(
        default=None, description="name prefixes of the shared parameters, * for all; default: the model's own"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keyword options of the model")
    buffers: Literal["local", "exchanged"] = Field(
        default="local", description="running statistics (BatchNorm): each client's own, or exchanged with the weights"
    )

    @field_validator("shared", mode="before")
    @classmethod
    def _one_is_enough(cls, shared: Any) -> Any:
        """A single prefix, or `*` for everything, needs no list."""
        return (shared,) if isinstance(shared, str) else shared


class TrainingConfig(ConfigSection):
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
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description="of forward passes in training; weights, gradients and answers stay float32"
    )

    @model_validator(mode="after")
    def _fits(self) -> TrainingConfig:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError("training.momentum is SGD's: set training.optimizer = sgd, or leave it out")
        return self


class MethodConfig(ConfigSection):
    """The method under test."""

    id: str = Field(default="sage-os", description="method id; `sagefl methods` lists them")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the method")

    @field_validator("options")
    @classmethod
    def _words(cls, options: dict[str, Any]) -> dict[str, Any]:
        """By their true names; TOML knows no null and would lose it: the option value none is a word."""
        return {option_name(name): "none" if value is None else value for name, value in options.items()}


class EvaluationConfig(ConfigSection):
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


class PrivacyConfig(ConfigSection):
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
