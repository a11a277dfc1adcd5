"""Everything that has digests, by name: what makes it, whether a CPU could change it, whether it takes long."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pure
import served
import small_worlds
from commands import Lab
from digesting import CLOSE, Parts, run_parts

RECORDED = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Case:
    """Something that gives the same parts again and again."""

    make: Callable[[Lab], Parts]
    trained: bool = True
    slow: bool = False


def _run(name: str, lab: Lab) -> Parts:
    return run_parts(small_worlds.run(lab, name))


def cases(methods: list[str]) -> dict[str, Case]:
    """All of them, for these methods."""
    runs = [*(f"method {id}" for id in methods), *small_worlds.RUNS, *small_worlds.ALIKE]
    return {
        "decisions": Case(pure.decisions, trained=False),
        "theory": Case(pure.theory, trained=False),
        "addresses": Case(pure.addresses, trained=False),
        "defaults": Case(pure.resolved, trained=False),
        "partitions": Case(pure.partitions, trained=False),
        "graphs": Case(pure.graphs, trained=False),
        "messages": Case(pure.messages, trained=False),
        "columns": Case(pure.table_columns, trained=False),
        "beyond, from its cells": Case(pure.beyond, trained=False),
        "paper, from its cells": Case(pure.merged, trained=False, slow=True),
        **{f"run: {name}": Case(partial(_run, name), slow="ray" in name.split()) for name in runs},
        "run: resumed": Case(partial(_run, "resumed"), slow=True),
        "compare": Case(small_worlds.compared),
        "replay": Case(small_worlds.replayed),
        "smoke study": Case(small_worlds.studied, slow=True),
        "page": Case(served.page),
        "node": Case(served.node),
        "swarm": Case(served.swarm, slow=True),
    }


SAME = {"run: resumed": "run: uninterrupted"} | {
    f"run: {name}": f"run: {other}" for name, (_, other) in small_worlds.ALIKE.items()
}  # the second, carried out in another way


def recorded() -> dict[str, Any]:
    """What is on record: `pure`, and `trained` by platform; each case by name, each part with its digest."""
    held: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {}
    return {"pure": {}, "trained": {}} | held


def recorded_methods() -> list[str]:
    """The methods on record, whatever the platform."""
    names = dict.fromkeys(name for of in recorded()["trained"].values() for name in of)
    return [name.removeprefix("run: method ") for name in names if name.startswith("run: method ")]


def differences(found: Parts, expected: Mapping[str, Any], *, exact: bool) -> list[str]:
    """A line for every part that is not what it was; of what only comes close, by rows and shares alone."""
    lines = [f"{name}: not there any more" for name in expected if name not in found]
    lines += [f"{name}: not on record" for name in found if name not in expected]
    for name in found.keys() & expected.keys():
        now, then = found[name], expected[name]
        if now != then if exact else not _close(now, then):
            lines.append(f"{name}: now {_said(now)}; on record {_said(then)}")
    return sorted(lines)


def _close(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    return now["rows"] == then["rows"] and all(abs(now[k] - then[k]) <= CLOSE[k] for k in then if k in CLOSE)


def _said(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in part.items())
