"""Reads what `nsys stats` or the statistics view of its window wrote as CSV: sums by kernel, kind of copy and range.

    process = load_stats(Path("report_cuda_gpu_kern_sum.csv"))

    nsys stats --report cuda_gpu_kern_sum --format csv --output report report.nsys-rep

The headings tell the tables cuda_gpu_kern_sum, cuda_gpu_kern_gb_sum, cuda_gpu_sum, cuda_gpu_mem_time_sum and
nvtx_kern_sum, alone or one after the other. nvtx_kern_sum counts a kernel once for each range around it, so only its
phases are used; its step ranges give the number of steps. Limits: those of `runner.published`; what `nsys stats` prints
in columns is refused, because names are cut there; without step ranges the number of steps is unknown. Standard library
only.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from runner.importers.recordings import (
    NOWHERE,
    Kernels,
    Launched,
    LaunchPlace,
    TracedProcess,
    clean_name,
    is_step,
    phase_of,
    refuse,
)
from runner.published.headings import parse_setting
from runner.published.reading import parse_file
from runner.published.tables import TextTable
from runner.published.values import parse_cell

#: What every table of `nsys stats` has, one of the headings beside it, and the endings of files of others that may have
#: both.
TOTAL, _COUNTS = b"Total Time", (b"Instances", b"Num Calls", b"Inst", b"Count")
_ENDINGS = (".csv", ".tsv", ".txt")
_TOTAL = re.compile(r"Total Time(?: \((?P<unit>\w{1,2})\))?")
#: The headings of each kind of table for the name and the number of calls.
_KINDS = {
    "ranges": ("Kernel Name", "Kern Inst"),
    "all": ("Operation", "Instances"),
    "kernels": ("Name", "Instances"),
    "copies": ("Operation", "Count"),
}
_DO = "Write one with `nsys stats --report cuda_gpu_kern_sum --format csv REPORT`."
_refuse = partial(refuse, "table of `nsys stats`", do=_DO)


class _LaunchRow(NamedTuple):
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

    Raises UsageError for a file without such a table, or with a row that lacks a value."""
    rows: dict[str, list[_LaunchRow]] = {}
    tables, _ = parse_file(path, ending=".csv")
    for table in tables:
        kind = next((kind for kind, needed in _KINDS.items() if {*needed} <= {*table.headings}), None)
        total = next(filter(None, map(_TOTAL.fullmatch, table.headings)), None)
        # A second table of a kind, such as kernels by grid size, counts the same again.
        if kind and total and kind not in rows:
            rows[kind] = _load_rows(path, table, total, *_KINDS[kind])
    whole = _sums(rows.get("all") or [*rows.get("kernels", ()), *rows.get("copies", ())])
    if not whole and not rows.get("ranges"):
        headings = ", ".join(f"“{heading[:40]}”" for heading in tables[0].headings[:8])
        raise _refuse(path, f"a table with the headings {headings}", "a table with a total time and a number of calls")
    return _combine(path, whole, rows.get("ranges", []))


def _load_rows(path: Path, table: TextTable, total: re.Match[str], name: str, calls: str) -> list[_LaunchRow]:
    if table.lost:
        raise _refuse(path, table.lost[0], "one value for each heading")
    rows = []
    for row in table.rows:
        told = dict(zip(table.headings, row.cells, strict=True))
        times = parse_cell(told[total[0]], dimension="time", unit=total["unit"]).values
        count, entered = (parse_setting("steps", text)[0] for text in (told[calls], told.get("NVTX Inst") or "0"))
        if len(times) != 1 or times[0] < 0 or not isinstance(count, int) or not isinstance(entered, int):
            got = f"“{told[total[0]][:40]}” and “{told[calls][:40]}” in line {row.line}"
            raise _refuse(path, got, "a time and a whole number of calls")
        ran, within = clean_name(told[name]) or "unnamed kernel", clean_name(told.get("NVTX Range", ""))
        sums = Launched(calls=count, duration_ns=round(times[0] * 1e6))
        rows.append(_LaunchRow(ran, within.removeprefix(":"), entered, sums))
    return rows


def _combine(path: Path, whole: Mapping[str, Launched], ranges: Sequence[_LaunchRow]) -> TracedProcess:
    """Returns the kernels in their phases, and what is left of the whole in none. Without other tables in the file the
    whole is what ran within the steps and outside of all ranges."""
    steps = [row for row in ranges if is_step(row.range)]
    by_phase: dict[str, list[_LaunchRow]] = {}
    for row in ranges:
        if phase := phase_of(row.range):
            by_phase.setdefault(phase, []).append(row)
    others = [name for row in ranges if (name := row.range) and not is_step(name) and not phase_of(name)]
    names = ", ".join(f"“{name[:40]}”" for name in [*dict.fromkeys(others)][:8])
    entered = {_count_entered(rows) for rows in by_phase.values()}
    passes = entered.pop() if len(entered) == 1 and "forward" in by_phase else None
    outside = _sums(row for row in ranges if not row.range or is_step(row.range))
    kernels: Kernels = {}
    for phase, rows in by_phase.items():
        for name, sums in _sums(rows).items():
            kernels[LaunchPlace(phase=phase), name] = sums
    placed = _sums(row for rows in by_phase.values() for row in rows)
    for name, sums in (whole or outside).items():
        known = placed.get(name, Launched()) if whole or steps else Launched()
        if sums.calls > known.calls:
            left = max(0, sums.duration_ns - known.duration_ns)
            kernels[NOWHERE, name] = Launched(calls=sums.calls - known.calls, duration_ns=left)
    if not kernels:
        raise _refuse(path, f"ranges that are no phase and no step ({names})", "cuda_gpu_kern_sum in the same file")
    remarks = [f"ranges that are no phase and no step were not read ({names})"] if others else []
    return TracedProcess(title=path.name, steps=_count_entered(steps) or passes, kernels=kernels, remarks=remarks)


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
