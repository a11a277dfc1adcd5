"""A node's configuration: one TOML file; paths in it are relative to the file.

Data, model, training, method and evaluation have the same sections as in a simulated run, so a node's run directory
holds a `run.toml` that every tool can read.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

import tomli_w
from pydantic import Field, field_validator, model_validator

from ..methods import Method, method
from ..runs.config import RunConfig, read_toml
from ..runs.sections import (
    ConfigSection,
    DataConfig,
    EvaluationConfig,
    MethodConfig,
    ModelConfig,
    PrivacyConfig,
    TopologyConfig,
    TrainingConfig,
)
from ..selection.private import RandomisedResponse
from .errors import NodeError
from .identity import NAME
from .limits import Limits


class NeighbourConfig(ConfigSection):
    """One neighbour: it may call this node, and this node calls it."""

    address: str = Field(description="host:port")
    number: int = Field(ge=0, description="its number in the federation, as audits name it")
    key: str | None = Field(
        default=None, pattern="^[0-9a-f]{64}$", description="pinned key: the fingerprint sagefl node init prints"
    )

    @field_validator("address")
    @classmethod
    def _address(cls, value: str) -> str:
        host_and_port(value)
        return value


class ExchangeConfig(ConfigSection):
    """How this node deals with its neighbours."""

    deadline: float = Field(default=5.0, gt=0, description="seconds a neighbour has for one answer")
    transfer_deadline: float = Field(default=60.0, gt=0, description="seconds a neighbour has to send its model")
    retries: int = Field(default=1, ge=0, le=10, description="retries within the deadline")
    wait: float = Field(
        default=0.0, ge=0, description="seconds to wait for all neighbours to come up, and then for their first models"
    )
    pace: float = Field(default=0.0, ge=0, description="rounds begin at least this many seconds apart")
    linger: float | None = Field(
        default=None, ge=0, description="seconds to keep serving after the last round; none: until stopped"
    )
    decision: float = Field(
        default=15.0, gt=0, description="seconds a neighbour has for all its answers within one decision"
    )
    norm_ratio: float = Field(
        default=3.0, gt=1, description="refuse a block if a layer's norm is so many times our own of the last rounds"
    )
    norm_growth: float = Field(
        default=20.0, gt=1, description="refuse a block if a layer's norm is so many times the initial one"
    )


class AcceptanceConfig(ConfigSection):
    """The test of every merge on samples that nobody else sees; a merge that fails is taken back."""

    share: float = Field(
        default=0.1, ge=0, lt=0.5, description="share of this node's samples, taken from those for training; 0: no test"
    )
    tolerance: float = Field(
        default=0.3,
        gt=0,
        lt=1,
        description="rise of the error that a merge may cause; honest merges cost something too, more if data differ",
    )


class ServeConfig(ConfigSection):
    """What this node gives away beyond probe answers and its shared block."""

    inspect: bool = Field(default=False, description="hand out the full model, head included (PENS, FedFomo, DPFL ...)")
    reads: tuple[str, ...] = Field(
        default=("degree", "samples"),
        description="what neighbours may read; add head, last-layer, loss ... for methods that need them",
    )


class NodePrivacyConfig(ConfigSection):
    """Randomised response on labels: how this node answers, and how it expects its neighbours to."""

    mechanism: Literal["none", "k-rr", "bitwise"] = Field(default="none", description="how labels are perturbed")
    epsilon: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="privacy loss of one answer")
    budget: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="privacy loss towards one neighbour after which it gets no more answers; required with a mechanism",
    )

    @model_validator(mode="after")
    def _bounded(self) -> NodePrivacyConfig:
        if self.mechanism != "none" and self.budget is None:
            raise ValueError(
                "privacy.budget is missing: epsilon adds up over answers, so say after how much of it a neighbour gets "
                "no more (anchors a round x rounds x epsilon is what an honest one uses)"
            )
        return self


class MetricsConfig(ConfigSection):
    """The Prometheus endpoint."""

    address: str | None = Field(default=None, description="host:port (port 0: any); none: no endpoint")
    expose: bool = Field(default=False, description="allow an address that is not loopback: it has no authentication")


class KeeperConfig(ConfigSection):
    """The federation's keeper, as `sagefl node join` enters it: who is a neighbour, who a member no longer."""

    address: str = Field(description="host:port")
    key: str = Field(pattern="^[0-9a-f]{64}$", description="fingerprint of its key")
    advertise: str | None = Field(default=None, description="where others reach this node; none: as it listens")
    every: float = Field(default=10.0, gt=0, description="seconds between two questions")
    most: int = Field(default=32, ge=1, description="neighbours it can name at the same time")

    @field_validator("address", "advertise")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None:
            host_and_port(value)
        return value


