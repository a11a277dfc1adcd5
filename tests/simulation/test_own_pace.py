"""Clients at their own pace: the same as one event after another, for any number of workers, after any crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from small_runs import CrashError, config, differing, files, simulate, world

from sagefl.clock import Call, Clockwork, Script, TimedLook, Trained
from sagefl.clock.network import NetworkError
from sagefl.learning.population import Population
from sagefl.learning.tasks import Answer, MixBlocks, Train, carry_out
from sagefl.learning.training import LocalTraining
from sagefl.learning.workbench import Workbench
from sagefl.methods import method, methods
from sagefl.runs.config import RunConfig
from sagefl.selection import Outcome, Probe
from sagefl.selection.scoring import LABEL_ERRORS
from sagefl.simulation.engines import Sequential
from sagefl.simulation.engines.base import parts
from sagefl.simulation.simulator import Simulator
from sagefl.simulation.world import World

Reference = Callable[..., Path]
ASYNC = {"network": "phones", "schedule": "async"}
ACCOUNT = ("probe_input_bytes", "probe_answer_bytes", "model_bytes", "control_bytes")
BOUND = {"choco", "dfedpgp", "dispfl", "da-dpfl", "dfca", "federico", "average-all"}


def slowly(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def table(directory: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(directory / f"{name}.parquet")


def rows_at_the_end(directory: Path) -> torch.Tensor:
    (last,) = sorted((directory / "checkpoint").glob("round-*/params-0000.safetensors"))
    return load_file(last)["rows"]


# One event after another ----------------------------------------------------------------------------------------------


class Literal:
    """The slow way: every event when it is due, every model ever published kept, every call on its own."""

    def __init__(self, own: World) -> None:
        chosen = method(own.config.method.id, **own.config.method.options)
        self.own, self.rule = own, chosen.suited(latents=own.has_latents).selector
        clients = own.clients
        assert own.machines is not None
        kept = Population.allocate(own.layout, clients, ages=clients * own.config.rounds)
        kept.reset(own.initial)
        self.rows = kept
        self.bench = Workbench(*parts(own, LocalTraining(), kept, shared_memory=False))
        self.works, self.turns = Clockwork(own.machines), [0] * clients
        self.newest: dict[int, int] = {}
        self.arrived: list[set[int]] = [set() for _ in range(clients)]  # who has pushed since one's last turn
        self.states: dict[int, Any] = {}
        for k in range(clients):
            self._train(k, 0.0)

    def _train(self, k: int, at: float) -> None:
        assert self.own.machines is not None
        self.works.train(k, at + self.own.machines.training(k, self.own.workload(k)))

    def run(self) -> Iterator[tuple[Any, ...]]:
        """Turns in the order in which they end: client, its count, chosen, evaluations, when."""
        outcomes: dict[int, Outcome] = {}
        for _ in range(self.own.clients * self.own.config.rounds):
            while isinstance(event := self.works.advance(), Trained):
                outcomes[event.client] = self._turn(event.client, event.at)
            assert event is not None
            k, outcome = event.client, outcomes[event.client]
            for receiver in outcome.peers if outcome.direction == "push" else ():
                self.arrived[receiver].add(k)
            yield (k, self.turns[k], list(outcome.peers), outcome.evaluations, event.at)
            self.turns[k] += 1
            self._train(k, event.at)

    def _turn(self, k: int, at: float) -> Outcome:
        own, turn = self.own, self.turns[k]
        carry_out([Train(k, turn)], self.bench)
        self.newest[k] = turn
        peers = [p for p in own.view(turn).peers(k).tolist() if p in self.newest]
        versions = {p: self.newest[p] for p in peers}
        seed = (own.config.seed, turn, k)
        anchors, ever = own.anchors(k, turn), int(own.graph.degrees[k])
        price = own.sizes.price(self.rule.scoring)
        told = carry_out([Answer(k, turn, 0, anchors, LABEL_ERRORS)], self.bench)[0]
        mine = float(LABEL_ERRORS.score(told, own.dataset.train_y[anchors]).mean())
        decision = self.rule.begin(
            peers, len(anchors), seed, state=self.states.get(k), round=turn, rounds=own.config.rounds, me=k,
            ever=ever, price=price, mine=mine,
        )  # fmt: skip
        looks = []
        while (probe := decision.request) is not None:
            assert isinstance(probe, Probe)
            assert probe.mask is None
            asked = anchors[probe.start : probe.stop]
            told = [carry_out([Answer(p, versions[p], 0, asked, probe.scoring)], self.bench)[0] for p in probe.peers]
            truth, n = own.dataset.train_y[asked], len(asked)
            there, back = n * own.sizes.anchor_input, n * own.sizes.answer(probe.scoring)
            looks.append(TimedLook(tuple(Call(p, there, back, n, fresh=False) for p in probe.peers)))
            decision.answer(np.stack([probe.scoring.score(a, truth) for a in told]) * self.rule.bound)
        outcome = decision.outcome
        if outcome.state is not None:
            self.states[k] = outcome.state
        size, pushes = own.sizes.shared_block, outcome.direction == "push"
        moved = [Call(p, size, 0, fresh=False) if pushes else Call(p, 0, size, fresh=False) for p in outcome.peers]
        self._mix(
            k, turn, {} if pushes else outcome.weights or dict.fromkeys(outcome.peers, own.config.training.mixing)
        )
        self.works.act(k, Script(tuple(looks), TimedLook(tuple(moved)) if moved else None), at)
        return outcome

    def _mix(self, k: int, turn: int, pulled: Mapping[Any, float]) -> None:
        """Pull, then average with all that has been pushed here since the last turn, each as new as it is by now."""
        senders, self.arrived[k] = sorted(self.arrived[k] & set(self.own.view(turn).peers(k).tolist())), set()
        share = 1.0 / (len(senders) + 1)
        weights = [*((p, share * w) for p, w in pulled.items()), *((s, share) for s in senders)]
        if weights:
            own = 1.0 - sum(w for _, w in weights)
            carry_out([MixBlocks(k, turn, own, [(p, turn - self.newest[p], w) for p, w in weights])], self.bench)


GENERATED = [
    ("sage-os", 1, "phones", 0.0),
    slowly("sage-e", 2, "edge", 0.0),
    slowly("aq-128", 3, "wan", 0.3),
    ("sage-m:kind=labels", 4, "phones", 0.0),
    ("epidemic:s=1", 3, "wan", 0.0),  # here pushes arrive between trainings that are computed together
    slowly("epidemic", 2, "edge", 0.0),
    slowly("epidemic:s=3", 5, "phones", 0.0),
    ("epidemic:s=3", 4, "wan", 0.4),  # what is pushed over a link that has dropped is lost
]


@pytest.mark.parametrize(("rule", "seed", "network", "drop"), GENERATED)
def test_the_fast_way_is_one_event_after_another(
    rule: str, seed: int, network: str, drop: float, tmp_path: Path
) -> None:
    clock = {"network": network, "schedule": "async"}
    settings = config(rule, seed=seed, rounds=5, clock=clock, network={"drop": drop})
    literal = Literal(world(settings))
    expected = list(literal.run())
    simulate(tmp_path / "run", settings)
    audit = table(tmp_path / "run", "decisions")
    assert audit.select("client", "turn", "chosen", "evaluations", "ended_at").rows() == expected
    assert max(turn for _, turn, *_ in expected) >= 5  # some were faster than the mean
    assert torch.equal(rows_at_the_end(tmp_path / "run"), literal.rows.params)


def test_equal_machines_without_latency_give_rounds_back(tmp_path: Path) -> None:
    machines = tmp_path / "machines.txt"
    machines.write_text("100 inf inf inf 0\n" * 8)
    equal = {"data": {"partition": "iid"}, "training": {"max_batches": 2}}
    for name, clock in (("rounds", {}), ("async", {"network": str(machines), "schedule": "async"})):
        simulate(tmp_path / name, config("sage-os", clock=clock, **equal))
    for name in ("decisions", "metrics", "clients"):
        rounds, own = table(tmp_path / "rounds", name), table(tmp_path / "async", name)
        order = ["round", "client"] if "client" in rounds.columns and name != "metrics" else ["round"]
        exact = [c for c in rounds.columns if c != "before_client_ce"]  # the same models by way of probabilities
        assert own.sort(order).select(exact).equals(rounds.select(exact))
    assert torch.equal(rows_at_the_end(tmp_path / "rounds"), rows_at_the_end(tmp_path / "async"))
    decided = table(tmp_path / "async", "decisions")
    assert decided["turn"].to_list() == decided["round"].to_list()


# Workers, crashes, memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sage-os", slowly("epidemic"), slowly("sage-os:kind=latents:loss=ce")])
def test_results_do_not_depend_on_the_workers(
    method: str, tmp_path: Path, reference: Reference, on_workers: Callable[[RunConfig, int], None]
) -> None:
    settings = config(method, clock=ASYNC)
    whole = files(reference(settings))
    for workers in (2, 3):
        on_workers(settings, workers)
        simulate(tmp_path / str(workers), settings)
        assert not differing(files(tmp_path / str(workers)), whole)


KILLED = [slowly("sage-m", 1), slowly("sage-m", 9), slowly("sage-m", 25), ("sage-m", 40), slowly("sage-m", 55)]


@pytest.mark.parametrize(("rule", "at"), [*KILLED, slowly("epidemic", 25), ("epidemic", 40), slowly("epidemic", 55)])
def test_a_run_that_is_killed_at_any_event_goes_on_as_if_nothing_had_happened(
    rule: str, at: int, tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(rule, clock=ASYNC)
    carried, maps = Sequential.map, []

    def failing(self: Sequential, tasks: Any) -> Any:
        maps.append(len(tasks))
        if len(maps) == at:
            raise CrashError
        return carried(self, tasks)

    monkeypatch.setattr(Sequential, "map", failing)
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, every=1)
    monkeypatch.undo()
    simulate(tmp_path / "run", settings, every=1)
    assert not differing(files(tmp_path / "run"), files(reference(settings, 1)))


def test_the_stacked_engine_trains_everybody_in_its_own_round(tmp_path: Path, reference: Reference) -> None:
    """Its rows agree within rounding; who decides when, and what is asked, is the same."""
    settings = config("aq-128:schedule=16", clock=ASYNC)
    simulate(tmp_path / "run", settings, engine="stacked")
    one, other = table(reference(settings), "decisions"), table(tmp_path / "run", "decisions")
    same = ["round", "client", "turn", "evaluations"]
    assert one.select(same).equals(other.select(same))
    assert one["trained_at"].to_list() == pytest.approx(other["trained_at"].to_list(), rel=1e-6)


def test_two_published_models_of_each_client_are_all_that_is_kept() -> None:
    settings = config("sage-os", clock=ASYNC)
    engine = Sequential(world(settings), LocalTraining())
    assert engine.population.snapshots.shape[0] == 2
    engine.close()


def test_work_is_done_many_clients_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried, together = Sequential.map, []

    def noted(self: Sequential, tasks: Any) -> Any:
        together.extend([len(tasks)] if tasks and isinstance(tasks[0], Train) else [])
        return carried(self, tasks)

    monkeypatch.setattr(Sequential, "map", noted)
    simulate(tmp_path / "run", config("rg", clock={"network": "wan", "schedule": "async"}))
    assert sum(together) >= 32
    assert max(together) >= 4


# What clients see and what is refused ---------------------------------------------------------------------------------


def test_decisions_see_how_old_their_peers_are(reference: Reference) -> None:
    audit = table(reference(config("sage-os", clock=ASYNC)), "decisions").sort("client", "turn")
    published = {(r["client"], r["turn"]): r["trained_at"] for r in audit.iter_rows(named=True)}
    checked = 0
    for row in audit.iter_rows(named=True):
        assert len(row["ages"]) == row["degree"]
        for peer, age in zip(row["peers"], row["ages"], strict=True):
            by_then = [at for (k, _), at in published.items() if k == peer and at <= row["trained_at"]]
            if by_then:  # the last turns of the run are not in the table
                assert age == pytest.approx(row["trained_at"] - max(by_then)) or age < row["trained_at"] - max(by_then)
                checked += 1
    assert checked > 20


@pytest.mark.parametrize("rule", ["sage-os", slowly("pens"), slowly("ocd-fl")])
def test_no_byte_and_no_sample_is_lost_or_made(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the clockwork has moved for turns that ended is what the account says, and so are the samples trained on."""
    act, advance = Clockwork.act, Clockwork.advance
    script_of: dict[int, Script] = {}
    moved = []

    def noted(self: Clockwork, client: int, script: Script, at: float) -> None:
        script_of[client] = script
        act(self, client, script, at)

    def counted(self: Clockwork) -> Any:
        event = advance(self)
        if event is not None and not isinstance(event, Trained):
            moved.append(script_of.pop(event.client).bytes)
        return event

    monkeypatch.setattr(Clockwork, "act", noted)
    monkeypatch.setattr(Clockwork, "advance", counted)
    settings = config(rule, clock=ASYNC)
    simulate(tmp_path / "run", settings)
    metrics, audit = table(tmp_path / "run", "metrics"), table(tmp_path / "run", "decisions")
    said = sum(metrics[name].sum() for name in ACCOUNT)
    assert len(moved) == len(audit) == settings.clients * settings.rounds
    assert said == sum(moved) > 0
    own = world(settings)
    assert metrics["samples"].sum() == sum(own.workload(k) for k in audit["client"].to_list())


