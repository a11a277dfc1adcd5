"""`sagefl study paper` as people use it: audit, status, kill and go on, missing data."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_study
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.data import places
from sagefl.runs.rundir import RunDirectory
from sagefl.study import paper as papers
from sagefl.study.design import Findings
from sagefl.study.spec import SHIPPED

SMALL = ["--topologies", "er", "--alphas", "0.3", "--clients", "8", "--rounds", "8", "--max-batches", "1",
         "--set", "evaluation.every=4", "--set", "evaluation.subset=50"]  # fmt: skip
METHODS = ["--methods", "rg,aq-128,sage-os"]
STUDY = ["study", "paper", "--preset", "smoke", *SMALL, *METHODS]


def sagefl(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output


def test_the_audit_needs_no_runs() -> None:
    code, output = sagefl("study", "paper", "--audit")
    assert code == 0
    assert "53 supported, 19 contradicted, 8 not testable from tables" in output
    assert "CONTRADICTED  three-hundredths" in output
    assert "Mean                    0.3208  0.3782  0.3625" in output


def test_mistakes_are_named(tmp_path: Path) -> None:
    for arguments, said in (
        (["--preset", "smke"], "did you mean 'smoke'"),
        (["--alphas", "x"], "--alphas takes numbers separated by commas, got 'x'"),
        (["--seeds", "1-x"], "--seeds takes whole numbers as 1-5 or 1,4,9, got '1-x'"),
        (["--seeds", "5-1"], "--seeds takes whole numbers as 1-5 or 1,4,9, got '5-1'"),
        (["--rounds", "0"], "rounds: Input should be greater than or equal to 1"),
        (["--set", "data.alpa=1"], "did you mean 'alpha'"),
        (["--from", str(tmp_path)], "cannot read"),
    ):
        code, output = sagefl("study", "paper", "--cells", tmp_path, *arguments)
        assert code == 2
        assert said in output


def test_status_names_every_cell(tmp_path: Path) -> None:
    code, output = sagefl(
        "study", "paper", *SMALL, "--methods", "rg,sage-os", "--seeds", "1-3", "--cells", tmp_path, "--status"
    )
    assert code == 0
    assert output.count("not begun") == 6
    assert "0 of 6 cells done, 6 left" in output
    code, output = sagefl("study", "paper", *SMALL, "--methods", "+sage-e", "--cells", tmp_path, "--status")
    assert "0 of 12 cells done" in output


@pytest.mark.usefixtures("undrawn")
def test_missing_data_names_the_cells_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SYSTEM", tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SAGEFL_DATA", str(tmp_path / "none"))
    both = [*STUDY, "--datasets", "fmnist-mini,cifar10", "--methods", "rg", "--jobs", "1", "--workers", "1"]
    code, output = sagefl(*both, "--cells", tmp_path / "cells", "--out", tmp_path / "out", "-q")
    note = "cifar10 is not on this machine: 1 cells left out (cifar10/er/0.3 seed 1; each with rg)"
    assert code == 0
    assert note in output
    assert "sagefl data get cifar10" in output
    assert note in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    code, output = sagefl(*both[:-6], "--datasets", "cifar10", "--cells", tmp_path / "cells")
    assert code == 2
    assert "none of the study's data sets is on this machine" in output


@pytest.mark.usefixtures("undrawn")
def test_a_failed_cell_is_in_the_report_and_in_the_exit_code(tmp_path: Path) -> None:
    arguments = [*STUDY, "--methods", "rg,nonsense", "--jobs", "1", "--workers", "1", "--brief"]
    code, output = sagefl(*arguments, "--cells", tmp_path / "cells", "--out", tmp_path / "out")
    assert code == 1
    assert "nonsense seed 1 FAILED: unknown method 'nonsense'" in output
    assert "1 of 2 cells done" in output
    report = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "unknown method &#39;nonsense&#39;" in report
    links = re.findall(r'href="(runs/[^"]+)"', report)
    assert links == ["runs/fmnist-mini-er-0.3.html"]
    page = (tmp_path / "out" / links[0]).read_text(encoding="utf-8")
    assert "rg" in page
    assert "nonsense" not in page
    code, _ = sagefl(*arguments, "--cells", tmp_path / "cells", "--out", tmp_path / "bare", "--no-run", "--no-pages")
    assert code == 0
    assert not (tmp_path / "bare" / "runs").exists()
    assert "sagefl report CELLS" in (tmp_path / "bare" / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn")
def test_a_report_is_built_again_from_its_own_cells_where_nothing_was_run(tiny: Findings, tmp_path: Path) -> None:
    """What is kept of a study is its folder; the runs may be gone. Cells may come from other folders, too."""
    out = tmp_path / "kept"
    tiny.write(out)
    kept = {path.name: path.read_text(encoding="utf-8") for path in (*out.glob("*.csv"), *out.glob("tables/*.csv"))}
    scale = ["--clients", "6", "--rounds", "3", "--max-batches", "1", "--set", "topology.degree=4",
             "--set", "evaluation.every=3", "--set", "evaluation.subset=50"]  # fmt: skip
    study = ["study", "paper", "--preset", "smoke", "--topologies", "er", "--alphas", "0.3", *scale]
    study += ["--methods", ",".join(tiny_study.METHODS), "--no-run", "--cells", tmp_path / "gone", "--brief"]
    code, output = sagefl(*study, "--out", out)
    assert code == 0
    assert "Headroom: not known" in output
    assert {name: text for name, text in kept.items() if text != _read(out, name)} == {}
    code, _ = sagefl(*study, "--known", out, "--out", tmp_path / "other")
    assert code == 0
    assert {name: text for name, text in kept.items() if text != _read(tmp_path / "other", name)}.keys() <= {
        "sweeps.csv"
    }
    out.rename(tmp_path / "parts-er")
    code, _ = sagefl(*study, "--out", tmp_path / "parts")
    assert code == 0
    assert _read(tmp_path / "parts", "cells.csv") == kept["cells.csv"]
    code, output = sagefl(*study, "--out", tmp_path / "none")
    assert code == 2
    assert "no cell is finished" in output


def _read(folder: Path, name: str) -> str:
    return next(folder.rglob(name)).read_text(encoding="utf-8")


def test_kept_cells_of_the_paper_are_never_written_over_with_fewer() -> None:
    assert papers.design("paper").keeps
    assert not papers.design("smoke").keeps


# Kill and go on -----------------------------------------------------------------------------------------------------


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts real studies, and makes sure that none outlives its test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str | Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from sagefl.cli import app; app()", *map(str, arguments)]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert process.poll() is None, "the study ended before it could be killed"
        assert time.monotonic() < deadline, "the study did not get that far"
        time.sleep(0.01)


def free(cells: Path) -> bool:
    """Whether nobody is writing to any cell any more."""
    try:
        for folder in cells.iterdir():
            with RunDirectory(folder).locked():
                pass
    except RuntimeError:
        return False
    return True


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies run in this process draw nothing: figures have tests of their own."""
    monkeypatch.setattr("sagefl.study.design.Findings.figures", [])


