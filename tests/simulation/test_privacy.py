"""Private answers in a run: noise that is memoised, priced, accounted for, and the same in every engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_runs import ROUGH, CrashAfter, CrashError, config, differing, files, mini, simulate, world

from sagefl.errors import UsageError
from sagefl.methods import method
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.losses import losses_path, perturbed_classes, read_losses, write_losses
from sagefl.runs.replaying import how_told, replay_run
from sagefl.runs.rundir import RunDirectory
from sagefl.runs.sections import ConfigError
from sagefl.selection import make
from sagefl.selection.private import RandomisedResponse
from sagefl.simulation.comparing import compare, parts_of
from sagefl.simulation.privacy import PrivacyLedger, peer_answers
from sagefl.simulation.simulator import Simulator

Reference = Callable[..., Path]
OnWorkers = Callable[[RunConfig, int], None]


def private(rule: str = "aq-128", epsilon: float | None = 1.0, how: str = "k-rr", **sections: Any) -> RunConfig:
    return config(rule, privacy={"epsilon": epsilon, "mechanism": how}, **sections)


RUNS = [
    private("sage-e:screen=8:stop=none", how="bitwise"),
    private("sage-e-trim", epsilon=3.0, how="bitwise", **ROUGH),
    private("sage-os", **ROUGH),
]


def named(settings: RunConfig) -> str:
    return f"{settings.method.id}-{settings.privacy.mechanism}-{'rough' if settings.network.drop else 'plain'}"


# What is told ---------------------------------------------------------------------------------------------------------


def losses_of(directory: Path, round: int) -> dict[int, np.ndarray]:
    return {record.client: record.losses for record in read_losses(losses_path(directory, round))}


@pytest.mark.parametrize("how", ["k-rr", "bitwise"])
def test_told_losses_are_the_true_ones_through_the_mechanism(how: str, reference: Reference) -> None:
    """In round 0 both runs stand on the same models: every told loss is the true label's, perturbed."""
    settings = private(how=how, evaluation={"losses": "full"})
    plain, noisy = reference(config("aq-128", evaluation={"losses": "full"})), reference(settings)
    truth, told = losses_of(plain, 0), losses_of(noisy, 0)
    mechanism = RandomisedResponse(1.0, 10, how)  # type: ignore[arg-type]
    true, seen = (np.concatenate([x[k].ravel() for k in sorted(truth)]) for x in (truth, told))
    for loss, expected in ((0.0, 1 - mechanism.p), (1.0, 1 - mechanism.q)):
        among = seen[true == loss]
        assert len(among) > 100
        assert abs(among.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / len(among))


@pytest.mark.parametrize("how", ["k-rr", "bitwise"])
def test_the_noise_is_that_of_seed_peer_snapshot_and_sample(how: str, reference: Reference) -> None:
    """Recomputed by hand wherever a right answer leaves no doubt about the label; delayed links answer from older ones.

    Gossip asks for nothing, so both runs have the same models in every round.
    """
    sections: dict[str, Any] = {"evaluation": {"losses": "full"}, "network": {"delay": 0.5, "max_delay": 2}}
    settings = private("rg", how=how, **sections)
    plain, noisy, here = reference(config("rg", **sections)), reference(settings), world(settings)
    mechanism = here.mechanism
    assert mechanism is not None
    checked = dict.fromkeys(range(3), 0)
    for round in range(settings.rounds):
        truth, told, view = losses_of(plain, round), losses_of(noisy, round), here.view(round)
        for client, losses in truth.items():
            anchors = here.anchors(client, round)[: losses.shape[1]]
            labels = here.dataset.train_y[anchors]
            for row, (peer, age) in enumerate(zip(view.peers(client), view.ages(client), strict=True)):
                layer = peer_answers(mechanism, settings.seed, int(peer))
                expected = mechanism.losses(layer.answer(labels, f"round {round - age}", anchors), labels)
                right = losses[row] == 0
                assert (told[client][row][right] == expected[right]).all()
                checked[int(age)] += int(right.sum())
    assert min(checked.values()) > 20


