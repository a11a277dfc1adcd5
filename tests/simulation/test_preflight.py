"""The expected time is taken as clients train: on one thread, which torch has back afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from small_runs import config, world

from sagefl.methods import method
from sagefl.simulation import preflight as looking


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
