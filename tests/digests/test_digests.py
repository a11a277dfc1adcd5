"""No number has moved: the digests of small runs, decisions, addresses, pages and studies are those on record.

What a CPU cannot change is compared exactly everywhere. Trained numbers are bit-identical on one kind of CPU and one
torch build only, so their digests are on record by platform: on a platform that is on record they are compared
exactly (`exact` in a test's name); on any other the rows must be as many, and accuracies and shares as high to within
`digesting.CLOSE`, as on the first platform on record (`close` in its name). `record.py` says when to record anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from cases import SAME, Case, cases, differences, recorded, recorded_methods
from commands import Lab, methods
from digesting import here, run_parts
from sealing import results_of, seal, sealed, versions_of
from served import replayed_swarm
from small_worlds import run

from sagefl.data.catalogue import CATALOGUE
from sagefl.learning.models import MODELS
from sagefl.runs import versions

HELD = recorded()
PLATFORMS = sorted(HELD["trained"], key=lambda platform: platform != here())  # this one first, if it is on record
EXCUSED = {  # data sets without a small run, and what holds their results instead
    "sotu-mini": "its content is compared with a digest whenever it is loaded",
    **dict.fromkeys(("fmnist", "mnist", "cifar10", "sotu"), "a download, whose files are compared with their digests"),
}
CASES = cases(recorded_methods())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Lab(tmp_path_factory.mktemp("digests"))
    torch.set_num_threads(before)


def _cases(*, trained: bool) -> list[object]:
    kept = {name: case for name, case in CASES.items() if case.trained == trained}
    marks = {True: [pytest.mark.slow], False: []}
    found = []
    for name, case in kept.items():
        how = "exact" if not trained or _place(name) == here() else "close"
        found.append(pytest.param(name, case, id=f"{how}: {name}", marks=marks[case.slow]))
    return found


def _place(name: str) -> str:
    """Where a case is on record: here, or if it is not on another platform."""
    return next(platform for platform in PLATFORMS if name in HELD["trained"][platform])


@pytest.mark.parametrize(("name", "case"), _cases(trained=False))
def test_what_no_cpu_changes(name: str, case: Case, lab: Lab) -> None:
    moved = differences(case.make(lab), HELD["pure"][name], exact=True)
    assert not moved, "\n".join([f"{name} has moved:", *moved])


@pytest.mark.parametrize(("name", "case"), _cases(trained=True))
def test_trained_numbers(name: str, case: Case, lab: Lab) -> None:
    place = _place(name)
    moved = differences(case.make(lab), HELD["trained"][place][name], exact=place == here())
    assert not moved, "\n".join([f"{name} has moved:", *moved])


@pytest.mark.parametrize(
    ("name", "other"), [pytest.param(*p, marks=[pytest.mark.slow] * CASES[p[0]].slow) for p in SAME.items()]
)
def test_carried_out_otherwise_the_numbers_are_the_same(name: str, other: str, lab: Lab) -> None:
    """On every platform: processes, Ray and kill -9 change nothing."""
    one, two = (run_parts(run(lab, each.removeprefix("run: "))) for each in (name, other))
    moved = differences(one, two, exact=True)
    assert not moved, "\n".join([f"{name} is not {other}:", *moved])


def test_every_method_is_on_record() -> None:
    assert sorted(methods()) == sorted(recorded_methods())


def test_every_model_and_data_set_with_a_version_is_on_record_or_excused() -> None:
    names = {name for platform in PLATFORMS for name in HELD["trained"][platform] if name.startswith("run: ")}
    covered = {part for name in names for part in versions_of(name)}
    assert {f"model {name}" for name in MODELS if ":" not in name and "@" not in name} <= covered
    missing = {name for name in CATALOGUE if f"data {name}" not in covered}
    assert missing == EXCUSED.keys()
    assert versions.DATASETS.keys() <= CATALOGUE.keys()
    assert versions.MODELS.keys() <= MODELS.keys()


@pytest.mark.parametrize("platform", HELD["trained"])
def test_results_on_record_are_those_of_their_versions(platform: str) -> None:
    """Whoever changes results raises a number; `record.py` then seals them."""
    runs = {name: parts for name, parts in HELD["trained"][platform].items() if name.startswith("run: ")}
    held = sealed()[platform]
    moved = [name for name, parts in runs.items() if held.get(name, {}).get("results") != results_of(parts)]
    assert not moved, "results changed: raise their numbers in runs/versions.py, then run record.py"
    other = [name for name in runs if held[name]["versions"] != versions_of(name)]
    assert not other, "versions were raised: run record.py for these"


def test_results_are_not_sealed_without_a_raised_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"weights": {"digest": "a"}, "losses": {"digest": "b"}}
    held: dict[str, dict[str, dict[str, object]]] = {}
    assert seal(held, "here", "run: method pens", before) is None
    assert seal(held, "here", "run: method pens", before) is None
    after = before | {"weights": {"digest": "c"}}
    assert "method pens" in str(seal(held, "here", "run: method pens", after))
    assert held["here"]["run: method pens"]["results"] == "a b"
    monkeypatch.setattr(versions, "METHODS", {"rg": 2})
    assert seal(held, "here", "run: method pens", after) is not None, "another method's number"
    monkeypatch.setattr(versions, "METHODS", {"pens": 2})
    assert seal(held, "here", "run: method pens", after) is None
    assert seal(held, "here", "run: method pens", before) is not None, "and once more for the next change"
    monkeypatch.setattr(versions, "LOOP", 2)
    assert seal(held, "here", "run: method pens", before) is None


@pytest.mark.slow
def test_a_swarm_replays_as_it_decided(lab: Lab) -> None:
    decided, replayed = replayed_swarm(lab)
    assert decided == replayed
