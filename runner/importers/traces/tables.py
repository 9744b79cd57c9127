"""Tables as `nsys stats` writes them, as CSV or in aligned columns, among other lines.

    for table in load_tables(path):
        print(table.report, table.headings, len(table.rows))

A line of dashes below the headings gives the place of each column; the last column goes on to the end of the line,
because names are longer than their heading. In CSV a table begins with its headings, one of which is a total time. In
any other file the first line counts as headings, so that an error can name them. Limits: FILE_BYTES, LINES and
LINE_CHARACTERS. Standard library only.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import UsageError

FILE_BYTES, LINES, LINE_CHARACTERS = 64 * 2**20, 50_000, 100_000
#: The line by which `nsys stats` announces a table: its title, and the report's name.
_TITLE = re.compile(r" ?\*\* .{1,100} \((?P<report>\w{1,60})(:[\w:-]{1,60})?\):\s*")
_DASHES = re.compile(r"\s*-+(\s+-+)+\s*")
REPORTS = ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_sum", "cuda_gpu_mem_time_sum", "nvtx_kern_sum")
#: The number of a line and its text.
_Line = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class PrintedTable:
    """One table: its headings and its rows, each with its line number. `report` is its name where a title says it."""

    report: str | None
    headings: tuple[str, ...]
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


def load_tables(path: Path) -> list[PrintedTable]:
    """Returns every table of the file that has a row. Raises UsageError for a file that is too large."""
    tables: list[PrintedTable] = []
    report = None
    for block in _blocks(path):
        title = _TITLE.fullmatch(block[0][1])
        if title:
            report = title["report"]
            continue
        dashes = next((place for place, (_, line) in enumerate(block) if place and _DASHES.fullmatch(line)), None)
        tables += _parse_csv(block, report) if dashes is None else [_parse_columns(block, dashes, report)]
    return [table for table in tables if table.rows]


def stats_refusal(path: Path, got: str, *, expected: str = "") -> UsageError:
    return UsageError(
        f"{path} holds no table that can be imported: got {got}.",
        expected=expected
        or f"what `nsys stats` writes, as CSV or in columns: {', '.join(REPORTS[:-1])} or {REPORTS[-1]}",
        do="Write one with `nsys stats --report cuda_gpu_kern_sum --format csv REPORT`.",
    )


def _blocks(path: Path) -> Iterator[list[_Line]]:
    """Yields the lines between empty lines; a title is a block of its own."""
    block: list[_Line] = []
    for number, line in _lines(path):
        title = _TITLE.fullmatch(line)
        if block and (title or not line.strip()):
            yield block
            block = []
        if title:
            yield [(number, line)]
        elif line.strip():
            block.append((number, line))
    if block:
        yield block


def _lines(path: Path) -> Iterator[_Line]:
    size = path.stat().st_size
    if size > FILE_BYTES:
        raise stats_refusal(path, f"{size:,} bytes", expected=f"at most {FILE_BYTES:,}")
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number in range(1, LINES + 2):
            line = file.readline(LINE_CHARACTERS + 1)
            if number > LINES and line:
                raise stats_refusal(path, f"more than {LINES:,} lines", expected="fewer")
            if len(line) > LINE_CHARACTERS:
                got = f"more than {LINE_CHARACTERS:,} characters in line {number}"
                raise stats_refusal(path, got, expected="shorter lines")
            if not line:
                return
            yield number, line.rstrip("\n")


def _parse_csv(block: Sequence[_Line], report: str | None) -> Iterator[PrintedTable]:
    """Yields the tables of a block of CSV. A line without a comma ends a table."""
    table = None
    for number, line in block:
        fields = next(csv.reader([line]), [])
        is_heading = any(text.strip().startswith("Total Time") for text in fields)
        if len(fields) < 2:
            table = None
        elif table is None or is_heading:
            table = PrintedTable(report=report, headings=tuple(text.strip() for text in fields))
            yield table
        else:
            table.rows.append((number, fields))


def _parse_columns(block: Sequence[_Line], dashes: int, report: str | None) -> PrintedTable:
    """Returns the table of a block in aligned columns, whose dashes are in line `dashes` of it."""
    spans = [match.span() for match in re.finditer("-+", block[dashes][1])]
    places = [slice(*span) for span in spans[:-1]] + [slice(spans[-1][0], None)]
    table = PrintedTable(report=report, headings=tuple(block[dashes - 1][1][place].strip() for place in places))
    table.rows.extend((number, [line[place].strip() for place in places]) for number, line in block[dashes + 1 :])
    return table
