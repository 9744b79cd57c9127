"""Reads the tables of a text, before their columns are understood: headings and rows of cells, each with its line.

    for table in parse_tables(text, ending=".md"):
        print(table.line, table.title, table.headings, table.refused)

Formats: CSV, TSV, GitHub Markdown, HTML and JSON (records, columns, lines). Every table of the text is returned; one
that cannot be read says why in `refused`. LaTeX, Typst and text in aligned columns are refused as a whole. Limits:
FILE_BYTES, COLUMNS, CELLS, CELL_CHARACTERS and TABLES; a file beyond them is refused.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

from runner.errors import UsageError
from runner.formats import visible
from runner.published.values import is_oom, parse_cell, strip_markup

FILE_BYTES = 4 * 2**20
COLUMNS, CELLS, CELL_CHARACTERS, TABLES = 500, 500_000, 10_000, 1_000
#: The endings of files that hold tables, and those of formats that are refused.
ENDINGS = (".csv", ".tsv", ".txt", ".md", ".markdown", ".html", ".htm", ".json", ".jsonl", ".ndjson")
OTHERS = {".tex": "LaTeX", ".typ": "Typst"}
FORMATS = "CSV, TSV, a Markdown table with bars, HTML or JSON"
_DELIMITERS = ",\t;"
_SEPARATOR = re.compile(r"\s*\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?\s*")
_CAPTION = re.compile(r"(table|tab\.)\s*\S{0,5}\s*[.:]", re.IGNORECASE)
_OF_FIGURE = re.compile(r"(figure|fig\.)\s*\S{0,5}\s*[.:]", re.IGNORECASE)
_MAX_SPAN = 1_000
_HTML_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
#: lxml counts no more lines, and takes minutes for a tag of 100,000 attributes.
_HTML_LINES = 65_535
_CROWDED = re.compile(
    r"""<[a-z][^\s/>]*+(?:[\s/]*+[^\s/>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>]*+))?+){1000}""", re.IGNORECASE
)
#: The heading of the column that holds what stood in a row of its own above some rows.
GROUP = "group"
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


@dataclass(frozen=True, kw_only=True)
class TextRow:
    """The cells of one row, and the line on which it begins, from 1."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A rectangular table: every row has as many cells as there are headings. `lost` are the rows that were refused,
    with the reason; `refused` says why the whole table was, which then has no rows."""

    line: int
    headings: tuple[str, ...] = ()
    rows: tuple[TextRow, ...] = ()
    title: str | None = None
    lost: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def name(self) -> str:
        """The table in words: its title and its line."""
        return f"“{self.title}” (line {self.line})" if self.title else f"the table of line {self.line}"

    def column(self, place: int) -> list[str]:
        """Returns the cells below a heading."""
        return [row.cells[place] for row in self.rows]


class TableRefused(UsageError):
    """What the text holds in place of tables that can be read."""


def parse_tables(text: str, *, ending: str) -> list[TextTable]:
    """Returns every table of the text. Raises TableRefused where there is none, or the format is not read."""
    tex = "\\begin{tabular" in text or "\\begin{longtable" in text
    language = OTHERS.get(ending) or ("LaTeX" if tex and ending == ".txt" else None)
    if language:
        raise TableRefused(f"{language}, which is not read", do="Export the table as CSV, or copy it into Markdown.")
    has_bars = any(_SEPARATOR.fullmatch(line) and "|" in line for line in text.split("\n"))
    if ending in (".csv", ".tsv") or (ending == ".txt" and not has_bars):
        tables = _parse_delimited(text, "\t" if ending == ".tsv" else None)
    else:
        parsers: dict[str, Callable[[str], list[TextTable]]] = {".json": _parse_json, ".html": parse_html}
        parsers |= {".htm": parse_html, ".jsonl": _parse_json_lines, ".ndjson": _parse_json_lines}
        tables = parsers.get(ending, _parse_markdown)(text)
    if not tables:
        aligned = ", and columns that blanks align are not read" if re.search(r"\S {2,}\S", text) else ""
        raise TableRefused(f"no table{aligned}")
    if len(tables) > TABLES:
        raise TableRefused(f"{len(tables):,} tables", expected=f"at most {TABLES:,}")
    return tables


def _make_table(rows: Sequence[TextRow], *, headings: TextRow, title: str | None) -> TextTable:
    """Returns the table of these rows. A row with more or fewer cells than there are headings is lost, because its
    cells would move below other headings."""
    width = len(headings.cells)
    if width > COLUMNS or width * len(rows) > CELLS:
        got = f"{width:,} columns and {len(rows):,} rows"
        raise TableRefused(got, expected=f"at most {COLUMNS:,} columns and {CELLS:,} cells")
    kept, lost, groups = [], [], []
    group = ""
    for row in rows:
        cells = tuple(map(_clean, row.cells))
        if not any(cells) or cells == headings.cells:
            continue
        if len(cells) == width > 2 and len({*cells}) == 1 and re.search(r"[^\W\d]", cells[0]) and not is_oom(cells[0]):
            group = cells[0]
            continue
        if len(cells) != width:
            lost.append(f"Line {row.line} was refused: {len(cells)} cells below {width} headings.")
        else:
            kept.append(TextRow(line=row.line, cells=cells))
            groups.append(group)
    names = [_clean(strip_markup(name)) for name in headings.cells]
    if group:
        names.append(GROUP)
        kept = [replace(row, cells=(*row.cells, own)) for row, own in zip(kept, groups, strict=True)]
    unique: list[str] = []
    for name in (name or f"column {place}" for place, name in enumerate(names, start=1)):
        numbered = (f"{name} ({number})" for number in range(2, COLUMNS + 2))
        unique.append(next(one for one in (name, *numbered) if one not in unique))
    return TextTable(
        line=headings.line,
        headings=tuple(unique),
        rows=tuple(kept),
        title=_clean(strip_markup(title[:300])).lstrip("=-# ") or None if title else None,
        lost=tuple(lost),
    )


def _clean(text: str) -> str:
    """Returns a cell without blanks around it and with harmless characters only."""
    if len(text) > CELL_CHARACTERS:
        raise TableRefused(f"a cell of {len(text):,} characters", expected=f"at most {CELL_CHARACTERS:,}")
    return visible(re.sub(r"[\t\n\r\f\v]\s*", " ", text.strip()))


def _is_data(cells: Sequence[str]) -> bool:
    """Returns whether the cells of a first row are values and no headings: its first or most of them are numbers."""
    numbers = [bool(parse_cell(cell, dimension="time", unit="ms").values) for cell in cells]
    return sum(numbers) > len(numbers) / 2 or bool(numbers and numbers[0])


def _parse_delimited(text: str, delimiter: str | None) -> list[TextTable]:
    """Returns the tables of CSV. One ends at an empty line or at one with a single cell, the title of the next."""
    lines = text.split("\n")
    if delimiter is None:
        first = next((line for line in lines if any(mark in line for mark in _DELIMITERS)), "")
        delimiter = max(_DELIMITERS, key=first.count)
    tables: list[TextTable] = []
    title: str | None = None
    rows: list[TextRow] = []
    records = [*_read_records(text, delimiter), TextRow(line=0, cells=())]
    for row, below in zip(records, [*records[1:], records[-1]], strict=True):
        is_comment = not rows and row.cells[:1] and row.cells[0].startswith("#") and len(below.cells) != len(row.cells)
        if is_comment:
            title = lines[row.line - 1]
        elif len(row.cells) > 1:
            rows.append(row)
        else:
            if rows and _is_data(rows[0].cells):
                why = "its first row holds numbers and no headings; write a line of headings above it"
                tables.append(TextTable(line=rows[0].line, title=title, refused=why))
            elif rows:
                tables.append(_make_table(rows[1:], headings=rows[0], title=title))
            title = row.cells[0] if row.cells else None if rows else title
            rows = []
    return [replace(one, title=(one.title or "").lstrip("# ").rstrip(": ") or None) for one in tables]


def _read_records(text: str, delimiter: str) -> Iterator[TextRow]:
    """Yields the rows with their lines; an empty line is a row without cells."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    line = 1
    try:
        for cells in reader:
            yield TextRow(line=line, cells=tuple(cells) if any(cell.strip() for cell in cells) else ())
            line = reader.line_num + 1
    except csv.Error as error:
        raise TableRefused(f"{error} in line {line}") from None


