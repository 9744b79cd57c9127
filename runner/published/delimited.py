"""CSV and TSV, with headings or without, several tables in one file.

    tables = parse_delimited("size,forward (ms)\nsmall,12.3\n")

A table ends at an empty line or at one with a single cell, which is the title of the next. The first row is headings
unless it holds a number. Standard library only.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from runner.published.tables import Line, TableRefused, TextRow, TextTable, make_table
from runner.published.values import parse_cell

_KINDS = {",": "csv", "\t": "tsv", ";": "csv with semicolons"}


def parse_delimited(text: str, *, is_tsv: bool = False, headings: bool | None = None) -> list[TextTable]:
    """Returns the tables of a text. Without `headings` its cells decide whether a first row is headings."""
    delimiter = "\t" if is_tsv else _find_delimiter(text)
    tables: list[TextTable] = []
    title: str | None = None
    rows: list[TextRow] = []
    for row in (*_read_records(text, delimiter), TextRow(line=0, cells=())):
        if len(row.cells) > 1:
            rows.append(row)
            continue
        table = _make_table(rows, _KINDS[delimiter], title=title, headings=headings)
        if table:
            tables.append(table)
        if table or row.cells:
            title = row.cells[0].lstrip("# ").rstrip(": ") if row.cells else None
        rows = []
    return tables or _parse_single_column(text, delimiter, headings)


def parse_block(lines: Sequence[Line]) -> TextTable | None:
    """Returns the table of lines that all have equally many tabs or commas; None where they do not."""
    if len(lines) < 2:
        return None
    text = "\n".join(text for _, text in lines)
    for delimiter in ("\t", ",", ";"):
        if all(delimiter in line.strip() for _, line in lines):
            rows = [*_read_records(text, delimiter)]
            if len({len(row.cells) for row in rows}) == 1 and len(rows) == len(lines):
                placed = [TextRow(line=number, cells=row.cells) for (number, _), row in zip(lines, rows, strict=True)]
                return _make_table(placed, _KINDS[delimiter], title=None, headings=None)
    return None


def _make_table(rows: list[TextRow], kind: str, *, title: str | None, headings: bool | None) -> TextTable | None:
    if not rows:
        return None
    named = not _is_data(rows[0].cells) if headings is None else headings
    return make_table(kind, rows[named:], headings=rows[0] if named else None, title=title)


def _parse_single_column(text: str, delimiter: str, headings: bool | None) -> list[TextTable]:
    """Returns the table of a text in which every line is one cell."""
    rows = [row for row in _read_records(text, delimiter) if row.cells]
    table = _make_table(rows, _KINDS[delimiter], title=None, headings=headings)
    return [table] if table and len({len(row.cells) for row in rows}) == 1 else []


def _is_data(cells: Sequence[str]) -> bool:
    """Returns whether the cells of a first row are values and not headings, because one of them is a number."""
    return any(parse_cell(cell, dimension="time", unit="ms").values for cell in cells)


def _find_delimiter(text: str) -> str:
    """Returns the most frequent delimiter of the first line that has one."""
    for line in text.split("\n"):
        counts = {delimiter: line.count(delimiter) for delimiter in _KINDS}
        best = max(counts, key=lambda delimiter: counts[delimiter])
        if counts[best]:
            return best
    return ","


def _read_records(text: str, delimiter: str) -> Iterator[TextRow]:
    """Yields the rows with their lines; an empty line is a row without cells."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TableRefused(f"{error} in line {line}") from None
        yield TextRow(line=line, cells=tuple(cells) if any(cell.strip() for cell in cells) else ())
