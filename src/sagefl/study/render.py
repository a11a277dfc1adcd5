"""Tables as text: for the terminal, Markdown, LaTeX and CSV; `templates/report.html` has them in HTML.

What is in them is decided in `tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ..runs.files import csv_text
from .tables import Entry, Table, TableColumn

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MINUS = "\u2212"


@dataclass(frozen=True)
class Line:
    """One printed line: its labels, which of the three kinds it is, its texts, and which of them are the best."""

    labels: tuple[str, ...]
    kind: str  # measured, published, difference; nothing where there is only one
    texts: tuple[str, ...]
    best: tuple[bool, ...]
    mean: bool = False


def lines(table: Table) -> Iterator[Line]:
    """Up to three lines per configuration, and the means."""
    rows = [(at.labels, entries, False) for at, entries in table.rows]
    for labels, entries, mean in [*rows, (_first(table, "Mean"), table.means, True)]:
        for kind, show, value in _KINDS:
            if (kind == "measured" and not table.has_measured) or (kind == "published" and not table.has_published):
                continue
            if kind == "difference" and not (table.has_measured and table.has_published):
                continue
            texts = tuple(show(c, e) for c, e in zip(table.columns, entries, strict=True))
            yield Line(labels, kind, texts, _best(table.columns, [value(e) for e in entries]), mean)


def _measured(column: TableColumn, entry: Entry) -> str:
    if entry.measured is None:
        return ""
    error = entry.measured.standard_error
    return column.show(entry.measured.mean) + (f" ±{column.show(error)}" if error is not None else "")


def _published(column: TableColumn, entry: Entry) -> str:
    return "" if entry.published is None else column.show(entry.published)


def _difference(column: TableColumn, entry: Entry) -> str:
    return "" if entry.difference is None else column.show(entry.difference, signed=True).replace("-", MINUS)


_Value = Callable[[Entry], float | None]
_KINDS: tuple[tuple[str, Callable[[TableColumn, Entry], str], _Value], ...] = (
    ("measured", _measured, lambda e: e.measured.mean if e.measured else None),
    ("published", _published, lambda e: e.published),
    ("difference", _difference, lambda e: None),
)


def _best(columns: Sequence[TableColumn], values: Sequence[float | None]) -> tuple[bool, ...]:
    """The best of each group, ties included."""
    marks: list[bool] = []
    for _, part in groupby(zip(columns, values, strict=True), key=lambda pair: pair[0].group):
        group = list(part)
        known = [v for c, v in group if v is not None and c.best]
        goal = (max(known) if group[0][0].best == "max" else min(known)) if known else None
        marks += [v is not None and bool(c.best) and goal is not None and abs(v - goal) < 1e-9 for c, v in group]
    return tuple(marks)


def _groups(table: Table) -> list[tuple[str, int]]:
    return [(name, len(list(part))) for name, part in groupby(c.group for c in table.columns)]


def _heads(table: Table) -> tuple[str, ...]:
    return (*(("World",) if _named(table) else ("Dataset", "Topo.", "alpha")), *((" ",) if _several(table) else ()))


def _first(table: Table, text: str) -> tuple[str, ...]:
    """Labels of a row that is about no single world."""
    return (text,) if _named(table) else (text, "", "")


def _named(table: Table) -> bool:
    """Whether its worlds have names: then those stand for data set, topology and alpha."""
    return any(at.world for at, _ in table.rows)


def _several(table: Table) -> bool:
    return table.has_measured and table.has_published


def _rows(table: Table, start: int = 0, width: int | None = None) -> Iterator[TableRow]:
    """The rows of some columns; lines with nothing in them are left out, labels stand once per configuration."""
    before = None
    for whole in lines(table):
        stop = len(whole.texts) if width is None else start + width
        line = replace(whole, texts=whole.texts[start:stop], best=whole.best[start:stop])
        if any(line.texts):
            same = before is not None and (before.labels, before.mean) == (line.labels, line.mean)
            labels = ("",) * len(line.labels) if same else line.labels
            yield TableRow((*labels, *((line.kind,) if _several(table) else ())), line, first=not same)
            before = line


class TableRow(NamedTuple):
    """One row of a block: what stands before the numbers, and the numbers."""

    front: tuple[str, ...]
    line: Line
    first: bool  # of its configuration

    @property
    def numbers(self) -> list[tuple[str, bool]]:
        """Every text, and whether it is the best of its group."""
        return list(zip(self.line.texts, self.line.best, strict=True))


class Block(NamedTuple):
    """One group of a table's columns; the whole is too wide for a page or a terminal."""

    group: str
    front: tuple[str, ...]  # heads of the labels
    heads: tuple[str, ...]  # heads of the numbers
    rows: list[TableRow]


