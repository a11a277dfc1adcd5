"""`results/README.md` from `results/README.template.md` and the CSVs beside it: no figure in it is typed by hand.

python tools/results_page.py             # after cells were added or the template was edited

In the template `{{ ... }}` is a figure, `{{ so(...) }}` a statement in words that must be true of the CSVs, or the page
is not made. `tests/study/test_results_page.py` makes it again and looks for figures outside of both.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from clients_account import ClientsAccount
from jinja2 import Environment, StrictUndefined
from minutes_account import MinutesAccount, RetimedAccount
from scout_account import ScoutAccount

from sagefl.methods.fidelity import caveats
from sagefl.runs.config import RunConfig
from sagefl.runs.environment import address
from sagefl.runs.headroom import own_metric
from sagefl.runs.intervals import share_interval, t_quantile
from sagefl.study.account import primary_lines
from sagefl.study.comparing import Comparison, compare
from sagefl.study.design import Design, Findings
from sagefl.study.paper import PAPER
from sagefl.study.published import SEED, published
from sagefl.study.results import Configuration, show_method

RESULTS = Path(__file__).parents[1] / "results"
TEMPLATE = RESULTS / "README.template.md"
MINUS = "\N{MINUS SIGN}"
GAP = ("aq-128", "aq-128:ties=lowest-index")
ONE_CELL = ("world", "dataset", "topology", "alpha", "method", "seed")


class Cells:
    """The cells of some folders, looked up by method; where several seeds or worlds have one, their mean."""

    def __init__(self, *folders: str) -> None:
        self.rows: list[dict[str, str]] = []
        for folder in folders:
            with (RESULTS / folder / "cells.csv").open(encoding="utf-8") as file:
                self.rows += csv.DictReader(file)
        keys = Counter(tuple(r.get(key, "") for key in ONE_CELL) for r in self.rows)
        if twice := [key for key, number in keys.items() if number > 1]:
            raise AssertionError(f"{', '.join(folders)}: two rows for {' '.join(twice[0])}: an old and a new one?")

    def outdated(self, method: str) -> bool:
        """Whether it was run by code that has changed since."""
        rows = [r for r in self.rows if r["method"] == method]
        return any(r["digest"] != address(RunConfig.model_validate_json(r["config"])) for r in rows)

    def all(self, method: str, metric: str, **where: Any) -> list[float]:
        """A number of every cell of a method; `topology` and `seed` choose some of them."""
        rows = [r for r in self.rows if r["method"] == method and all(r[k] == str(v) for k, v in where.items())]
        return [float(r[metric]) for r in rows if r[metric]]

    def __call__(self, method: str, metric: str, **where: Any) -> float:
        return fmean(self.all(method, metric, **where))

    def gaps(self, method: str, metric: str = "accuracy", **where: Any) -> list[float]:
        """Points above gossip, cell by cell."""
        pairs = zip(self.all(method, metric, **where), self.all("rg", metric, **where), strict=True)
        return [100 * (a - b) for a, b in pairs]

    def gap(self, method: str, metric: str = "accuracy", **where: Any) -> float:
        """Their mean."""
        return fmean(self.gaps(method, metric, **where))

    def probes(self, method: str, **where: Any) -> float:
        """Probe bytes over model bytes."""
        names = ("probe_input_bytes", "probe_answer_bytes")
        return sum(sum(self.all(method, name, **where)) for name in names) / sum(
            self.all(method, "model_bytes", **where)
        )

    def checked(self, method: str) -> tuple[int, int]:
        """How many certificates were looked at on evaluation data, and how many of them were refuted."""
        rows = [r for r in self.rows if r["method"] == method and r["certified_worse"]]
        counts = [float(r["certified_checked"]) for r in rows]
        return round(sum(counts)), round(
            sum(n * float(r["certified_worse"]) for n, r in zip(counts, rows, strict=True))
        )


class Worlds(Cells):
    """The cells of a study of worlds: accuracy by the measure that means something in each."""

    def __init__(self, *folders: str) -> None:
        super().__init__(*folders)
        config = {r["world"]: RunConfig.model_validate_json(r["config"]) for r in self.rows}
        self.config = config
        self.metric = {world: own_metric(c) for world, c in config.items()}
        self.grouped = [world for world, c in config.items() if c.world.shift != "none" and self.room(world) >= 3]
        self.harmful = [world for world in config if self.at("local", world) - self.best(world, "rg", "oracle") >= 2]
        self.alike = [world for world in config if abs(self.room(world)) <= 1]

    def same(self, section: str, key: str) -> bool:
        """Whether a setting is one for all worlds."""
        return len({getattr(getattr(c, section), key) for c in self.config.values()}) == 1

    def at(self, method: str, world: str, metric: str | None = None) -> float:
        """Accuracy of a method in a world, in points, the mean over seeds."""
        return 100 * self(method, metric or self.metric[world], world=world)

    def best(self, world: str, *methods: str) -> float:
        """The best of some methods there."""
        return max(self.at(method, world) for method in methods)

    def room(self, world: str) -> float:
        """Headroom: the better of the two references minus gossip."""
        return self.best(world, "oracle", "local") - self.at("rg", world)

    def gain(self, method: str, world: str, metric: str | None = None) -> float:
        """Points over gossip."""
        return self.at(method, world, metric) - self.at("rg", world, metric)

    def singly(self, method: str, metric: str) -> list[float]:
        """Points over gossip in every single run of the worlds with groups."""
        return [gap for world in self.grouped for gap in self.gaps(method, metric, world=world)]

    def behind(self, method: str, world: str) -> float:
        """Points beside the better of the two references; negative is below it."""
        return self.at(method, world) - self.best(world, "oracle", "local")

    def capture(self, method: str, world: str) -> float:
        """The share of the headroom that a method brings."""
        return self.gain(method, world) / self.room(world)

    def over(self, what: str, method: str, worlds: Sequence[str], *more: str) -> list[float]:
        """`gain`, `capture` or `asked` of a method in several worlds."""
        return [getattr(self, what)(method, world, *more) for world in worlds]

    def asked(self, method: str, world: str) -> float:
        """Bytes of probes over those of the models that gossip moves."""
        probes = self(method, "probe_input_bytes", world=world) + self(method, "probe_answer_bytes", world=world)
        return probes / self("rg", "model_bytes", world=world)

    def models(self, method: str, world: str) -> float:
        """Bytes of models over gossip's."""
        return self(method, "model_bytes", world=world) / self("rg", "model_bytes", world=world)

    def spent(self, method: str, world: str) -> float:
        """Bytes of probes over those of the models that the method itself moves."""
        return self.asked(method, world) / self.models(method, world)

    def per_byte(self, method: str, world: str) -> float:
        """Points over gossip per byte, in models of gossip."""
        return self.gain(method, world) / (self.asked(method, world) + self.models(method, world))


