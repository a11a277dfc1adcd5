"""Results versions: one number for each part of this package that decides a result.

A number is raised when the part's *results* change, never when its code is merely rewritten: then runs of that part are
made anew, and no others. What is not listed is at version 1, which stays out of every address, so what exists keeps its
address. `tests/digests` holds the digests of small runs beside the versions under which they were recorded, and refuses
digests that changed while no number was raised.
"""

from __future__ import annotations

from collections.abc import Mapping

LOOP = 1
"""The round loop with all that every run shares: worlds, training, mixing, measures."""

METHODS: Mapping[str, int] = {
    "da-dpfl": 2,
    "dfca": 2,
    "dfedpgp": 2,
    "dpfl": 3,
    "ocd-fl": 2,
    "pfeddst": 2,
    "sage-e": 2,
    "sage-e-trim": 2,
    "sage-e-vanilla": 2,
    "sage-m": 2,
}
"""The number of each method that has changed, by id."""

OWN_PACE: Mapping[str, int] = {"dfedmq-lite": 2, "epidemic": 2, "ocd-fl": 2, "sage-m": 2}
"""The number of each method where clients keep no rounds (`clock.schedule = "async"`), if that alone has changed."""

DATASETS: Mapping[str, int] = {}
"""The number of each data set that has changed, by name."""

MODELS: Mapping[str, int] = {}
"""The number of each model that has changed, by name."""
