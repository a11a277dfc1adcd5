"""The server without a browser: what it answers, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from made_runs import grow_run, make_grouped_runs, make_run
from starlette.testclient import TestClient
from watched_pages import TOKEN

from sagefl.errors import SageflError
from sagefl.runs.rundir import RunDirectory
from sagefl.view.server import LOOPBACK, application, kept_token, listen
from sagefl.view.shelf import Shelf

API = f"/{TOKEN}/api"


def client_of(*places: Path) -> TestClient:
    return TestClient(application(Shelf(places), TOKEN), base_url="http://127.0.0.1:8427")


@pytest.fixture
def client(small_runs: Path) -> Iterator[TestClient]:
    with client_of(small_runs) as made:
        yield made


def ids(client: TestClient) -> dict[str, str]:
    return {run["method"]: run["id"] for run in client.get(f"{API}/state").json()["runs"]}


def test_the_truth_and_the_headroom_are_told_to_readers(tmp_path: Path, small_runs: Path) -> None:
    truth = make_grouped_runs(tmp_path)
    with client_of(tmp_path) as client:
        runs = client.get(f"{API}/state").json()["runs"]
        world = client.get(f"{API}/world?run={runs[0]['id']}").json()
        (tmp_path / "rg" / "truth.json").write_text('{"groups": [0], "misbehaving": [], "noisy": []}')
        refused = client.get(f"{API}/world?run={ids(client)['rg']}")
    assert (world["groups"], world["misbehaving"], world["noisy"]) == (list(truth.groups), [2], [4])
    assert {run["headroom"] for run in runs} == {runs[0]["headroom"]}
    assert runs[0]["headroom"].startswith("Headroom: ")
    assert {run["groups"] for run in runs} == {2}
    assert refused.status_code == 404
    assert "does not fit this run" in refused.json()["error"]
    with client_of(small_runs) as client:  # without a world all is as it was
        assert not {"groups", "headroom", "capture"} & set(client.get(f"{API}/state").json()["runs"][0])


class TestRefusals:
    @pytest.mark.parametrize("path", ["/", "/api/state", "/wrong/api/state", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "//"])
    def test_nothing_without_the_token(self, client: TestClient, path: str) -> None:
        answer = client.get(path)
        assert answer.status_code == 403
        assert TOKEN not in answer.text

    @pytest.mark.parametrize("host", ["evil.example", "evil.example:8427", "127.0.0.1.evil.example", ""])
    def test_another_host_name_is_dns_rebinding(self, client: TestClient, host: str) -> None:
        assert client.get(f"{API}/state", headers={"host": host}).status_code == 421

    @pytest.mark.parametrize("host", ["127.0.0.1:8427", "localhost:1", "[::1]:8427"])
    def test_this_machine_by_any_of_its_names(self, client: TestClient, host: str) -> None:
        assert client.get(f"{API}/state", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "path",
        ["static/../server.py", "static/%2e%2e/server.py", "static/..%2fserver.py", "static//etc/passwd", "static/x"],
    )
    def test_no_part_of_a_request_becomes_a_path(self, client: TestClient, path: str) -> None:
        answer = client.get(f"/{TOKEN}/{path}")
        assert answer.status_code in (403, 404)
        assert "import" not in answer.text

    @pytest.mark.parametrize("run", ["../../etc", "/etc", "%2fetc", ""])
    def test_runs_are_looked_up_by_id(self, client: TestClient, run: str) -> None:
        assert client.get(f"{API}/rounds", params={"run": run}).status_code == 404

    def test_reading_only(self, client: TestClient) -> None:
        assert client.post(f"{API}/state").status_code == 405
        assert client.delete(f"/{TOKEN}/").status_code == 405

    def test_every_answer_carries_the_policy(self, client: TestClient) -> None:
        for path in ("/", f"/{TOKEN}/", f"{API}/state", f"{API}/nothing"):
            headers = client.get(path).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize(
        ("query", "said"), [({}, "run"), ({"run": "x"}, "no run"), ({"run": "os", "since": "a"}, "whole number")]
    )
    def test_a_wrong_question_is_answered_in_words(self, client: TestClient, query: dict[str, str], said: str) -> None:
        if query.get("run") == "os":
            query = query | {"run": ids(client)["sage-os"]}
        answer = client.get(f"{API}/rounds", params=query)
        assert answer.status_code in (400, 404)
        assert said in answer.json()["error"]


class TestState:
    def test_every_run_with_its_numbers(self, client: TestClient) -> None:
        runs = client.get(f"{API}/state").json()["runs"]
        assert {run["label"] for run in runs} == {"rg", "sage-os", "sage-e"}
        assert {run["status"] for run in runs} == {"finished"}
        assert all(run["done"] == run["rounds"] == 6 and run["clients"] == 8 for run in runs)
        assert all(run["last"]["accuracy"] == pytest.approx(0.8) for run in runs)

    def test_nothing_new_is_304_and_growth_is_not(self, tmp_path: Path) -> None:
        directory = make_run(tmp_path / "run", done=2)
        with client_of(tmp_path) as client:
            first = client.get(f"{API}/state")
            again = client.get(f"{API}/state", headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            grow_run(directory, 4)
            later = client.get(f"{API}/state", headers={"if-none-match": first.headers["etag"]})
            assert later.status_code == 200
            assert later.json()["runs"][0]["done"] == 4
            assert later.json()["runs"][0]["status"] == "running"

    def test_runs_of_the_same_method_are_told_apart(self, tmp_path: Path) -> None:
        for seed in (1, 2):
            make_run(tmp_path / f"s{seed}", seed=seed, done=1)
        make_run(tmp_path / "copy", seed=2, done=1)
        labels = [run["label"] for run in Shelf([tmp_path]).standings()]
        assert len(set(labels)) == 3
        assert "sage-os, seed 1" in labels

    def test_an_interrupted_run_is_stopped(self, tmp_path: Path) -> None:
        make_run(tmp_path, done=2).event("interrupted", round=2)
        assert Shelf([tmp_path]).standings()[0]["status"] == "stopped"


class TestTables:
    def test_only_the_rounds_a_page_has_not_seen(self, client: TestClient) -> None:
        run = ids(client)["sage-os"]
        whole = client.get(f"{API}/rounds", params={"run": run}).json()
        rest = client.get(f"{API}/rounds", params={"run": run, "since": 4}).json()
        assert (whole["from"], rest["from"], rest["total"]) == (0, 4, 6)
        assert rest["columns"]["evaluations"] == whole["columns"]["evaluations"][4:]

    def test_a_page_that_is_ahead_gets_the_whole_again(self, client: TestClient) -> None:
        run = ids(client)["sage-os"]
        for table in ("rounds", "decisions"):
            assert client.get(f"{API}/{table}", params={"run": run, "since": 99}).json()["from"] == 0

    def test_decisions_say_what_the_audit_says(self, client: TestClient, small_runs: Path) -> None:
        sent = client.get(f"{API}/decisions", params={"run": ids(client)["sage-os"]}).json()
        names = {code: name for name, code in sent["codes"].items()}
        audit = RunDirectory(small_runs / "os").table("decisions")
        for row in audit.iter_rows(named=True):
            got = sent["rounds"][row["round"]]
            assert names[got["reasons"][row["client"]]] == row["reason"]
            assert got["chosen"][row["client"]] == row["chosen"][0]
            assert got["evaluations"][row["client"]] == row["evaluations"]

    def test_the_world_is_rebuilt_without_torch(self, client: TestClient, small_runs: Path) -> None:
        world = client.get(f"{API}/world", params={"run": ids(client)["sage-os"]}).json()
        mentioned = set()
        for client_, peers in RunDirectory(small_runs / "os").table("decisions").select("client", "peers").iter_rows():
            mentioned |= {tuple(sorted((client_, p))) for p in peers}
        assert {tuple(edge) for edge in world["edges"]} == mentioned
        assert len(world["positions"]) == len(world["labels"]) == 8
        assert sum(map(sum, world["labels"])) > 0
        assert all(-1 <= v <= 1 for point in world["positions"] for v in point)

    def test_a_data_set_that_is_code_is_not_run(self, tmp_path: Path) -> None:
        make_run(tmp_path / "run", done=1)
        text = (tmp_path / "run" / "run.toml").read_text()
        (tmp_path / "run" / "run.toml").write_text(text.replace("fmnist-mini", "os:getcwd"))
        with client_of(tmp_path) as client:
            world = client.get(f"{API}/world", params={"run": next(iter(ids(client).values()))}).json()
        assert world["labels"] is None
        assert "does not execute" in world["notes"][0]

    def test_a_graph_file_that_is_gone_leaves_the_links_of_decisions(self, tmp_path: Path) -> None:
        make_run(tmp_path / "run", done=1)
        text = (tmp_path / "run" / "run.toml").read_text()
        lines = 'kind = "file"\nfile = "/nowhere/edges.txt"'
        (tmp_path / "run" / "run.toml").write_text(text.replace('kind = "er"', lines))
        with client_of(tmp_path) as client:
            world = client.get(f"{API}/world", params={"run": next(iter(ids(client).values()))}).json()
        assert world["edges"]
        assert "could not be rebuilt" in world["notes"][0]


class TestDamage:
    """Directories that are empty, torn or of another version are shown with what is wrong, and break nothing."""

    def states(self, path: Path) -> dict[str, object]:
        with client_of(path) as client:
            answer = client.get(f"{API}/state")
            assert answer.status_code == 200
            run: dict[str, object] = answer.json()["runs"][0]
            for table in ("rounds", "decisions", "clients", "world"):
                assert client.get(f"{API}/{table}", params={"run": str(run["id"])}).status_code in (200, 404)
            return run

    def test_empty(self, tmp_path: Path) -> None:
        assert self.states(tmp_path)["status"] == "waiting"

    def test_only_a_config(self, tmp_path: Path) -> None:
        make_run(tmp_path, done=0)
        for name in ("metrics", "decisions", "clients", "timings"):
            (tmp_path / f"{name}.parquet").unlink()
        found = self.states(tmp_path)
        assert (found["status"], found["done"], found["problems"]) == ("running", 0, [])

    @pytest.mark.parametrize("name", ["metrics.parquet", "decisions.parquet", "clients.parquet", "timings.parquet"])
    def test_torn_tables(self, tmp_path: Path, name: str) -> None:
        make_run(tmp_path, done=2)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        found = self.states(tmp_path)
        if name == "metrics.parquet":
            assert "metrics.parquet" in str(found["problems"])

    def test_torn_config_summary_and_log(self, tmp_path: Path) -> None:
        make_run(tmp_path)
        (tmp_path / "run.toml").write_text("clients = [")
        (tmp_path / "summary.json").write_text('{"rounds":')
        (tmp_path / "events.log").write_bytes(b'{"event": "star\xff')
        problems = str(self.states(tmp_path)["problems"])
        assert "run.toml" in problems
        assert "summary.json" in problems

    def test_another_version(self, tmp_path: Path) -> None:
        make_run(tmp_path)
        text = (tmp_path / "run.toml").read_text()
        (tmp_path / "run.toml").write_text("from_the_future = 1\n" + text)
        metrics = pl.read_parquet(tmp_path / "metrics.parquet")
        metrics.drop("macro_f1").with_columns(pl.lit(1).alias("new")).write_parquet(tmp_path / "metrics.parquet")
        found = self.states(tmp_path)
        assert "from_the_future" in str(found["problems"])
        assert found["method"] == "sage-os"
        assert found["done"] == 6

    def test_not_our_parquet(self, tmp_path: Path) -> None:
        make_run(tmp_path)
        pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "metrics.parquet")
        assert "another version" in str(self.states(tmp_path)["problems"])

    def test_a_run_that_disappears(self, tmp_path: Path) -> None:
        make_run(tmp_path / "run")
        with client_of(tmp_path) as client:
            run = next(iter(ids(client).values()))
            shutil.rmtree(tmp_path / "run")
            assert client.get(f"{API}/rounds", params={"run": run}).status_code == 404
            assert client.get(f"{API}/state").json()["runs"][0]["status"] == "waiting"


class TestStarting:
    def test_the_socket_is_loopback_only(self) -> None:
        with listen(0) as sock:
            assert sock.getsockname()[0] == LOOPBACK == "127.0.0.1"

    def test_a_taken_port_is_refused_by_name(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SageflError, match="choose another --port"):
            listen(taken.getsockname()[1])

    def test_the_token_is_kept_and_private(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        token = kept_token()
        kept = tmp_path / "sagefl" / "view-token"
        assert kept_token() == token == kept.read_text()
        assert kept.stat().st_mode & 0o777 == 0o600
        assert len(token) >= 32

    def test_a_token_others_can_read_is_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        token = kept_token()
        (tmp_path / "sagefl" / "view-token").chmod(0o644)
        assert kept_token() != token

    def test_where_it_cannot_be_kept_it_is_fresh(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
        assert len({kept_token(), kept_token()}) == 2

    def test_the_command_prints_its_address_and_ends_on_ctrl_c(self, small_runs: Path, tmp_path: Path) -> None:
        code = "from sagefl.cli import app; app()"
        command = [sys.executable, "-c", code, "view", str(small_runs), "--no-browser", "--port", "0"]
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1]
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
            with urllib.request.urlopen(f"{address}api/state", timeout=30) as answer:
                assert len(json.load(answer)["runs"]) == 3
            process.send_signal(signal.SIGINT)
            process.wait(30)

    def test_json_never_holds_nan(self, client: TestClient) -> None:
        for name in ("rg", "sage-os", "sage-e"):
            body = client.get(f"{API}/rounds", params={"run": ids(client)[name]}).text
            json.loads(body, parse_constant=lambda word: pytest.fail(word))
