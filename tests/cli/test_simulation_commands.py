"""`sagefl run`, `resume`, `compare`, `replay`, `config` and `data`: what they print, refuse and leave behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_commands import ONE, SMALL
from typer.testing import Result

from sagefl.api import load
from sagefl.data import catalogue, places
from sagefl.data.files import FileDataset, RawFile
from sagefl.runs.config import RunConfig
from sagefl.runs.rundir import RunDirectory

Call = Callable[..., Result]


# A run ----------------------------------------------------------------------------------------------------------------


def test_a_run_says_what_it_does_and_ends_with_a_table(run: Call) -> None:
    out = run().stdout
    assert "fmnist-mini, Dirichlet(0.1), 6 clients on er, 3 rounds, seed 1" in out
    assert re.search(r"sage-os: round 2/3  accuracy 0\.\d{4}  evidence \d+\.\d%  left \d+ s", out)
    assert re.search(r"method +accuracy macro F1 client +weak certify gossip evidence probes MB models MB\n", out)
    assert re.search(r"\nsage-os +0\.\d{4} +0\.\d{4} ", out)
    assert "Runs are in run" in out
    assert "\x1b" not in out  # plain where there is no terminal
    assert (Path("run") / "summary.json").is_file()


def test_quiet_prints_the_result_alone(run: Call) -> None:
    out = run("--quiet").stdout
    assert "round" not in out
    assert "Dirichlet" not in out
    assert re.search(r"\nsage-os +0\.\d{4}", out)


def test_a_finished_run_is_shown_not_repeated(run: Call, sagefl: Call) -> None:
    first = run().stdout
    before = (Path("run") / "events.log").read_text()
    for again in (run(), sagefl("resume", "run")):
        assert "run is already finished:" in again.stdout
        assert first.splitlines()[-6] in again.stdout  # the same row of numbers
    assert (Path("run") / "events.log").read_text() == before


def test_without_out_the_directory_is_named_after_method_and_world(sagefl: Call) -> None:
    sagefl("run", *SMALL, *ONE, "--rounds", "1", "--method", "rg", "-q")
    (made,) = Path("runs").iterdir()
    digest = RunDirectory(made).config.digest[:8]
    assert re.fullmatch(rf"rg-fmnist-mini-er-a0\.1-K6-T1-s1-[0-9a-f]{{8}}-{digest}", made.name)


def test_flags_files_and_settings_come_together(sagefl: Call) -> None:
    Path("base.toml").write_text(
        'clients = 9\nseed = 3\n[data]\nalpha = 0.7\n[method]\nid = "sage-os"\noptions = {probe_cost = 0.0}\n'
    )
    flags = ("--config", "base.toml", "--rounds", "1", "--clients", "5", *ONE, "-q", "--set", "model.name=mlp")
    cap = ("--max-batches", "1")
    sagefl("run", *flags, *cap, "--out", "a")
    settings = RunDirectory(Path("a")).config
    assert (settings.clients, settings.seed, settings.data.alpha) == (5, 3, 0.7)
    assert settings.method.options == {"probe_cost": 0}
    sagefl("run", *flags, *cap, "--out", "b", "--method", "rg")  # the file's options belong to the file's method
    assert RunDirectory(Path("b")).config.method.model_dump() == {"id": "rg", "options": {}}
    sagefl(
        "run", *flags, *cap, "--out", "c", "--method", "sage-os:delta=.2", "--set", "method.options.ties=lowest-index"
    )
    assert RunDirectory(Path("c")).config.method.options == {"delta": 0.2, "ties": "lowest-index"}


def test_lambda_is_another_name_of_probe_cost(run: Call, sagefl: Call) -> None:
    """Wherever options are typed; what is kept has one name, so that it is one run with one address."""
    Path("base.toml").write_text("[method]\noptions = {lambda = 0.25}\n")
    for flags, price in (((), 0.25), (("--set", "method.options.lambda=.75"), 0.75)):
        settings = tomllib.loads(sagefl("config", "--config", "base.toml", *flags).stdout)
        assert settings["method"]["options"] == {"probe_cost": price}
    run("-q", "--rounds", "1", "--method", "sage-e:lambda=.5")
    assert RunDirectory(Path("run")).config.method.options == {"probe_cost": 0.5}
    swept = sagefl("replay", "run", "--method", "sage-e:lambda=1", "--sweep", "lambda=0,.5").stdout.splitlines()
    assert [line.split()[1] for line in swept if line.startswith("sage-e")] == ["probe_cost=0", "probe_cost=0.5"]


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "data.alhpa=1"], "unknown key 'data.alhpa', did you mean 'alpha'?; known here: dataset, partition"),
        (["--set", "training.max_batch=1"], "unknown key 'training.max_batch', did you mean 'max_batches'?"),
        (["--set", "sead=1"], "unknown key 'sead', did you mean 'seed'?"),
        (["--set", "lambda=1"], "an option of the method is method.options.probe_cost"),
        (["--set", "seed"], "options are written name=value, got 'seed'"),
        (["--set", "data=3", "--set", "data.alpha=1"], "'data' has a value already, so"),
        (["--alpha", "-1"], "data.alpha: Input should be greater than 0, got -1.0"),
        (["--clients", "0"], "clients: Input should be greater than or equal to 1, got 0"),
        (["--set", "training.mixing=2"], "training.mixing: Input should be less than or equal to 1, got 2"),
        (["--topology", "star"], "topology.kind: Input should be 'er', 'ba'"),
        (["--topology", "file"], "topology.kind = file needs topology.file"),
        (["--set", "training.momentum=0.9"], "training.momentum is SGD's: set training.optimizer = sgd"),
        (["--topology", "ring", "--set", "topology.k=3"], "topology 'ring' has no option 'k'"),
        (["--dataset", "fmnst"], "unknown dataset 'fmnst', did you mean 'fmnist'?"),
        (["--dataset", "mine.npz"], "mine.npz: no such file"),
        (["--method", "sage-so"], "unknown method 'sage-so', did you mean 'sage-os'?"),
        (["--method", "sage-os:detla=.1"], "has no option 'detla', did you mean 'delta'?"),
        (["--method", "sage-os:delta=2"], "delta must"),
        (["--method", "sage-os:delta=lots"], "delta must"),
        (
            ["--method", "sage-m", "--set", "data.anchor_order=fixed"],
            "voids its guarantee: use anchor_order = shuffle",
        ),
        (["--set", "model.name=resnet"], "unknown model 'resnet'; known: encoder-decoder, mlp"),
        (["--set", "model.options.depth=3"], "does not take these options"),
        (["--set", "model.shared=('bdy',)"], "the shared part 'bdy' names no parameter"),
        (["--clients", "4000"], "fewer clients"),
        (
            ["--engine", "threads"],
            "unknown engine 'threads'; engines: auto, sequential, processes, stacked, ray",
        ),
        (["--workers", "0"], "workers: Input should be greater than or equal to 1"),
        (["--checkpoint-every", "0"], "checkpoint_every: Input should be greater than or equal to 1"),
        (["--device", "quantum"], "no device 'quantum'"),
        (["--track", "papyrus"], "unknown tracker 'papyrus': tensorboard, mlflow, wandb"),
        (["--config", "nowhere.toml"], "cannot read config nowhere.toml: No such file"),
        (["--config", "broken.toml"], "broken.toml is not valid TOML"),
        (["--set", "network.trace=short.txt"], "describes 2 clients, the run has 6"),
    ],
)
def test_mistakes_end_with_one_line_that_says_what_to_do(run: Call, arguments: list[str], message: str) -> None:
    Path("broken.toml").write_text("clients = = 3")
    Path("short.txt").write_text("1 1\n")
    told = run(*arguments, code=2)
    assert told.stderr.startswith("sagefl: ")
    assert message in told.stderr
    assert not Path("run").exists()


@pytest.mark.parametrize(
    "mistake",
    [["--method", "sage-os:foo=1"], ["--set", "model.name=mpl"], ["--track", "papyrus"], ["--device", "quantum"]],
)
def test_the_corrected_command_runs_where_a_refused_one_would_have(run: Call, mistake: list[str]) -> None:
    run("--rounds", "1", *mistake, code=2)
    assert not Path("run").exists()
    run("--rounds", "1", "-q")
    assert RunDirectory(Path("run")).summary is not None


def test_several_mistakes_are_all_named(run: Call) -> None:
    told = run("--alpha", "-1", "--set", "traning.mixing=1", code=2).stderr
    assert "data.alpha" in told
    assert "did you mean 'training'" in told


def test_a_directory_with_another_config_is_refused_and_kept(run: Call) -> None:
    run("-q")
    before = {p: p.read_bytes() for p in Path("run").rglob("*") if p.is_file()}
    assert "another config: seed (1 there, 2 here); choose another --out" in run("--seed", "2", code=2).stderr
    assert {p: p.read_bytes() for p in Path("run").rglob("*") if p.is_file()} == before


def test_a_folder_of_something_else_is_refused_and_kept(run: Call, sagefl: Call) -> None:
    Path("run").mkdir()
    Path("run/letter.txt").write_text("dear")
    assert "run is not empty and not a run directory" in run(code=2).stderr
    assert "run is not a run directory: it has no run.toml" in sagefl("resume", "run", code=2).stderr
    assert [p.name for p in Path("run").iterdir()] == ["letter.txt"]


def test_data_with_the_wrong_checksum_is_refused(run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(name: str, raw: dict[str, bytes]) -> Any:
        pytest.fail("decoded")

    true = b"the real thing"
    spec = FileDataset(
        "fmnist", "Fashion", (RawFile("x.bin", len(true), hashlib.sha256(true).hexdigest()),), ("fmnist",), never
    )
    monkeypatch.setitem(catalogue.CATALOGUE, "fmnist", spec)
    monkeypatch.setattr(places, "SYSTEM", tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SAGEFL_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "fmnist").mkdir(parents=True)
    (tmp_path / "data" / "fmnist" / "x.bin").write_bytes(b"the fake thing")
    told = run("--dataset", "fmnist", code=2).stderr
    assert "x.bin has the wrong checksum" in told
    assert "sagefl data get" in told
    (tmp_path / "data" / "fmnist" / "x.bin").unlink()
    assert "Fashion is not on this machine" in run("--dataset", "fmnist", "--out", "other", code=2).stderr


def test_a_run_with_no_good_checkpoint_left_says_so(run: Call, sagefl: Call) -> None:
    run("-q")
    (Path("run") / "summary.json").unlink()
    for manifest in Path("run").rglob("manifest.json"):
        manifest.write_text("{}")
    told = sagefl("resume", "run", *ONE, code=2).stderr
    assert "no good checkpoint is left in run: start in another --out" in told


# compare --------------------------------------------------------------------------------------------------------------


def test_a_comparison_prints_one_table(sagefl: Call) -> None:
    out = sagefl(
        "compare", "--methods", "local, rg,sage-os:schedule=(8,16)", *SMALL, *ONE, "--rounds", "2", "--out", "all"
    ).stdout
    table = out[out.index("method ") :].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["local", "rg", "sage-os:schedule=(8,"]
    assert "rg: round 2/2" in out
    assert "Runs are in all" in out
    again = sagefl("compare", "--methods", "rg,local", *SMALL, *ONE, "--rounds", "2", "--out", "all", "--quiet").stdout
    assert [line.split()[0] for line in again.splitlines()[2:4]] == ["rg", "local"]
    read = sagefl("compare", "all/rg", "all/local").stdout
    assert read.splitlines()[:4] == again.splitlines()[:4]
    assert "differ in more" not in read


def test_runs_of_different_worlds_are_compared_with_a_warning(sagefl: Call) -> None:
    for alpha in "12":
        sagefl("run", "--method", "rg", *SMALL, *ONE, "--rounds", "1", "--alpha", alpha, "--out", f"r{alpha}", "-q")
    out = sagefl("compare", "r1", "r2").stdout
    assert [line.split(")")[0] for line in out.splitlines()[2:4]] == ["rg (r1", "rg (r2"]
    assert "These runs differ in more than their method" in out
    assert "nowhere" in sagefl("compare", "nowhere", code=2).stderr


def test_unfinished_runs_are_shown_by_their_last_evaluated_round_apart_from_finished_ones(
    sagefl: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the table, as JSON and in Python; in no mean and no difference."""
    made = (*SMALL, *ONE, "--rounds", "4", "-q")
    for name in ("rg-1", "local-1", "local-2"):
        method, seed = name.split("-")
        sagefl("run", "--method", method, *made, "--seed", seed, "--out", f"all/{name}")
    monkeypatch.setattr(
        "sagefl.api.progress.RunProgress.round",
        lambda self, record: os.kill(os.getpid(), signal.SIGINT) if record["round"] == 2 else None,
    )
    sagefl("run", "--method", "rg", *made, "--seed", "2", "--out", "all/rg-2", code=130)
    out = sagefl("compare", "all").stdout
    rows = [line.split("  ")[0] for line in out.splitlines()[2:5]]
    assert rows == ["rg", "local", "rg (unfinished, round 2 of 4)"]
    assert "Not finished, so shown as of the last evaluated round" in out
    assert "all/rg-2 (round 2 of 4). `sagefl resume`" in out

    rg, local, stopped = json.loads(sagefl("compare", "all", "--json").stdout)["methods"]
    assert [rg["metrics"]["client"]["seeds"], local["versus"]["client"]["seeds"]] == [1, 1]
    assert stopped["versus"]["client"] is None
    (run,) = stopped["runs"]
    assert (run["finished"], run["rounds"], run["decisions"]) == (False, 2, 2 * 6)
    measured = RunDirectory(Path("all/rg-2")).table("metrics").to_dicts()
    assert len(measured) == 3
    assert run["client"] == measured[1]["client"]
    assert run["model_bytes"] == sum(row["model_bytes"] for row in measured[:2])
    assert load("all").frame()["finished"].to_list() == [True, True, True, False]

    (begun := Path("all/begun")).mkdir()
    shutil.copy("all/rg-2/run.toml", begun)
    assert "Left out, as no round is recorded yet: all/begun." in sagefl("compare", "all").stdout
    assert "no round of all/begun is recorded yet" in sagefl("compare", "all/begun", code=2).stderr