def _parse_markdown(text: str) -> list[TextTable]:
    """Returns the tables of GitHub Markdown, those in HTML too. A fence is code, unless the file has no other table and
    the fence is one: CSV, or a table with bars."""
    from markdown_it import MarkdownIt

    lines = _repair_headings(text.split("\n"))
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(lines))
    tables: list[TextTable] = []
    heading = above = None
    fences: list[TextTable] = []
    for place, token in enumerate(tokens):
        begin = token.map[0] if token.map else 0
        if token.type == "inline" and tokens[place - 1].type in ("heading_open", "paragraph_open"):
            marks = {"softbreak": " ", "hardbreak": " ", "html_inline": ""}
            words = " ".join("".join(marks.get(child.type, child.content) for child in token.children or ()).split())
            if tokens[place - 1].type == "heading_open":
                heading, above = words, None
            else:
                bold = re.fullmatch(r"\s*(\*\*|__).*\1[.:]?\s*", token.content, re.DOTALL)
                is_title = bold or _CAPTION.match(words) or words.endswith(":")
                above = words.rstrip(":") if is_title and not _OF_FIGURE.match(words) else None
        elif token.type == "table_open":
            tables.append(_read_markdown_table(lines, begin, (token.map or [0, 0])[1], above or heading))
            above = None
        elif token.type == "html_block" and "<table" in token.content.lower():
            found = parse_html(token.content)
            tables += [_shift(replace(one, title=one.title or above or heading), begin) for one in found]
        elif token.type in ("fence", "code_block"):
            content = token.content.rstrip("\n")
            if "|" in content and any(_SEPARATOR.fullmatch(line) for line in content.split("\n")):
                fences += [_shift(one, begin + 1) for one in _parse_markdown(content)]
            elif token.info.strip() in ("", "text", "txt", "csv", "tsv"):
                parsed = [one for one in _parse_delimited(content, None) if not one.refused and not one.lost]
                fences += [_shift(replace(one, title=one.title or above or heading), begin + 1) for one in parsed]
    return tables or fences