class Comparisons:
    """The comparisons of one folder, by arm and outcome."""

    def __init__(self, folder: str) -> None:
        with (RESULTS / folder / "comparisons.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.rows = {(r["spec"], r["outcome"]): r for r in rows}
        self.primary = next(r for r in rows if r["primary"] == "1")
        self.others = [r for r in rows if r["primary"] != "1"]  # in several worlds

    def __call__(self, spec: str, outcome: str, column: str = "points") -> float:
        return float(self.rows[spec, outcome][column])

    def interval(self, spec: str, outcome: str = "both", by: str = "") -> str:
        """Its two ends."""
        return f"{points(self(spec, outcome, by + 'low'))} to {points(self(spec, outcome, by + 'high'))}"

    def deviation(self, spec: str, outcome: str = "both") -> float:
        """Of single replications."""
        n = int(self(spec, outcome, "replications"))
        half = (self(spec, outcome, "high") - self(spec, outcome, "low")) / 2
        return half / t_quantile(0.975, n - 1) * sqrt(n)

    @property
    def upheld(self) -> list[dict[str, str]]:
        """The others that are significant at 5 % after Holm's correction."""
        return [r for r in self.others if float(r["holm"]) < 0.05]

    @property
    def holm(self) -> list[tuple[float, str, str]]:
        """Adjusted p-values of all but the primary, smallest first."""
        return sorted((float(r["holm"]), *key) for key, r in self.rows.items() if r["primary"] == "0")


def better_everywhere(worlds: Worlds, designs: Mapping[str, str], than: str, by: float = 1.0) -> list[str]:
    """The designs that gain so many points over another in every world."""
    gained = {name: [worlds.at(spec, w) - worlds.at(than, w) for w in worlds.metric] for spec, name in designs.items()}
    return [name for name, gains in gained.items() if min(gains) >= by]


def points(value: float, digits: int = 2) -> str:
    """Signed, with a true minus."""
    return f"{value:+.{digits}f}".replace("-", MINUS)


def percent(value: float, digits: int = 1) -> str:
    """A share of one."""
    return f"{100 * value:.{digits}f} %"


def so(*statements: object) -> str:
    """Nothing, if what the text says in words is true."""
    if not all(statements):
        raise AssertionError("the CSVs do not bear out a sentence of the template: see the line of this call")
    return ""


def power(effect: float, deviation: float, replications: int, level: float, draws: int = 100_000) -> float:
    """How often a paired t-test at this two-sided level finds an effect of this size."""
    x = np.random.default_rng(0).normal(effect, deviation, (draws, replications))
    t = x.mean(1) / (x.std(1, ddof=1) / sqrt(replications))
    return float((np.abs(t) > t_quantile(1 - level / 2, replications - 1)).mean())


def needed(effect: float, deviation: float, level: float, wanted: float) -> int:
    """The fewest replications with that power."""
    return next(n for n in range(3, 100) if power(effect, deviation, n, level) >= wanted)


def theirs(configuration: Configuration) -> Callable[..., float]:
    """What the paper prints for one configuration."""

    def value(method: str, metric: str, over: str | None = None) -> float:
        found = published().value(configuration, method, metric, SEED)
        assert found is not None, (configuration, method, metric)
        return found if over is None else 100 * (found - value(over, metric))

    return value


def answer(folders: Sequence[str]) -> Iterable[str]:
    """The five lines, from the cells of some folders."""
    return Findings.read(PAPER, [RESULTS / folder for folder in folders]).answer


def scout(file: str, folder: str) -> ScoutAccount:
    """Verdicts that were recorded in a file, against the references among a study's cells."""
    return ScoutAccount(RESULTS / file, RESULTS / folder / "cells.csv")


def gains_expected(file: str, worlds: Worlds, method: str) -> str:
    """How often the gain of a method lay in the interval of the headroom that scout had given."""
    verdicts = held(file)
    gains = [worlds.gaps(method, worlds.metric[v["world"]], world=v["world"], seed=v["seed"])[0] for v in verdicts]
    inside = [100 * float(v["low"]) <= g <= 100 * float(v["high"]) for v, g in zip(verdicts, gains, strict=True)]
    return f"{sum(inside)} of {len(inside)}"


def clients(file: str) -> ClientsAccount:
    """Clients at the end of some cells."""
    return ClientsAccount(RESULTS / file)


def marks(*labels: str) -> str:
    """How true the methods of a table are to their papers, where they are not as published."""
    return " ".join(caveats(labels, show_method))


def held(file: str) -> list[dict[str, str]]:
    """The rows of a CSV."""
    with (RESULTS / file).open(encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def best_where_alike(worlds: Worlds) -> float:
    """The largest gain over gossip of any rule that pulls one model, where there is nothing to choose."""
    rules = {r["method"] for r in worlds.rows} - {"rg", "local", "oracle", "d-psgd"}
    return max(worlds.gain(rule, world) for rule in rules for world in worlds.alike)


def better(worlds: Worlds, method: str, rivals: Sequence[str], among: Iterable[str] | None = None) -> list[str]:
    """The worlds, by default those with groups, in which a method gains more per byte than all of its rivals."""
    among = worlds.grouped if among is None else among
    return [w for w in among if all(worlds.per_byte(method, w) > worlds.per_byte(r, w) for r in rivals)]


def pairs(rows: Sequence[dict[str, str]]) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Rows two by two."""
    return list(zip(rows[::2], rows[1::2], strict=True))


# Studies that take days: what there is of them -----------------------------------------------------------------------


def found(folder: str) -> Findings:
    """What a study that comes with sagefl came to so far; the folder is named after it and its preset."""
    study, _, preset = folder.partition("-")
    return Findings.read(Design.read(study, preset or None), [RESULTS / folder])


def primary(folder: str) -> list[str]:
    """A sentence for every comparison that was named before the runs."""
    return list(primary_lines(found(folder)))


def state(folder: str) -> str:
    """How many of the planned cells are there."""
    findings = found(folder)
    return f"{len(findings.records)} of {len(findings.design.cells)} cells"


def interval(c: Comparison, level: float) -> str:
    """Points, and their interval where there is one."""
    low, high = c.difference.interval(level)
    several = f" [{points(low)}, {points(high)}]" if c.difference.standard_error is not None else ""
    return f"{points(c.difference.mean)}{several}"


def gaps(folder: str) -> list[str]:
    """AQ-128 minus gossip, a row per world; last what follows by the standard that was written down before."""
    findings = found(folder)
    made = [c for c in compare(findings.records, findings.trial) if c.measure == "accuracy"]
    there = {(c.world, c.method): c for c in made}
    rows = [
        [str(world), *(interval(c, findings.trial.level) if (c := there.get((world, m))) else "" for m in GAP)]
        for world in findings.trial.worlds
    ]
    printed = theirs(Configuration("fmnist", "er", 0.1))("aq-128", "accuracy", "rg")
    first = next((c for c in made if c.primary), None)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if first is None:
        return [*lines, "", "The first world is not there yet."]
    size = [str(c.world) for c in made if c.difference.mean <= -2 and c.method in GAP]
    moved = [str(c.world) for c in made if c.difference.interval(findings.trial.level)[1] < first.difference.mean]
    accounts = f"accounted for in: {', '.join(dict.fromkeys(size))}" if size else "accounted for by none of them so far"
    moves = f"moved in: {', '.join(dict.fromkeys(moved))}" if moved else "moved beyond the noise by none"
    return [*lines, "", f"The published gap is {points(printed)} points; it is {accounts}; it is {moves}."]


def levels(folder: str) -> list[str]:
    """Whether sage-m is level with gossip in each world, by the standard that was written down before."""
    findings, cells = found(folder), Cells(folder)
    lines = []
    for c in (c for c in compare(findings.records, findings.trial) if c.primary):
        low, high = c.difference.interval(findings.trial.level)
        probes = cells.probes(c.method, world=str(c.world))
        inside = "inside half a point" if low > -0.5 and high < 0.5 else "not inside half a point"
        if c.difference.standard_error is None:
            inside = "too few for an interval"
        seeds = c.difference.seeds
        cheap = "at most" if probes <= 0.02 else "more than"
        lines.append(
            f"- {c.world}: {interval(c, findings.trial.level)} points over {seeds} seed{'s' * (seeds > 1)}, {inside}; "
            f"probes {percent(probes)} of the models' bytes, {cheap} the 2 % that were allowed."
        )
    return lines


def minutes(folder: str) -> MinutesAccount:
    """What a study of time came to."""
    return MinutesAccount(found(folder))


def retimed(folder: str) -> RetimedAccount | None:
    """What a clock that was put on the cells of a folder says; None where nobody has put one on them."""
    if not (RESULTS / folder / "minutes.csv").is_file():
        return None
    return RetimedAccount(held(f"{folder}/minutes.csv"), Cells(folder).rows)


def situations() -> str:
    """The table of README: four situations, what to use there, and what that brought."""
    worlds, peers, home = Worlds("worlds"), Worlds("culprits"), "sage-m:outside=home"
    gains, level, tried, harm = (
        worlds.over("gain", method, among)
        for method, among in (
            (home, worlds.grouped),
            ("sage-m", worlds.alike),
            (home, worlds.alike),
            (home, worlds.harmful),
        )
    )
    pilots = scout("culprits/scout.csv", "culprits")
    (chose, told), (blind, poisoned) = pilots.chose("noise", "never trained"), pilots.chose("poison")
    share = median(worlds.over("capture", home, worlds.grouped))
    asked = max(worlds.over("asked", home, worlds.grouped))
    noise = [peers.gain(home, w) for w in peers.metric if w != "poison"]
    known = f"{share:.0%} of what knowing the groups brings, for {asked:.1%} more bytes at most"
    rows = [
        ("all clients learn the same task", "*nothing to choose*", "`rg`: random gossip",
         f"no gain to be had: in {len(level)} worlds `sage-m` ends {span(level, 1)} points from gossip, "
         f"`{home}` {span(tried, 1)}"),
        ("clients come in groups", "*choose*", f"`{home}`",
         f"{points(median(gains), 0)} points over gossip, median of {len(gains)} worlds ({span(gains, 0)}), {known}"),
        ("averaging with anybody makes your model worse", "*stay at home*", f"`local`: no exchange; or `{home}`",
         f"{span(harm, 0)} points over gossip in {len(harm)} worlds"),
        ("some peers are bad",
         f"*choose* in {chose} of {told} pilots; with poison behind honest answers in {blind} of {poisoned}",
         f"`{home}`",
         f"{span(noise, 1)} points over gossip if they publish noise or never trained; "
         f"{points(peers.gain(home, 'poison'), 1)} if they answer well and hand over poison"),
    ]  # fmt: skip
    head = "| your situation | scout says | use | measured |\n|---|---|---|---|\n"
    return head + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def span(values: Sequence[float], digits: int) -> str:
    """From the smallest to the largest."""
    low, high = points(min(values), digits), points(max(values), digits)
    return low if low == high else f"{low} to {high}"


def lines(file: str) -> int:
    """How many rows a CSV has."""
    return len(held(file))


def all_below(values: Iterable[float]) -> bool:
    """Whether all are negative."""
    return all(value < 0 for value in values)


def below(values: Iterable[float], limit: float) -> list[float]:
    """Those that are."""
    return [value for value in values if value < limit]


def level_in(values: Iterable[float]) -> int:
    """How many are within half a point."""
    return sum(abs(value) < 0.5 for value in values)


def far_off(cells: Cells, methods: Iterable[str]) -> str:
    """Those whose Client accuracy is more than a third of a point from gossip's."""
    return " and ".join(show_method(m) for m in methods if abs(cells.gap(m, "client")) > 0.34)


def same_gini(cells: Cells, methods: Iterable[str]) -> int:
    """How many runs of some methods concentrate exactly as gossip in the same world and seed."""
    return sum(gap == 0 for m in methods for gap in cells.gaps(m, "pull_gini"))


def there(study: str) -> list[str]:
    """The folders of a study."""
    return sorted(
        path.parent.name for path in RESULTS.glob(f"{study}*/cells.csv") if path.parent.name.split("-")[0] == study
    )


def render(template: str) -> str:
    """The page."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    folders = [name for name in there("paper") if name not in ("paper-smoke", "paper-laptop")]
    given = (
        points,
        percent,
        so,
        power,
        needed,
        theirs,
        answer,
        share_interval,
        Cells,
        Worlds,
        Comparisons,
        Configuration,
    )
    words = (
        lines,
        held,
        pairs,
        scout,
        gains_expected,
        clients,
        marks,
        better,
        median,
        all_below,
        below,
        level_in,
        far_off,
        same_gini,
        span,
        best_where_alike,
        better_everywhere,
    )
    running = (state, primary, gaps, levels, minutes, retimed, show_method)
    return environment.from_string(template).render(
        **{function.__name__: function for function in (*given, *words, *running)},
        **{
            "abs": abs,
            "all": all,
            "max": max,
            "min": min,
            "len": len,
            "log": log,
            "sum": sum,
            "zip": zip,
            "fmean": fmean,
        },
        paper=folders,
        **{study: there(study) for study in ("gap", "level", "time")},
    )


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(render(TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")
