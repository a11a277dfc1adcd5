"""How much a Parquet file would become in memory, from its footer alone.

A file of some kilobytes can unfold to gigabytes: runs of equal values cost nothing on disk. Run folders come from other
people too, so the numbers in the footer are looked at before anything is read. The footer is Thrift's compact format;
what is needed of it (how many values there are, and how large pages are before compression) takes a page of code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from .files import RunError

MOST_VALUES = 200_000_000  # numbers in one table: hundreds of times those of the largest study so far
MOST_BYTES = 4 * 2**30  # of its pages before compression
FOOTER = 64 * 2**20
DEPTH = 16


def check_size(file: BinaryIO, path: Path) -> None:
    """Refuse a table that would not fit into memory; afterwards `file` is at its beginning again."""
    values, size = _announced(file, path)
    file.seek(0)
    if values > MOST_VALUES or size > MOST_BYTES:
        raise RunError(
            f"{path} announces {values:,} values and {size:,} bytes, more than any run has (at most {MOST_VALUES:,} "
            f"and {MOST_BYTES:,}): it is damaged, or made to fill the memory of whoever reads it"
        )


def _announced(file: BinaryIO, path: Path) -> tuple[int, int]:
    """(values, bytes before compression) over all columns, as the footer says."""
    try:
        footer = _Compact(_footer(file)).struct()
        columns = [column[3] for group in footer.get(4, []) for column in group.get(1, [])]
        rows = int(footer.get(3, 0))
        return max(rows, sum(int(c.get(5, 0)) for c in columns)), sum(int(c.get(6, 0)) for c in columns)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: its footer is not Parquet's ({error})") from None


def _footer(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or not 0 < length <= min(FOOTER, size - 8):
        raise ValueError("it does not end in one")
    file.seek(size - 8 - length)
    return file.read(length)


class _Compact:
    """A reader of Thrift's compact protocol: structs as dicts by field number."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > DEPTH:
            raise ValueError("nested too deeply")
        found: dict[int, Any] = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            found[field] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int, *, item: bool = False) -> Any:
        if kind in (1, 2):  # a boolean is its own type, except within a list
            return self._byte() == 1 if item else kind == 1
        if kind in (3, 4, 5, 6):
            return self._byte() if kind == 3 else self._zigzag()
        if kind in (7, 8):
            return self._take(8 if kind == 7 else self._varint())
        if kind in (9, 10):
            return self._list(depth)
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"unknown type {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        if count > len(self.content):
            raise ValueError("a list is longer than the footer")
        return [self._value(head & 15, depth + 1, item=True) for _ in range(count)]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 70:
                raise ValueError("a number without end")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _take(self, count: int) -> bytes:
        if count > len(self.content) - self.at:
            raise ValueError("it ends too early")
        self.at += count
        return self.content[self.at - count : self.at]