def _shift(table: TextTable, lines: int) -> TextTable:
    """Returns a table of a part of the text that begins after so many lines."""
    rows = tuple(replace(row, line=row.line + lines) for row in table.rows)
    return replace(table, line=table.line + lines, rows=rows)


def _repair_headings(lines: list[str]) -> list[str]:
    """Returns the lines with an empty first heading written out: without outer bars, “ | a | b” above “--- | --- | ---”
    has three headings."""
    repaired = [*lines]
    for place, (line, below) in enumerate(pairwise(lines)):
        is_bare = "|" in below and _SEPARATOR.fullmatch(below) and not below.lstrip().startswith("|")
        if is_bare and line.lstrip().startswith("|") and len(_split_bars(line)) + 1 == len(_split_bars(below)):
            repaired[place] = "| " + line.lstrip()
    return repaired


def _split_bars(line: str) -> list[str]:
    """Returns the cells of a line as GitHub's table extension splits it."""
    cells = [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line.strip())]
    if cells and not cells[0]:
        cells = cells[1:]
    return cells[:-1] if cells and not cells[-1] else cells


def _read_markdown_table(lines: Sequence[str], begin: int, end: int, title: str | None) -> TextTable:
    """Returns the table of these lines; the parser found where it is, and drops what goes beyond its headings."""
    head = TextRow(line=begin + 1, cells=tuple(map(strip_markup, _split_bars(lines[begin]))))
    rows = []
    for place in range(begin + 2, end):
        cells = _split_bars(lines[place])
        is_text = not lines[place].lstrip().startswith("|") and lines[begin].lstrip().startswith("|") and len(cells) < 2
        if is_text or not cells:
            continue  # a line of text right below the table, which the parser takes into it, or a bar alone
        if cells[0][:1] in ("*", "_") and not any(cells[1:]):
            cells = cells[:1] * len(cells)  # a line in bold above some rows
        rows.append(TextRow(line=place + 1, cells=tuple(map(strip_markup, cells))))
    return _make_table(rows, headings=head, title=title)


def parse_html(text: str) -> list[TextTable]:
    """Returns the tables of HTML by the headings or captions above them. Cells that span rows or columns stand in each
    of them; a table in which cells overlap or do not fill their rows is refused."""
    try:
        from lxml import etree
    except ModuleNotFoundError:
        raise TableRefused("HTML, which needs lxml", do="Install it: pip install 'stepscope[html]'.") from None
    if _CROWDED.search(text) or text.count("\n") >= _HTML_LINES:
        raise TableRefused("a tag of a thousand attributes, or too many lines", expected=f"below {_HTML_LINES:,} lines")
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    document = etree.fromstring(text.encode("utf-8", "replace"), parser)
    if broken := parser.error_log.filter_from_fatals():
        raise TableRefused(f"HTML that is not read to its end: {broken[0].message}")
    if document is None:
        return []
    for line_break in document.iter("br"):
        line_break.tail = f" {line_break.tail or ''}"
    tables: list[TextTable] = []
    heading = ""
    for element in document.iter("table", *_HTML_HEADINGS):
        if element.tag in _HTML_HEADINGS:
            heading = _join_text(element)
        elif next(element.iterancestors("table"), None) is None:
            tables.append(_read_html_table(element, heading))
    return tables


