"""What is kept of a result: one digest per part, and beside it a few numbers that a person can read.

Tables are digested by content, never by the bytes of their files, and without what a clock has measured. The order of
columns does not count; their names, types and values do.
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import load_file

Part = dict[str, Any]  # its digest, its rows, and shares such as the final accuracy
Parts = dict[str, Part]

CLOSE = {"accuracy": 0.03, "client": 0.03, "certified": 0.1}  # how far shares may be off on another kind of CPU
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


def part(value: Any, rows: int, **shares: float) -> Part:
    """One part of a result: plain values, or bytes as they are."""
    raw = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return {"digest": hashlib.sha256(raw).hexdigest()[:20], "rows": rows} | {k: round(v, 4) for k, v in shares.items()}


def rounded(value: Any) -> Any:
    """Plain values with floats to nine digits: logarithms differ in the last one from CPU to CPU."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def array(values: Any) -> list[Any]:
    """An array as its type, shape and the digest of its values."""
    held = np.ascontiguousarray(values)
    return [str(held.dtype), held.shape, hashlib.sha256(held.tobytes()).hexdigest()]


# The folder of a run --------------------------------------------------------------------------------------------------


def columns(run: Path) -> dict[str, dict[str, str]]:
    """Names and types of the columns of every table, in order."""
    return {path.stem: {k: str(v) for k, v in pl.read_parquet_schema(path).items()} for path in run.glob("*.parquet")}


def run_parts(run: Path) -> Parts:
    """Everything that a finished run leaves and that can be repeated: tables, losses, last weights, summary."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    tables = {name: pl.read_parquet(run / f"{name}.parquet") for name in ("metrics", "decisions", "clients")}
    shares = {
        "metrics": {"accuracy": summary["accuracy"]} if "accuracy" in summary else {},  # of values there is none
        "decisions": {"certified": summary["certified"]},
        "clients": {"client": summary["client"]} if "client" in summary else {},
    }
    found = {name: part(_content(table), table.height, **shares[name]) for name, table in tables.items()}
    last = max((run / "checkpoint").glob("round-*"))
    states = json.loads((last / "manifest.json").read_text(encoding="utf-8"))["content"]["states"]
    return found | {
        "losses": _tensors((run / "losses").glob("*.safetensors")),
        "weights": _tensors(last.glob("*.safetensors")),
        "states": part(states, len(states)),
        "summary": part(summary, len(summary)),
        "config": part((run / "run.toml").read_bytes(), 1),
    }


def _content(table: pl.DataFrame) -> dict[str, Any]:
    """By column; a node's bytes on the wire tell how far its neighbours were when it asked, which is chance."""
    return {name: [str(table.schema[name]), table[name].to_list()] for name in table.columns if name != "wire_bytes"}


def _tensors(paths: Iterable[Path]) -> Part:
    files = {path.name: {k: array(v) for k, v in load_file(path).items()} for path in paths}
    return part(files, len(files))


# Files that a study writes --------------------------------------------------------------------------------------------


def csv_part(path: Path, **shares: str) -> Part:
    """A table of a study without seconds; `shares` name columns whose mean is kept."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "seconds" not in row.get("metric", "")]
    kept = [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]
    return part(
        kept, len(kept), **{k: float(np.mean([float(row[name]) for row in rows])) for k, name in shares.items()}
    )


def claims_part(path: Path) -> Part:
    """Every verdict and every number it rests on; the words around them may be put better."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [
        [row[k] for k in ("id", "tables", "runs", "runs_leans", "printed", "printed_leans")]
        + [NUMBER.findall(row[k]) for k in ("tables_detail", "runs_detail", "runs_scope", "printed_detail")]
        for row in rows
    ]
    return part(kept, len(kept))


# Where digests hold ---------------------------------------------------------------------------------------------------


@cache
def here() -> str:
    """The kind of CPU and the torch build: trained numbers are bit-identical on one such only."""
    import torch

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        fields = dict(re.findall(r"^(vendor_id|cpu family|model)\s*: (.*)$", info.read_text(), re.MULTILINE))
        cpu = " ".join(fields.values()) or cpu
    return f"{platform.machine()}, {cpu}, {torch.backends.cpu.get_cpu_capability()}, torch {version('torch')}"