def killed(process: subprocess.Popen[bytes], cells: Path) -> None:
    """SIGKILL; workers go when their parent is gone."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while not free(cells):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def same_as_undisturbed(common: list[str | Path], out: Path, reference: Path) -> None:
    """Go on with a killed study and compare it with one that was left alone."""
    code, output = sagefl(*common, "--jobs", "1", "--workers", "1")
    assert code == 0, output
    clean = ["--cells", reference / "cells", "--out", reference, "-q", "--jobs", "1", "--workers", "1"]
    assert sagefl(*STUDY, *clean)[0] == 0
    for name in ("tables/table1.md", "tables/table2.csv", "tables/table3.tex", "tables/traffic.csv", "claims.csv"):
        assert (out / name).read_bytes() == (reference / name).read_bytes()
    assert untimed(out / "cells.csv") == untimed(reference / "cells.csv")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_killed_study_goes_on_and_gives_the_same_tables(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Killed in the middle of two cells that run side by side."""
    cells, out = tmp_path / "cells", tmp_path / "out"
    common: list[str | Path] = [*STUDY, "--cells", cells, "--out", out, "-q"]
    together = start(*common, "--jobs", "2")
    wait_for(lambda: len(list(cells.glob("*/run.toml"))) >= 2 and any(cells.glob("*/losses/*")), together)
    killed(together, cells)
    assert len(list(cells.glob("*/summary.json"))) < 3
    assert not out.exists()
    same_as_undisturbed(common, out, tmp_path / "reference")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_study_may_be_killed_again_and_again(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """At its first checkpoint, at its first finished cell, and while it writes its report."""
    cells, out = tmp_path / "cells", tmp_path / "out"
    common: list[str | Path] = [*STUDY, "--cells", cells, "--out", out, "-q", "--checkpoint-every", "1"]
    points: list[Callable[[], bool]] = [
        lambda: any(cells.glob("*/checkpoint/round-00002")),
        lambda: any(cells.glob("*/summary.json")),
        lambda: (out / "tables").is_dir(),
    ]
    for point in points:
        process = start(*common, "--jobs", "1", "--workers", "1")
        wait_for(point, process)
        killed(process, cells)
        assert not (out / "report.html").exists()
    same_as_undisturbed(common, out, tmp_path / "reference")


def untimed(path: Path) -> list[dict[str, str]]:
    """Seconds are the one thing that may differ."""
    with path.open(newline="") as file:
        return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_the_smoke_preset_end_to_end(tmp_path: Path) -> None:
    code, output = sagefl("study", "paper", "--cells", tmp_path / "cells", "--out", tmp_path / "out")
    assert code == 0, output
    assert "44 of 44 cells done, 0 running, 0 left" in output
    assert "Over seeds: 1 holds" in output
    assert sagefl("study", "paper", "--from", tmp_path / "out", "--out", tmp_path / "again", "-q")[0] == 0
    for name in ("claims.csv", "cells.csv", "tables/table3.csv", "figures/relative.svg"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_help_names_every_study_that_comes_with_sagefl() -> None:
    told = " ".join(CliRunner().invoke(app, ["study", "run", "--help"], env={"COLUMNS": "200"}).output.split())
    assert f"FILE.toml, or {', '.join(SHIPPED)}." in told
