"""Reads what `nsys stats` wrote, or the statistics view of its window: sums by kernel, by kind of copy and by range.

    recording = read_stats(Path("report_cuda_gpu_kern_sum.csv"))

    nsys stats --report cuda_gpu_kern_sum --format csv --output report report.nsys-rep

Understood are cuda_gpu_kern_sum, cuda_gpu_kern_gb_sum, cuda_gpu_sum, cuda_gpu_mem_time_sum and nvtx_kern_sum, told by
their headings, alone or one after the other, as CSV or in columns (whose names are as short as nsys made them).
nvtx_kern_sum counts a kernel once for each range around it: so of its ranges the phases are taken, if it has any, and
the steps say how many there were. Limits: ROWS; without ranges that are steps nobody knows how many there were.
Standard library only.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.importers.nsys.export import clean_name
from runner.importers.nsys.ranges import NOWHERE, STEP, LaunchPlace, phase_of
from runner.importers.nsys.recordings import Kernels, Launched, TracedProcess
from runner.importers.nsys.tables import PrintedTable, load_tables, stats_refusal

#: Characters of all names together.
NAME_CHARACTERS = 20_000_000
_NS = {"ns": 1, "us": 1e3, "μs": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_UNIT = "|".join(_NS)
_TOTAL = re.compile(rf"Total Time(?: \((?P<unit>{_UNIT})\))?")
_TIME = re.compile(rf"(?P<number>[0-9,]*[0-9](\.[0-9]+)?)\s*(?P<unit>{_UNIT})?")
_CALLS = re.compile(r"[0-9]{1,15}")
#: Kind of table -> its headings for the name and the number of calls.
_KINDS = {
    "ranges": ("Kernel Name", "Kern Inst"),
    "all": ("Operation", "Instances"),
    "kernels": ("Name", "Instances"),
    "copies": ("Operation", "Count"),
}
_RANGE, _TIMES = "NVTX Range", "NVTX Inst"
#: Headings that an error names, and their length.
_NAMED, _LENGTH = 8, 40


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One line: what ran, in which range ("" in none), how often that range was entered, and the sums."""

    name: str
    range: str
    entered: int
    sums: Launched


def read_stats(path: Path) -> TracedProcess:
    """Every kernel and copy in the file; of several tables, those that together count everything once. Raises
    UsageError for a file that has no such table."""
    found: dict[str, list[_Row]] = {}
    tables = load_tables(path)
    for table in tables:
        kind = _kind(table)
        # A second table of a kind, such as kernels by grid size, counts the same again.
        if kind and kind not in found:
            found[kind] = _rows(path, table, kind)
    whole = _sums(found.get("all") or [*found.get("kernels", ()), *found.get("copies", ())])
    if not whole and not found.get("ranges"):
        raise stats_refusal(path, _words(tables))
    if sum(len(row.name) + len(row.range) for rows in found.values() for row in rows) > NAME_CHARACTERS:
        raise stats_refusal(path, f"names of more than {NAME_CHARACTERS:,} characters", expected="shorter ones")
    return _recording(whole, found.get("ranges", []))


def _recording(tables: Mapping[str, Launched], ranges: Sequence[_Row]) -> TracedProcess:
    """The kernels in their ranges, and what is left of the whole in none. The whole is what the file's other tables
    say, else what ran within the steps and outside of all ranges."""
    outside = [row for row in ranges if not row.range]
    steps = [row for row in ranges if STEP.fullmatch(row.range.lower().strip())]
    phases = [row for row in ranges if phase_of(row.range)]
    others = [row for row in ranges if row.range and row not in steps] if not phases else []
    whole = tables or (_sums([*steps, *outside]) if steps else {})
    if not whole:
        return TracedProcess(steps=_entered(phases, "forward"), kernels=_placed([*phases, *others, *outside]),
                         overlapping=len({row.range for row in others}) > 1)  # fmt: skip
    kernels = _placed(phases if phases or not _is_within(_sums(others), whole) else others)
    placed = _sums(_Row(name=name, range="", entered=0, sums=sums) for (_, name), sums in kernels.items())
    for name, sums in whole.items():
        held = placed.get(name, Launched())
        if sums.calls > held.calls:
            left = max(0, sums.duration_ns - held.duration_ns)
            kernels[NOWHERE, name] = Launched(calls=sums.calls - held.calls, duration_ns=left)
    return TracedProcess(steps=_entered(steps) or _entered(phases, "forward"), kernels=kernels)


