"""Tables in aligned columns: what pandas prints, wrapped or with an index, and what programs print for people.

    table = parse_printed([(1, "   forward_ms  backward_ms"), (2, "0        12.3         20.1")])

Two blanks or more are between two cells; a line of dashes below the headings, or the columns in which every line is
blank, settle the rest. Limits: an empty cell among cells that are one blank apart cannot be seen. Standard library
only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runner.published.tables import Line, TextRow, TextTable, make_table

_DASHES = re.compile(r"\s*[-=─━]{2,}(?:\s+[-=─━]{2,})+\s*")
_RULE = re.compile(r"\s*[-=─━_*]{3,}\s*")
_GAP = re.compile(r"\s{2,}|\t")
INDEX = "index"


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """Headings and rows, before they are a table."""

    headings: TextRow
    rows: list[TextRow] = field(default_factory=list)


def parse_printed(lines: Sequence[Line], *, title: str | None = None) -> TextTable | None:
    """Returns the table of lines without an empty line between them; None where they make none."""
    lines = [(number, text.removesuffix("\\")) for number, text in lines if not _RULE.fullmatch(text)]
    if len(lines) < 2:
        return None
    dashes = next((place for place, (_, text) in enumerate(lines) if place and _DASHES.fullmatch(text)), None)
    if dashes not in (None, 1):
        return None  # what stands above the headings is a title
    grid = _split_at_dashes(lines, dashes) if dashes else _split_anywhere(lines)
    return make_table("aligned", grid.rows, headings=grid.headings, title=title) if grid else None


def _split_anywhere(lines: Sequence[Line]) -> _Grid | None:
    """Returns the grid of cells that are two blanks apart, else of words if every line has equally many, else of the
    columns in which every line is blank."""
    split = [TextRow(line=number, cells=tuple(_GAP.split(text.strip()))) for number, text in lines]
    grid = _split_evenly(split)
    if grid is None:
        grid = _split_evenly([TextRow(line=number, cells=tuple(text.split())) for number, text in lines])
    return grid or _split_at_gaps(lines)


def is_wrapped(lines: Sequence[Line]) -> bool:
    """Returns whether pandas goes on with further columns after the next empty line."""
    return len(lines) > 1 and lines[0][1].rstrip().endswith("\\")


def join_wrapped(tables: Sequence[TextTable]) -> list[TextTable]:
    """Returns one table of pieces that have the same index; the pieces where they do not fit."""
    first, *rest = tables
    for piece in rest:
        if first.column(0) != piece.column(0) or first.headings[0] != piece.headings[0]:
            return [*tables]
        names = [*first.headings, *piece.headings[1:]]
        if len(set(names)) < len(names):
            return [*tables]
        rows = zip(first.rows, piece.rows, strict=True)
        joined = tuple(replace(one, cells=(*one.cells, *other.cells[1:])) for one, other in rows)
        first = replace(first, headings=tuple(names), rows=joined)
    said = "Its columns were printed in several pieces; a row's line is that of the first."
    return [replace(first, remarks=(*first.remarks, said))] if rest else [first]


def _split_evenly(rows: Sequence[TextRow]) -> _Grid | None:
    """Returns the grid of lines with equally many cells. The headings may lack that of an index, whose name may stand
    alone in the second line."""
    width = len(rows[-1].cells)
    head, body = rows[0], [*rows[1:]]
    name = INDEX
    if len(head.cells) == width - 1 and len(body) > 1 and len(body[0].cells) == 1:
        name, body = body[0].cells[0], body[1:]
    if len(head.cells) == width - 1:
        head = replace(head, cells=(name, *head.cells))
    if width < 2 or len(head.cells) != width or any(len(row.cells) != width for row in body):
        return None
    return _Grid(headings=head, rows=body)


def _split_at_dashes(lines: Sequence[Line], dashes: int) -> _Grid:
    """Returns the grid whose columns the dashes give; the last goes on to the end of its line."""
    spans = [match.span() for match in re.finditer(r"[-=─━]+", lines[dashes][1])]
    places = [slice(*span) for span in spans[:-1]] + [slice(spans[-1][0], None)]
    cut = [
        TextRow(line=number, cells=tuple(text[place].strip() for place in places))
        for number, text in lines
        if not _DASHES.fullmatch(text)
    ]
    return _Grid(headings=cut[dashes - 1], rows=cut[dashes:])


def _split_at_gaps(lines: Sequence[Line]) -> _Grid | None:
    """Returns the grid whose columns are parted by two characters or more that are blank in every line. Each but an
    index has a heading."""
    width = max(len(text) for _, text in lines)
    blank = [True] * width
    for _, text in lines:
        for match in re.finditer(r"\S+", text):
            blank[match.start() : match.end()] = [False] * (match.end() - match.start())
    marks = "".join(" " if empty else "x" for empty in blank)
    places = [slice(*match.span()) for match in re.finditer(r"x(?:x| (?=x))*", marks)]
    if len(places) < 2:
        return None
    cut = [TextRow(line=number, cells=tuple(text[place].strip() for place in places)) for number, text in lines]
    head = cut[0]
    if not all(head.cells[1:]):
        return None
    if not head.cells[0]:
        head = replace(head, cells=(INDEX, *head.cells[1:]))
    return _Grid(headings=head, rows=cut[1:])
