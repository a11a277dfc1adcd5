"""More rounds for a finished run: it goes on as if it had been asked for all of them from the beginning, bit for bit.

Only the last round of a run is always evaluated, and on the whole test set. In the longer run that round is one on the
way, so its rows become what they would have been there: `last-round.json` keeps them.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from typing import Any

import polars as pl

from ..errors import UsageError
from ..exchange import ExchangeLayer
from ..learning.training import LocalTraining
from ..methods import Method, method
from ..runs import checkpoint
from ..runs.columns import columns, known_metrics
from ..runs.config import RunConfig
from ..runs.files import RunError, write_text
from ..runs.recording import GrowingTable
from ..runs.rundir import RunDirectory
from ..selection import Selector
from .evaluation import Measured

OF_AN_EVALUATION = ("test_images", "diversity", "pull_gini")
ALONG = {"accuracy": "accuracy", "macro_f1": "f1", "mae": "mae", "r2": "r2"}  # of the test set, by column


def longer(directory: RunDirectory, rounds: int) -> RunConfig:
    """The config of a finished run with more rounds, if it can go on. Changes nothing."""
    held = directory.config
    if rounds <= held.rounds:
        raise UsageError(f"{directory.path} has {held.rounds} rounds already: ask for more than that")
    if directory.summary is None:
        raise UsageError(f"{directory.path} is not finished: `sagefl resume {directory.path}` without --rounds first")
    directory.check(held)
    if planned := list(planners(method(held.method.id, **held.method.options))):
        raise UsageError(
            f"{held.method.id} plans by the number of rounds ({', '.join(planned)}), so {rounds} rounds are another "
            "run from the first one on: run them in another --out"
        )
    _last(directory)
    found = RunConfig.parse(held.model_dump() | {"rounds": rounds})
    checkpoint.of_config(directory.path, held.digest, found.digest)  # the second: somebody was killed while extending
    return found


def extend(directory: RunDirectory, longer: RunConfig) -> None:
    """Make a finished run one of more rounds that was interrupted after the last of those it has."""
    held, last = directory.config, _last(directory)
    with directory.locked():
        checkpoint.hand_over(directory.path, held.digest, longer.digest)
        _rewrite(directory, held.rounds - 1, last)
        write_text(directory.path / "run.toml", longer.to_toml())
        for name in ("summary.json", "last-round.json"):
            (directory.path / name).unlink(missing_ok=True)
    directory.event("extended", rounds=longer.rounds)


def _last(directory: RunDirectory) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((directory.path / "last-round.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{directory.path} cannot go on: last-round.json cannot be read ({error})") from None
    return found


def planners(of: Method) -> Iterator[str]:
    """Classes of a method that read the number of rounds; what they do in a round depends on how many there will be."""
    base = {Selector, LocalTraining, ExchangeLayer, object}
    for part in (of.selector, of.training, of.exchange):
        for cls in type(part).__mro__:
            if cls not in base and cls.__module__ != Selector.__module__ and _mentions_rounds(cls):
                yield cls.__name__
                break


def _mentions_rounds(cls: type[Any]) -> bool:
    module = inspect.getmodule(cls)
    try:
        source = inspect.getsource(cls if module is None or module.__name__ == "__main__" else module)
    except (OSError, TypeError):
        return True  # nobody can tell
    tree = ast.parse(inspect.cleandoc(source))
    return any(isinstance(node, ast.Attribute) and node.attr == "rounds" for node in ast.walk(tree))


# The last round -------------------------------------------------------------------------------------------------------


def last_round(measured: Measured | None, *, due: bool) -> dict[str, Any]:
    """What the last round would have shown on the way: nothing, the same, or an evaluation on fewer test images."""
    if not due:
        return {"evaluated": False}
    if measured is None or measured.along is None:
        return {"evaluated": True}
    before, after = measured.along.before, measured.along.after
    return {
        "evaluated": True,
        "metrics": after.summary() | before.summary("before_") | {"test_images": measured.along_images},
        "clients": {name: getattr(after, of).tolist() for name, of in ALONG.items() if hasattr(after, of)},
    }


def _rewrite(directory: RunDirectory, number: int, last: dict[str, Any]) -> None:
    here = pl.col("round") == number
    metrics, decisions, clients = (directory.table(name) for name in ("metrics", "decisions", "clients"))
    if not last["evaluated"]:
        names = [m.name for m in (*known_metrics(), *known_metrics(values=True))]
        names = [n for n in (*names, *(f"before_{n}" for n in names), *OF_AN_EVALUATION) if n in metrics.columns]
        metrics = metrics.with_columns(pl.when(here).then(None).otherwise(pl.col(n)).alias(n) for n in names)
        checks = [c.name for c in columns("decisions") if c.name.startswith("eval_")]
        decisions = decisions.with_columns(pl.when(here).then(None).otherwise(pl.col(n)).alias(n) for n in checks)
        clients = clients.filter(~here)
    elif "metrics" in last:
        metrics = metrics.with_columns(
            pl.when(here).then(pl.lit(value, metrics.schema[name])).otherwise(pl.col(name)).alias(name)
            for name, value in last["metrics"].items()
            if name in metrics.columns
        )
        earlier, row = clients.filter(~here), clients.filter(here)
        row = row.with_columns(
            pl.Series(name, values, clients.schema[name]) for name, values in last["clients"].items()
        )
        clients = pl.concat([earlier, row])
    for name, frame in (("metrics", metrics), ("decisions", decisions), ("clients", clients)):
        table = GrowingTable(directory.path / f"{name}.parquet", frame.schema)
        table.replace(frame)
        table.write()