def _placed(rows: Iterable[_Row]) -> Kernels:
    found: Kernels = {}
    for row in rows:
        phase = phase_of(row.range)
        place = LaunchPlace(phase=phase) if phase else LaunchPlace(scope=row.range)
        found.setdefault((place, row.name), Launched()).add(row.sums.duration_ns, calls=row.sums.calls)
    return found


def _sums(rows: Iterable[_Row]) -> dict[str, Launched]:
    found: dict[str, Launched] = {}
    for row in rows:
        found.setdefault(row.name, Launched()).add(row.sums.duration_ns, calls=row.sums.calls)
    return found


def _is_within(part: Mapping[str, Launched], whole: Mapping[str, Launched]) -> bool:
    return all(name in whole and sums.calls <= whole[name].calls for name, sums in part.items())


def _entered(rows: Iterable[_Row], phase: str | None = None) -> int | None:
    """How often the ranges of these rows, or those of a phase, were entered together."""
    entered: dict[str, int] = {}
    for row in rows:
        if phase is None or phase_of(row.range) == phase:
            entered[row.range] = max(entered.get(row.range, 0), row.entered)
    return sum(entered.values()) or None


def _kind(table: PrintedTable) -> str | None:
    """Which table it is, by its headings; None for one of something else."""
    if not any(_TOTAL.fullmatch(heading) for heading in table.headings):
        return None
    return next((kind for kind, needed in _KINDS.items() if set(needed) <= set(table.headings)), None)


def _rows(path: Path, table: PrintedTable, kind: str) -> list[_Row]:
    """The rows of a table. Raises UsageError where one has other than numbers, or fewer values than headings."""
    total, match = next((at, match) for at, text in enumerate(table.headings) if (match := _TOTAL.fullmatch(text)))
    at = {heading: place for place, heading in enumerate(table.headings)}
    name, calls = _KINDS[kind]
    found = []
    for line, fields in table.rows:
        if len(fields) < len(table.headings):
            got = f"{len(fields)} values in line {line}"
            raise stats_refusal(path, got, expected=f"one for each of the {len(table.headings)} headings")
        duration, unit = _TIME.fullmatch(fields[total].strip()), match["unit"]
        unit = (duration and duration["unit"]) or unit
        if not duration or not unit or len(duration["number"]) > 20:
            raise stats_refusal(path, f"“{clean_name(fields[total][:_LENGTH])}” in line {line}", expected="a time")
        sums = Launched(calls=_count(path, line, fields[at[calls]]),
                        duration_ns=round(float(duration["number"].replace(",", "")) * _NS[unit]))  # fmt: skip
        inside = clean_name(fields[at[_RANGE]]).removeprefix(":") if kind == "ranges" and _RANGE in at else ""
        entered = _count(path, line, fields[at[_TIMES]] or "0") if inside and _TIMES in at else 0
        found.append(
            _Row(name=clean_name(fields[at[name]]) or "unnamed kernel", range=inside, entered=entered, sums=sums)
        )
    return found


def _count(path: Path, line: int, text: str) -> int:
    plain = text.strip().replace(",", "")
    if not _CALLS.fullmatch(plain):
        raise stats_refusal(path, f"“{clean_name(text[:_LENGTH])}” in line {line}", expected="a whole number")
    return int(plain)


def _words(tables: Sequence[PrintedTable]) -> str:
    """What tables there are, by name or by headings."""
    if not tables:
        return "no table"
    table = tables[0]
    headings = ", ".join(f"“{clean_name(heading[:_LENGTH])}”" for heading in table.headings[:_NAMED])
    rest = f" and {len(table.headings) - _NAMED} more" if len(table.headings) > _NAMED else ""
    more = f", and {len(tables) - 1} more tables" if len(tables) > 2 else ", and one more table" * (len(tables) - 1)
    return f"{table.report or 'a table'} with the headings {headings}{rest}{more}"