def _read_html_table(table: Any, heading: str) -> TextTable:
    line, rows = table.sourceline, list(table.iter("tr"))
    title = " ".join(map(_join_text, table.iterchildren("caption"))) or heading or None
    cells = [list(row.iterchildren("td", "th")) for row in rows]
    are_heads = [
        row.getparent().tag == "thead" or all(cell.tag == "th" for cell in own)
        for row, own in zip(rows, cells, strict=True)
    ]
    heads = [*are_heads, False].index(False) or 1
    grid, why = _place(cells), None
    if next(table.iterdescendants("table"), None) is not None:
        why = "a cell of it holds another table"
    elif grid is None:
        why = "its cells overlap or do not fill its rows"
    elif not grid:
        why = "it has no rows"
    elif heads == 1 and _is_data(grid[0]):
        why = "it has no row of headings"
    if why or not grid:
        return TextTable(line=line, title=title, refused=why)
    names = tuple(" ".join(dict.fromkeys(filter(None, column))) for column in zip(*grid[:heads], strict=True))
    placed = [
        TextRow(line=row.sourceline, cells=tuple(map(strip_markup, texts)))
        for row, texts in zip(rows[heads:], grid[heads:], strict=True)
    ]
    return _make_table(placed, headings=TextRow(line=line, cells=names), title=title)


def _join_text(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _place(rows: Sequence[Sequence[Any]]) -> list[list[str]] | None:
    """Returns the text of each place of the grid; None where the cells make no rectangle."""
    taken: dict[tuple[int, int], str] = {}
    for at, cells in enumerate(rows):
        column = 0
        for cell in cells:
            spans = (cell.get(name, "") for name in ("colspan", "rowspan"))
            width, height = (min(int(span), _MAX_SPAN) if span.isdecimal() else 1 for span in spans)
            text = _join_text(cell)
            while (at, column) in taken:
                column += 1
            for place in product(range(at, min(at + (height or len(rows)), len(rows))), range(column, column + width)):
                if place in taken or len(taken) > CELLS:
                    return None
                taken[place] = text
            column += width
    width = max((column for _, column in taken), default=-1) + 1
    if len(taken) != width * len(rows):
        return None
    return [[taken[at, column] for column in range(width)] for at in range(len(rows))]


def _parse_json_lines(text: str) -> list[TextTable]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    return _tables_of(None, [(number, _load(line)) for number, line in lines])


def _parse_json(text: str) -> list[TextTable]:
    """Returns the tables of a document: a list of records, an object of columns, or an object of such lists by title.
    JSON lines are read too."""
    loaded = _load(text)
    if loaded is None:
        return _parse_json_lines(text)
    if isinstance(loaded, list):
        return _tables_of(None, _read_list(text))
    if not isinstance(loaded, dict):
        return []
    columns = {name: [*value.values()] if isinstance(value, dict) else value for name, value in loaded.items()}
    are_flat = all(
        isinstance(value, list) and not any(isinstance(cell, dict | list) for cell in value)
        for value in columns.values()
    )
    if are_flat and len({*map(len, columns.values())}) == 1:
        rows = zip(*columns.values(), strict=True)
        return _tables_of(None, enumerate((dict(zip(columns, row, strict=True)) for row in rows), start=1))
    lists = {name: value for name, value in loaded.items() if isinstance(value, list)}
    found = {name: table for name in lists for table in _tables_of(name, enumerate(lists[name], start=1))}
    beside = ", ".join(f"“{name[:40]}”" for name in loaded if name not in found)
    said = (f"Beside its tables, the file holds {beside}, which were not read.",) if beside else ()
    return [replace(table, lost=(*said, *table.lost)) for table in found.values()] or _tables_of(None, [(1, loaded)])


def _load(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _read_list(text: str) -> Iterator[tuple[int, Any]]:
    """Yields the records of a document that is a list, each with its line."""
    line, at = 1, 0
    end = text.index("[") + 1
    while text[begin := end + len(_BETWEEN.match(text, end)[0])] != "]":  # type: ignore[index]
        line, at = line + text.count("\n", at, begin), begin
        record, end = _DECODER.raw_decode(text, begin)
        yield line, record


def _tables_of(title: str | None, records: Iterable[tuple[int, object]]) -> list[TextTable]:
    """Returns the table of records, each with its line, else its number; no table where none is an object."""
    numbered = [*records]
    flat = [(line, dict(_flatten(record, "", 3))) for line, record in numbered if isinstance(record, dict)]
    if not flat:
        return []
    names = tuple(dict.fromkeys(name for _, cells in flat for name in cells))
    rows = [TextRow(line=line, cells=tuple(cells.get(name, "") for name in names)) for line, cells in flat]
    table = _make_table(rows, headings=TextRow(line=rows[0].line, cells=names), title=title)
    lost = [f"Line {line} was refused: it is no JSON object." for line, one in numbered if not isinstance(one, dict)]
    return [replace(table, lost=(*lost, *table.lost))]


def _flatten(loaded: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, str]]:
    for name, value in loaded.items():
        if isinstance(value, dict) and depth > 1:
            yield from _flatten(value, f"{before}{name}.", depth - 1)
        else:
            text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{before}{name}", text
