"""The IDX format of MNIST and its relatives: a type code, a number of axes, their lengths, then the bytes."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from .errors import DataError

_UNSIGNED_BYTE = 0x08


def parse_idx(raw: bytes, what: str) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes; `what` names the file in errors."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE:
        raise DataError(f"{what}: starts with {raw[:4].hex() or 'nothing'}; expected an IDX file of bytes (000008..)")
    axes = raw[3]
    start = 4 + 4 * axes
    if len(raw) < start:
        raise DataError(f"{what}: {len(raw)} bytes, too short for a header of {axes} axes; the file is truncated")
    shape = struct.unpack(f">{axes}I", raw[4:start])
    size = int(np.prod(shape, dtype=object))
    if len(raw) - start != size:
        raise DataError(f"{what}: {len(raw) - start} bytes of content; expected {size} for shape {shape}")
    # A copy, because an array over `bytes` is read-only and torch warns about those.
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()
