"""Options are declared once: annotation, bounds and words say what is accepted, what is refused and what help shows."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sagefl import SageE, SageOS, SageOSTable, Selector, make, option, selectors
from sagefl.selection.options import Bounds, check, check_options, choices, help_texts
from sagefl.selection.pens import Pens, PensOriginal

NUMBERS = st.floats(-100, 100) | st.integers(-100, 100)
BOUNDS = st.fixed_dictionaries({}, optional={name: st.integers(-50, 50) for name in ("gt", "ge", "lt", "le")})
NO_NUMBERS: list[Any] = [None, True, False, np.True_, "1", "none", (1,), [1], nan, inf, -inf, 1j]


def within(value: float, bounds: Bounds) -> bool:
    return all(getattr(operator, name)(value, bound) for name, bound in bounds.items())


@given(NUMBERS, BOUNDS)
def test_a_float_is_any_finite_number_within_its_bounds(value: float, bounds: Bounds) -> None:
    if within(value, bounds):
        assert check("x", value, float, **bounds) is value  # as it was given: it enters hashes
    else:
        with pytest.raises(ValueError, match=r"^x must be a .*number .*, got "):
            check("x", value, float, **bounds)


@given(st.integers(), BOUNDS)
def test_an_int_is_any_whole_number_within_its_bounds(value: int, bounds: Bounds) -> None:
    if within(value, bounds):
        assert check("n", value, int, **bounds) is value
        assume(abs(value) < 2**63)
        assert check("n", np.int64(value), int, **bounds) == value
    else:
        with pytest.raises(ValueError, match=rf"^n must be a whole number .*, got {value}$"):
            check("n", value, int, **bounds)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 2.5, 2.0], ids=repr)
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^n must be a whole number, got "):
        check("n", value, int)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^x must be a finite number, got "):
        check("x", value, float)


@pytest.mark.parametrize("value", [0, 1, "no", "true", None, np.True_], ids=repr)
def test_a_switch_takes_true_and_false_alone(value: Any) -> None:
    assert check("gate", True, bool) is True
    assert check("gate", False, bool) is False
    with pytest.raises(ValueError, match=r"^gate must be true or false, got "):
        check("gate", value, bool)


def test_words() -> None:
    assert check("stop", "voi", Literal["voi", "none"]) == "voi"
    with pytest.raises(ValueError, match=r"^stop must be one of voi, none, got 'VOI'$"):
        check("stop", "VOI", Literal["voi", "none"])
    assert check("sign", -1, Literal[1, -1]) == -1
    for other in (True, 1.0, "1", [1], np.zeros(2)):
        with pytest.raises(ValueError, match=r"^sign must be one of 1, -1, got "):
            check("sign", other, Literal[1, -1])


def test_the_word_none_may_arrive_as_none() -> None:
    """A command line and TOML read it so."""
    assert check("stop", None, Literal["voi", "none"]) == "none"
    assert SageE(stop=None) == SageE(stop="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^looks must be one of fine, stages, got None$"):
        SageE(looks=None)  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 1000), min_size=1))
def test_a_schedule_is_kept_as_a_tuple_of_ints(stages: list[int]) -> None:
    for given_as in (stages, tuple(stages), iter(stages), np.array(stages)):
        kept = check("schedule", given_as, tuple[int, ...], ge=1)
        assert kept == tuple(stages)
        assert all(type(m) is int for m in kept)
    assert check("schedule", stages[0], tuple[int, ...], ge=1) == (stages[0],)


@pytest.mark.parametrize("value", [(), (0, 16), (16, 2.5), "16,32", None, True, (True,)], ids=repr)
def test_a_schedule_of_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^schedule must be one or more whole numbers of at least 1, got "):
        check("schedule", value, tuple[int, ...], ge=1)


@pytest.mark.parametrize(
    ("bounds", "expected", "shown"),
    [
        ({}, "a finite number", ""),
        ({"gt": 0}, "a finite number above 0", "; above 0"),
        ({"ge": 0}, "a finite number of at least 0", "; at least 0"),
        ({"le": 2.5}, "a finite number of at most 2.5", "; at most 2.5"),
        ({"gt": 0, "lt": 1}, "a number strictly between 0 and 1", "; strictly between 0 and 1"),
        ({"ge": 0, "le": 1}, "a number from 0 to 1", "; from 0 to 1"),
        ({"ge": 0, "lt": 1}, "a number of at least 0 and below 1", "; at least 0 and below 1"),
        ({"gt": 0, "le": 1}, "a number above 0 and at most 1", "; above 0 and at most 1"),
    ],
)
def test_bounds_are_said_in_words(bounds: Bounds, expected: str, shown: str) -> None:
    @dataclass(frozen=True)
    class Rule:
        x: float = option(0.5, "how much", symbol="xi", **bounds)

        def __post_init__(self) -> None:
            check_options(self)

    with pytest.raises(ValueError) as refused:
        Rule(x=nan)
    assert str(refused.value) == f"x (xi) must be {expected}, got nan"
    assert help_texts(Rule) == {"x": f"xi: how much{shown}"}


def test_help_shows_words_and_bounds() -> None:
    shown = help_texts(SageOS)
    assert shown["ties"] == "how equal risks are broken; one of random, lowest-index"
    assert shown["probe_cost"] == "lambda: price of one anchor-peer evaluation in risk units; at least 0"
    assert shown["schedule"].endswith("; each at least 1")
    assert choices(SageOS)["radius"] == ("printed", "tight")


def test_other_annotations_are_the_classs_own_business() -> None:
    @dataclass(frozen=True)
    class Odd:
        names: list[str] = field(default_factory=list)
        factor: Nowhere = 3  # type: ignore[name-defined]  # noqa: F821

    for odd in (Odd(), Odd(names=3, factor="x")):  # type: ignore[arg-type]
        check_options(odd)
    assert help_texts(Odd) == {"names": "", "factor": ""}
    assert check("names", 3, list[str]) == 3


def test_a_preset_keeps_help_and_bounds() -> None:
    assert help_texts(PensOriginal) == help_texts(Pens)
    assert (PensOriginal().n_sampled, PensOriginal().m, PensOriginal().first_phase) == (10, 2, 0.8)
    with pytest.raises(ValueError, match=r"^n_sampled must be a whole number of at least 1, got 0$"):
        PensOriginal(n_sampled=0)
    with pytest.raises(ValueError, match=r"^cost must be one of incremental, cumulative, got 'free'$"):
        SageOSTable(cost="free")  # type: ignore[arg-type]


def outside(bounds: Bounds) -> list[float]:
    """Values that break one of the bounds each."""
    return [bound + {"gt": 0, "lt": 0, "ge": -1, "le": 1}[name] for name, bound in bounds.items()]  # type: ignore[operator]


@pytest.mark.parametrize("id", list(selectors()))
def test_every_rule_holds_its_options_to_what_it_declares(id: str) -> None:
    rule: type[Selector] = selectors()[id]
    for name, declared in rule.options().items():
        assert make(id, **{name: declared.default}) == make(id)
        for value in (*outside(declared.metadata["bounds"]), object()):
            with pytest.raises(ValueError, match=rf"^{name}( \(\w+\))? must be .*, got "):
                make(id, **{name: value})


def test_options_that_do_not_go_together_are_the_rules_own_check() -> None:
    for options, says in (
        ({"margin": 2.0}, r"margin must be below M = 1, got 2.0"),
        ({"first": 200}, r"largest must reach the first look, 200, got 128"),
        ({"looks": "stages", "largest": 12}, r"largest must reach the first look, 16, got 12"),
    ):
        with pytest.raises(ValueError, match=says):
            SageE(**options)  # type: ignore[arg-type]
    assert isfinite(SageE(margin=2.0, loss_bound=3.0).margin)
