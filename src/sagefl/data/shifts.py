"""What groups of clients can differ in: one entry of `SHIFTS` each.

Group g of k has level g / (k - 1): group 0 is at one end, the last group at the other. A shift of inputs works on
numbers scaled to [0, 1] by the range of the data (0 to 255 for images in bytes), a shift of labels maps classes to
classes. Two more shifts change no sample but who holds which: `label-set` and `quantity`; `worlds` carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset
from .errors import DataError
from .inputs import Inputs

ShiftKind = Literal[
    "none",
    "labels",
    "flip",
    "rotation",
    "invert",
    "brightness",
    "contrast",
    "noise",
    "blur",
    "label-set",
    "quantity",
]
Unit = NDArray[np.float32]  # inputs scaled to [0, 1]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """One group among k, and how strongly they differ."""

    group: int
    groups: int
    strength: float

    @property
    def level(self) -> float:
        """0 for the first group, 1 for the last."""
        return self.group / (self.groups - 1)


@dataclass(frozen=True)
class Shift:
    """One way in which groups differ. Either `inputs` or `labels` says how, or neither: who holds what then differs."""

    meaning: str
    unit: str = ""  # of the strength; without one there is none to set
    default: float | Literal["full turn"] = 1.0
    least: float = 0.0  # the strength lies above this ...
    most: float = 1.0  # ... and is at most this
    inputs: Callable[[Place, np.random.Generator, Unit], Unit] | None = None
    labels: Callable[[Classes, Place], Classes] | None = None  # the classes in random order -> what they are called
    images: bool = False  # whether a table of numbers cannot have it
    at_most: int | None = None  # so many groups can differ in this way


# Labels ---------------------------------------------------------------------------------------------------------------


def _permuted(order: Classes, place: Place) -> Classes:
    """In a share of the classes every one is called by the name of another; no two groups agree on any of these."""
    moved = round(place.strength * len(order))
    if place.groups > moved:
        raise DataError(
            f"{place.groups} groups of permuted labels need at least {place.groups} classes that change their names, "
            f"and a strength of {place.strength:g} moves {moved} of {len(order)}; use fewer groups or a larger strength"
        )
    names = order.copy()
    names[:moved] = np.roll(order[:moved], -place.group)
    return names


def _flipped(order: Classes, place: Place) -> Classes:
    """Class c is called C - 1 - c."""
    if len(order) == 2:
        raise DataError("flipped labels of two classes only swap their names; use shift = labels, which does the same")
    return len(order) - 1 - order if place.group else order


# Inputs ---------------------------------------------------------------------------------------------------------------


def _rotated(place: Place, rng: np.random.Generator, x: Unit) -> Unit:
    """Counter-clockwise by group times strength degrees about the centre; what comes in from outside is dark."""
    angle = place.group * place.strength % 360.0
    height, width = x.shape[-2:]
    if angle % 90 == 0 and (height == width or angle % 180 == 0):
        return np.rot90(x, round(angle / 90), axes=(-2, -1))
    turn = np.deg2rad(angle)
    rows, columns = np.mgrid[:height, :width]
    down, right = rows - (height - 1) / 2, columns - (width - 1) / 2
    from_row = down * np.cos(turn) + right * np.sin(turn) + (height - 1) / 2
    from_column = right * np.cos(turn) - down * np.sin(turn) + (width - 1) / 2
    top, left = np.floor(from_row).astype(int), np.floor(from_column).astype(int)
    found = np.zeros_like(x)
    for row, weight_row in ((top, 1 - (from_row - top)), (top + 1, from_row - top)):
        for column, weight_column in ((left, 1 - (from_column - left)), (left + 1, from_column - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = (weight_row * weight_column * inside).astype(np.float32)
            found += weight * x[..., row.clip(0, height - 1), column.clip(0, width - 1)]
    return found


def _inverted(place: Place, rng: np.random.Generator, x: Unit) -> Unit:
    return 1 - x if place.group else x


def _brighter(place: Place, rng: np.random.Generator, x: Unit) -> Unit:
    """From darker by the strength to brighter by it."""
    return x + np.float32(place.strength * (2 * place.level - 1))


def _paler(place: Place, rng: np.random.Generator, x: Unit) -> Unit:
    """Nearer to the middle of the range; the last group loses the strength's share of its contrast."""
    return np.float32(0.5) + np.float32(1 - place.strength * place.level) * (x - np.float32(0.5))


