"""How much a Parquet file would become in memory, from its footer and the headers of its pages.

A file of some kilobytes can unfold to gigabytes: runs of equal values, and words out of a dictionary, cost nothing on
disk. Run folders come from other people too, so the numbers in the footer are looked at before anything is read, and
the pages must not hold more than the footer says. Both are written in Thrift's compact format; what is needed of it
takes a page of code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .files import UNFIT, RunError

MOST_BYTES = 2 * 2**30  # of one table in memory: some ten times that of the largest study so far
FOOTER = 4 * 2**20
PAGES = 100_000
HEADER = 64 * 2**10  # of a page
DEPTH = 16
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 16, 7: 16}  # bytes of a value in memory, by its physical type
SHARED_PREFIXES = 7  # an encoding in which every word may repeat the one before it and add nothing
Thrift = dict[int, Any]


def check_size(file: BinaryIO, path: Path, most_rows: int | None = None) -> None:
    """Refuse a table that would not fit into memory, or has too many rows; afterwards `file` is at its beginning."""
    try:
        rows, size = _announced(file)
    except (OSError, *UNFIT) as error:
        raise RunError(f"{path} cannot be read: it is not Parquet as runs have it ({error})") from None
    file.seek(0)
    if size > MOST_BYTES:
        raise RunError(
            f"{path} would become {size:,} bytes in memory, more than any run has (at most {MOST_BYTES:,}): it is "
            "damaged, or made to fill the memory of whoever reads it"
        )
    if most_rows is not None and rows > most_rows:
        raise RunError(f"{path} has {rows:,} rows, and a run of this config has at most {most_rows:,}")


def _announced(file: BinaryIO) -> tuple[int, int]:
    """(rows, bytes in memory) of the whole table."""
    footer = _Compact(_footer(file)).struct()
    rows, size, pages = _whole(footer.get(3, 0)), 0, 0
    for group in footer.get(4, []):
        rows = max(rows, _whole(group.get(3, 0)))
        for column in group.get(1, []):
            told = column[3]
            values, plain = _whole(told[5]), _whole(told[6])
            lists = (len(told[3]) - 1) // 2
            entries = _whole(group[3]) + max(0, lists - 1) * values  # of lists and, inside them, lists
            size += values * WIDTHS[told[1]] + 8 * entries * (lists > 0) + plain
            if size > MOST_BYTES or min(values, plain) < 0:
                return rows, max(size, MOST_BYTES + 1)
            pages = _check_pages(file, told, values, plain, pages)
    return rows, max(size, rows)


def _check_pages(file: BinaryIO, told: Thrift, values: int, plain: int, pages: int) -> int:
    """Whether a column's pages hold no more than its footer says; returns how many pages there are so far."""
    for page in _pages(file, told):
        kind = {0: 5, 2: 7, 3: 8}.get(page[1])
        head: Thrift = page.get(kind, {}) if kind else {}
        size, packed, count = _whole(page[2]), _whole(page[3]), _whole(head.get(1, 0))
        plain -= size
        values -= count if kind != 7 else 0
        pages += 1
        if min(plain, values, size, packed, count) < 0 or pages > PAGES:
            raise ValueError("its pages hold more than its footer says")
        if head.get(4 if kind == 8 else 2) == SHARED_PREFIXES:
            raise ValueError("its words are encoded by shared prefixes")
    return pages


def _pages(file: BinaryIO, told: Thrift) -> Iterator[Thrift]:
    """The headers of a column's pages."""
    at = min(_whole(told[9]), _whole(told[11] if 11 in told else told[9]))
    end = at + _whole(told[7])
    while at < end:
        file.seek(at)
        reader = _Compact(file.read(HEADER))
        page = reader.struct()
        at += reader.at + _whole(page[3])
        yield page


def _whole(value: Any) -> int:
    """A number, which cannot be large: words of digits would be read as numbers of any length."""
    if not isinstance(value, int):
        raise TypeError(f"{type(value).__name__} stands where a number should")
    return value


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