def test_fixed_anchors_are_told_anew_every_round_but_not_within_one(reference: Reference) -> None:
    """Another round is another snapshot; the record of a round, asked twice over, agrees with what decided it."""
    settings = private("aq-128", evaluation={"losses": "full"}, data={"anchor_order": "fixed"}, training={"mixing": 0.0,
                       "max_batches": 1, "learning_rate": 1e-9})  # fmt: skip
    directory = reference(settings)
    first, second = losses_of(directory, 0), losses_of(directory, 1)
    changed = np.mean([np.mean(first[k] != second[k]) for k in first])
    assert changed > 0.1  # the models did not move, the noise did
    audit = RunDirectory(directory).table("decisions").filter(pl.col("round") == 0)
    for client, risks, anchors in audit.select("client", "risks", "anchors").iter_rows():
        if risks:
            assert risks == pytest.approx(first[client][:, :anchors].mean(axis=1))


def test_prices_shrink_with_the_contrast() -> None:
    settings = private("sage-e:margin=.1")
    simulator = Simulator(settings, RunDirectory(Path("unused")), world=world(settings))
    contrast = RandomisedResponse(1.0, 10).contrast
    assert simulator.method.selector == make("sage-e", probe_cost=2e-3 * contrast, margin=0.1 * contrast)


def test_without_epsilon_nothing_changes(reference: Reference, tmp_path: Path) -> None:
    settings = config("sage-e")
    assert settings == private("sage-e", epsilon=None)
    assert settings.digest == private("sage-e", epsilon=None, how="bitwise").digest
    assert settings.digest != private("sage-e").digest
    assert settings.world_digest != private("sage-e").world_digest
    metrics = RunDirectory(reference(config("aq-128", evaluation={"losses": "full"}))).table("metrics")
    assert not [name for name in metrics.columns if name.startswith("epsilon")]


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        "sage-e:kind=latents",
        "sage-os:kind=probs",
        "aq-128:kind=latents:loss=ce",
        "pfeddst",
        "hoeffding-race:kind=probs",
    ],
)
def test_only_labels_can_be_private(rule: str, tmp_path: Path) -> None:
    settings = private(rule)
    refused = rf"privacy.epsilon perturbs labels, but {rule.partition(':')[0]} probes for (latents|probs)"
    with pytest.raises(UsageError, match=refused):
        simulate(tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


def test_a_comparison_refuses_before_it_trains(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sage-e probes for latents"):
        compare(
            parts_of(private(), ["rg", "sage-e:kind=latents"], out=tmp_path),
            Execution(engine="sequential"),
            data=mini(),
        )
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("section", [{"epsilon": 0}, {"epsilon": -1}, {"epsilon": float("inf")},
                                     {"epsilon": 1, "mechanism": "laplace"}])  # fmt: skip
def test_settings_that_make_no_sense(section: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"privacy\.(epsilon|mechanism)"):
        RunConfig.parse({"privacy": section})


# The account ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", RUNS, ids=named)
def test_the_account_adds_up_what_every_peer_answered(settings: RunConfig, reference: Reference) -> None:
    """Recounted from the recorded losses: an answer per entry that was asked."""
    directory = RunDirectory(reference(settings))
    metrics, summary = directory.table("metrics"), directory.summary
    epsilon, clients = settings.privacy.epsilon or 0.0, settings.clients
    total = np.zeros((clients, clients))
    for row in metrics.iter_rows(named=True):
        now = np.zeros((clients, clients))
        if losses_path(directory.path, row["round"]).exists():
            for record in read_losses(losses_path(directory.path, row["round"])):
                now[record.peers, record.client] = (~np.isnan(record.losses)).sum(axis=1)
        total += now
        assert now.sum() == row["evaluations"]
        assert row["epsilon_answer"] == epsilon
        assert row["epsilon_round"] == pytest.approx(epsilon * now.sum(axis=1).max())
        assert row["epsilon_round_pair"] == pytest.approx(epsilon * now.max())
        assert row["epsilon_total"] == pytest.approx(epsilon * total.sum(axis=1).max())
        assert row["epsilon_total_pair"] == pytest.approx(epsilon * total.max())
    assert total.sum() > 0
    assert summary is not None
    assert summary["epsilon_answer"] == epsilon
    assert summary["epsilon_round"] == metrics["epsilon_round"].max()
    assert summary["epsilon_total"] == pytest.approx(epsilon * total.sum(axis=1).max())


@pytest.mark.parametrize(("how", "size"), [("k-rr", 1), ("bitwise", 2)])
def test_an_answer_takes_the_bytes_of_its_mechanism(how: str, size: int, reference: Reference) -> None:
    audit = RunDirectory(reference(private(how=how, evaluation={"losses": "full"}))).table("decisions")
    assert (audit["probe_answer_bytes"] == size * audit["evaluations"]).all()
    assert audit["evaluations"].sum() > 0


def test_an_account_is_kept_and_taken_up() -> None:
    kept = PrivacyLedger(0.5, 3)
    kept.accounts[1].answered(2, 7)
    again = PrivacyLedger(0.5, 3)
    again.load(kept.state())
    assert again.given()["epsilon_total"] == 3.5
    assert again.given()["epsilon_round"] == 0


# Repeatable -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", RUNS, ids=named)
def test_engines_agree(settings: RunConfig, tmp_path: Path, reference: Reference, on_workers: OnWorkers) -> None:
    expected = files(reference(settings))
    on_workers(settings, 2)
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), expected) == []


