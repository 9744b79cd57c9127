"""Tables with bars between their cells: Markdown, and the grids that `tabulate` and `rich` print.

    table = parse_bars([(1, "| size | forward (ms) |"), (2, "|---|---|"), (3, "| small | 12.3 |")])

A bar after a backslash or within backquotes belongs to its cell. Standard library only.
"""

import re
from collections.abc import Sequence

from runner.published.tables import Line, TextRow, TextTable, make_table

_BARS = "|│┃║"
#: Rules of these alone may also be below a heading or in aligned columns.
_PLAIN = frozenset(" \t-=:─━")
_RULE = re.compile(r"[\s|+:=\-─━═│┃║┼┿╂╋╪╬├┝┠┣╞╟╠┤┥┨┫╡╢╣┬┯┰┳╤╦┴┷┸┻╧╩┌┏╒╔┐┓╕╗└┗╘╚┘┛╛╝╇╈┡┢┩┪]+")


def is_bar_line(text: str) -> bool:
    """Returns whether a line may belong to such a table."""
    return any(bar in text for bar in _BARS) or (bool(_RULE.fullmatch(text)) and bool({*text} - _PLAIN))


def parse_bars(lines: Sequence[Line], *, title: str | None = None) -> TextTable | None:
    """Returns the table of lines that all have bars; None where they make none. Markdown has a rule below its headings;
    lines that begin with a bar make a table without one, too."""
    rules = [place for place, (_, text) in enumerate(lines) if _is_rule(text)]
    rows = [TextRow(line=number, cells=split_bars(text)) for number, text in lines if not _is_rule(text)]
    if len(rows) < 2 or not (rules or all(text.lstrip()[:1] in _BARS for _, text in lines)):
        return None
    first = rows[0]
    return make_table("markdown", rows[1:], headings=first, title=title) if len(first.cells) > 1 else None


def split_bars(text: str) -> tuple[str, ...]:
    """Returns the cells of a line, without the bars around them."""
    cells: list[list[str]] = [[]]
    in_code, before = False, ""
    for letter in text.strip():
        if letter == "`":
            in_code = not in_code
        if letter in _BARS and before != "\\" and not in_code:
            cells.append([])
        else:
            if letter == "|" and before == "\\":
                cells[-1].pop()
            cells[-1].append(letter)
        before = letter
    return _drop_outer(["".join(cell).strip() for cell in cells], text.strip())


def _drop_outer(cells: list[str], text: str) -> tuple[str, ...]:
    """Returns the cells without the empty ones outside of the first and the last bar."""
    if len(cells) > 1 and not cells[0] and text[0] in _BARS:
        cells = cells[1:]
    if len(cells) > 1 and not cells[-1] and text[-1] in _BARS:
        cells = cells[:-1]
    return tuple(cells)


def _is_rule(text: str) -> bool:
    return bool(_RULE.fullmatch(text)) and any(mark in text for mark in "-─━═=")
