"""Selectors by id: the built-in ones, and third parties' through entry points."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from sagefl import AnchorQuery, LocalOnly, RandomGossip, SageNF, SageOS, SageOSTable, Selector, VanillaSage, make
from sagefl import selector as by_id
from sagefl import selectors as known
from sagefl.methods import method

PAPER = {
    "sage-os": SageOS,
    "sage-os-table": SageOSTable,
    "sage-vanilla": VanillaSage,
    "sage-nf": SageNF,
    "aq-128": AnchorQuery,
    "rg": RandomGossip,
    "local": LocalOnly,
}


def test_every_rule_of_the_paper_is_there() -> None:
    assert {id: known()[id] for id in PAPER} == PAPER
    assert list(known()) == sorted(known())
    for id, cls in known().items():
        assert by_id(id) is cls
        assert cls.id == id
        assert cls.summary
        assert cls.__doc__


def test_make_takes_options() -> None:
    assert make("sage-os", delta=0.05, radius="tight") == SageOS(delta=0.05, radius="tight")
    assert make("sage-os-table") == SageOSTable(cost="cumulative")


def test_every_option_is_documented() -> None:
    for cls in known().values():
        assert all(field.metadata["help"] for field in cls.options().values())


def test_a_method_that_is_no_selector_is_refused_with_who_runs_it() -> None:
    with pytest.raises(ValueError, match=r"unknown selector 'dflstar-lite'.*is run by `sagefl run --method`"):
        make("dflstar-lite")


@pytest.mark.parametrize(
    ("id", "options", "says"),
    [
        ("sage-oss", {}, "unknown selector 'sage-oss', did you mean 'sage-os'.*known: aq-128, "),
        ("zzz", {}, "unknown selector 'zzz'; known: "),
        ("sage-os", {"detla": 1}, "sage-os has no option 'detla', did you mean 'delta'.*options: loss_bound, kind"),
        ("rg", {"delta": 0.1}, "rg has no option 'delta'; options: none"),
        ("rg", {"id": 1, "self": 2}, "rg has no option 'id'"),
        ("sage-os", {"delta": 2}, "delta must be"),
    ],
)
def test_mistakes_name_the_nearest(id: str, options: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(id, **options)
    with pytest.raises(ValueError, match=r"has no option|unknown|must be"):
        method(id, **options)


def test_an_id_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match=r"selector id 'rg' is taken by sagefl\.selection\.random_gossip\.RandomGossip"):
        type("Impostor", (RandomGossip,), {"id": "rg"})
    assert by_id("rg") is RandomGossip


def test_the_same_class_may_be_defined_again() -> None:
    """A notebook cell that is run twice, or a module that is reloaded."""
    try:
        for _ in range(2):

            @dataclass(frozen=True, slots=True)
            class Mine(RandomGossip):
                id: ClassVar[str] = "mine"

        assert by_id("mine") is Mine
    finally:
        Selector.registered.pop("mine", None)


PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar
from sagefl import Exchange, Probe, Reason, Selector, option

@dataclass(frozen=True)
class Miser(Selector):
    """Asks everybody one anchor."""

    id: ClassVar[str] = "miser"
    summary: ClassVar[str] = "one anchor, then the best"
    anchors: int = option(1, "anchors to ask")

    def decide(self, hood, state, rng):
        losses = yield Probe(hood.peers, 0, self.anchors)
        return Exchange.select(hood.peers[int(losses.sum(1).argmin())], Reason.COMMITTED)
'''

BROKEN = "raise RuntimeError('this package is broken')\n"

USE = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import sagefl
    miser = sagefl.make("miser", anchors=2)
    assert sagefl.replay(miser, [[1, 0, 0], [0, 0, 1]]).peers == (1,)
    assert {"sage-os", "rg"} <= set(sagefl.selectors())
print(sorted(set(sagefl.selectors()) & {"miser", "broken", "wrong", "rg"}))
print(*sorted(str(w.message) for w in caught), sep="\\n")
"""


def test_third_parties_register_by_entry_point(tmp_path: Path) -> None:
    """A really installed distribution: a module and its metadata on the path of a fresh interpreter."""
    (tmp_path / "miser_plugin.py").write_text(PLUGIN)
    (tmp_path / "broken_plugin.py").write_text(BROKEN)
    metadata = tmp_path / "miser_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: miser-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[sagefl.selectors]\n"
        "miser = miser_plugin:Miser\n"
        "broken = broken_plugin:Broken\n"
        "wrong = miser_plugin:dataclass\n"
        "rg = miser_plugin:Miser\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, timeout=60
    )
    assert run.returncode == 0, run.stderr
    found, *left_out = run.stdout.splitlines()
    assert found == "['miser', 'rg']"
    assert [line.split(" is left out: ")[0] for line in left_out] == [
        "selector 'broken' of broken_plugin:Broken",
        "selector 'rg' of miser_plugin:Miser",
        "selector 'wrong' of miser_plugin:dataclass",
    ]
    assert "this package is broken" in left_out[0]
    assert "taken by RandomGossip" in left_out[1]
    assert "not a Selector class" in left_out[2]


def test_the_command_line_knows_third_parties(tmp_path: Path) -> None:
    (tmp_path / "miser_plugin.py").write_text(PLUGIN)
    metadata = tmp_path / "miser_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: miser-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sagefl.selectors]\nmiser = miser_plugin:Miser\n")
    losses = tmp_path / "losses.csv"
    losses.write_text("ada,bob\n1,0\n1,1\n")
    program = "from sagefl.cli import app; app()"
    run = subprocess.run(
        [sys.executable, "-c", program, "decide", str(losses), "--method", "miser", "--set", "anchors=2"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path)},
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert "Pull bob: the rule commits" in run.stdout
