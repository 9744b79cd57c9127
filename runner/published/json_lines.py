"""JSON lines: one object a line, whose names are headings.

    table = parse_json_lines([(1, '{"size": "small", "forward": {"mean_ms": 12.3}}')])

An object within an object gives headings such as "forward.mean_ms". Numbers keep their text. Standard library only.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from runner.published.tables import COLUMNS, Line, TableRefused, TextRow, TextTable, make_table

_DEPTH = 3


def parse_json_lines(lines: Sequence[Line], *, title: str | None = None) -> TextTable | None:
    """Returns the table of all lines that are objects; the others are named in its remarks. None without any."""
    objects: list[tuple[int, dict[str, str]]] = []
    refused: list[int] = []
    for number, text in lines:
        loaded = _load(text)
        if isinstance(loaded, dict):
            objects.append((number, dict(_flatten(loaded, "", _DEPTH))))
        elif text.strip():
            refused.append(number)
    names = tuple(dict.fromkeys(name for _, cells in objects for name in cells))
    if len(names) > COLUMNS:
        raise TableRefused(f"{len(names):,} names", expected=f"at most {COLUMNS:,}")
    rows = [TextRow(line=number, cells=tuple(cells.get(name, "") for name in names)) for number, cells in objects]
    if not rows or not names:
        return None
    remarks = tuple(f"Line {number} was refused: it is no JSON object." for number in refused)
    return make_table(
        "JSON lines", rows, headings=TextRow(line=rows[0].line, cells=names), title=title, remarks=remarks
    )


def _load(text: str) -> Any:
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def _flatten(loaded: dict[str, Any], before: str, depth: int) -> Iterator[tuple[str, str]]:
    for name, value in loaded.items():
        if isinstance(value, dict) and depth > 1:
            yield from _flatten(value, f"{before}{name}.", depth - 1)
        elif value is None:
            yield f"{before}{name}", ""
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
