"""The page in a real browser: headless Chromium of the system, driven by Playwright.

Every test ends with the check (fixture `watch`) that nothing was logged as an error and no other host was asked.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from made_runs import grow_run, make_grouped_runs, make_run
from typer.testing import CliRunner
from watched_pages import Served, Watched

from sagefl.cli import app
from sagefl.runs import columns
from sagefl.runs.config import Execution, RunConfig
from sagefl.runs.rundir import RunDirectory
from sagefl.selection import SageOS
from sagefl.selection.planning import plan_stages
from sagefl.simulation.simulator import Simulator
from sagefl.view.report import report_page, write_page
from sagefl.view.shelf import Run, Shelf
from sagefl.view.unfolding import unfold

Serve = Callable[..., Served]
Watch = Callable[..., Watched]
VIEWS = ("runs", "network", "decision", "map")


def rows(page: Any, region: str) -> list[list[str]]:
    """The cells of a table."""
    cells = "rows => rows.map(r => [...r.children].map(c => c.textContent))"
    found: list[list[str]] = page.eval_on_selector_all(f"{region} tbody tr", cells)
    return found


def run_id(folder: Path, name: str) -> str:
    return Run(folder / name).id


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def until(page: Any, expression: str) -> None:
    """Wait for something to be true on the page; evaluated from outside, because the page's policy forbids eval."""
    wait_for(lambda: bool(page.evaluate(expression)))


def check_decision(page: Any, row: dict[str, Any]) -> None:
    """What the explorer says is what the audit record says, to the digits it shows."""
    facts = page.inner_text("#decision-facts")
    assert facts.startswith(row["reason"])
    assert f"takes {', '.join(map(str, row['chosen']))} after" in facts
    assert f"{row['evaluations']} evaluation" in facts
    looks = rows(page, "#decision-stages")
    assert len(looks) == row["stages"]
    last = looks[-1]
    assert last[0] == str(row["anchors"])
    assert last[1] == f"{min(row['risks']):.4f}"
    assert last[2] == f"{row['advantage']:.4f}"
    if row["wealth"]:
        assert (last[3], last[4]) == (f"{max(row['wealth']):.4f}", f"{row['threshold']:.4f}")
    else:
        assert last[3] == f"{row['width']:.4f}"
    assert last[-1] == row["reason"]