def _noisier(place: Place, rng: np.random.Generator, x: Unit) -> Unit:
    spread = np.float32(place.strength * place.level)
    return x + spread * rng.standard_normal(x.shape, dtype=np.float32) if spread else x


def _blurred(place: Place, rng: np.random.Generator, x: Unit) -> Unit:
    """By a Gaussian, rows then columns; beyond the edge the image goes on as at the edge."""
    spread = place.strength * place.level
    if not spread:
        return x
    reach = int(np.ceil(3 * spread))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / spread) ** 2)
    weights /= weights.sum()
    for axis in (-2, -1):
        size = x.shape[axis]
        spots = np.arange(size)
        x = sum(
            np.float32(weight) * x.take((spots + offset).clip(0, size - 1), axis=axis)
            for offset, weight in zip(range(-reach, reach + 1), weights, strict=True)
        )  # type: ignore[assignment]
    return x


# The table ------------------------------------------------------------------------------------------------------------

SHIFTS: Mapping[ShiftKind, Shift] = {
    "labels": Shift(
        "the same input is called by another class in every group",
        unit="share of the classes that are permuted",
        labels=_permuted,
    ),
    "flip": Shift("the second group counts the classes backwards", labels=_flipped, at_most=2),
    "rotation": Shift(
        "images are turned, each group's further than the last's",
        unit="degrees from one group to the next",
        default="full turn",
        most=360.0,
        inputs=_rotated,
        images=True,
    ),
    "invert": Shift("the second group sees negatives", inputs=_inverted, at_most=2),
    "brightness": Shift(
        "the first group's images are the darkest, the last group's the brightest",
        unit="share of the range, down and up",
        default=0.5,
        inputs=_brighter,
    ),
    "contrast": Shift(
        "the last group's images are the palest",
        unit="share of the contrast that the last group loses",
        default=0.8,
        inputs=_paler,
    ),
    "noise": Shift(
        "the last group's inputs are the noisiest",
        unit="standard deviation in the last group as a share of the range",
        default=0.4,
        most=10.0,
        inputs=_noisier,
    ),
    "blur": Shift(
        "the last group's images are the most blurred",
        unit="standard deviation in the last group in pixels",
        default=2.0,
        most=100.0,
        inputs=_blurred,
        images=True,
    ),
    "label-set": Shift("every group holds classes of its own"),
    "quantity": Shift(
        "the first group has all its samples, the last group the fewest",
        unit="how many times as many the first group has as the last",
        default=8.0,
        least=1.0,
        most=1e6,
    ),
}
assert {"none", *SHIFTS} == set(get_args(ShiftKind))


def chosen(kind: ShiftKind, groups: int, strength: float | None) -> tuple[Shift, float]:
    """The entry of a kind, and its strength or the default one; what does not fit is refused."""
    shift = SHIFTS[kind]
    if shift.at_most is not None and groups > shift.at_most:
        raise DataError(f"shift = {kind} makes {shift.at_most} groups, not {groups}; set groups = {shift.at_most}")
    if strength is None:
        return shift, 360.0 / groups if shift.default == "full turn" else shift.default
    if not shift.unit:
        raise DataError(f"shift = {kind} has no strength to set; leave it out")
    if not shift.least < strength <= shift.most:
        raise DataError(
            f"strength is {strength:g}; for shift = {kind} it must be above {shift.least:g} and at most {shift.most:g} "
            f"({shift.unit})"
        )
    angles = [round(group * strength % 360.0, 6) for group in range(groups)]
    if kind == "rotation" and len(set(angles)) < groups:
        raise DataError(
            f"{groups} groups {strength:g} degrees apart: some are turned alike; "
            f"use fewer groups or a smaller strength, such as {360 / groups:g}"
        )
    return shift, strength


def at_scale(data: Dataset) -> Callable[[Inputs, Callable[[Unit], Unit]], Inputs]:
    """How a change of numbers in [0, 1] becomes one of this data set's inputs, which stay within its range."""
    low, high = 0.0, 255.0
    if data.train_x.dtype != np.uint8:
        low, high = float(data.train_x.min()), float(data.train_x.max())
    span = high - low or 1.0

    def changed(x: Inputs, change: Callable[[Unit], Unit]) -> Inputs:
        unit: Unit = ((x - np.float32(low)) / np.float32(span)).astype(np.float32)
        back = change(unit).clip(0, 1) * np.float32(span) + np.float32(low)
        return np.rint(back).astype(np.uint8) if x.dtype == np.uint8 else back.astype(np.float32)

    return changed
