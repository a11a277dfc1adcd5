"""The expected time is taken as clients train: on one thread, which torch has back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import config, mini, world

from sagefl.methods import method
from sagefl.simulation import preflight as looking
from sagefl.simulation.world import World


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_mini_batch_is_timed_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    real = looking.training_loss

    def counted(*given: object) -> torch.Tensor:
        used.append(torch.get_num_threads())
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(looking, "training_loss", counted)
    looking.preflight(world(config("rg")), [("rg", method("rg"))])
    assert set(used) == {1}
    assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> torch.Tensor:
        raise RuntimeError("no loss")

    monkeypatch.setattr(looking, "training_loss", broken)
    with pytest.raises(RuntimeError, match="no loss"):
        looking.preflight(world(config("rg")), [("rg", method("rg"))])
    assert torch.get_num_threads() == 2


def test_workers_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_training_seconds", lambda world, samples: 100.0)
    own = world(config("rg", rounds=2))
    assert "training takes about 3 min." in looking.preflight(own, [("rg", method("rg"))], workers=1).line
    assert "training takes about 50 s." in looking.preflight(own, [("rg", method("rg"))], workers=4).line


def test_little_is_told_in_kilobytes_and_one_round_moves() -> None:
    told = looking.preflight(world(config("rg", rounds=1)), [("rg", method("rg"))]).line
    assert ". 1 round moves " in told
    assert [looking._bytes(count) for count in (0, 640, 20_500, 2.5e6, 3e9)] == [
        "0.0 kB", "0.6 kB", "20.5 kB", "2.5 MB", "3.0 GB",
    ]  # fmt: skip


@pytest.mark.parametrize("private", [True, False])
def test_copies_among_anchors_are_told_where_answers_are_private(private: bool) -> None:
    """-0 and 0 are one input to a model, and to the noise of a node's answers."""
    settings = config("sage-m", privacy={"epsilon": 1.0}) if private else config("sage-m")
    pools = [roles.anchor for roles in World.build(settings, mini()).federation.roles]
    x = mini().train_x / np.float32(255)
    x[pools[0][1]], x[pools[1][1]] = x[pools[0][0]], x[pools[1][0]]
    x[pools[1][1]][x[pools[1][1]] == 0] = -0.0
    x[pools[2][0]] = x[pools[3][0]]  # of different clients
    copied = World.build(settings, replace(mini(), train_x=x, test_x=mini().test_x / np.float32(255)))
    found = [w for w in looking.preflight(copied, [("sage-m", method("sage-m"))]).warnings if "copies" in w]
    assert len(found) == private
    assert not private or found[0].startswith("2 of 8 clients have copies of an input among their anchors: ")
    assert not private or found[0].endswith(": drop duplicates from the data")
    clean = looking.preflight(World.build(settings, mini()), [("sage-m", method("sage-m"))])
    assert not [w for w in clean.warnings if "copies" in w]
