"""The tables of a text, whatever their format, with the heading or caption that stands nearest above.

    for table in parse_tables(text, ending=".md"):
        print(table.kind, table.title, table.headings)

LaTeX and Typst are told by their commands; JSON lines by the file's ending or the first line. All else is read block by
block, as lines between empty ones: with bars, with commas or tabs, or in aligned columns. Standard library only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

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
#: How many lines before a table in its block may be its title, or behind it a note.
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
    return list(_parse_blocks(lines))


@dataclass
class _Title:
    """The nearest title so far. A heading holds for every table below it, any other line for the next one alone."""

    heading: str | None = None
    line: str | None = None

    def see(self, lines: Sequence[Line]) -> None:
        """Takes what lines that are no table say."""
        for place, (_, text) in enumerate(lines):
            found = _HEADING.fullmatch(text) or _BOLD.fullmatch(text) or _CAPTION.fullmatch(text)
            below = lines[place + 1][1] if place + 1 < len(lines) else ""
            if found or (_UNDERLINE.fullmatch(below) and not _UNDERLINE.fullmatch(text)):
                self.heading, self.line = (found["title"] if found else text.strip()), None
        last = lines[-1][1].strip() if lines else ""
        if len(lines) == 1 and not _HEADING.fullmatch(lines[0][1]) and not _UNDERLINE.fullmatch(last):
            self.line = last.rstrip(":")

    def take(self) -> str | None:
        title = self.line or self.heading
        self.line = None
        return title


@dataclass
class _Pieces:
    """Tables that pandas may have printed in several pieces."""

    tables: list[TextTable] = field(default_factory=list)
    is_open: bool = False

    def close(self) -> list[TextTable]:
        done = join_wrapped(self.tables) if self.tables else []
        self.tables, self.is_open = [], False
        return done


def _parse_blocks(lines: Sequence[Line]) -> Iterator[TextTable]:
    """Yields the tables of blocks between empty lines."""
    title, pieces = _Title(), _Pieces()
    for block in _split_blocks(lines):
        for part in _split_bars(block):
            if is_bar_line(part[0][1]) and (table := parse_bars(part, title=title.take())):
                yield from pieces.close()
                yield table
                continue
            place, table = _find_table(part)
            if table is None:
                title.see(part)
                continue
            title.see(part[:place])
            if pieces.is_open:
                pieces.tables.append(table)
            else:
                yield from pieces.close()
                pieces.tables = [_with_title(table, title.take())]
            pieces.is_open = is_wrapped(part[place:])
    yield from pieces.close()


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