def test_seeds_become_means_spreads_and_paired_differences(sagefl: Call) -> None:
    flags = ("--methods", "rg,local", *SMALL, *ONE, "--rounds", "1", "--seeds", "1-2")
    out = sagefl("compare", *flags, "--out", "all").stdout
    assert "seeds 1, 2" in out
    assert re.search(r"\nrg +2 +0\.\d{4} ±0\.\d{4} ", out)
    assert re.search(r"\nlocal +2 +0\.\d{4} ±0\.\d{4} [+-]0\.\d{4} \[[+-]\d+\.\d{4}, [+-]\d+\.\d{4}\] ", out)
    assert "vs rg: mean difference in the same worlds, with its 95 %" in " ".join(out.split())
    folders = sagefl("compare", "all").stdout  # as `report` takes it
    assert folders.splitlines()[1:4] == [
        line for line in out.splitlines() if line.startswith(("method", "rg  ", "local  "))
    ]
    printed = sagefl("compare", *flags, "--out", "all", "--json").stdout
    document = json.loads(printed)
    assert [m["method"] for m in document["methods"]] == ["rg", "local"]
    assert all(run["read"] for m in document["methods"] for run in m["runs"])
    assert document["methods"][1]["versus"]["accuracy"]["seeds"] == 2
    assert "--seeds takes whole numbers" in sagefl("compare", "--seeds", "1-x", *SMALL, code=2).stderr


