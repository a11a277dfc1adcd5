"""The IDX format, well-formed and not."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sagefl.data import DataError
from sagefl.data.catalogue import parse_idx


def encode(x: np.ndarray) -> bytes:
    return bytes([0, 0, 8, x.ndim]) + struct.pack(f">{x.ndim}I", *x.shape) + x.tobytes()


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)))
def test_round_trip(x: np.ndarray) -> None:
    back = parse_idx(encode(x), "f")
    assert back.flags.writeable  # torch warns about read-only arrays
    np.testing.assert_array_equal(back, x)


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_an_array_or_a_clear_error(raw: bytes, headed: bool) -> None:
    raw = b"\0\0\x08" + raw if headed else raw
    try:
        parsed = parse_idx(raw, "the file")
    except DataError:
        return
    assert encode(parsed) == raw


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"", "starts with nothing"),
        (b"\x89PNG", "starts with 89504e47"),
        (b"\0\0\x0d\x01\0\0\0\0", "expected an IDX file of bytes"),
        (b"\0\0\x08\x03\0\0", "truncated"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "3 bytes of content; expected 5"),
        (b"\0\0\x08\x02" + b"\xff" * 8, "expected 18446744065119617025"),
    ],
)
def test_complaints(raw: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        parse_idx(raw, "f")
