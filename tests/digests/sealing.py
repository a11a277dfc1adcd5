"""Results versions beside the digests: when results on record change, a part of theirs must have got a higher number.

`versions.json` holds for every small run what its results were (last weights and recorded losses; tables may get new
columns, which changes no result) and under which versions of its parts. `record.py` seals new results only under raised
versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from small_worlds import ALIKE, RUNS

from sagefl.runs import versions

SEALED = Path(__file__).with_name("versions.json")
RESULTS = ("weights", "losses")
Seals = dict[str, dict[str, dict[str, Any]]]  # by platform and case


def sealed() -> Seals:
    """What is sealed."""
    held: Seals = json.loads(SEALED.read_text(encoding="utf-8")) if SEALED.is_file() else {}
    return held


def results_of(parts: Mapping[str, Any]) -> str:
    """A run's results in one word."""
    return " ".join(parts[name]["digest"] for name in RESULTS)


def versions_of(case: str) -> dict[str, int]:
    """The versions of the parts that decide a small run."""
    name = case.removeprefix("run: ")
    if name.startswith("method "):
        method, arguments = name.removeprefix("method "), []
    else:
        arguments = ALIKE[name][0] if name in ALIKE else RUNS["uninterrupted" if name == "resumed" else name]
        method = arguments[arguments.index("--method") + 1].partition(":")[0]
    data = arguments[arguments.index("--dataset") + 1] if "--dataset" in arguments else "fmnist-mini"
    model = next((a.removeprefix("model.name=") for a in arguments if a.startswith("model.name=")), "mlp")
    return {
        "round loop": versions.LOOP,
        f"method {method}": versions.METHODS.get(method, 1),
        f"data {data}": versions.DATASETS.get(data, 1),
        f"model {model}": versions.MODELS.get(model, 1),
    }


def seal(held: Seals, platform: str, case: str, parts: Mapping[str, Any]) -> str | None:
    """Put a run's results on record with its parts' versions; or why not: they changed and no number was raised."""
    found, now, before = results_of(parts), versions_of(case), held.get(platform, {}).get(case)
    if before is not None and before["results"] != found and not _raised(before["versions"], now):
        return (
            f"{case}: its results changed, but none of {', '.join(now)} was raised in src/sagefl/runs/versions.py: "
            "runs made before would be taken for runs of now"
        )
    held.setdefault(platform, {})[case] = {"results": found, "versions": now}
    return None


def _raised(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    return any(number > before.get(part, 1) for part, number in now.items())


def write(held: Seals) -> None:
    """Keep it."""
    SEALED.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