class NodeConfig(ConfigSection):
    """One node."""

    name: str = Field(pattern=f"^{NAME.pattern}$", description="this node, as its certificate names it")
    number: int = Field(default=0, ge=0, description="its number in the federation: keys its random streams")
    directory: str = Field(default="run", description="run directory: results, checkpoints, events, status")
    identity: str = Field(default="identity", description="folder with node.key, node.pem, ca.pem, revoked.pem")
    listen: str = Field(default="127.0.0.1:7443", description="host:port to serve on (port 0: any)")
    rounds: int = Field(default=250, ge=1, description="rounds to train")
    seed: int = Field(default=1, ge=0, description="seed shared by the federation: initial weights, splits, draws")
    secret_order: bool = Field(
        default=True,
        description="order anchors by a coin of this node's own; false: by the seed, as the simulator does, so that "
        "whoever knows it knows what will be asked",
    )
    clients: int = Field(
        default=1,
        ge=1,
        description="1: this node has all of the data; else the data is dealt to this many clients",
    )
    threads: int = Field(default=1, ge=1, description="threads for training and for answering")
    device: str = Field(
        default="cpu", description="where it trains and answers: cpu, cuda, cuda:1 or mps; results differ by rounding"
    )
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    method: MethodConfig = MethodConfig(id="sage-m")
    evaluation: EvaluationConfig = EvaluationConfig(every=1)
    topology: TopologyConfig = TopologyConfig()
    exchange: ExchangeConfig = ExchangeConfig()
    acceptance: AcceptanceConfig = AcceptanceConfig()
    serve: ServeConfig = ServeConfig()
    limits: Limits = Limits()
    privacy: NodePrivacyConfig = NodePrivacyConfig()
    metrics: MetricsConfig = MetricsConfig()
    keeper: KeeperConfig | None = Field(default=None, description="where it hears of its neighbours; none: from here")
    neighbours: dict[str, NeighbourConfig] = Field(default_factory=dict, description="by certificate name")

    @model_validator(mode="after")
    def _fits(self) -> NodeConfig:
        host_and_port(self.listen)
        if self.name in self.neighbours:
            raise ValueError(f"{self.name} cannot be its own neighbour")
        numbers = [self.number, *(n.number for n in self.neighbours.values())]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"every node of the federation has its own number, got {numbers}")
        if self.clients > 1 and max(numbers) >= self.clients:
            raise ValueError(f"number {max(numbers)} does not fit into a federation of {self.clients} clients")
        address = self.metrics.address
        if address is not None and not self.metrics.expose and not is_loopback(address):
            raise ValueError(f"metrics.address {address} is not loopback; set metrics.expose = true if you mean it")
        return self

    @classmethod
    def read(cls, path: Path) -> NodeConfig:
        """A config from a TOML file, its paths made absolute."""
        config = cls.parse(read_toml(path))
        home = path.resolve().parent
        return config.model_copy(
            update={"directory": str(home / config.directory), "identity": str(home / config.identity)}
        )

    def to_toml(self) -> str:
        """The config as a TOML document that `read` understands."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    @property
    def numbers(self) -> dict[int, str]:
        """Neighbours' names by number."""
        return {n.number: name for name, n in sorted(self.neighbours.items())}

    @property
    def part(self) -> int:
        """Which part of the data belongs to this node."""
        return self.number if self.clients > 1 else 0

    def mechanism(self, classes: int) -> RandomisedResponse | None:
        """How labels are perturbed, here and at every neighbour."""
        return self._run_privacy().response(classes)

    def effective_method(self, classes: int) -> Method:
        """The method, its rule priced for private answers.

        A rule that probes for anything but labels is refused: private neighbours would never answer it.
        """
        made = method(self.method.id, **self.method.options).asked_in(self.data.anchor_order)
        return made.answered_privately(self.mechanism(classes))

    def run_config(self) -> RunConfig:
        """This node as a run, for `run.toml`. Prices are stored unscaled; readers scale them as the node does."""
        known = () if self.keeper is not None else self.neighbours.values()  # else they may be others tomorrow
        most = max([self.number, *(n.number for n in known)]) + 1
        return RunConfig(
            clients=max(self.clients, most),
            rounds=self.rounds,
            seed=self.seed,
            data=self.data,
            topology=self.topology,
            model=self.model,
            training=self.training,
            method=self.method,
            evaluation=self.evaluation,
            privacy=self._run_privacy(),
        )

    def _run_privacy(self) -> PrivacyConfig:
        p = self.privacy
        return PrivacyConfig() if p.mechanism == "none" else PrivacyConfig(epsilon=p.epsilon, mechanism=p.mechanism)


def host_and_port(address: str) -> tuple[str, int]:
    """`127.0.0.1:7443` or `[::1]:7443` split in two."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"an address is written host:port, got {address!r}")
    return host.strip("[]"), int(port)


def typed_address(address: str) -> str:
    """An address as somebody typed it; a mistake is reported to them."""
    try:
        host_and_port(address)
    except ValueError as error:
        raise NodeError(str(error)) from None
    return address


def is_loopback(address: str) -> bool:
    """Whether an address can only be reached from this machine."""
    host, _ = host_and_port(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