class TestLoading:
    def test_runs_and_their_curves(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch().open(serve(small_runs).address)
        page.wait_for_selector("body[data-charts=drawn]")
        shown = {row[0]: row for row in rows(page, "#view-runs")}
        assert set(shown) == {"rg", "sage-os", "sage-e"}
        metrics = RunDirectory(small_runs / "os").table("metrics")
        assert shown["sage-os"][3] == f"{metrics['accuracy'][-1]:.4f}"
        assert shown["sage-os"][6] == f"{metrics['weak'][-1]:.4f}"
        spent = metrics["evaluations"].sum() / (128 * metrics["degree"].sum())
        assert shown["sage-os"][7] == f"{100 * spent:.1f} %"
        drawn = page.evaluate("document.getElementById('plot-accuracy').drawn.curves.map(t => [t.name, t.y])")
        curve = dict(drawn)["sage-os"]
        assert curve == pytest.approx(metrics["accuracy"].drop_nulls().to_list(), rel=1e-5)
        reasons = page.evaluate("document.getElementById('plot-reasons').drawn.areas.map(t => t.name)")
        assert "certified" in reasons

    def test_curves_can_be_drawn_over_minutes_and_over_bytes(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        given = {"clients": 4, "rounds": 3, "clock": {"network": "phones"}, "topology": {"kind": "complete"}}
        small = {"model": {"name": "mlp"}, "training": {"max_batches": 1}, "evaluation": {"every": 1, "subset": 50}}
        run = RunDirectory(tmp_path / "run")
        Simulator(RunConfig.parse(given | small), run, Execution(engine="sequential")).run()
        metrics = run.table("metrics")
        kinds = ("probe_input_bytes", "probe_answer_bytes", "model_bytes", "control_bytes")
        places = {
            "round": np.arange(1, 4),
            "minutes": metrics["minutes"].to_numpy(),
            "bytes": sum(metrics[kind].to_numpy() for kind in kinds).cumsum(),
        }
        page = watch().open(serve(tmp_path).address)
        page.wait_for_selector("body[data-charts=drawn]")
        for axis in ("minutes", "bytes", "round"):
            page.select_option("#curves-over", axis)
            title = {"bytes": "bytes moved"}.get(axis, axis)
            until(page, f"document.getElementById('plot-accuracy').drawn.x.title === '{title}'")
            x, y = page.evaluate("(({x, y}) => [x, y])(document.getElementById('plot-accuracy').drawn.curves[0])")
            assert x == pytest.approx(places[axis].tolist(), rel=1e-5)
            assert y == pytest.approx(metrics["accuracy"].to_list(), rel=1e-5)

    def test_a_chart_reads_out_what_is_pointed_at_and_magnifies_what_is_dragged_over(
        self, serve: Serve, watch: Watch, small_runs: Path
    ) -> None:
        page = watch().open(serve(small_runs).address)
        page.wait_for_selector("body[data-charts=drawn]")
        accuracy = RunDirectory(small_runs / "os").table("metrics")["accuracy"].drop_nulls().to_list()
        page.uncheck(f"#show-{run_id(small_runs, 'rg')}")
        page.uncheck(f"#show-{run_id(small_runs, 'e')}")
        until(page, "document.getElementById('plot-accuracy').drawn.curves.length === 1")
        ends = "document.querySelector('#plot-accuracy .curve').getBBox()"
        place = page.locator("#plot-accuracy").bounding_box()
        curve = page.evaluate(f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({ends})")
        page.mouse.move(place["x"] + curve["x"] + curve["width"] - 4, place["y"] + curve["y"] + 4)
        assert page.inner_text("#plot-accuracy .readout").split("\n") == ["sage-os", f"round 6: {accuracy[-1]:.4f}"]
        page.mouse.move(place["x"] + curve["x"] + 2, place["y"] + curve["y"] + 2)  # far from the curve
        assert page.locator("#plot-accuracy .readout").is_hidden()
        shown = "page => [...page.querySelectorAll('#plot-accuracy .axis text')].map((t) => t.textContent)"
        assert "6" in page.eval_on_selector("body", shown)
        page.mouse.move(place["x"] + curve["x"], place["y"] + 60)
        page.mouse.down()
        page.mouse.move(place["x"] + curve["x"] + curve["width"] / 2, place["y"] + 60)
        page.mouse.up()
        assert "6" not in page.eval_on_selector("body", shown)
        page.dblclick("#plot-accuracy")
        assert "6" in page.eval_on_selector("body", shown)
        page.locator("#plot-bytes rect[height='15']").first.hover(position={"x": 1, "y": 5}, force=True)
        kinds = page.evaluate("document.getElementById('plot-bytes').drawn.bars.map((b) => b.name)")
        assert page.inner_text("#plot-bytes .readout").split("\n")[1].split(":")[0] == kinds[0]

    def test_a_tap_reads_a_value_out_too(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch(has_touch=True, viewport={"width": 390, "height": 900}).open(serve(small_runs).address)
        page.wait_for_selector("body[data-charts=drawn]")
        bar = page.locator("#plot-bytes rect[height='15']").first
        bar.tap(position={"x": 1, "y": 5}, force=True)
        assert page.locator("#plot-bytes .readout").is_visible()

    def test_seeds_of_one_method_are_one_line_in_a_band(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        runs = [make_run(tmp_path / str(seed), rounds=4, every=1, seed=seed) for seed in (1, 2, 3)]
        curves = np.array([run.table("metrics")["accuracy"].to_list() for run in runs])
        page = watch().open(serve(tmp_path).address)
        page.wait_for_selector("body[data-charts=drawn]")
        drawn = page.evaluate("document.getElementById('plot-accuracy').drawn")
        (band,), (mean,) = drawn["bands"], drawn["curves"]
        assert band["low"] == pytest.approx(curves.min(axis=0), rel=1e-5)
        assert band["high"] == pytest.approx(curves.max(axis=0), rel=1e-5)
        assert mean["y"] == pytest.approx(curves.mean(axis=0), rel=1e-5)

    def test_a_metric_from_outside_has_its_column_and_its_chart(
        self, serve: Serve, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(columns, "METRICS", dict(columns.METRICS))
        columns.register(
            columns.Column(
                "best", "the best client", lambda e: e.client.max(), combine="max", title="top", format=".1%"
            )
        )
        run = make_run(tmp_path / "run", rounds=2, every=1)
        run.table("metrics").with_columns(best=pl.col("weak") + 0.1).write_parquet(run.path / "metrics.parquet")
        write_page(tmp_path / "report.html", report_page(Shelf([tmp_path]), detailed=1))
        expected = run.table("metrics")["best"].to_list()
        for address in (serve(tmp_path).address, (tmp_path / "report.html").as_uri()):
            page = watch().open(address)
            page.wait_for_selector("body[data-charts=drawn]")
            assert page.locator("#view-runs thead th").nth(7).inner_text() == "top"
            assert rows(page, "#view-runs")[0][7] == f"{100 * expected[-1]:.1f} %"
            assert "The best client" in page.inner_text("figure:has(#plot-best) figcaption")
            assert page.evaluate("document.getElementById('plot-best').drawn.curves[0].y") == pytest.approx(
                expected, rel=1e-5
            )

    def test_a_run_can_be_hidden_and_read_as_a_table(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch().open(serve(small_runs).address)
        page.wait_for_selector("body[data-charts=drawn]")
        page.uncheck(f"#show-{run_id(small_runs, 'rg')}")
        until(page, "document.getElementById('plot-accuracy').drawn.curves.length === 2")
        page.click("figure:has(#plot-accuracy) summary")
        page.wait_for_selector("figure:has(#plot-accuracy) tbody tr")  # a fold says that it opened after the click
        table = rows(page, "figure:has(#plot-accuracy)")
        accuracy = RunDirectory(small_runs / "os").table("metrics")["accuracy"].drop_nulls()
        assert [row[0] for row in table] == ["2", "4", "6"]
        assert [row[-1] for row in table] == [f"{a:.4f}" for a in accuracy]
        assert {len(row) for row in table} == {3}
        page.check(f"#show-{run_id(small_runs, 'rg')}")
        wait_for(lambda: {len(row) for row in rows(page, "figure:has(#plot-accuracy)")} == {4})  # it keeps up

    @pytest.mark.slow
    def test_twenty_runs_at_once(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        for seed in range(20):
            make_run(tmp_path / f"s{seed}", rounds=3, every=1, clients=6 + seed)
        page = watch().open(serve(tmp_path).address)
        page.wait_for_selector("body[data-charts=drawn]")
        assert len({row[0] for row in rows(page, "#view-runs")}) == 20
        styles = page.evaluate(
            "document.getElementById('plot-accuracy').drawn.curves.map(t => `${t.colour} ${t.strokes}`)"
        )
        assert len(set(styles)) == 20

    def test_names_that_are_html_stay_text(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        evil = "<img src=x onerror=alert(1)>"
        make_run(tmp_path / "one", rounds=2)
        make_run(tmp_path / "two", rounds=2)
        (tmp_path / "one").rename(tmp_path / evil)
        page = watch().open(serve(tmp_path).address)
        page.wait_for_selector("body[data-charts=drawn]")
        assert any(evil in row[0] for row in rows(page, "#view-runs"))
        assert page.locator("img").count() == 0
        write_page(tmp_path / "r.html", report_page(Shelf([tmp_path]), detailed=1))
        frozen = watch().open((tmp_path / "r.html").as_uri())
        frozen.wait_for_selector("body[data-charts=drawn]")
        assert frozen.locator("img").count() == 0

    def test_damaged_directories_are_shown_as_such(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        make_run(tmp_path / "good", rounds=2)
        torn = make_run(tmp_path / "torn", rounds=2, seed=2).path
        (torn / "metrics.parquet").write_bytes((torn / "metrics.parquet").read_bytes()[:200])
        other = make_run(tmp_path / "other", rounds=2, seed=3).path
        (other / "run.toml").write_text("from_the_future = 1\n" + (other / "run.toml").read_text())
        places = [tmp_path / name for name in ("empty", "good", "torn", "other")]
        watched = watch()
        page = watched.open(serve(*places).address)
        page.wait_for_selector("body[data-charts=drawn]")
        states = {row[0].split("\n")[0]: row[1] for row in rows(page, "#view-runs")}
        text = page.inner_text("#view-runs")
        assert states["empty"] == "waiting"
        assert "metrics.parquet cannot be read" in text
        assert "from_the_future" in text
        page.goto(page.url.split("#")[0] + f"#view=network&run={Run(other).id}")
        page.wait_for_selector("#network-drawing .problem")
        watched.errors[:] = [e for e in watched.errors if "404" not in e]  # the browser logs what the server refuses


class TestNetwork:
    def test_slider_and_play(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        run = run_id(small_runs, "os")
        page = watch().open(f"{serve(small_runs).address}#view=network&run={run}&round=1")
        page.wait_for_selector(".node")
        audit = RunDirectory(small_runs / "os").table("decisions")
        for number in (0, 3):
            page.locator("#network-round").fill(str(number + 1))
            until(page, f"document.getElementById('network-caption').textContent.startsWith('Round {number + 1} ')")
            rows_ = audit.filter(audit["round"] == number)
            for reason in ("certified", "cost", "exhausted"):
                count = (rows_["reason"] == reason).sum()
                assert page.locator(f".arrow.{reason}").count() == count
            assert f"{rows_['evaluations'].sum()} evaluation" in page.inner_text("#network-caption")
        page.click("#network-play")
        until(page, "document.getElementById('network-round').value === '6'")
        until(page, "document.getElementById('network-play').textContent.includes('Play')")

    def test_clients_by_label_and_by_accuracy(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch().open(f"{serve(small_runs).address}#view=network&run={run_id(small_runs, 'os')}")
        page.wait_for_selector(".node")
        assert page.locator(".node .disc").count() == 0
        assert page.locator(".node path").count() > 8
        page.select_option("#network-colour", "own")
        page.wait_for_selector(".node .disc")
        fills = page.eval_on_selector_all(".node .disc", "discs => discs.map(d => d.getAttribute('fill'))")
        assert len(set(fills)) > 4

    def test_groups_are_coloured_culprits_marked_and_headroom_told(
        self, serve: Serve, watch: Watch, tmp_path: Path
    ) -> None:
        truth = make_grouped_runs(tmp_path)
        page = watch().open(serve(tmp_path).address)
        page.wait_for_selector("body[data-charts=drawn]")
        text = page.inner_text("#view-runs")
        for said in ("8 clients in 2 groups by rotation", "group accuracy", "capture", "Headroom: "):
            assert said in text
        assert "Accuracy on the test set of one's own group" in text
        page.click("#tab-network")
        page.wait_for_selector("#network-drawing .node .disc")
        assert page.input_value("#network-colour") == "group"
        fills = page.eval_on_selector_all(".node .disc", "found => found.map(c => c.getAttribute('fill'))")
        assert len(set(fills)) == 2
        assert [fill == fills[0] for fill in fills] == [group == 0 for group in truth.groups]
        marked = page.eval_on_selector_all(".node:has(.culprit)", "found => found.map(n => n.dataset.client)")
        assert marked == ["2", "4"]
        assert "noisy labels" in page.get_attribute('.node[data-client="4"]', "aria-label")
        page.select_option("#network-colour", "labels")
        assert page.eval_on_selector_all(".node .disc", "found => found.length") == 0
        assert "misbehaves or has noisy labels" in page.inner_text("#view-network")

    def test_a_click_leads_to_the_audit_record(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        served = serve(small_runs)
        for name, client in (("os", 3), ("e", 5)):
            audit = RunDirectory(small_runs / name).table("decisions")
            row = audit.filter((audit["round"] == 4) & (audit["client"] == client)).row(0, named=True)
            page = watch().open(f"{served.address}#view=network&run={run_id(small_runs, name)}&round=5")
            page.click(f".node[data-client='{client}']")
            page.wait_for_selector("#decision-sentences li")
            assert page.inner_text("#decision-heading") == f"Client {client} in round 5"
            check_decision(page, row)
            told = unfold(Run(small_runs / name), 4, client)
            assert page.inner_text("#decision-why") == told["conclusion"]
            assert page.locator("#decision-sentences li").all_inner_texts() == told["sentences"]


class TestDecision:
    def test_what_is_remembered_is_drawn_round_by_round(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        run = make_run(tmp_path / "m", method="sage-m", rounds=6)
        audit = run.table("decisions")
        row = audit.filter((audit["round"] == 5) & (audit["degree"] > 1)).row(0, named=True)
        page = watch().open(
            f"{serve(tmp_path).address}#view=decision&run={run_id(tmp_path, 'm')}&round=6&client={row['client']}"
        )
        page.wait_for_selector("#decision-sentences li")
        drawing = page.locator("svg[aria-label^='What is remembered']")
        assert drawing.locator("path.remembered:has(title)").count() == row["degree"]
        told = drawing.locator("path.remembered title").all_text_contents()
        assert [text.split(", ")[0] for text in told] == [str(peer) for peer in row["peers"]]
        assert [text.split(", ")[3] for text in told] == [f"{wealth:.2f}" for wealth in row["wealth"]]
        assert "What is remembered after round" in (drawing.text_content() or "")

    def test_looks_unfold_one_by_one(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        audit = RunDirectory(small_runs / "os").table("decisions")
        row = audit.filter(audit["stages"] >= 3).row(0, named=True)
        address = f"{serve(small_runs).address}#view=decision&run={run_id(small_runs, 'os')}"
        page = watch().open(f"{address}&round={row['round'] + 1}&client={row['client']}")
        page.wait_for_selector("#decision-sentences li")
        page.locator("#decision-look").fill("1")
        assert page.inner_text("#decision-look-text") == f"1 of {row['stages']}, 16 anchors"
        assert page.locator("#decision-risks .peer").count() == row["degree"]
        assert page.locator("#decision-sentences .ahead").count() == row["stages"] - 1
        page.click("#decision-play")
        until(page, "document.querySelectorAll('#decision-sentences .ahead').length === 0")

    def test_a_losses_file_opens_in_the_same_view(self, watch: Watch, tmp_path: Path) -> None:
        losses = (np.random.default_rng(3).random((128, 4)) < [0.1, 0.8, 0.9, 0.7]).astype(int)
        text = "ada,bob,eve,dan\n" + "\n".join(",".join(map(str, row)) for row in losses)
        (tmp_path / "losses.csv").write_text(text)
        for method in ("sage-os", "sage-e"):
            out = tmp_path / f"{method}.html"
            result = CliRunner().invoke(
                app, ["decide", str(tmp_path / "losses.csv"), "--method", method, "--html", str(out)]
            )
            assert result.exit_code == 0, result.output
            page = watch().open(out.as_uri())
            assert page.inner_text("#decision-heading") == f"{method} on losses.csv"
            assert "Pull ada: certified" in page.inner_text("#decision-why")
            sentences = page.locator("#decision-sentences li").all_inner_texts()
            assert all(sentence in result.output for sentence in sentences)
            assert page.locator("#decision-risks .interval").count() == 3 * 4


class TestStoppingMap:
    def test_the_closed_form_is_the_library(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch().open(f"{serve(small_runs).address}#view=map")
        for degree, cost, first, stages, bound in ((6, 20, 16, 4, 1), (12, 80, 8, 3, 2), (2, 0, 32, 5, 0.5)):
            for name, value in (("degree", degree), ("probe_cost", cost), ("first", first), ("stages", stages)):
                page.locator(f"#map-{name}").fill(str(value))
            page.locator("#map-loss_bound").fill(str(bound))
            schedule = tuple(first * 2**i for i in range(stages))
            rule = SageOS(schedule=schedule, probe_cost=cost / 10000, loss_bound=bound)
            planned = plan_stages(rule, degree)
            assert [row[:5] for row in rows(page, "#stopping-table")] == [
                [
                    str(s.anchors),
                    str(s.anchors * degree),
                    f"{s.radius:.4f}",
                    f"{s.width:.4f}",
                    "yes" if s.can_certify else "no",
                ]
                for s in planned.stages
            ]
            gossip = [row[6] for row in rows(page, "#stopping-table")[:-1]]
            assert gossip == ["never" if s.gossip_upto is None else f"{s.gossip_upto:.4f}" for s in planned.stages[:-1]]
            assert f"{planned.dominance:.3f}" in page.inner_text("#stopping-map") or planned.dominance > bound

    def test_both_rules_play_and_another_draw_differs(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch().open(f"{serve(small_runs).address}#view=map")
        page.wait_for_selector("#stopping-verdicts strong")
        before = page.inner_text("#stopping-verdicts")
        assert "SAGE-OS" in before
        assert "SAGE-E" in before
        assert page.locator("#stopping-map .walk.dot").count() >= 1
        page.locator("#map-lead").fill("0")
        until(page, "!document.getElementById('stopping-verdicts').textContent.includes('certified by')")
        page.click("#map-again")
        page.wait_for_selector("#stopping-verdicts strong")


class TestReport:
    def test_a_frozen_report_shows_all_views_offline(self, watch: Watch, small_runs: Path, tmp_path: Path) -> None:
        out = tmp_path / "report.html"
        write_page(out, report_page(Shelf([small_runs]), detailed=2))
        watched = watch(offline=True)
        page = watched.open(out.as_uri())
        page.wait_for_selector("body[data-charts=drawn]")
        assert {row[0] for row in rows(page, "#view-runs")} == {"rg", "sage-os", "sage-e"}
        page.click("#tab-network")
        page.wait_for_selector(".node")
        audit = RunDirectory(small_runs / "os").table("decisions")
        row = audit.filter((audit["round"] == 5) & (audit["client"] == 2)).row(0, named=True)
        page.select_option("#network-run", run_id(small_runs, "os"))
        page.click(".node[data-client='2']")
        page.wait_for_selector("#decision-sentences li")
        check_decision(page, row)
        page.fill("#decision-round", "4")
        page.press("#decision-round", "Enter")
        until(page, "document.getElementById('decision-note').textContent.includes('rounds 1, 6')")
        page.click("#tab-map")
        page.wait_for_selector("#stopping-verdicts strong")
        page.locator("#map-degree").fill("7")
        until(page, "document.getElementById('stopping-verdicts').textContent.includes('nearest')")
        assert [url for url in watched.requests if not url.startswith(("file:", "data:", "blob:"))] == []


class TestEverybody:
    def test_by_keyboard_alone(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch().open(f"{serve(small_runs).address}#view=runs&run={run_id(small_runs, 'os')}")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "tab-runs"
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".node")
        assert page.evaluate("document.activeElement.id") == "tab-network"
        wanted = "document.activeElement.getAttribute('data-client')"
        for _ in range(8):
            page.keyboard.press("Tab")
            if page.evaluate(wanted) is not None:
                break
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert page.evaluate(wanted) == "2"
        assert "client 2: pulls" in page.evaluate("document.activeElement.getAttribute('aria-label')")
        page.keyboard.press("Enter")
        until(page, "document.activeElement.id === 'decision-heading'")
        page.wait_for_selector("#decision-sentences li")
        assert page.inner_text("#decision-heading").startswith("Client 2 in round")

    def test_everything_has_a_name(self, serve: Serve, watch: Watch, small_runs: Path) -> None:
        page = watch().open(serve(small_runs).address)
        for view in VIEWS:
            page.click(f"#tab-{view}")
            page.wait_for_timeout(200)
            nameless = page.eval_on_selector_all(
                "main button, main select, main input, main [role=img], main [role=button], main [role=region]",
                """nodes => nodes.filter(n => n.checkVisibility()).filter(n =>
                    !(n.getAttribute('aria-label') || n.textContent.trim() || n.labels?.length)).map(n => n.id)""",
            )
            assert nameless == []
            assert page.get_attribute(f"#tab-{view}", "aria-selected") == "true"
        assert page.get_attribute("#announcer", "aria-live") == "polite"
        ids = page.eval_on_selector_all("[id]", "nodes => nodes.map(n => n.id)")
        assert len(ids) == len(set(ids))

    @pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
    def test_nothing_sticks_out_and_text_is_readable(
        self, serve: Serve, watch: Watch, small_runs: Path, width: int, scheme: str
    ) -> None:
        page = watch(viewport={"width": width, "height": 844}, color_scheme=scheme).open(serve(small_runs).address)
        page.wait_for_selector("body[data-charts=drawn]")
        for view in VIEWS:
            page.click(f"#tab-{view}")
            page.wait_for_timeout(250)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink, paper = page.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        assert contrast(ink, paper) > 7
        assert (luminance(paper) < 0.2) == (scheme == "dark")
        note = page.evaluate("getComputedStyle(document.querySelector('#view-map .note')).color")
        assert contrast(note, paper) > 4.5


def luminance(colour: str) -> float:
    parts = [int(v) / 255 for v in re.findall(r"\d+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


class TestLive:
    @pytest.mark.slow
    def test_a_real_run_killed_and_resumed(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        """The page opens before the run exists, follows it, sees it killed and resumed, and ends with its numbers."""
        target = tmp_path / "run"
        target.mkdir()
        page = watch().open(serve(target).address)
        assert rows(page, "#view-runs")[0][1] == "waiting"
        sagefl = [sys.executable, "-c", "from sagefl.cli import app; app()"]
        sets = ["--set", "model.name=mlp", "--set", "evaluation.subset=1000", "--set", "evaluation.mechanisms=false"]
        shape = ["--clients", "8", "--rounds", "40", "--eval-every", "1", "--max-batches", "1", "--alpha", "1"]
        how = ["--engine", "sequential", "--checkpoint-every", "2", "--quiet"]
        target.rmdir()
        begun = [*sagefl, "run", "--method", "sage-e", *shape, *sets, *how, "--out", str(target)]
        process = subprocess.Popen(begun, stdout=subprocess.DEVNULL)

        def done() -> int:
            text = rows(page, "#view-runs")[0][2]
            return int(text.split("/")[0]) if "/" in text else 0

        try:
            wait_for(lambda: done() >= 2)
            seen = done()
            assert rows(page, "#view-runs")[0][1] == "running"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert RunDirectory(target).summary is None, "the run ended before it could be killed"
        resumed = subprocess.Popen([*sagefl, "resume", str(target), *how], stdout=subprocess.DEVNULL)
        wait_for(lambda: done() > seen)
        wait_for(lambda: rows(page, "#view-runs")[0][1] == "finished", 120)
        assert resumed.wait() == 0
        assert done() == 40
        metrics = RunDirectory(target).table("metrics")
        assert rows(page, "#view-runs")[0][3] == f"{metrics['accuracy'][-1]:.4f}"
        length = "document.getElementById('plot-evidence').drawn.curves[0].y.length"
        wait_for(lambda: page.evaluate(length) == 40)
        assert "finished" in page.inner_text("#announcer")
        audit = RunDirectory(target).table("decisions")
        row = audit.filter(audit["stages"] > 0).row(-1, named=True)
        page.goto(page.url.split("#")[0] + f"#view=decision&round={row['round'] + 1}&client={row['client']}")
        page.wait_for_selector("#decision-sentences li")
        check_decision(page, row)

    def test_only_what_is_new_is_fetched(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        directory = make_run(tmp_path, rounds=9, done=3)
        watched = watch()
        page = watched.open(serve(tmp_path).address)
        page.wait_for_selector("body[data-charts=drawn]")
        grow_run(directory, 5)
        until(page, "document.getElementById('plot-evidence').drawn.curves[0].y.length === 5")
        assert any("since=3" in url for url in watched.requests)
        grow_run(directory, 2)  # resumed from an older checkpoint: fewer rounds than the page has seen
        until(page, "document.getElementById('plot-evidence').drawn.curves[0].y.length === 2")

    def test_the_server_goes_and_comes_back(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        directory = make_run(tmp_path, rounds=6, done=2)
        served = serve(tmp_path)
        watched = watch()
        page = watched.open(served.address)
        page.wait_for_selector("body[data-charts=drawn]")
        served.stop()
        until(page, "document.getElementById('connection').textContent.includes('does not answer')")
        grow_run(directory, 6)
        served.start()
        wait_for(lambda: rows(page, "#view-runs")[0][1] == "finished")
        until(page, "document.getElementById('connection').textContent === ''")
        watched.errors[:] = [e for e in watched.errors if "ERR_CONNECTION" not in e and "ERR_EMPTY" not in e]


class TestSize:
    def test_a_long_run_is_readable_within_two_seconds(self, serve: Serve, watch: Watch, tmp_path: Path) -> None:
        """250 rounds of 50 clients: 12,500 decisions, the last of them one click away."""
        make_run(tmp_path, clients=50, rounds=250, every=10, distinct=20)
        served = serve(tmp_path)
        watched = watch()
        sent: list[float] = []
        session = watched.context.new_cdp_session(watched.page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
        page = watched.open(served.address)
        page.wait_for_selector("body[data-charts=drawn]")
        shown = page.evaluate("performance.getEntriesByName('sagefl-runs')[0].startTime")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        page.click("#tab-network")
        page.wait_for_selector(".node")
        page.locator("#network-round").fill("20")
        until(page, "document.getElementById('network-caption').textContent.startsWith('Round 20 of 250')")
        page.click(".node[data-client='49']")
        page.wait_for_selector("#decision-sentences li")
        print(f"first paint {paint:.0f} ms, runs shown {shown:.0f} ms, {sum(sent) / 1e6:.2f} MB sent")
        assert paint < 2000
        assert shown < 2000
        assert sum(sent) < 3e6
        assert page.inner_text("#decision-heading") == "Client 49 in round 20"
