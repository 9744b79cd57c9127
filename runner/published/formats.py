"""Finds the tables of a text in any format, with the nearest heading or caption above.

    for table in parse_tables(text, ending=".md"):
        print(table.kind, table.title, table.headings)

LaTeX and Typst are told by their commands; JSON lines by the file's ending or the first line. All else is read block by
block, as lines between empty ones: with bars, with commas or tabs, or in aligned columns. Standard library only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from runner.published.bars import is_bar_line, parse_bars
from runner.published.delimited import parse_block, parse_delimited
from runner.published.json_lines import parse_json_lines
from runner.published.latex import parse_latex
from runner.published.markup import strip_markup
from runner.published.printed import is_wrapped, join_wrapped, parse_printed
from runner.published.tables import LINE_CHARACTERS, LINES, TABLES, Line, TableRefused, TextTable, clean_cell
from runner.published.typst import parse_typst

_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(?P<title>.{1,300}?)\s*#*\s*")
_BOLD = re.compile(r"\s*(?:\*\*|__)(?P<title>[^*_].{0,300}?)(?:\*\*|__)[:.]?\s*")
_CAPTION = re.compile(r"\s*(?P<title>(?:table|tab\.|figure|listing)\s*\d{0,3}[.:].{1,300})", re.IGNORECASE)
_UNDERLINE = re.compile(r"\s*(?:={3,}|-{3,}|~{3,})\s*")
_FENCE = re.compile(r"\s*(?:```|~~~).{0,100}")
#: The most lines of a title before a table in its block, or of a note behind it.
_AROUND = 3


def parse_tables(text: str, *, ending: str = "", headings: bool | None = None) -> list[TextTable]:
    """Returns every table of the text. Without `headings` a first row without numbers is headings, in CSV.

    Raises TableRefused where there is no table, or the text is too long."""
    lines = text.split("\n")
    if len(lines) > LINES:
        raise TableRefused(f"{len(lines):,} lines", expected=f"at most {LINES:,}")
    if any(len(line) > LINE_CHARACTERS for line in lines):
        raise TableRefused(f"a line of more than {LINE_CHARACTERS:,} characters", expected="shorter lines")
    tables = _parse(text, list(enumerate(lines, start=1)), ending, headings)
    if not tables:
        raise TableRefused("no table")
    if len(tables) > TABLES:
        raise TableRefused(f"{len(tables):,} tables", expected=f"at most {TABLES:,}")
    return tables


def _parse(text: str, lines: Sequence[Line], ending: str, headings: bool | None) -> list[TextTable]:
    first = next((line for _, line in lines if line.strip()), "")
    if ending in (".jsonl", ".ndjson") or (first.startswith("{") and first.rstrip().endswith("}")):
        table = parse_json_lines(lines)
        return [table] if table else []
    if ending in (".csv", ".tsv"):
        return parse_delimited(text, is_tsv=ending == ".tsv", headings=headings)
    if "\\begin{" in text and (tables := parse_latex(text)):
        return tables
    if ending == ".typ" or "#table(" in text:
        return parse_typst(text)
    return _parse_blocks(lines)


@dataclass
class _Tables:
    """The tables so far, and the nearest title. A heading holds for every table below it, any other line for the next
    one alone. `captions` are below their tables where the first of the text is; `pieces` are of a table that pandas may
    go on with, if `is_open`; `is_behind` says that the last line was a table's."""

    done: list[TextTable] = field(default_factory=list)
    pieces: list[TextTable] = field(default_factory=list)
    heading: str | None = None
    line: str | None = None
    captions: Literal["above", "below"] | None = None
    is_open: bool = False
    is_behind: bool = False

    def see(self, lines: Sequence[Line]) -> None:
        """Reads titles from lines that are no table."""
        for place, (_, text) in enumerate(lines):
            found = _HEADING.fullmatch(text) or _BOLD.fullmatch(text)
            plain = found["title"] if found else text.strip()
            below = lines[place + 1][1] if place + 1 < len(lines) else ""
            if _CAPTION.fullmatch(plain):
                self._see_caption(plain)
            elif found or (_UNDERLINE.fullmatch(below) and not _UNDERLINE.fullmatch(text)):
                self.heading, self.line = plain, None
            elif len(lines) == 1 and not _UNDERLINE.fullmatch(text):
                self.line = plain.rstrip(":")
            self.is_behind = False

    def _see_caption(self, text: str) -> None:
        self.captions = self.captions or ("below" if self.is_behind else "above")
        if self.captions == "above":
            self.line = text
        elif self.is_behind:
            self.close()
            self.done[-1] = _with_title(self.done[-1], text)

    def add(self, table: TextTable, *, is_wrapped: bool = False) -> None:
        """Adds a table, or the next piece of one."""
        if not self.is_open:
            self.close()
            table = _with_title(table, self.line or self.heading)
            self.line = None
        self.pieces.append(table)
        self.is_open, self.is_behind = is_wrapped, True

    def close(self) -> None:
        """Joins the pieces."""
        self.done += join_wrapped(self.pieces) if self.pieces else []
        self.pieces, self.is_open = [], False


def _parse_blocks(lines: Sequence[Line]) -> list[TextTable]:
    """Returns the tables of blocks between empty lines."""
    tables = _Tables()
    for block in _split_blocks(lines):
        for part in _split_bars(block):
            barred = parse_bars(part) if is_bar_line(part[0][1]) else None
            place, table = (0, barred) if barred else _find_table(part)
            tables.see(part[:place] if table else part)
            if table:
                tables.add(table, is_wrapped=barred is None and is_wrapped(part[place:]))
    tables.close()
    return tables.done


def _find_table(lines: Sequence[Line]) -> tuple[int, TextTable | None]:
    """Returns the table of a block and the place of its first line: some lines before it may be a title, and some
    behind it a note."""
    for behind in range(min(_AROUND, len(lines))):
        for before in range(min(_AROUND + 1, len(lines) - behind)):
            part = lines[before : len(lines) - behind]
            if len(part) < 2:
                break
            table = parse_block(part) or parse_printed(part)
            if table:
                return before, table
    return 0, None


def _with_title(table: TextTable, title: str | None) -> TextTable:
    return replace(table, title=clean_cell(strip_markup(title[:300]))) if title else table


def _split_blocks(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yields the lines between empty lines and the fences of code."""
    block: list[Line] = []
    for number, text in lines:
        if not text.strip() or _FENCE.fullmatch(text):
            if block:
                yield block
            block = []
        else:
            block.append((number, text))
    if block:
        yield block


def _split_bars(block: Sequence[Line]) -> Iterator[list[Line]]:
    """Yields the parts of a block in which all lines have bars, or none has."""
    part: list[Line] = []
    for line in block:
        if part and is_bar_line(line[1]) != is_bar_line(part[-1][1]):
            yield part
            part = []
        part.append(line)
    if part:
        yield part