def blocks(table: Table) -> Iterator[Block]:
    """The table group by group."""
    start = 0
    for group, width in _groups(table):
        heads = tuple(c.head for c in table.columns[start : start + width])
        yield Block(group, _heads(table), heads, list(_rows(table, start, width)))
        start += width


# Formats ------------------------------------------------------------------------------------------------------------


def to_rich(table: Table) -> list[tuple[str, RichTable]]:
    """A heading and a table per group of columns."""
    from rich.table import Table as RichTable
    from rich.text import Text

    made = []
    for block in blocks(table):
        shown = RichTable(box=None, pad_edge=False)
        for head in block.front:
            shown.add_column(head)
        for head in block.heads:
            shown.add_column(head, justify="right", no_wrap=True)
        for row in block.rows:
            cells = [Text(text, style="bold" if best else "") for text, best in row.numbers]
            dim = "dim" if row.line.kind == "published" and _several(table) else ""
            shown.add_row(*map(Text, row.front), *cells, style=dim)
        title = table.title if len(_groups(table)) == 1 else f"{table.title}: {block.group}"
        made.append((title, shown))
    return made


def to_markdown(table: Table) -> str:
    """GitHub's tables, one per group of columns."""
    out = [f"### {table.title}", "", table.caption, ""]
    for block in blocks(table):
        out += [f"**{block.group}**", "", _row([*block.front, *block.heads])]
        out.append(_row(["---"] * len(block.front) + ["---:"] * len(block.heads)))
        out += [_row([*row.front, *(f"**{t}**" if best else t for t, best in row.numbers)]) for row in block.rows]
        out.append("")
    return "\n".join(out)


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def to_latex(table: Table) -> str:
    """A booktabs table in the paper's layout; needs \\usepackage{booktabs}."""
    width = len(_heads(table))
    groups = " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{_tex(name)}}}" for name, n in _groups(table))
    heads = " & ".join([*("" if h == " " else _tex(h) for h in _heads(table)), *(_tex(c.head) for c in table.columns)])
    out = [
        r"\begin{table*}[t]",
        rf"\caption{{{_tex(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\centering\tiny\setlength{\tabcolsep}{2.2pt}",
        rf"\begin{{tabular}}{{{'l' * width}{'r' * len(table.columns)}}}",
        r"\toprule",
        f"{'& ' * width}{groups}\\\\",
        heads.replace("alpha", r"$\alpha$") + r"\\",
        r"\midrule",
    ]
    for row in _rows(table):
        if row.line.mean and row.first:
            out.append(r"\midrule")
        first, *front = map(_tex, row.front)
        texts = [rf"\textbf{{{_tex(t)}}}" if best else _tex(t) for t, best in row.numbers]
        out.append(" & ".join([rf"\emph{{{first}}}" if row.line.mean and first else first, *front, *texts]) + r"\\")
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _tex(text: str) -> str:
    for plain, escaped in (("%", r"\%"), ("±", r"$\pm$"), (MINUS, "$-$"), ("_", r"\_"), ("&", r"\&"), ("#", r"\#")):
        text = text.replace(plain, escaped)
    return text


def to_csv(table: Table) -> str:
    """One line per number, with everything unrounded."""
    heads = ("method", "metric", "measured", "standard_error", "seeds", "published", "difference")
    lines: list[tuple[str, ...]] = [(*(("world",) if _named(table) else ("dataset", "topology", "alpha")), *heads)]
    rows = [(at.keys, entries) for at, entries in table.rows]
    for at, entries in [*rows, (_first(table, "mean"), table.means)]:
        for column, e in zip(table.columns, entries, strict=True):
            m = e.measured
            ours = ("", "", "0") if m is None else (_exact(m.mean), _exact(m.standard_error), str(m.seeds))
            lines.append((*at, column.method, column.metric, *ours, _exact(e.published), _exact(e.difference)))
    return csv_text(lines)


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
