"""The end of `make demo`: the grouped world under four methods, a conclusion in one sentence, and a picture.

    python examples/demo/conclude.py [FOLDER]

Runs are kept in FOLDER (runs/demo), so a second call only reads them. `conclusion.json` holds the sentence with its
numbers, `demo.png` the picture.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import sagefl
from sagefl.api import Results, Scouting
from sagefl.api.mapping import paint_map
from sagefl.selection.registry import RECOMMENDED
from sagefl.study.canvas import colour, drawing, marker, tidy

WORLD = Path(__file__).parent / "groups.toml"
METHODS = ("local", "rg", "sage-os", RECOMMENDED)
NAMES = dict(zip(METHODS, ("staying at home", "random gossip", "the paper's rule", "choosing"), strict=True))


def main(folder: Path) -> None:
    scouting = sagefl.scout(config=WORLD)
    results = sagefl.compare(methods=METHODS, config=WORLD, out=folder / "groups")
    found = conclusion(results, scouting)
    print(f"\n{found['sentence']}")
    (folder / "conclusion.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    picture(results, scouting, found["sentence"], folder / "demo.png")
    print(f"The picture is {folder / 'demo.png'}")


def conclusion(results: Results, scouting: Scouting) -> dict[str, Any]:
    """What the runs came to, and a sentence about it."""
    runs = {method: next(iter(results.of(method).values())).values for method in METHODS}
    accuracy = {method: runs[method]["accuracy"] for method in METHODS}
    gain = {method: 100 * (accuracy[RECOMMENDED] - accuracy[method]) for method in METHODS if method != RECOMMENDED}
    ours = runs[RECOMMENDED]
    asked = (ours["probe_input_bytes"] + ours["probe_answer_bytes"]) / runs["rg"]["model_bytes"]
    sentence = (
        f"Choosing ends at {accuracy[RECOMMENDED]:.1%}: {gain['rg']:+.1f} points over {NAMES['rg']}, "
        f"{gain['local']:+.1f} over {NAMES['local']} and {gain['sage-os']:+.1f} over {NAMES['sage-os']}, for "
        f"{asked:.1%} more bytes than gossip."
    )
    return {"sentence": sentence, "accuracy": accuracy, "gain": gain, "bytes": asked, "scout": scouting.sentence}


def picture(results: Results, scouting: Scouting, sentence: str, path: Path) -> None:
    """What scout saw before, and what the runs came to."""
    from textwrap import fill

    rounds = results.rounds()
    with drawing(9.6, 4.4) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
        paint_map(left, scouting)
        left.set_title("before: whose model errs on whose samples", fontsize=9)
        ends = dict.fromkeys(METHODS, 0.0)
        for method in METHODS:
            seen = rounds.filter(rounds["method"] == method).drop_nulls("accuracy")
            x, y = seen["round"].to_list(), seen["accuracy"].to_list()
            right.plot(x, y, color=colour(method), marker=marker(method), markersize=5, label=method)
            ends[method] = y[-1]
        below = 2.0
        for method, end in sorted(ends.items(), key=lambda pair: -pair[1]):
            below = min(end, below - 0.027)  # names of lines that end together are written below each other
            right.annotate(f"{NAMES[method]} {end:.2f}", (x[-1] * 1.03, below), va="center", color=colour(method))
        right.set(xlabel="round", ylabel="accuracy on one's own group's test set", xlim=(0, x[-1] * 1.46))
        right.set_xticks(range(0, x[-1] + 1, 10))
        right.set_title("after: the same clients in four ways", fontsize=9)
        tidy(right)
        figure.suptitle(fill(sentence, 108), x=0.01, ha="left", fontsize=10)
        figure.savefig(path, dpi=130, facecolor="white", metadata={"Software": None})


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
