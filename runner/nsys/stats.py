"""Reads what `nsys stats --format csv` wrote, or the statistics view of its window: sums by kernel and by kind of copy.

    recording = read_stats(Path("report_cuda_gpu_kern_sum.csv"))

    nsys stats --report cuda_gpu_kern_sum --format csv --output report report.nsys-rep

Understood are cuda_gpu_kern_sum, cuda_gpu_kern_gb_sum, cuda_gpu_sum and cuda_gpu_mem_time_sum, told by their headings,
alone or one after the other; lines around the tables are passed over. Not nvtx_kern_sum, which counts a kernel once for
each range around it. Limits: FILE_BYTES and ROWS; how many steps were recorded is not in such a file. Standard library
only.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.nsys.export import cleaned
from runner.nsys.ranges import NOWHERE
from runner.nsys.recordings import Launched, Recording

FILE_BYTES, ROWS = 64 * 2**20, 50_000
_NS = {"ns": 1, "us": 1e3, "μs": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_UNIT = "|".join(_NS)
_TOTAL = re.compile(rf"Total Time(?: \((?P<unit>{_UNIT})\))?")
_TIME = re.compile(rf"(?P<number>[0-9,]*[0-9](\.[0-9]+)?)\s*(?P<unit>{_UNIT})?")
#: Kind of table -> its headings for the name and the number of calls.
_TABLES = {
    "all": ("Operation", "Instances"),
    "kernels": ("Name", "Instances"),
    "copies": ("Operation", "Count"),
}


@dataclass(frozen=True, kw_only=True)
class _Heading:
    """Which table it is, and where its columns are."""

    table: str
    total: int
    name: int
    calls: int
    unit: str | None


def read_stats(path: Path) -> Recording:
    """Every kernel and copy in the file, in no phase; of several tables, those that together count everything once.
    Raises UsageError for a file that has no such table."""
    tables: dict[str, dict[str, Launched]] = {}
    heading: _Heading | None = None
    for line, row in enumerate(_rows(path), start=1):
        if line > ROWS:
            raise stats_refusal(path, f"more than {ROWS:,} lines", expected="fewer")
        found = _heading(row)
        if found:
            # A second table of a kind, such as kernels by grid size, counts the same again.
            heading = None if found.table in tables else found
            tables.setdefault(found.table, {})
        elif heading and len(row) > max(heading.total, heading.name, heading.calls):
            name = cleaned(row[heading.name]) or "unnamed kernel"
            calls, duration_ns = _numbers(path, line, heading=heading, row=row)
            tables[heading.table].setdefault(name, Launched()).add(duration_ns, calls=calls)
        else:
            heading = None
    kernels = tables.get("all") or {**tables.get("kernels", {}), **tables.get("copies", {})}
    if not kernels:
        raise stats_refusal(path, "no table of kernels")
    return Recording(steps=None, kernels={(NOWHERE, name): sums for name, sums in kernels.items()})


def stats_refusal(path: Path, got: str, *, expected: str = "cuda_gpu_kern_sum") -> UsageError:
    return UsageError(
        f"{path} is not a report of `nsys stats` that can be read: got {got}.",
        expected=expected,
        do="Write one with `nsys stats --report cuda_gpu_kern_sum --format csv REPORT`.",
    )


def _rows(path: Path) -> Iterator[Sequence[str]]:
    if path.stat().st_size > FILE_BYTES:
        raise stats_refusal(path, f"{path.stat().st_size:,} bytes", expected=f"at most {FILE_BYTES:,}")
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            yield from csv.reader(file)
    except csv.Error as error:
        raise stats_refusal(path, str(error)) from None


def _heading(row: Sequence[str]) -> _Heading | None:
    """The row as a table's heading, if it is one."""
    totals = [(place, match) for place, text in enumerate(row) if (match := _TOTAL.fullmatch(text.strip()))]
    if not totals:
        return None
    names = [text.strip() for text in row]
    for table, (name, calls) in _TABLES.items():
        if name in names and calls in names:
            place, match = totals[0]
            return _Heading(
                table=table, total=place, name=names.index(name), calls=names.index(calls), unit=match["unit"]
            )
    return None


def _numbers(path: Path, line: int, *, heading: _Heading, row: Sequence[str]) -> tuple[int, int]:
    """Calls and total time (ns) of a line."""
    total, calls = _TIME.fullmatch(row[heading.total].strip()), row[heading.calls].strip().replace(",", "")
    unit = (total and total["unit"]) or heading.unit
    if not total or not unit or len(total["number"]) > 20 or not re.fullmatch(r"[0-9]{1,15}", calls):
        raise stats_refusal(path, f"“{row[heading.total][:40]}”, “{calls[:40]}” in line {line}", expected="numbers")
    return int(calls), round(float(total["number"].replace(",", "")) * _NS[unit])
