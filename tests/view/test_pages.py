"""The frozen pages as text: self-contained, bundled without clashes, safe against names that are HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from made_runs import make_run
from typer.testing import CliRunner

import sagefl
from sagefl.cli import app
from sagefl.selection import SageE, SageOS
from sagefl.selection.planning import plan_stages
from sagefl.view.page import MODULES, asset, bundle, frozen_page
from sagefl.view.plain import embedded, plain
from sagefl.view.report import report_page
from sagefl.view.shelf import Shelf
from sagefl.view.stopping import GRID, MapSettings, drawn_losses, grid, play

EVIL = "</script><img src=x onerror=alert(1)>"


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found.group(1))  # type: ignore[no-any-return]


class TestBundle:
    def test_top_level_names_differ(self) -> None:
        names = re.findall(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", _all(), re.MULTILINE)
        assert len(names) == len(set(names))

    def test_every_import_is_of_an_earlier_module_that_exports_it(self) -> None:
        for at, name in enumerate(MODULES):
            for imported, source in re.findall(r'import \{([^}]*)\} from "\./([\w.]+)";', asset(name)):
                assert source in MODULES[:at]
                for each in imported.split(","):
                    assert re.search(
                        rf"^export (?:async )?(?:function|const|class) {each.strip()}\b", asset(source), re.M
                    )

    def test_nothing_is_left_of_modules(self) -> None:
        assert not re.search(r"^(import|export)\b", bundle(), re.MULTILINE)

    def test_no_html_is_ever_made_from_text(self) -> None:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", _all())

    def test_no_other_host_is_named(self) -> None:
        urls = set(re.findall(r"https?://[^\"'\s)]+", _all() + asset("style.css")))
        assert urls == {"http://www.w3.org/2000/svg"}


def _all() -> str:
    return "\n".join(asset(name) for name in MODULES)


class TestFrozen:
    def test_json_cannot_end_its_element(self) -> None:
        text = embedded({"name": EVIL, "amp": "&lt;"})
        assert "<" not in text
        assert json.loads(text) == {"name": EVIL, "amp": "&lt;"}

    def test_scripts_are_allowed_by_hash_alone(self) -> None:
        page = frozen_page(EVIL, {"decision": {"label": EVIL}})
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        assert policy
        scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
        assert len(scripts) == 1
        assert all(f"sha256-{h}" in policy.group(1) for h in hashes)
        assert "unsafe-inline" not in policy.group(1).split("style-src")[0]
        assert EVIL not in page

    def test_a_report_holds_all_views(self, small_runs: Path) -> None:
        page = report_page(Shelf([small_runs]), detailed=3)
        data = data_of(page)
        assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page.split("<script")[0])
        assert len(data["runs"]) == 3  # type: ignore[arg-type]
        assert len(page) < 1_000_000  # no library of somebody else's in it
        for parts in data["data"].values():  # type: ignore[attr-defined]
            assert set(parts["traces"]) == {"0", "2", "5"}
            assert parts["rounds"]["total"] == 6
            assert len(parts["decisions"]["rounds"]) == 6
            assert len(parts["world"]["positions"]) == 8

    def test_a_damaged_run_does_not_stop_a_page(self, tmp_path: Path) -> None:
        make_run(tmp_path / "good", rounds=2)
        make_run(tmp_path / "torn", rounds=2, seed=2)
        (tmp_path / "torn" / "decisions.parquet").write_bytes(b"torn")
        data = data_of(report_page(Shelf([tmp_path])))
        errors = [parts["decisions"].get("error", "") for parts in data["data"].values()]  # type: ignore[attr-defined]
        assert sorted(map(bool, errors)) == [False, True]


def _kept(path: Path, rows: pl.Expr) -> None:
    pl.read_parquet(path).filter(rows).write_parquet(path)


def _words(path: Path, column: str) -> None:
    pl.read_parquet(path).with_columns(pl.col(column).cast(pl.String)).write_parquet(path)


def _first(path: Path, rows: int) -> None:
    pl.read_parquet(path).head(rows).write_parquet(path)


class TestCommands:
    def test_report_writes_one_file(self, small_runs: Path, tmp_path: Path) -> None:
        out = tmp_path / "deep" / "report.html"
        result = CliRunner().invoke(app, ["report", str(small_runs), "-o", str(out), "--detailed", "1"])
        assert result.exit_code == 0, result.output
        assert out.read_text(encoding="utf-8").startswith("<!doctype html>")

    @pytest.mark.parametrize("command", ["report", "view"])
    @pytest.mark.parametrize(
        ("name", "harm", "message"),
        [
            ("metrics", lambda path: path.write_bytes(path.read_bytes()[:300]), "cannot be read"),
            ("decisions", lambda path: path.write_bytes(b"torn"), "cannot be read"),
            ("timings", lambda path: path.write_bytes(b"torn"), "cannot be read"),
            ("metrics", lambda path: path.unlink(), "has no metrics.parquet"),
            ("decisions", lambda path: _kept(path, pl.col("round") < 2), "ends at round 2 of 3: it is cut off"),
            ("metrics", lambda path: _kept(path, pl.col("round") < 1), "ends at round 1 of 3: it is cut off"),
            ("clients", lambda path: pl.DataFrame({"round": [1]}).write_parquet(path), "has no column client"),
            ("decisions", lambda path: pl.DataFrame({"price": [1]}).write_parquet(path), "has no column round"),
            ("metrics", lambda path: _words(path, "accuracy"), "column accuracy is String, expected Float64"),
            ("timings", lambda path: pl.DataFrame({"round": [1]}).write_parquet(path), "has no column train"),
            ("decisions", lambda path: _first(path, 20), "has 20 rows of 24: it is cut off"),
            ("clients", lambda path: _first(path, 5), "has 5 rows of"),
        ],
    )
    def test_a_truncated_or_foreign_table_is_refused(
        self, command: str, name: str, harm: Callable[[Path], object], message: str, tmp_path: Path
    ) -> None:
        run = make_run(tmp_path / "run", rounds=3).path
        (run / "environment.json").write_text('{"engine": "sequential"}')
        (run / "summary.json").write_text('{"method": "rg", "rounds": 3, "decisions": 24}')
        harm(run / f"{name}.parquet")
        more = ["-o", str(tmp_path / "report.html")] if command == "report" else ["--no-browser"]
        result = CliRunner().invoke(app, [command, str(tmp_path), *more])
        assert result.exit_code == 2, result.output
        assert f"{run} cannot be shown: " in result.output
        assert f"{name}.parquet" in result.output
        assert message in result.output
        assert not (tmp_path / "report.html").exists()

    @pytest.mark.parametrize("text", ['{"rounds":', "[1]", '{"x": 1}', ""])
    @pytest.mark.parametrize("command", ["report", "view", "compare"])
    def test_what_is_no_summary_is_refused(self, command: str, text: str, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", rounds=3).path
        (run / "summary.json").write_text(text)
        more = {"report": ["-o", str(tmp_path / "report.html")], "view": ["--no-browser"], "compare": []}[command]
        result = CliRunner().invoke(app, [command, str(tmp_path), *more])
        assert result.exit_code == 2, result.output
        assert result.output.startswith(f"sagefl: {run} cannot be shown: {run / 'summary.json'} ")
        assert result.output.count("\n") == 1

    @pytest.mark.parametrize("command", ["report", "view"])
    def test_a_directory_that_is_not_there(self, command: str, tmp_path: Path) -> None:
        result = CliRunner().invoke(app, [command, str(tmp_path / "nothing")])
        assert result.exit_code == 2
        assert "no such directory" in result.output

    def test_decide_html(self, tmp_path: Path) -> None:
        losses = tmp_path / "losses.csv"
        losses.write_text("ada,<b>bob</b>\n" + "0,1\n" * 128)
        out = tmp_path / "decision.html"
        result = CliRunner().invoke(app, ["decide", str(losses), "--method", "sage-e", "--html", str(out)])
        assert result.exit_code == 0, result.output
        decision = data_of(out.read_text(encoding="utf-8"))["decision"]
        assert decision["reason"] == "certified"  # type: ignore[index]
        assert decision["chosen"] == ["ada"]  # type: ignore[index]
        assert out.stat().st_size < 200_000
        assert "certified by the evidence" in result.output

    def test_only_who_is_asked_for_pages_imports_the_view(self) -> None:
        source = Path(sagefl.__file__).parent
        pattern = re.compile(r"^\s*(from|import) .*\bview\b", re.MULTILINE)
        using = {path.relative_to(source).parts[0] for path in source.rglob("*.py") if pattern.search(path.read_text())}
        assert using == {"api", "cli"}  # which import it when a page is asked for

    def test_the_command_line_imports_no_view_by_itself(self) -> None:
        code = "import sys, sagefl.cli; sys.exit(any(m.startswith(('sagefl.view', 'starlette')) for m in sys.modules))"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestStoppingMap:
    def test_the_draw_has_the_asked_lead_and_bound(self) -> None:
        settings = MapSettings(degree=6, lead=0.3, loss_bound=2.0, first=64, stages=5)
        losses = drawn_losses(settings)
        assert losses.shape == (6, 1024)
        assert set(losses.ravel().tolist()) == {0.0, 2.0}
        assert settings.risks.mean() - settings.risks[0] == pytest.approx(0.3)
        assert losses.mean(axis=1) / 2 == pytest.approx(settings.risks, abs=0.06)

    def test_draws_are_nested(self) -> None:
        few, many = drawn_losses(MapSettings(degree=4)), drawn_losses(MapSettings(degree=4, stages=5))
        assert (many[:, : few.shape[1]] == few).all()

    def test_both_rules_play_the_same_neighbourhood(self) -> None:
        settings = MapSettings()
        played, losses = play(settings), drawn_losses(settings)
        first = played["paper"]["path"][0]
        assert first["advantage"] == pytest.approx(losses[:, :16].mean() - losses[:, :16].mean(axis=1).min(), abs=1e-4)
        assert played["betting"]["evaluations"] < played["paper"]["evaluations"]

    @pytest.mark.parametrize(
        "query", [{"degree": "0"}, {"degree": "99"}, {"delta": "0"}, {"delta": "nan"}, {"lead": "x"}, {"stages": "9"}]
    )
    def test_settings_out_of_range_are_refused(self, query: dict[str, str]) -> None:
        with pytest.raises(ValueError, match=next(iter(query))):
            MapSettings.parse(query)

    def test_one_neighbour_is_no_choice(self) -> None:
        assert play(MapSettings(degree=1))["betting"]["reason"] == "only"

    def test_the_grid_holds_the_default_settings(self) -> None:
        default = MapSettings()
        assert all(getattr(default, name) in values for name, values in GRID.items())
        assert len(grid()["points"]) == 90


def test_plain_values_are_json() -> None:
    import numpy as np

    value = {"a": np.float64(1 / 3), "b": (np.int32(1), float("nan"), float("inf")), "c": np.arange(2), 3: None}
    assert json.loads(json.dumps(plain(value, 3), allow_nan=False)) == {
        "a": 0.333,
        "b": [1, None, None],
        "c": [0, 1],
        "3": None,
    }


def test_rules_named_on_the_map_are_the_selectors() -> None:
    played = play(MapSettings())
    assert (played["paper"]["rule"], played["betting"]["rule"]) == (SageOS.id, SageE.id)
    assert [s["anchors"] for s in played["paper"]["path"]] == [s.anchors for s in plan_stages(SageOS(), 6).stages]
