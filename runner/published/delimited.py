"""CSV and TSV, with headings or without.

    table = parse_delimited(lines, delimiter=",")

A table ends at an empty line, and another may follow. The first row is headings unless it holds a number. Standard
library only.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from runner.published.tables import TableRefused, TextRow, TextTable, make_table
from runner.published.values import parse_cell

KINDS = {",": "csv", "\t": "tsv", ";": "semicolons"}


def parse_delimited(
    text: str, *, delimiter: str, first_line: int = 1, headings: bool | None = None
) -> TextTable | None:
    """Returns the table of a text in which every line has the delimiter. `first_line` is the line on which it
    begins. Without `headings` its cells decide whether the first row is headings."""
    rows = list(_records(text, delimiter, first_line))
    if not rows:
        return None
    named = not is_data(rows[0].cells) if headings is None else headings
    return make_table(KINDS[delimiter], rows[named:], headings=rows[0] if named else None)


def is_data(cells: Sequence[str]) -> bool:
    """Whether the cells of a first row are values and not headings: one of them is a number or a unit follows it."""
    return any(parse_cell(cell, dimension="time", unit="ms").values for cell in cells)


def _records(text: str, delimiter: str, first_line: int) -> Iterator[TextRow]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    while True:
        line = first_line + reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TableRefused(f"{error} in line {line}") from None
        if any(cell.strip() for cell in cells):
            yield TextRow(line=line, cells=tuple(cells))