def test_cells_are_shared_with_studies(sagefl: Call) -> None:
    """A comparison of what a study has run reads its cells."""
    scale = ("--clients", "8", "--rounds", "1", "--max-batches", "1")
    sagefl(
        "study", "paper", "--preset", "smoke", *scale, "--topologies", "er", "--alphas", ".3", "--methods", "rg,local",
        "--seeds", "1-2", "--jobs", "1", "--workers", "1", "--no-pages", "--brief", "-q", "--out", "out",
    )  # fmt: skip
    more = ("--alpha", ".3", "--set", "topology.degree=6", "--set", "model.name=mlp", "--eval-every", "5")
    out = sagefl(
        "compare", "--methods", "rg,local", *scale, *more, "--set", "evaluation.subset=500", "--seeds", "1-2"
    ).stdout
    assert "All of these runs were finished before: read, not run." in out
    assert len(list(Path("runs/cells").iterdir())) == 4


def test_what_the_paper_s_words_can_say_can_be_typed(run: Call) -> None:
    run("-q", "--rounds", "1", "--set", "evaluation.losses=none", "--set", "network.misbehaviour=none")
    assert RunDirectory(Path("run")).config.evaluation.losses == "none"
    assert not Path("run/losses").exists()


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        (
            ["--set", "topology.kind=file", "--set", "topology.file=none.txt"],
            "the graph has no edges: nobody can exchange",
        ),
        (["--set", "topology.kind=file", "--set", "topology.file=two.txt"], "1 of 6 clients have no neighbour"),
        (["--set", "topology.kind=file", "--set", "topology.file=two.txt"], "the graph falls into 2 parts"),
        (["--set", "topology.kind=file", "--set", "topology.file=two.txt"], "a single neighbour, and sage-os spends"),
        (["--set", "data.anchor=.001"], "6 of 6 clients have fewer than 16 anchors and will gossip under sage-os"),
        (
            ["--topology", "complete", "--set", "data.partition=iid", "--set", "data.anchor=.015"],
            "no client can ever certify under sage-os, whatever neighbours answer (such as with",
        ),
    ],
)
def test_an_experiment_that_cannot_mean_what_it_seems_to_is_said(run: Call, flags: list[str], warning: str) -> None:
    Path("two.txt").write_text("0 1\n1 2\n3 4\n")
    Path("none.txt").write_text("# nobody knows anybody\n")
    out = " ".join(run("--rounds", "1", *flags).stdout.split())
    assert "Per client: neighbours" in out
    assert f"{warning}" in out
    held = json.loads(Path("run/environment.json").read_text())
    assert any(warning in text for text in held["warnings"])


