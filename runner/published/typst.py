"""Typst tables: the cells of `#table(...)`, with spans, a header and the figure's caption.

    tables = parse_typst("#table(columns: 2, [*Size*], [*Forward (ms)*], [small], [12.3])")

Limits: cells that a program computes (`..rows.map(...)`) are not there to be read. Standard library only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from runner.published.tables import CELLS, COLUMNS, TABLES, TableRefused, TextRow, TextTable, make_table

_TABLE = re.compile(r"(?<![\w.])#?(?:table|tablem|tablex)\(")
_NAMED = re.compile(r"\s*([a-z-]{1,40})\s*:\s*")
_CALL = re.compile(r"\s*([a-zA-Z][\w.-]{0,60})\s*\(")
_SPAN = re.compile(r"colspan\s*:\s*(\d{1,3})")
_CAPTION = re.compile(r"caption\s*:\s*\[")
_HEADING = re.compile(r"^=+\s+(.{1,300})$", re.MULTILINE)
_OPEN, _CLOSE = "([{", ")]}"
_COMMENT = re.compile(r"(?<!:)//[^\n]*")
#: An escape, a comment, a string, a bracket or a comma.
_STRUCTURE = re.compile(r'\\.|(?<!:)//[^\n]*|"[^"\n\[\]]{0,500}"|["()\[\]{},]')
#: The most characters of a table, how far from it its caption and heading are looked for, and after how many calls that
#: do not end the rest is left out.
_LENGTH, _NEAR, _MAX_OPEN = 500_000, 20_000, 5


@dataclass
class _Cells:
    """The cells of a table in their order, each with its line; the first `header` of them are headings."""

    columns: int = 0
    header: int = 0
    cells: list[tuple[int, str]] = field(default_factory=list)


def parse_typst(text: str) -> list[TextTable]:
    """Returns every table of a document."""
    tables: list[TextTable] = []
    at = unclosed = 0
    for begin in islice(_TABLE.finditer(text), TABLES):
        if begin.start() < at or unclosed > _MAX_OPEN:
            continue
        close = _find_close(text, begin.end() - 1)
        at = max(at, close)
        unclosed += close < 0
        if close < 0:
            continue
        found = _Cells()
        _read_arguments(text[begin.end() : close], text.count("\n", 0, begin.end()) + 1, found)
        table = _make_table(found, _find_title(text, begin.start(), close))
        tables += [table] if table else []
    return tables


def _make_table(found: _Cells, title: str | None) -> TextTable | None:
    width = found.columns or found.header
    if not 0 < width <= COLUMNS or len(found.cells) <= width:
        return None
    cells = found.cells
    lines = [cells[at : at + width] for at in range(0, len(cells), width)]
    rows = [TextRow(line=line[0][0], cells=tuple(cell for _, cell in line)) for line in lines]
    return make_table("typst", rows[1:], headings=rows[0], title=title)


def _read_arguments(text: str, line: int, found: _Cells) -> None:
    """Adds the cells of a call's arguments."""
    for lines, argument in _split_arguments(text):
        own = line + lines
        if len(found.cells) > CELLS:
            raise TableRefused(f"more than {CELLS:,} cells", expected="fewer")
        named = _NAMED.match(argument)
        if named and not argument.lstrip().startswith(("[", '"')):
            if named[1] == "columns":
                found.columns = _count_columns(argument[named.end() :].strip())
            continue
        call = _CALL.match(argument)
        if call and call[1] in ("table.header", "table.footer"):
            close = _find_close(argument, call.end() - 1)
            before = len(found.cells)
            if call[1] == "table.header":
                _read_arguments(argument[call.end() : close], own, found)
                found.header = len(found.cells) - before
        elif call and call[1] in ("table.cell", "cell"):
            close = _find_close(argument, call.end() - 1)
            span = _SPAN.search(argument[call.end() : close])
            kept = _unwrap(argument[close + 1 :]) or _unwrap(argument[call.end() : close].rpartition(",")[2])
            found.cells += [(own, kept)] * min(int(span[1]) if span else 1, COLUMNS)
        elif call is None and argument.strip():
            found.cells.append((own, _unwrap(argument)))


def _count_columns(text: str) -> int:
    """Returns the number of columns of "3", "(auto, 1fr)" or "(1fr,) * 3"."""
    if text.isdigit():
        return int(text[:4])
    if text.startswith("("):
        close = _find_close(text, 0)
        inside = sum(bool(part.strip()) for _, part in _split_arguments(text[1:close]))
        times = re.match(r"\s*\*\s*(\d{1,3})", text[close + 1 :])
        return inside * int(times[1]) if times else inside
    return 1


def _unwrap(text: str) -> str:
    """Returns the text of content in brackets, of a string, or of math."""
    text = text.strip().removeprefix("#")
    if len(text) > 1 and text[0] == "[" and text[-1] == "]":
        return text[1:-1].strip().replace("\\#", "#").replace("\\_", "_").replace("\\*", "*")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _split_arguments(text: str) -> Iterator[tuple[int, str]]:
    """Yields the arguments of a call with the number of line ends before each."""
    start = lines = 0
    stops = [place for place, letter, depth in _scan(text, 0) if letter == "," and depth == 0]
    for stop in (*stops, len(text)):
        argument = _COMMENT.sub("", text[start:stop])
        blank = len(argument) - len(argument.lstrip())
        if argument.strip():
            yield lines + argument.count("\n", 0, blank), argument.strip()
        lines += text.count("\n", start, stop)
        start = stop + 1


def _scan(text: str, start: int) -> Iterator[tuple[int, str, int]]:
    """Yields every bracket and comma that is no text, with its place and how many brackets are open around it."""
    opened: list[str] = []
    for found in _STRUCTURE.finditer(text, start, start + _LENGTH):
        letter = found[0][0]
        is_content = bool(opened) and opened[-1] == "["
        if letter in "\\/" or (letter == '"' and (is_content or len(found[0]) > 1)):
            continue
        if letter in _CLOSE and opened:
            opened.pop()
        yield found.start(), letter, len(opened)
        if letter in _OPEN:
            opened.append(letter)


def _find_close(text: str, at: int) -> int:
    """Returns the place of the bracket that closes the one at `at`; -1 where none does within _LENGTH."""
    closes = (place for place, letter, depth in _scan(text, at) if letter in _CLOSE and depth == 0)
    return next(closes, -1)


def _find_title(text: str, begin: int, close: int) -> str | None:
    """Returns the caption of the figure around the table, else the last heading before it."""
    _, figure, before = text[max(0, begin - 500) : begin].rpartition("#figure(")
    behind = text[close : close + _NEAR].partition("#figure(")[0]
    for where in (before, behind) if figure else ():
        found = _CAPTION.search(where)
        stop = _find_close(where, found.end() - 1) if found else -1
        if found and stop > 0:
            return where[found.end() : stop]
    headings = _HEADING.findall(text[max(0, begin - _NEAR) : begin])
    return headings[-1] if headings else None