@pytest.mark.parametrize("settings", RUNS, ids=named)
def test_a_resumed_run_is_the_same(settings: RunConfig, tmp_path: Path, reference: Reference) -> None:
    with pytest.raises(CrashError):
        simulate(tmp_path / "run", settings, callbacks=[CrashAfter(2)])
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), files(reference(settings))) == []


def test_replaying_the_runs_own_rule_gives_its_decisions(reference: Reference) -> None:
    settings = private("sage-e:stop=none", epsilon=4.0, rounds=2)
    directory = RunDirectory(reference(settings))
    [again] = replay_run(directory, [("again", make("sage-e", stop="none"))])
    audit = directory.table("decisions").filter(pl.col("degree") > 0)
    assert again.covered == 1
    assert again.certified == pytest.approx((audit["reason"] == "certified").mean())
    assert again.evaluations == pytest.approx(audit["evaluations"].mean())


def test_replay_prices_as_the_run_did(reference: Reference) -> None:
    """A price between lambda (p - q) and lambda tells the two apart."""
    settings = private("sage-os", epsilon=1.0, rounds=2, evaluation={"losses": "full"})
    directory = RunDirectory(reference(settings))
    [again] = replay_run(directory, [("again", make("sage-os"))])
    audit = directory.table("decisions").filter(pl.col("degree") > 0)
    assert again.evaluations == pytest.approx(audit["evaluations"].mean())
    contrast = RandomisedResponse(1.0, 10).contrast
    [dear] = replay_run(directory, [("dear", make("sage-os", probe_cost=2e-3 / contrast))])
    assert dear.evaluations < again.evaluations


def test_losses_say_what_pricing_needs_and_those_of_earlier_versions_are_priced_by_their_data(
    reference: Reference, tmp_path: Path
) -> None:
    settings = private("sage-os", epsilon=1.0, rounds=2, evaluation={"losses": "full"})
    shutil.copytree(reference(settings), tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    for path in (directory.path / "losses").iterdir():
        assert perturbed_classes(path) == 10
    assert how_told(directory, classes_of=pytest.fail) == RandomisedResponse(1.0, 10)
    for path in (directory.path / "losses").iterdir():
        write_losses(path, read_losses(path))
    assert how_told(directory) == RandomisedResponse(1.0, 10)


def test_a_method_is_made_private_in_place() -> None:
    made = method("sage-os")
    before = made.selector
    made.answered_privately(RandomisedResponse(2.0, 10))
    assert made.selector == replace(before, probe_cost=2e-3 * RandomisedResponse(2.0, 10).contrast)  # type: ignore[type-var, call-arg]


def test_the_word_none_survives_the_run_directory() -> None:
    """`sage-e:stop=none` must not come back from run.toml as the default stop."""
    settings = config("sage-e:stop=none")
    assert settings.method.options == {"stop": "none"}
    assert "stop" in settings.to_toml()
