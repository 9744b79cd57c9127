r"""LaTeX tables: `tabular` in its variants and `longtable`, with spans, rules and captions.

    tables = parse_latex(r"\begin{tabular}{lr} Size & Forward (ms) \\ \midrule small & $12.3 \pm 0.4$ \\ \end{tabular}")

What stands above the first rule between rows is headings; several rows of them are read as one. Limits: macros of the
document's own stay as they are. Standard library only.
"""

import re
from collections.abc import Iterator
from itertools import islice

from runner.published.markup import strip_latex
from runner.published.tables import COLUMNS, TABLES, TextRow, TextTable, make_table

_BEGIN = re.compile(r"\\begin\{(tabular\*?|tabularx|tabulary|longtable|longtblr|tblr|array)\}")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_RULES = (
    "hline|toprule|midrule|bottomrule|specialrule|addlinespace|endhead|endfirsthead|endfoot|endlastfoot|cline|cmidrule"
)
_RULE = re.compile(
    rf"\\(?:{_RULES})(?![a-z])(?:\([a-z]{{0,4}}\))?(?:\[[^\]\n]{{0,40}}\])?(?:\{{[^{{}}\n]{{0,40}}\}}){{0,3}}"
)
_BETWEEN = re.compile(r"\\(?:hline|midrule)(?![a-z])")
_ROW_END = re.compile(r"\\\\\*?(?:\[[^\]\n]{0,20}\])?|\\tabularnewline")
_CAPTION = re.compile(r"\\caption\*?(?:\[[^\]]{0,300}\])?\{")
_SECTION = re.compile(r"\\(?:chapter|section|subsection|subsubsection|paragraph)\*?\{")
_SPAN = re.compile(r"\s*\\multicolumn\{(\d{1,3})\}")
_ROWS = re.compile(r"\s*\\multirow(?:\[[^\]]{0,20}\])?\{(\d{1,4})\}")
_MAX_SPAN = 100
#: The distance before and behind a table within which its title may be, in characters.
_NEAR = 50_000


def parse_latex(text: str) -> list[TextTable]:
    """Returns every table of a document."""
    tables: list[TextTable] = []
    done = 0
    for begin in islice(_BEGIN.finditer(text), TABLES):
        if begin.start() < done:
            continue
        end = text.find(f"\\end{{{begin[1]}}}", begin.end())
        start = _skip_groups(text, begin.end(), end)
        done = max(done, end)
        if end > start:
            table = _parse_body(text[start:end], text.count("\n", 0, start) + 1, _find_title(text, begin.start(), end))
            tables += [table] if table else []
    return tables


def _skip_groups(text: str, at: int, end: int) -> int:
    """Returns the place behind the groups that follow `\\begin{tabular}`: its width and its columns."""
    while at < end and text[at] in "{[":
        close = find_close(text, at)
        if close < 0:
            return at
        at = close + 1
    return at


def find_close(text: str, at: int) -> int:
    """Returns the place of the bracket that closes the one at `at`; -1 where none does within 20,000 characters."""
    opened, closed = text[at], {"{": "}", "[": "]", "(": ")"}[text[at]]
    depth = 0
    for place in range(at, min(len(text), at + 20_000)):
        if text[place] == "\\":
            continue
        escaped = place > 0 and text[place - 1] == "\\"
        depth += (text[place] == opened and not escaped) - (text[place] == closed and not escaped)
        if depth == 0:
            return place
    return -1


def _find_title(text: str, begin: int, end: int) -> str | None:
    """Returns the caption of the table around it, else the last heading before it."""
    first = max(begin - _NEAR, 0)
    start = max(text.rfind("\\begin{table", first, begin), text.rfind("\\end{table", first, begin), first)
    stop = text.find("\\end{table", end, end + _NEAR)
    is_next = stop >= 0 and "\\begin{table" in text[end:stop]
    around = text[start:begin] + text[end : end if stop < 0 or is_next else stop]
    for pattern, where in ((_CAPTION, around), (_SECTION, text[first:begin])):
        found = [*pattern.finditer(where)]
        if found:
            last = found[-1].end() - 1
            close = find_close(where, last)
            if close > 0:
                return strip_latex(where[last + 1 : close])
    return None


def _parse_body(body: str, first_line: int, title: str | None) -> TextTable | None:
    rows: list[TextRow] = []
    headings = 0
    below: dict[int, tuple[int, str]] = {}
    for line, text in _split_rows(_COMMENT.sub("", body), first_line):
        if rows and not headings and _BETWEEN.search(text):
            headings = len(rows)
        cells = tuple(islice(_fill_down(_split_cells(_RULE.sub(" ", text)), below), COLUMNS + 1))
        if any(cells):
            rows.append(TextRow(line=line, cells=cells))
    headings = headings or 1
    if len(rows) <= headings:
        return None
    head = [row.cells for row in rows[:headings] if len(row.cells) == len(rows[headings].cells)] or [rows[0].cells]
    named = [dict.fromkeys(strip_latex(name) for name in column if name) for column in zip(*head, strict=True)]
    names = TextRow(line=rows[0].line, cells=tuple(" ".join(parts) for parts in named))
    return make_table("latex", rows[headings:], headings=names, title=title)


def _split_rows(body: str, first_line: int) -> Iterator[tuple[int, str]]:
    """Yields the rows with the line on which each begins."""
    at, line = 0, first_line
    ends = [*((match.start(), match.end()) for match in _ROW_END.finditer(body)), (len(body), len(body))]
    for stop, following in ends:
        text = body[at:stop]
        content = _RULE.sub(lambda match: " " * len(match[0]), text)
        blank = len(content) - len(content.lstrip())
        yield line + text.count("\n", 0, blank), text
        line += body.count("\n", at, following)
        at = following


def _split_cells(text: str) -> Iterator[str]:
    """Yields the cells of a row; one that spans several columns is repeated."""
    for cell in re.split(r"(?<!\\)&", text):
        span = _SPAN.match(cell)
        if span:
            kept = _find_last_group(cell, span.end())
            yield from [kept] * min(int(span[1]), _MAX_SPAN)
        else:
            yield cell.strip()


def _fill_down(cells: Iterator[str], below: dict[int, tuple[int, str]]) -> Iterator[str]:
    """Yields the cells, with the text of one that spans several rows in each of them."""
    for place, cell in enumerate(cells):
        rows = _ROWS.match(cell)
        left, text = below.get(place, (0, ""))
        if rows:
            kept = _find_last_group(cell, rows.end())
            below[place] = (min(int(rows[1]), 10_000) - 1, kept)
            yield kept
        elif left and not cell:
            below[place] = (left - 1, text)
            yield text
        else:
            below.pop(place, None)
            yield cell


def _find_last_group(cell: str, at: int) -> str:
    """Returns the text of the last of the groups that follow."""
    kept = ""
    while at < len(cell) and cell[at] in "{[*":
        if cell[at] == "*":
            at += 1
            continue
        close = find_close(cell, at)
        if close < 0:
            break
        kept, at = cell[at + 1 : close], close + 1
    return kept.strip()