def test_a_comparison_with_a_mistake_trains_nothing(sagefl: Call) -> None:
    told = sagefl("compare", "--methods", "rg,sage-so", *SMALL, "--out", "all", code=2).stderr
    assert "unknown method 'sage-so', did you mean 'sage-os'?" in told
    told = sagefl("compare", "--methods", "rg", *SMALL, "--device", "quantum", "--out", "all", code=2).stderr
    assert "no device 'quantum'" in told
    assert not Path("all").exists()
    assert "named more than once: rg" in sagefl("compare", "--methods", "rg,rg", *SMALL, code=2).stderr


# replay ---------------------------------------------------------------------------------------------------------------


def test_a_replay_sweeps_rules_over_recorded_losses(run: Call, sagefl: Call) -> None:
    run("-q")
    out = sagefl("replay", "run", "--lambda", "0,5e-4,2e-3", "--delta", ".05,.1").stdout
    assert "recorded decisions" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("sage-os")]
    assert [row[1:3] for row in rows] == [
        [f"probe_cost={price}", f"delta={delta}"] for price in ("0", "0.0005", "0.002") for delta in ("0.05", "0.1")
    ]
    out = sagefl("replay", "run", "--method", "sage-vanilla", "--sweep", "schedule=(8,16),(16,)").stdout
    assert "schedule=(8, 16)" in out
    assert "schedule=(16,)" in out