def test_fast_clients_have_more_turns(reference: Reference) -> None:
    settings = config("rg", rounds=6, clock=ASYNC)
    audit, own = table(reference(settings), "decisions"), world(settings)
    assert own.machines is not None
    seconds = [own.machines.training(k, own.workload(k)) for k in range(own.clients)]
    turns = [audit.filter(pl.col("client") == k).height for k in range(own.clients)]
    assert sum(turns) == 6 * own.clients
    assert turns[int(np.argmin(seconds))] > turns[int(np.argmax(seconds))]


def test_a_client_that_would_never_be_there_is_refused(tmp_path: Path) -> None:
    machines = tmp_path / "machines.txt"
    machines.write_text("1000 inf 100 100 1\n" * 7 + "0.001 inf 100 100 1\n")
    settings = config("rg", clock={"network": str(machines), "schedule": "async"})
    with pytest.raises(NetworkError, match=r"client 7 trains for .* s, but .* it would never take part"):
        Simulator(settings, None, world=World.build(settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("line", ["1000 inf 0.0000001 100 1", "1000 inf 100 0.0000001 1", "1000 inf 100 100 1e9"])
def test_a_link_that_would_hold_everybody_up_is_refused(line: str, tmp_path: Path) -> None:
    machines = tmp_path / "machines.txt"
    machines.write_text("1000 inf 100 100 1\n" * 7 + f"{line}\n")
    settings = config("rg", clock={"network": str(machines), "schedule": "async"})
    with pytest.raises(NetworkError, match=r"a model takes .* s on the link of client 7, but the others have finished"):
        Simulator(settings, None, world=World.build(settings))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(methods().keys() - BOUND))
def test_every_method_that_needs_no_rounds_runs(name: str, tmp_path: Path) -> None:
    summary = simulate(tmp_path / "run", config(name, rounds=2, topology={"p": 0.9}, clock=ASYNC))
    assert summary["rounds"] == 2
