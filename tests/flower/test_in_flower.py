"""The guard in Flower itself: its client apps, its older clients, its strategies. `make test-neighbours` runs these."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed here: `make test-neighbours` makes an environment for it")
polars = pytest.importorskip("polars")

from flower_here import Here  # noqa: E402
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402

from sagefl.errors import UsageError  # noqa: E402
from sagefl.flower import guard  # noqa: E402
from sagefl.flower.mod import MEMORY, MODEL  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Flower's own
ROOT = Path(__file__).parents[2]
X = np.random.default_rng(1).normal(size=(80, 5))
GOOD = np.arange(1.0, 6.0)


def on_anchors(model: ArrayRecord, context: Context) -> np.ndarray:
    (weights,) = model.to_numpy_ndarrays()
    return ((X @ weights > 0) != (X @ GOOD > 0)).astype(float)


class Client:
    """A client app that notes which models it was handed."""

    def __init__(self, **options: Any) -> None:
        self.handed: dict[str, list[np.ndarray]] = {"train": [], "evaluate": []}
        self.app = ClientApp(mods=[guard(on_anchors, **options)])
        self.app.train()(lambda message, context: self.answer("train", message))
        self.app.evaluate()(lambda message, context: self.answer("evaluate", message))
        self.here = Here(self.app, 1)
        (self.context,) = self.here.contexts.values()

    def answer(self, kind: str, message: Message) -> Message:
        (model,) = message.content.array_records.values()
        self.handed[kind].append(model.to_numpy_ndarrays()[0])
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    def send(self, *models: np.ndarray, kind: str = "train") -> list[np.ndarray]:
        for model in models:
            content = RecordDict({"arrays": ArrayRecord([model])})
            self.here.send_and_receive([self.here.create_message(content, kind, 1000, "1")])
        return self.handed[kind][-len(models) :]


def test_a_model_proven_worse_is_replaced_by_the_one_accepted_last() -> None:
    client = Client()
    handed = client.send(GOOD, GOOD * 2, -GOOD, GOOD * 3)
    assert [float(model[0]) for model in handed] == [1, 2, 2, 3]
    memory = client.context.state[MEMORY]
    assert (memory["seen"], memory["judged"], memory["refused"]) == (4, 3, 1)


def test_a_model_that_is_not_finite_is_refused_without_a_test() -> None:
    client = Client()
    handed = client.send(GOOD, GOOD * np.nan, GOOD * np.inf)
    assert [float(model[0]) for model in handed] == [1, 1, 1]
    assert client.context.state[MEMORY]["judged"] == 0


def test_an_evaluation_is_of_the_servers_model() -> None:
    client = Client()
    client.send(GOOD)
    assert np.array_equal(client.send(-GOOD, kind="evaluate")[0], -GOOD)
    assert np.array_equal(client.context.state[MODEL].to_numpy_ndarrays()[0], GOOD)


def test_what_a_client_remembers_survives_its_process() -> None:
    """Flower may run every round in another process; only the context goes along."""
    before, after = Client(), Client()
    before.send(GOOD)
    after.here.contexts = before.here.contexts
    assert np.array_equal(after.send(-GOOD)[0], GOOD)


def test_an_older_client_is_guarded_too() -> None:
    from flwr.client import NumPyClient
    from flwr.common import FitIns, ndarrays_to_parameters
    from flwr.compat.common.recorddict_compat import fitins_to_recorddict

    handed = []

    class Old(NumPyClient):
        def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict]:
            handed.append(float(parameters[0][0]))
            return parameters, 1, {}

    here = Here(ClientApp(lambda context: Old().to_client(), mods=[guard(on_anchors)]), 1)
    for model in (GOOD, -GOOD, -GOOD, GOOD * 3):
        content = fitins_to_recorddict(FitIns(ndarrays_to_parameters([model]), {}), keep_input=True)
        here.send_and_receive([here.create_message(content, "train", 1000, "1")])
    assert handed == [1, 1, 1, 3]


def test_several_records_need_a_key() -> None:
    content = {"old": ArrayRecord([GOOD]), "new": ArrayRecord([GOOD])}
    for key, fits in (("", False), ("neither", False), ("new", True)):
        client = Client(key=key)
        client.answer = lambda kind, message: Message(RecordDict(), reply_to=message)  # type: ignore[method-assign]
        message = client.here.create_message(RecordDict(dict(content)), "train", 1000, "1")
        if fits:
            client.here.send_and_receive([message])
        else:
            with pytest.raises(UsageError, match="array records 'old', 'new': say by `key` which of them"):
                client.here.send_and_receive([message])


def test_the_record_is_one_that_the_page_shows(tmp_path: Path) -> None:
    client = Client(audit=tmp_path, rounds=4, tolerance=0.1)
    client.send(GOOD, GOOD, -GOOD, GOOD * np.nan)
    from sagefl.runs.rundir import RunDirectory

    record = RunDirectory(tmp_path / "client-0")
    rows = record.table("decisions").to_dicts()
    assert [row["reason"] for row in rows] == ["only", "only", "home", "home"]
    assert [row["chosen"] for row in rows] == [[1], [1], [], []]
    assert {row["width"] for row in rows} == {None, 0.1}
    assert record.table("metrics")["client"].to_list() == [1.0] * 4  # of the model that it went on with
    assert record.summary is not None
    pytest.importorskip("networkx", reason="the page needs the extra view")
    from sagefl.view.shelf import Shelf
    from sagefl.view.unfolding import unfold

    shelf = Shelf([tmp_path])
    (standing,) = shelf.standings()
    assert (standing["status"], standing["done"], standing["problems"]) == ("finished", 4, [])
    (run,) = shelf.runs().values()
    told = [unfold(run, round, 0)["sentences"][0] for round in range(4)]
    assert told[0] == "80 anchors: the first model, at risk 0.000: accepted."
    assert told[2].endswith("needed to prove it worse by more than 0.1: refused.")
    assert told[3] == "The model is not finite: refused."
    assert unfold(run, 0, 1)["note"] == "This record has none of its decisions."


def test_in_a_federation_the_guard_keeps_clients_from_following_a_broken_average() -> None:
    """The example under Flower's own FedAvg; docs/howto/flower.md shows the same figures."""
    example = runpy.run_path(str(ROOT / "examples" / "flower_guard.py"))
    said = (ROOT / "docs" / "howto" / "flower.md").read_text(encoding="utf-8")
    for name, mods in {"plain": [], "guarded": [guard(example["on_anchors"])]}.items():
        errors: list[float] = []
        app, here = example["server_app"](errors), Here(example["client_app"](*mods), example["CLIENTS"])
        app(here, Context(1, 1, {}, RecordDict(), {}))
        assert f"{name:>8}: {' '.join(f'{error:.2f}' for error in errors)}" in said
        assert (errors[-1] > 0.8) == (name == "plain")