def test_a_replay_that_needs_more_says_how_much_it_covers(run: Call, sagefl: Call) -> None:
    run("-q", "--method", "sage-os:probe_cost=1e9")
    out = sagefl("replay", "run", "--method", "aq-128").stdout
    assert "record everything with --set evaluation.losses=full" in out
    assert "are of the covered decisions, which are those that end early, and not of all" in out
    assert "covered:" not in sagefl("replay", "run", "--method", "rg").stdout


def test_the_ends_of_decisions_add_up_where_clients_have_a_single_neighbour(run: Call, sagefl: Call) -> None:
    """A single neighbour is a draw among one, for rules that say so and for rules that gossip: the same column."""
    alone = ("--clients", "2", "--topology", "complete", "--rounds", "2", "--set", "evaluation.losses=full")
    sagefl("compare", "--methods", "rg,sage-os,sage-e", *SMALL, *ONE, *alone, "--out", "all", "--quiet")
    out = sagefl("compare", "all/rg", "all/sage-os", "all/sage-e").stdout
    rows = {line.split()[0]: line.split() for line in out.splitlines()[2:5]}
    assert rows.keys() == {"rg", "sage-os", "sage-e"}
    assert {tuple(row[5:7]) for row in rows.values()} == {("0.0%", "100.0%")}
    for rule in ("rg", "sage-os", "sage-e", "aq-128", "local"):
        row = sagefl("replay", "all/sage-os", "--method", rule).stdout.splitlines()[2].split()
        assert sum(float(share.rstrip("%")) for share in row[2:8]) == pytest.approx(100), row


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a run directory"),
        (["run", "--sweep", "delta"], "a sweep is written name=v1,v2, got 'delta'"),
        (["run", "--sweep", "detla=1"], "has no option 'detla', did you mean 'delta'?"),
        (["run", "--delta", "3"], "delta must"),
        (["run"], "has no recorded losses"),
    ],
)
def test_replays_that_cannot_be(run: Call, sagefl: Call, arguments: list[str], message: str) -> None:
    run("-q", "--method", "rg", "--rounds", "1")
    assert message in sagefl("replay", *arguments, code=2).stderr


