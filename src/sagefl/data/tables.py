"""Tables in files: CSV and Parquet, a row per sample.

`FILE.csv` is enough where the columns are called `label`, `owner` and `split`; otherwise say which:
`prices.csv?label=price&owner=region&split=part`. Every other column is a feature (`features=a,b` names some). Numbers
are scaled to mean 0 and deviation 1 over the training rows (`scale=none` leaves them), words become a column for each
of them. Without a column that splits, a fixed fifth of the rows is for testing; with one, and with owners, every owner
is tested on its own test rows. Needs polars, which the simulator brings along.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset
from .errors import DataError

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".parquet")
SCALES = ("standard", "none")
OPTIONS = ("label", "owner", "split", "features", "scale")
MOST_WORDS = 100  # different words in a column of features
DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}"
TIMES = rf"^((({DATE})([T ].*)?)|\d{{1,2}}:\d{{2}}(:\d{{2}}(\.\d+)?)?)$"  # dates and times of day, as CSV has them
HELD_OUT = 5  # one row in so many is for testing


def is_table(name: str) -> bool:
    """Whether a name is that of a table in a file."""
    return name.partition("?")[0].lower().endswith(SUFFIXES)


def from_table(reference: str) -> Dataset:
    """The data set in `FILE.csv[?option=value&...]`; options are label, owner, split, features and scale."""
    name, _, query = reference.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise DataError(f"{reference!r} has the unknown option {unknown[0]!r}; expected {', '.join(OPTIONS)}")
    if (scale := options.get("scale", SCALES[0])) not in SCALES:
        raise DataError(f"{reference!r} asks for scale {scale!r}; expected {' or '.join(SCALES)}")
    table = _read(Path(name).expanduser())
    label = _column(table, name, "label", options)
    if label is None:
        asked = f"say which it is, {name}?label=COLUMN"
        if len(table.columns) == 1 and any(mark in table.columns[0] for mark in ";\t|"):
            asked = "its fields must be separated by commas"
        raise DataError(f"{name} has no column 'label': {asked}; it has {_few(table.columns)}")
    owner, split = (_column(table, name, role, options) for role in ("owner", "split"))
    given = options["features"].split(",") if "features" in options else table.columns
    features = [_known(table, name, "features", c) for c in given if c not in (label, owner, split)]
    if not features:
        raise DataError(f"{name} has no column of features beside {', '.join(filter(None, (label, owner, split)))}")
    for column in filter(None, (label, owner, split, *features)):
        if missing := _missing(table[column]):
            values, cure = f"{missing} values are", "fill them, or leave the rows out"
            if missing == 1:
                values, cure = "1 value is", "fill it, or leave the row out"
            raise DataError(f"{name}: {values} missing in {column!r}; {cure}")
        _check_kind(table[column], name, names=column in (owner, split))
    test = _test_rows(table, name, split)
    x = np.concatenate([_numbers(table[c], name) for c in features], axis=1)
    if scale != "none":
        x = (x - x[~test].mean(axis=0)) / np.maximum(x[~test].std(axis=0), 1e-12)
    y = _targets(table[label])
    classes = len(np.unique(y)) if y.dtype.kind == "U" else None  # of words: some may stand in test rows only
    if owner is None:
        return Dataset.from_arrays(reference, x[~test], y[~test], x[test], y[test], classes)
    whose = table[owner].cast(str).to_numpy().astype(str)
    tested = None if split is None else whose[test]  # rows drawn at random need not hold some of everybody
    arrays = (x[~test], y[~test], x[test], y[test])
    return Dataset.from_arrays(reference, *arrays, classes, owners=whose[~test], owners_test=tested)


def _missing(column: pl.Series) -> int:
    """Empty fields, and numbers that are none: scaling would spread one NaN over the whole column."""
    return column.null_count() + (int((~column.is_finite()).sum()) if column.dtype.is_float() else 0)


def _check_kind(column: pl.Series, name: str, *, names: bool) -> None:
    """Refuse lists, dates, and numbers among which a few words stand: each would be a word, and a class of its own."""
    if column.dtype.is_nested():
        raise DataError(f"{name}: {column.name!r} holds {column.dtype}; expected a number or a word in every row")
    if names and not str(column.dtype).startswith("Duration"):  # which no text stands for
        return
    text = str(column.dtype) == "String"
    times = column.filter(column.str.contains(TIMES)) if text else column
    if column.dtype.is_temporal() or (text and 2 * len(times) > len(column)):
        raise DataError(
            f"{name}: {column.name!r} holds dates or times, such as {times[0]}; turn them into numbers, such as days "
            "since the first, or leave the column out with features=..."
        )
    if not text:
        return
    numbers = column.cast(float, strict=False)
    plain = numbers.is_finite().fill_null(False)
    if not plain.all() and 2 * plain.sum() > len(column):
        row = int((~plain).arg_true()[0])
        raise DataError(
            f"{name}: {column.name!r} holds numbers, but {column[row]!r} in row {row + 1}; correct it, or leave the "
            "row out"
        )


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        return pl.read_csv(path, infer_schema_length=None) if path.suffix.lower() == ".csv" else pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} cannot be read as a table: {str(error).splitlines()[0]}") from error


def _column(table: pl.DataFrame, name: str, role: str, options: dict[str, str]) -> str | None:
    """The column that plays a role: the one that was named, else the one that is called so."""
    if role in options:
        return _known(table, name, role, options[role])
    return role if role in table.columns else None


def _known(table: pl.DataFrame, name: str, role: str, column: str) -> str:
    if column not in table.columns:
        raise DataError(f"{name} has no column {column!r} for {role}; it has {_few(table.columns)}")
    return column


def _few(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")


def _test_rows(table: pl.DataFrame, name: str, split: str | None) -> NDArray[np.bool_]:
    if split is None:
        drawn = np.random.default_rng(0).permutation(table.height) < table.height // HELD_OUT
        if not drawn.any():
            raise DataError(f"{name} has too few rows ({table.height}) to hold some out for testing")
        return drawn
    words = table[split].cast(str).to_numpy().astype(str)
    if odd := sorted({*words.tolist()} - {"train", "test"}):
        raise DataError(f"{name}: {split!r} holds {odd[0]!r}; expected train or test in every row")
    found: NDArray[np.bool_] = words == "test"
    if found.all() or not found.any():
        raise DataError(f"{name}: {split!r} is {words[0]} in every row; expected some of train and some of test")
    return found


def _numbers(column: pl.Series, name: str) -> NDArray[np.float64]:
    """One column of numbers, or a column each for different words."""
    if column.dtype.is_numeric() or str(column.dtype) == "Boolean":
        return column.cast(float).to_numpy().astype(np.float64)[:, None]
    words = column.cast(str).to_numpy().astype(str)
    known = np.unique(words)
    if len(known) > MOST_WORDS:
        raise DataError(
            f"{name}: {column.name!r} holds {len(known)} different words; a feature has at most {MOST_WORDS}: leave it "
            "out with features=..., or turn it into numbers"
        )
    found: NDArray[np.float64] = (words[:, None] == known).astype(np.float64)
    return found


def _targets(column: pl.Series) -> NDArray[Any]:
    """Numbers and booleans as they are, and words."""
    if column.dtype.is_numeric() or str(column.dtype) == "Boolean":
        return column.cast(float).to_numpy() if column.dtype.is_decimal() else column.to_numpy()
    return column.cast(str).to_numpy().astype(str)
