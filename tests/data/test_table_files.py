"""CSV and Parquet: columns by name, words as features, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sagefl.data import DataError, load

ROWS = 50
FRAME = pl.DataFrame(
    {
        "rooms": np.arange(ROWS) % 5,
        "heat": ["gas", "oil"] * (ROWS // 2),
        "price": np.linspace(1.0, 9.0, ROWS),
        "kind": ["flat", "house"] * (ROWS // 2),
        "region": [f"r{i % 4}" for i in range(ROWS)],
        "part": ["test" if i % 10 == 0 else "train" for i in range(ROWS)],
    }
)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    FRAME.write_csv(tmp_path / "t.csv")
    FRAME.write_parquet(tmp_path / "t.parquet")
    monkeypatch.chdir(tmp_path)
    return "t.csv"


def test_columns_are_named_in_the_name_of_the_data(table: str) -> None:
    data = load(f"{table}?label=price&owner=region&split=part&features=rooms,heat")
    assert (data.task, data.input_shape, len(data.test_y)) == ("regression", (3,), 5)
    assert data.owner_names == ("r0", "r1", "r2", "r3")
    assert data.train_x.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert data.train_x.std(axis=0) == pytest.approx(1, abs=1e-6)
    same = load("t.parquet?label=price&owner=region&split=part&features=rooms,heat")
    assert same.digest == data.digest
    plain = load(f"{table}?label=price&features=rooms&scale=none")
    assert set(plain.train_x[:, 0].tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert len(plain.test_y) == ROWS // 5


def test_words_are_classes(table: str) -> None:
    data = load(f"{table}?label=kind&features=rooms,price")
    assert (data.task, data.classes, data.label_names) == ("classification", 2, ("flat", "house"))
    with pytest.raises(DataError, match="train_y holds words"):
        data.meant_as("regression")


@pytest.mark.usefixtures("table")
def test_a_word_in_test_rows_only_is_a_class_and_booleans_are_two() -> None:
    """One column is one list of words, whichever rows hold them."""
    table = FRAME.with_columns(
        pl.when(pl.int_range(ROWS) == 0).then(pl.lit("villa")).otherwise("kind").alias("kind"), new=pl.col("rooms") > 2
    )
    table.write_parquet("villas.parquet")
    data = load("villas.parquet?label=kind&split=part&features=rooms")
    assert (data.classes, data.label_names, data.test_y[0]) == (3, ("flat", "house", "villa"), 2)
    new = load("villas.parquet?label=new&split=part&features=rooms")
    assert (new.task, new.classes, new.label_names) == ("classification", 2, None)
    assert new.test_y.tolist() == [0] * 5


def test_owners_may_be_numbers_and_names_and_targets_decimals(table: str) -> None:
    told = FRAME.with_columns(
        pl.Series("region", ["1", "2", "3", "3b", "4"] * (ROWS // 5)), pl.col("price").cast(pl.Decimal(10, 2))
    )
    told.write_parquet("told.PARQUET")
    data = load("told.PARQUET?label=price&owner=region&features=rooms")
    assert (data.task, data.owner_names) == ("regression", ("1", "2", "3", "3b", "4"))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("t.csv", r"t\.csv has no column 'label': say which it is, t\.csv\?label=COLUMN; it has rooms, heat"),
        ("t.csv?label=prize", "t.csv has no column 'prize' for label"),
        ("t.csv?label=price&owners=region", "unknown option 'owners'; expected label, owner, split, features, scale"),
        ("t.csv?label=price&split=kind", "'kind' holds 'flat'; expected train or test in every row"),
        ("missing.csv?label=a", r"missing\.csv: no such file"),
        ("nan.csv?label=b", r"nan\.csv: 2 values are missing in 'a'"),
        ("holes.csv?label=b", r"holes\.csv: 1 value is missing in 'a'; fill it, or leave the row out"),
        ("t.csv?label=price&scale=no", "asks for scale 'no'; expected standard or none"),
        ("semicolons.csv", "no column 'label': its fields must be separated by commas; it has a;label"),
        ("odd.csv?label=b", "'a' holds dates or times, such as 1.2.2024; turn them into numbers"),
        ("lists.parquet?label=b", r"'a' holds List.*; expected a number or a word in every row"),
        ("words.csv?label=b", "'a' holds numbers, but 'n/a' in row 3; correct it, or leave the row out"),
        ("words.csv?label=a", "'a' holds numbers, but 'n/a' in row 3; correct it, or leave the row out"),
    ],
)
def test_what_does_not_fit_is_said(table: str, name: str, complaint: str) -> None:
    Path("nan.csv").write_text("a,b\n1,2\nNaN,3\ninf,3\n")
    Path("holes.csv").write_text("a,b\n1,2\n,3\n")
    Path("semicolons.csv").write_text("a;label\n1;2\n")
    Path("odd.csv").write_text("a,b\nunknown,1\n1.2.2024,2\n2.2.2024,3\n")
    Path("words.csv").write_text("a,b\n1,2\n2,3\nn/a,3\n")
    pl.DataFrame({"a": [[1], [2]], "b": [0, 1]}).write_parquet("lists.parquet")
    with pytest.raises(DataError, match=complaint):
        load(name)


def test_the_excerpt_of_speeches_is_there_and_its_owners_have_names() -> None:
    data = load("sotu-mini")
    assert (data.classes, data.input_shape, len(data.owner_names or ())) == (33, (32,), 12)
    assert np.bincount(data.owners).tolist() == [400] * 12


DAYS = pl.date_range(pl.date(2024, 1, 28), pl.date(2024, 1, 28) + pl.duration(days=ROWS - 1), eager=True)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        DAYS.cast(pl.Datetime("us", "UTC")),
        DAYS.cast(pl.Datetime("ms")) - DAYS.cast(pl.Datetime("ms"))[0],
        pl.Series([None] * ROWS, dtype=pl.Time).fill_null(pl.time(12, 30)),
        *(
            DAYS.cast(pl.Datetime("us")).dt.strftime(f)
            for f in ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M", "%H:%M")
        ),
    ],
    ids=lambda times: f"{times.dtype}-{times[1]}",
)
def test_dates_and_times_are_refused_as_features_and_labels_but_may_name_owners(times: pl.Series) -> None:
    path = Path("sold.csv" if times.dtype == pl.String else "sold.parquet")
    table = FRAME.with_columns(sold=times)
    table.write_csv(path) if path.suffix == ".csv" else table.write_parquet(path)
    told = rf"'sold' holds dates or times, such as {re.escape(str(times[0]))}; turn them into numbers, such as days"
    for asked in ("label=price", "label=sold&features=rooms"):
        with pytest.raises(DataError, match=told):
            load(f"{path}?{asked}")
    assert load(f"{path}?label=price&features=rooms").input_shape == (1,)
    asked = f"{path}?label=price&features=rooms&owner=sold"
    if times.dtype == pl.Duration:  # there is no text for it
        with pytest.raises(DataError, match=told):
            load(asked)
    else:
        assert load(asked).owner_names is not None


def test_codes_that_look_a_little_like_dates_are_words(table: str) -> None:
    codes = [("1-2-3", "10/12", "2024-01", "12:30-13:00", "v2024-01-03")[k % 5] for k in range(ROWS)]
    FRAME.with_columns(code=pl.Series(codes)).write_csv(table)
    assert load(f"{table}?label=price&features=code").input_shape == (5,)
