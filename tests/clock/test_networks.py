"""Named networks, networks from a file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sagefl.clock import NETWORKS, Network, network
from sagefl.clock.network import MEGABIT, NetworkError
from sagefl.runs.config import ConfigError, RunConfig


@pytest.mark.parametrize("name", NETWORKS)
def test_named_networks_depend_on_the_seed_alone(name: str) -> None:
    one, same, other = network(name, 40, 3), network(name, 40, 3), network(name, 40, 4)
    assert np.array_equal(one.up, same.up)
    assert np.array_equal(one.train, other.train) == (name == "equal")


def test_named_networks_are_what_their_names_say() -> None:
    equal, phones, wan, edge = (network(name, 200, 1) for name in ("equal", "phones", "wan", "edge"))
    assert np.unique(equal.train).size == np.unique(equal.up).size == 1
    assert phones.train.max() / phones.train.min() > 10 > wan.train.max() / wan.train.min()
    assert (phones.up < phones.down).mean() > 0.9
    assert np.median(wan.latency) > 3 * np.median(equal.latency)
    assert (edge.train > 1000).sum() == 40


def test_a_file_has_a_line_per_client(tmp_path: Path) -> None:
    path = tmp_path / "machines.txt"
    path.write_text("# train infer up down latency\n10, 30, 1, 2, 5\n20 inf inf inf 0\n")
    found = network(str(path), 2, 1)
    assert found.train.tolist() == [10, 20]
    assert found.infer.tolist() == [30, np.inf]
    assert found.up.tolist() == [MEGABIT, np.inf]
    assert found.between(0, 1) == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("10 30 0 2 5", r"client 1 has an uplink of 0 Mbit/s: nothing it sends would arrive"),
        ("10 30 1 0 5", r"client 1 has a downlink of 0 Mbit/s"),
        ("0 30 1 2 5", r"client 1 trains 0 samples a second"),
        ("inf 30 1 2 5", r"client 1 trains inf samples a second"),
        ("10 0 1 2 5", r"client 1 answers 0 samples a second: whoever asks it would wait for ever"),
        ("10 30 1 2 -5", r"client 1 has a latency of -5 ms"),
        ("10 30 1 2", r"line 2: expected five numbers, .*; got '10 30 1 2'"),
        ("10 30 1 two 5", r"line 2: expected five numbers"),
    ],
)
def test_impossible_machines_are_refused_in_one_sentence(line: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "machines.txt"
    path.write_text(f"10 30 1 2 5\n{line}\n")
    with pytest.raises(NetworkError, match=why) as error:
        network(str(path), 2, 1)
    assert "\n" not in str(error.value)


def test_a_file_for_another_number_of_clients_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "machines.txt"
    path.write_text("10 30 1 2 5\n")
    with pytest.raises(NetworkError, match="describes 1 clients, the run has 3: give a line for each"):
        network(str(path), 3, 1)


def test_an_unknown_network_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(NetworkError, match=r"unknown network 'phone', did you mean 'phones'\?"):
        network("phone", 3, 1)


@pytest.mark.parametrize(
    ("clock", "more", "why"),
    [
        ({"schedule": "async"}, {}, "set clock.network"),
        (
            {"network": "wan", "schedule": "deadline"},
            {},
            "clock.deadline and clock.schedule = deadline belong together",
        ),
        ({"network": "wan", "deadline": 3}, {}, "clock.deadline and clock.schedule = deadline belong together"),
        ({"network": "wan", "schedule": "async"}, {"network": {"delay": 0.5}}, "network.delay counts in rounds"),
        ({"network": "wan", "schedule": "async"}, {"network": {"churn": 0.5}}, "network.churn counts in rounds"),
        ({"network": "wan", "schedule": "later"}, {}, "clock.schedule"),
    ],
)
def test_settings_that_do_not_fit_are_refused(clock: dict[str, object], more: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RunConfig.parse({"clock": clock, **more})


def test_a_config_without_a_clock_has_the_address_it_always_had() -> None:
    assert RunConfig().digest == RunConfig.parse({"clock": {}}).digest
    assert "clock" not in RunConfig().to_toml()
    clocked = RunConfig.parse({"clock": {"network": "wan"}})
    assert clocked.digest != RunConfig().digest
    assert RunConfig.parse({"clock": {"network": "wan", "schedule": "rounds"}}).digest == clocked.digest


def test_the_price_of_an_evaluation_counts_round_trip_uplink_inference_and_answer() -> None:
    found = Network([1] * 3, [10] * 3, [100] * 3, [1000] * 3, [0.1] * 3)
    by_hand = (0.4 + 16 * (50 * 2 / 100 + 1 / 10 + 1 / 100)) / 32
    assert found.evaluation_seconds(2, 16, there=50, back=1) == pytest.approx(by_hand)
