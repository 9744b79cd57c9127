"""Reads what `nsys stats` or the statistics view of its window wrote: sums by kernel, by kind of copy and by range.

    process = load_stats(Path("report_cuda_gpu_kern_sum.csv"))

    nsys stats --report cuda_gpu_kern_sum --format csv --output report report.nsys-rep

A line of dashes below the headings gives the place of each column; the last column goes on to the end of the line,
because names are longer than their heading. In CSV a table begins with its headings, one of which is a total time. In
any other file the first line counts as headings, so that an error can name them.

The headings tell the tables cuda_gpu_kern_sum, cuda_gpu_kern_gb_sum, cuda_gpu_sum, cuda_gpu_mem_time_sum and
nvtx_kern_sum, alone or one after the other, as CSV or in columns (whose names nsys may have shortened). nvtx_kern_sum
counts a kernel once for each range around it, so only its phases are used, if it has any; its step ranges give the
number of steps. Limits: FILE_BYTES, LINES and LINE_CHARACTERS; without step ranges the number of steps is unknown.
Standard library only.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import UsageError
from runner.importers.recordings import (
    NOWHERE,
    Kernels,
    Launched,
    LaunchPlace,
    TracedProcess,
    clean_name,
    is_step,
    phase_of,
)

FILE_BYTES, LINES, LINE_CHARACTERS = 64 * 2**20, 50_000, 100_000
#: The line by which `nsys stats` announces a table: its title, and the report's name.
_TITLE = re.compile(r" ?\*\* .{1,100} \((?P<report>\w{1,60})(:[\w:-]{1,60})?\):\s*")
_DASHES = re.compile(r"\s*-+(\s+-+)+\s*")
REPORTS = ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_sum", "cuda_gpu_mem_time_sum", "nvtx_kern_sum")
#: The number of a line and its text.
_Line = tuple[int, str]
#: The most characters of all names together.
NAME_CHARACTERS = 20_000_000
#: What every table of `nsys stats` has, one of the headings beside it, and the endings of files of others that may have
#: both.
TOTAL, _COUNTS = b"Total Time", (b"Instances", b"Num Calls", b"Inst", b"Count")
_ENDINGS = (".csv", ".tsv", ".txt")
_NS = {"ns": 1, "us": 1e3, "μs": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_UNIT = "|".join(_NS)
_TOTAL = re.compile(rf"Total Time(?: \((?P<unit>{_UNIT})\))?")
_TIME = re.compile(rf"(?P<number>[0-9,]*[0-9](\.[0-9]+)?)\s*(?P<unit>{_UNIT})?")
_CALLS = re.compile(r"[0-9]{1,15}")
#: The headings of each kind of table for the name and the number of calls.
_KINDS = {
    "ranges": ("Kernel Name", "Kern Inst"),
    "all": ("Operation", "Instances"),
    "kernels": ("Name", "Instances"),
    "copies": ("Operation", "Count"),
}
_RANGE, _TIMES = "NVTX Range", "NVTX Inst"
#: How many headings an error names, and how many characters of each.
_MAX_NAMED, _LENGTH = 8, 40


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


@dataclass(frozen=True, kw_only=True)
class _LaunchRow:
    """One line: what ran, in which range ("" for none), how often that range was entered, and the sums."""

    name: str
    range: str
    entered: int
    sums: Launched


def is_stats(path: Path, start: bytes) -> bool:
    """Returns whether a file of tables that begins so is what `nsys stats` wrote, and not what somebody published."""
    return path.suffix.lower() in _ENDINGS and TOTAL in start and any(words in start for words in _COUNTS)


def load_stats(path: Path) -> TracedProcess:
    """Returns every kernel and copy in the file; of several tables, those that together count everything once.

    Raises UsageError for a file without such a table."""
    rows: dict[str, list[_LaunchRow]] = {}
    tables = load_tables(path)
    for table in tables:
        kind = _kind(table)
        # A second table of a kind, such as kernels by grid size, counts the same again.
        if kind and kind not in rows:
            rows[kind] = _load_rows(path, table, kind)
    whole = _sums(rows.get("all") or [*rows.get("kernels", ()), *rows.get("copies", ())])
    if not whole and not rows.get("ranges"):
        raise stats_refusal(path, _describe(tables))
    if sum(len(row.name) + len(row.range) for of_kind in rows.values() for row in of_kind) > NAME_CHARACTERS:
        raise stats_refusal(path, f"names of more than {NAME_CHARACTERS:,} characters", expected="shorter ones")
    return _combine(whole, rows.get("ranges", []))


def _combine(whole: Mapping[str, Launched], ranges: Sequence[_LaunchRow]) -> TracedProcess:
    """Returns the kernels in their ranges, and what is left of the whole in no range. Without other tables in the file
    the whole is what ran within the steps and outside of all ranges."""
    outside = [row for row in ranges if not row.range]
    steps = [row for row in ranges if is_step(row.range)]
    phases = [row for row in ranges if phase_of(row.range)]
    others = [row for row in ranges if row.range and row not in steps] if not phases else []
    by_phase = {
        phase_of(row.range): [one for one in phases if phase_of(one.range) == phase_of(row.range)] for row in phases
    }
    entered = {_count_entered(rows) for rows in by_phase.values()}
    passes = entered.pop() if len(entered) == 1 and "forward" in by_phase else None
    whole = whole or (_sums([*steps, *outside]) if steps else {})
    if not whole:
        kernels = _place([*phases, *others, *outside])
        return TracedProcess(steps=passes, kernels=kernels, overlapping=len({row.range for row in others}) > 1)
    is_part = all(name in whole and sums.calls <= whole[name].calls for name, sums in _sums(others).items())
    kernels = _place(phases if phases or not is_part else others)
    placed = _sums(_LaunchRow(name=name, range="", entered=0, sums=sums) for (_, name), sums in kernels.items())
    for name, sums in whole.items():
        known = placed.get(name, Launched())
        if sums.calls > known.calls:
            left = max(0, sums.duration_ns - known.duration_ns)
            kernels[NOWHERE, name] = Launched(calls=sums.calls - known.calls, duration_ns=left)
    return TracedProcess(steps=_count_entered(steps) or passes, kernels=kernels)


def _place(rows: Iterable[_LaunchRow]) -> Kernels:
    kernels: Kernels = {}
    for row in rows:
        phase = phase_of(row.range)
        place = LaunchPlace(phase=phase) if phase else LaunchPlace(scope=row.range)
        kernels.setdefault((place, row.name), Launched()).add(row.sums.duration_ns, calls=row.sums.calls)
    return kernels


def _sums(rows: Iterable[_LaunchRow]) -> dict[str, Launched]:
    sums: dict[str, Launched] = {}
    for row in rows:
        sums.setdefault(row.name, Launched()).add(row.sums.duration_ns, calls=row.sums.calls)
    return sums


def _count_entered(rows: Iterable[_LaunchRow]) -> int | None:
    """Returns how often the ranges of these rows were entered in all; None for never."""
    entered: dict[str, int] = {}
    for row in rows:
        entered[row.range] = max(entered.get(row.range, 0), row.entered)
    return sum(entered.values()) or None


def _kind(table: PrintedTable) -> str | None:
    """Returns the kind of a table by its headings; None for a table of something else."""
    if not any(_TOTAL.fullmatch(heading) for heading in table.headings):
        return None
    return next((kind for kind, needed in _KINDS.items() if set(needed) <= set(table.headings)), None)


def _load_rows(path: Path, table: PrintedTable, kind: str) -> list[_LaunchRow]:
    """Returns the rows of a table. Raises UsageError for a row that lacks a number or has fewer values than
    headings."""
    total, match = next((at, match) for at, text in enumerate(table.headings) if (match := _TOTAL.fullmatch(text)))
    at = {heading: place for place, heading in enumerate(table.headings)}
    name, calls = _KINDS[kind]
    rows = []
    for line, fields in table.rows:
        if len(fields) < len(table.headings):
            got = f"{len(fields)} values in line {line}"
            raise stats_refusal(path, got, expected=f"one for each of the {len(table.headings)} headings")
        duration, unit = _TIME.fullmatch(fields[total].strip()), match["unit"]
        unit = (duration and duration["unit"]) or unit
        if not duration or not unit or len(duration["number"]) > 20:
            raise stats_refusal(path, f"“{clean_name(fields[total][:_LENGTH])}” in line {line}", expected="a time")
        duration_ns = round(float(duration["number"].replace(",", "")) * _NS[unit])
        sums = Launched(calls=_parse_count(path, line, fields[at[calls]]), duration_ns=duration_ns)
        inside = clean_name(fields[at[_RANGE]]).removeprefix(":") if kind == "ranges" and _RANGE in at else ""
        entered = _parse_count(path, line, fields[at[_TIMES]] or "0") if inside and _TIMES in at else 0
        kernel = clean_name(fields[at[name]]) or "unnamed kernel"
        rows.append(_LaunchRow(name=kernel, range=inside, entered=entered, sums=sums))
    return rows


def _parse_count(path: Path, line: int, text: str) -> int:
    plain = text.strip().replace(",", "")
    if not _CALLS.fullmatch(plain):
        raise stats_refusal(path, f"“{clean_name(text[:_LENGTH])}” in line {line}", expected="a whole number")
    return int(plain)


def _describe(tables: Sequence[PrintedTable]) -> str:
    """Returns the file's tables in words, by name or by headings."""
    if not tables:
        return "no table"
    table = tables[0]
    headings = ", ".join(f"“{clean_name(heading[:_LENGTH])}”" for heading in table.headings[:_MAX_NAMED])
    rest = f" and {len(table.headings) - _MAX_NAMED} more" if len(table.headings) > _MAX_NAMED else ""
    more = f", and {len(tables) - 1} more tables" if len(tables) > 2 else ", and one more table" * (len(tables) - 1)
    return f"{table.report or 'a table'} with the headings {headings}{rest}{more}"