# config and data ------------------------------------------------------------------------------------------------------


def test_config_lists_every_key_with_its_meaning(sagefl: Call) -> None:
    out = sagefl("config").stdout
    for section in ("data", "topology", "network", "model", "training", "method", "evaluation"):
        assert f"\n[{section}]\n" in out
    for name, field in RunConfig.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        for key, leaf in (inner or {name: field}).items():
            assert leaf.description, f"{name}.{key} has no description"
            assert re.search(rf"(?m)^(?:# )?{key} = .*  # {re.escape(leaf.description)}", out)


def test_config_names_the_choices_and_leaves_what_is_not_set_to_be_filled_in(sagefl: Call) -> None:
    out = sagefl("config").stdout
    assert 'kind = "er"  # graph family; one of er, ba, ring, regular, ws, torus, complete, file\n' in out
    assert 'misbehaviour = "none"  # what misbehaving peers do; one of none, wrong-answers, ' in out
    assert "\n# p = ...  # edge probability" in out
    assert '\n# file = "..."  # edge list' in out
    assert "None" not in out


def test_the_printed_config_is_a_file_that_runs(run: Call, sagefl: Call) -> None:
    Path("all.toml").write_text(sagefl("config").stdout)
    assert RunConfig.read(Path("all.toml")) == RunConfig()
    run("--config", "all.toml", "--rounds", "1", "-q")
    assert RunDirectory(Path("run")).summary is not None


def test_config_resolves_to_toml_that_can_be_run(sagefl: Call) -> None:
    out = sagefl("config", "--set", "data.alpha=.3", "--set", "clients=7").stdout
    Path("mine.toml").write_text(out)
    settings = RunConfig.read(Path("mine.toml"))
    assert (settings.data.alpha, settings.clients) == (0.3, 7)
    assert "unknown key 'x'" in sagefl("config", "--set", "x=1", code=2).stderr


def test_data_says_what_is_here_and_what_it_does_not_know(sagefl: Call) -> None:
    out = sagefl("data", "list").stdout
    assert re.search(r"(?m)^fmnist +(present: .*|absent)$", out)
    assert "fmnist-mini and sotu-mini are always there" in out
    assert "unknown dataset" in sagefl("data", "get", "imagenet", code=2).stderr


def test_a_users_own_arrays_and_model(run: Call) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    x, y = rng.random((300, 12), dtype=np.float32), rng.integers(0, 3, 300)
    np.savez_compressed("mine.npz", x_train=x, y_train=y, x_test=x[:50], y_test=y[:50])
    Path("my_model.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, shape, classes, width=4):\n"
        "        super().__init__()\n"
        "        self.trunk, self.top = nn.Linear(shape[0], width), nn.Linear(width, classes)\n"
        "    def forward(self, x):\n"
        "        return self.top(self.trunk(x).relu())\n"
    )
    own = ("--dataset", "mine.npz", "--set", "model.name=my_model:Net", "--set", "data.partition=iid", "--rounds", "1")
    run(*own, "--out", "all")  # a model that declares nothing shares everything
    assert RunDirectory(Path("all")).table("decisions")["model_bytes"].max() == 4 * (12 * 4 + 4 + 4 * 3 + 3)
    run(*own, "--set", "model.shared=('trunk',)", "--out", "mine")
    assert RunDirectory(Path("mine")).table("decisions")["model_bytes"].max() == 4 * (12 * 4 + 4)
