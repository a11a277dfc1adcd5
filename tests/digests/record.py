"""Record the digests anew: `python tests/digests/record.py`, or with the beginnings of names of cases: only those.

Do so only when

- a change is *meant* to change numbers (a corrected formula, another default), and its commit says which and why;
- something new needs digests: a method, an engine, a table (name the new cases, so that no other is touched);
- a platform (kind of CPU, torch build) has none yet: check out a commit whose digests are known to hold elsewhere.

If results of a run change, raise the number of what changed them in `src/sagefl/runs/versions.py` first: method, model,
data set or the round loop. Otherwise nothing is recorded, because runs that people made before would be taken for runs
of now.

Never to make a red test green after a refactoring: that is the case for which these digests exist. What changed on
record is printed, and is for the commit's message.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch
from cases import RECORDED, cases, differences, recorded
from commands import Lab, methods
from digesting import here
from sealing import seal, sealed, write


def main() -> None:
    """Make the cases that were asked for and put what they gave on record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[""], help="beginnings of names of cases; default: all")
    asked = tuple(parser.parse_args().names)
    torch.set_num_threads(1)
    held, every = recorded(), cases(methods())
    seals = sealed()
    trained = held["trained"].get(here(), {})
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        for name, case in every.items():
            if name.startswith(asked):
                place, found = trained if case.trained else held["pure"], case.make(lab)
                print(name, *differences(found, place.get(name, {}), exact=True), sep="\n  ", flush=True)
                if name.startswith("run: ") and (why := seal(seals, here(), name, found)) is not None:
                    raise SystemExit(why)
                place[name] = found
    if trained:
        held["trained"][here()] = trained
    for place in (held["pure"], *held["trained"].values()):
        for name in [name for name in place if name not in every]:
            del place[name]
    for cases_of in seals.values():
        for name in [name for name in cases_of if name not in every]:
            del cases_of[name]
    RECORDED.write_text(as_text(held), encoding="utf-8")
    write(seals)


def as_text(held: object, depth: int = 0) -> str:
    """JSON with a line for each part."""
    if not isinstance(held, dict) or "digest" in held:
        return json.dumps(held)
    margin = "\n" + " " * (depth + 1)
    lines = [f"{margin}{json.dumps(k)}: {as_text(v, depth + 1)}" for k, v in held.items()]
    return "{" + ",".join(lines) + "\n" + " " * depth + "}" + ("" if depth else "\n")


if __name__ == "__main__":
    main()
