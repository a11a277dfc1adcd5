"""Judge `sagefl scout` on the worlds of a study: record its verdicts, and score them against the finished runs.

    python tools/judge_scout.py worlds --out results/worlds/scout.csv
    python tools/judge_scout.py worlds --out results/worlds/scout.csv --cells results/worlds/cells.csv

The first command makes a pilot of every world and seed of the study, and adds a line to the file for each; those that
are there already are left alone, so the verdicts stay as they were before the full runs. The second scores the file.

What is right follows from the references alone, and was fixed beforehand: *home* where `local` leads both `rg` and
`oracle` by 2 points, else *choose* with headroom of 2 points or more, *gossip* within 1, and anything in between.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sagefl.api.scouting import Scouting, scout_world
from sagefl.runs.config import Execution
from sagefl.runs.headroom import GOSSIP, REFERENCES, own_metric
from sagefl.runs.intervals import share_interval
from sagefl.study.collect import read_records
from sagefl.study.spec import read_spec

LEADS, NOTHING = 0.02, 0.01
FIELDS = (
    *("world", "seed", "verdict", "expected", "low", "high", "home", "groups", "agreement"),
    *("pilot_local", "pilot_within", "pilot_gossip", "rounds", "seconds", "bytes", "samples", "sentence"),
)
Measured = Mapping[tuple[str, int], Mapping[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("study", help="a study that comes with sagefl, or a file")
    parser.add_argument("--out", type=Path, required=True, help="the verdicts, a line each")
    parser.add_argument("--cells", type=Path, help="score them against the finished runs in this cells.csv")
    parser.add_argument("--engine", default="auto")
    given = parser.parse_args()
    if given.cells is None:
        record(given.study, given.out, Execution(engine=given.engine))
        return
    measured = references(given.cells)
    for line in scored(read(given.out), measured):
        print(line)


# Recording ------------------------------------------------------------------------------------------------------------


def record(study: str, out: Path, execution: Execution) -> None:
    """A pilot of every world and seed that the file does not have yet."""
    spec, _, _ = read_spec(study)
    there = {(row["world"], int(row["seed"])) for row in read(out)} if out.exists() else set()
    out.parent.mkdir(parents=True, exist_ok=True)
    for cell in spec.cells(methods=[GOSSIP]):
        if (key := (str(cell.configuration), cell.seed)) in there:
            continue
        row = described(*key, scout_world(cell.config, execution))
        fresh = not out.exists()
        with out.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(row)
        print(f"{key[0]}, seed {key[1]}: {row['sentence']}", flush=True)


def described(world: str, seed: int, found: Scouting) -> dict[str, Any]:
    """A line of the file."""
    pilot, verdict = found.pilot, found.found
    assert pilot is not None
    room, home = verdict.headroom, verdict.home
    row = {
        **{"world": world, "seed": seed, "verdict": found.verdict, "sentence": found.sentence},
        **({} if room is None else room._asdict()),
        **{"home": None if home is None else home.expected, "groups": " ".join(map(str, verdict.kinship.sizes))},
        **{f"pilot_{name}": getattr(pilot, name).mean() for name in ("local", "within", "gossip")},
        **{"agreement": verdict.kinship.agreement, "rounds": pilot.rounds, **pilot.cost._asdict()},
    }
    return {name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()}


def read(path: Path) -> list[dict[str, str]]:
    """The recorded verdicts."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# Scoring --------------------------------------------------------------------------------------------------------------


def references(cells: Path) -> Measured:
    """The accuracy that headroom is about, of the three references, by world and seed."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for r in read_records(cells):
        if r.method in (GOSSIP, *REFERENCES):
            found.setdefault((str(r.configuration), r.config.seed), {})[r.method] = r.values[own_metric(r.config)]
    return {key: scores for key, scores in found.items() if {GOSSIP, *REFERENCES} <= scores.keys()}


def headroom_of(scores: Mapping[str, float]) -> float:
    """The better of `oracle` and `local`, minus `rg`."""
    return max(scores[name] for name in REFERENCES) - scores[GOSSIP]


def right(scores: Mapping[str, float]) -> str | None:
    """The right verdict; None where any is."""
    if scores["local"] - max(scores["oracle"], scores[GOSSIP]) >= LEADS:
        return "home"
    room = headroom_of(scores)
    return "choose" if room >= LEADS else "gossip" if room <= NOTHING else None


def scored(verdicts: Sequence[Mapping[str, str]], measured: Measured) -> Iterable[str]:
    """A line for each world and seed, and the shares with their 95 % intervals."""
    rows = [(v, measured[key]) for v in verdicts if (key := (v["world"], int(v["seed"]))) in measured]
    if not rows:
        yield "No world has both a verdict and its three references."
        return
    for v, scores in rows:
        wanted, room = right(scores) or "any", headroom_of(scores)
        mark = "right" if wanted in ("any", v["verdict"]) else "unsure" if v["verdict"] == "unsure" else "WRONG"
        inside = "covered" if float(v["low"]) <= room <= float(v["high"]) else "NOT covered"
        span = f"[{100 * float(v['low']):+.1f}, {100 * float(v['high']):+.1f}]"
        said = f"{v['world']}, seed {v['seed']}: said {v['verdict']}, {wanted} is right"
        yield f"{mark:6} {said}; {100 * room:+.1f} {inside} {span}"
    told = [(v["verdict"], right(scores)) for v, scores in rows]
    yield share("right", [verdict == wanted or wanted is None for verdict, wanted in told])
    yield share("unsure", [verdict == "unsure" for verdict, _ in told])
    yield share(
        '"choose" where there is nothing to choose', [v == "choose" for v, wanted in told if wanted == "gossip"]
    )
    covered = [float(v["low"]) <= headroom_of(scores) <= float(v["high"]) for v, scores in rows]
    yield share("headroom within its interval", covered)
    worlds = {v["world"] for v, _ in rows}
    means = {w: {n: fmean(s[n] for v, s in rows if v["world"] == w) for n in (GOSSIP, *REFERENCES)} for w in worlds}
    agreed = [v["verdict"] == (wanted := right(means[v["world"]])) or wanted is None for v, _ in rows]
    yield share("right, by the mean over a world's seeds", agreed)
    yield f"Seconds a pilot: {fmean(float(v['seconds']) for v, _ in rows):.1f} in the mean"


def share(what: str, hits: Sequence[bool]) -> str:
    """A share with its interval, in a line; seeds of a world are not independent, so the interval is too narrow."""
    if not hits:
        return f"{what}: no case"
    low, high = share_interval(sum(hits), len(hits))
    return f"{what}: {sum(hits)} of {len(hits)} = {sum(hits) / len(hits):.1%} [{low:.1%}, {high:.1%}]"


if __name__ == "__main__":
    main()
