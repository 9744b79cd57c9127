"""Holds the text of a table before its columns are understood: headings and rows of cells, each row with its line.

    table = TextTable(headings=("size", "forward (ms)"), rows=(TextRow(line=3, cells=("small", "12.3")),), kind="csv")

Limits: FILE_BYTES, LINES, LINE_CHARACTERS, COLUMNS, CELLS and CELL_CHARACTERS; a file beyond them is refused as a
whole. Standard library only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner.errors import UsageError
from runner.published.markup import strip_markup
from runner.visible import visible

FILE_BYTES, LINES, LINE_CHARACTERS = 4 * 2**20, 50_000, 100_000
COLUMNS, CELLS, CELL_CHARACTERS, TABLES = 500, 500_000, 10_000, 1_000
FORMATS = "CSV, TSV, Markdown, what pandas prints, LaTeX, Typst, aligned columns or JSON lines"
#: The number of a line and its text.
Line = tuple[int, str]
_BREAK = re.compile(r"[\t\n\r\f\v]\s*")
#: The text that pandas prints in place of what it leaves out.
_ELIDED = frozenset({"...", "..", "…"})


@dataclass(frozen=True, kw_only=True)
class TextRow:
    """The cells of one row, and the line on which it begins, from 1."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A rectangular table: every row has as many cells as there are headings. `kind` names its format.

    `has_headings` is False where the file has none and the headings are "column 1", "column 2" and so on. `remarks`
    say which rows were refused and what was assumed."""

    kind: str
    headings: tuple[str, ...]
    rows: tuple[TextRow, ...]
    title: str | None = None
    has_headings: bool = True
    remarks: tuple[str, ...] = ()

    def column(self, place: int) -> list[str]:
        """Returns the cells below a heading."""
        return [row.cells[place] for row in self.rows]


class TableRefused(UsageError):
    """The file holds no table that can be read."""

    def __init__(self, got: str, *, expected: str = "", do: str = "") -> None:
        super().__init__(
            f"The file holds no table that can be imported: got {got}.",
            expected=expected or FORMATS,
            do=do or "See what would be read of it with `python -m runner import --explain FILE`.",
        )


def make_table(
    kind: str,
    rows: Sequence[TextRow],
    *,
    headings: TextRow | None,
    title: str | None = None,
    remarks: Sequence[str] = (),
) -> TextTable | None:
    """Returns the table of these rows, None where there is nothing in them. A row with more or fewer cells than there
    are headings is refused with a remark, because its cells would move below other headings.

    Without `headings` they are numbered."""
    clean = [TextRow(line=row.line, cells=tuple(clean_cell(cell) for cell in row.cells)) for row in rows]
    clean = [row for row in clean if any(row.cells)]
    width = len(headings.cells) if headings else max((len(row.cells) for row in clean), default=0)
    if width > COLUMNS or width * len(clean) > CELLS:
        got = f"{width:,} columns and {len(clean):,} rows"
        raise TableRefused(got, expected=f"at most {COLUMNS:,} columns and {CELLS:,} cells")
    names = headings.cells if headings else ("",) * width
    said = [*remarks]
    whole = [row for row in clean if _is_whole(row, names, said)]
    if not whole:
        return None
    return TextTable(
        kind=kind,
        headings=_number_repeated([clean_cell(strip_markup(name)) for name in names]),
        rows=tuple(whole),
        title=clean_cell(strip_markup(title[:300])) if title else None,
        has_headings=headings is not None,
        remarks=tuple(said),
    )


def _is_whole(row: TextRow, names: Sequence[str], remarks: list[str]) -> bool:
    """Returns whether the row is one of the table's, and adds a remark if not."""
    if len(row.cells) != len(names):
        remarks.append(f"Line {row.line} was refused: {len(row.cells)} cells below {len(names)} headings.")
        return False
    if all(cell in _ELIDED for cell in row.cells if cell):
        remarks.append(f"Rows are left out in line {row.line}.")
        return False
    if row.cells == tuple(names):
        remarks.append(f"Line {row.line} repeats the headings.")
        return False
    return True


def clean_cell(text: str) -> str:
    """Returns a cell without blanks around it and with harmless characters only. Raises TableRefused for one that is
    too long."""
    if len(text) > CELL_CHARACTERS:
        raise TableRefused(f"a cell of {len(text):,} characters", expected=f"at most {CELL_CHARACTERS:,}")
    return visible(_BREAK.sub(" ", text.strip()))


def _number_repeated(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names, each once: a second "mean" becomes "mean (2)", and an empty one "column 3"."""
    taken: dict[str, int] = {}
    unique: list[str] = []
    for place, name in enumerate(names, start=1):
        own = name or f"column {place}"
        taken[own] = taken.get(own, 0) + 1
        while own in unique:
            own = f"{name or f'column {place}'} ({taken[name or own]})"
            taken[name or own] = taken.get(name or own, 0) + 1
        unique.append(own)
    return tuple(unique)
