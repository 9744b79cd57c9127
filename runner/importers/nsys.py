"""Reads what Nsight Systems recorded for somebody else: what ran on the GPU, and the named range that launched it; from
the SQLite export of a report, or from what `nsys stats` or the statistics view of its window wrote as CSV.

    for process in load_processes(Path("report.sqlite")):          # those that used the GPU
        print(process.gpu, process.steps, len(process.kernels))
    process = load_stats(Path("report_cuda_gpu_kern_sum.csv"))

The schema is the one that NVIDIA documents ("SQLite Export Schema Reference"); an export lacks empty tables. Only plain
tables count, because a view or a virtual table would be executed. A kernel often runs when the host has left the range
that launched it. Its correlation id leads to the call that launched it, whose thread and time give the range. Autograd
launches the backward pass from threads of its own, which push no ranges: a call from a thread in no phase belongs to
`backward` if another thread of the process was in it. Limits: a text of TEXT_BYTES, SECONDS of reading, HEAP_BYTES of
SQLite's own memory, for this process from then on; LAUNCHES, RANGES, PROCESSES, KERNELS; a CUDA graph that was traced
whole is one kernel.

Of the CSV the headings tell the tables cuda_gpu_kern_sum, cuda_gpu_kern_gb_sum, cuda_gpu_sum, cuda_gpu_mem_time_sum and
nvtx_kern_sum, alone or one after the other. nvtx_kern_sum counts a kernel once for each range around it, so only its
phases are used; its step ranges give the number of steps. Limits: those of `runner.published`; what `nsys stats` prints
in columns is refused, because names are cut there; without step ranges the number of steps is unknown. Standard library
only.
"""

import contextlib
import re
import sqlite3
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from runner.importers.recordings import (
    NOWHERE,
    Kernels,
    Launched,
    LaunchPlace,
    ThreadRanges,
    TracedProcess,
    clean_name,
    is_step,
    phase_of,
    read_gpu,
    refuse,
)
from runner.published.headings import parse_setting
from runner.published.reading import parse_file
from runner.published.tables import TextTable
from runner.published.values import parse_cell

#: The longest text, the longest time of reading (s), and the most memory of SQLite.
TEXT_BYTES, SECONDS, HEAP_BYTES = 1_000_000, 300.0, 512 * 2**20
_DO = "Record with `nsys profile --trace=cuda,nvtx …`, then `nsys export --type sqlite --output FILE REPORT`."
_EXPECTED = "the SQLite export of a report with CUDA kernels"
_refuse = partial(refuse, "export of Nsight Systems", expected=_EXPECTED, do=_DO)
_PRIVATE = (
    "such an export may name the host and the user and hold all environment variables, secrets included. None of that "
    "was imported; think twice before you give the file away"
)


class Export:
    """An open export: its tables and their columns."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection, self.path = connection, path
        plain = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        self.columns = {
            name: [column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", [name])]
            for (name,) in connection.execute(plain).fetchmany(2_000)
        }

    def list_views(self) -> list[str]:
        """Returns the tables of what ran that are no plain ones here, and so are not read."""
        known = """SELECT name FROM sqlite_master
            WHERE name LIKE 'CUPTI_ACTIVITY_KIND_%' OR name = 'NVTX_EVENTS' ORDER BY name"""
        found = self.connection.execute(known).fetchmany(99)
        return [clean_name(name) for (name,) in found if name not in self.columns]

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and set(columns) <= set(self.columns[table])

    def rows(self, query: str, *, most: int, what: str) -> Iterator[Sequence[Any]]:
        """Yields the rows of a query; the first five columns are whole numbers, and anything else, which SQLite stores
        in any column, counts as missing. Raises UsageError for more than `most`."""
        for number, row in enumerate(self.connection.execute(query)):
            if number >= most:
                raise _refuse(self.path, f"more than {most:,} {what}", expected="fewer: record fewer steps")
            yield *(value if isinstance(value, int) else None for value in row[:5]), *row[5:]

    def gpu(self) -> tuple[str | None, int | None]:
        """Returns the name and the memory (bytes) of the GPU, of several the one that ran the kernels; None where that
        is not exactly one kind."""
        if not self.has("TARGET_INFO_GPU", "name", "totalMemory"):
            return None, None
        ran = ""
        if self.has("TARGET_INFO_GPU", "id") and self.has("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"):
            ran = "WHERE id IN (SELECT deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL)"
        gpus = self.connection.execute(f"SELECT DISTINCT name, totalMemory FROM TARGET_INFO_GPU {ran}").fetchmany(2)
        return read_gpu(gpus)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Export]:
    """Yields the export at `path`. Raises UsageError when the file is no such export, also from within the block."""
    ends, uri = time.monotonic() + SECONDS, f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES)
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.set_progress_handler(lambda: time.monotonic() > ends, 100_000)
            limit = f"hard_heap_limit = {HEAP_BYTES}"
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", limit):
                connection.execute(f"PRAGMA {setting}")
            yield Export(connection, path)
    except MemoryError:
        raise _refuse(path, f"a database that needs more than {HEAP_BYTES // 2**20} MiB") from None
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # a message may hold bytes of the file
        slow = f"more than {SECONDS:.0f} s of reading" if str(error) == "interrupted" else str(error)
        raise _refuse(path, slow) from None


#: The most calls of a table, ranges, processes and different (kernel, range) of a process that are read.
LAUNCHES, RANGES, PROCESSES, KERNELS = 5_000_000, 2_000_000, 256, 50_000
_PUSHED_AND_POPPED = 59  # NvtxPushPopRange of ENUM_NSYS_EVENT_TYPE
#: The name of a copy in `nsys stats`, by CUpti_ActivityMemcpyKind, and the kinds that read and write on the device.
_COPIES = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}
_WITHIN = (8, 10)

#: The tables of what ran on the device, with the columns that may name it; the first that exists does.
_ACTIVITIES: Mapping[str, tuple[str, ...]] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("demangledName", "shortName", "name"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("copyKind",),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("value",),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("graphId",),
}


@dataclass
class _Process:
    threads: dict[int, ThreadRanges] = field(default_factory=dict)
    backward: list[tuple[int, int]] = field(default_factory=list)
    kernels: Kernels = field(default_factory=dict)

    def place(self, thread: int | None, moment: int | None) -> LaunchPlace:
        """Returns the place of a call by its thread and time."""
        if thread is None or moment is None:
            return NOWHERE
        place = self.threads[thread].at(moment) if thread in self.threads else NOWHERE
        if place.phase or not self.backward:
            return place
        before = bisect_right(self.backward, (moment, 2**64)) - 1
        return replace(place, phase="backward") if before >= 0 and moment < self.backward[before][1] else place

    @property
    def steps(self) -> int | None:
        """The number of ranges that are a whole step or, where there are none, of each phase; None where phases were
        entered differently often, so that no one number divides them."""
        threads = self.threads.values()
        whole = sum(thread.steps for thread in threads)
        phases = {phase for thread in threads for phase in thread.phases if phase}
        entered = {sum(len(thread.phases.get(phase, ())) for thread in threads) for phase in phases}
        return whole or (entered.pop() if len(entered) == 1 and "forward" in phases else None)


def load_processes(path: Path) -> list[TracedProcess]:
    """Returns what each process ran on the GPU, in the order of process ids. Raises UsageError."""
    with _open(path) as export:
        present = [table for table in _ACTIVITIES if export.has(table, "start", "end", "correlationId")]
        if not export.has("StringIds", "id", "value"):
            raise _refuse(path, "a database of something else")
        if not present:
            raise _refuse(path, "a report in which nothing of CUDA was recorded")
        broken: Counter[str] = Counter()
        processes = _load_ranges(export, broken)
        for table in present:
            for thread, moment, pid, duration, name, moved in _launches(export, table):
                if duration is None:
                    broken[table] += 1  # it had not finished when the recording ended, or ends before it starts
                    continue
                process = processes.setdefault(pid or 0, _Process())
                place = process.place(thread, moment)
                sums = process.kernels.setdefault((place.phase, place.scope, name), Launched())
                sums.add(duration, moved_bytes=moved, operator=place.operator)
                if len(process.kernels) > KERNELS or len(processes) > PROCESSES:
                    got = f"more than {KERNELS:,} different kernels and ranges of a process, or {PROCESSES:,} processes"
                    raise _refuse(path, got, expected="fewer: record fewer steps")
        used = [process for _, process in sorted(processes.items()) if process.kernels]
        if not used:
            raise _refuse(path, "a report in which nothing ran on a GPU")
        remarks = [f"{name} is no plain table and was not read" for name in export.list_views()]
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in present:
            remarks.append("there is no table of kernels, so that only copies and graphs are known")
        remarks += [f"left out, without a start or with no end after it: {n:,} of {name}" for name, n in broken.items()]
        last = len(used)
        return [
            TracedProcess(
                title=path.name if last == 1 else f"{path.name} · process {number}",
                steps=process.steps,
                kernels=process.kernels,
                remarks=[*remarks, _PRIVATE] if number == last else (),
                gpu=export.gpu(),
            )
            for number, process in enumerate(used, start=1)
        ]


def _load_ranges(export: Export, broken: Counter[str]) -> dict[int, _Process]:
    """Returns the processes by id, with the ranges of their threads; counts those that have no start, thread or name or
    end before they start."""
    if not export.has("NVTX_EVENTS", "start", "end", "globalTid"):
        return {}
    kind = f"WHERE eventType = {_PUSHED_AND_POPPED}" if export.has("NVTX_EVENTS", "eventType") else ""
    names = ["n.text"] if export.has("NVTX_EVENTS", "text") else []  # a name is written out, or an id in StringIds
    if export.has("NVTX_EVENTS", "textId"):
        names.append("(SELECT value FROM StringIds WHERE id = n.textId)")
    name = f"coalesce({', '.join([*names, 'NULL', 'NULL'])})"
    query = f"SELECT n.globalTid, n.start, n.end, NULL, NULL, {name} FROM NVTX_EVENTS n {kind}"
    by_thread: dict[int, list[tuple[int, int | None, str]]] = {}
    for thread, start, end, _, _, name in export.rows(query, most=RANGES, what="NVTX ranges"):
        if thread is None or start is None or not isinstance(name, str) or (end is not None and end < start):
            broken["NVTX_EVENTS"] += 1
            continue
        by_thread.setdefault(thread, []).append((start, end, clean_name(name)))
    processes: dict[int, _Process] = {}
    for thread, ranges in by_thread.items():
        # The lowest 24 bits of a serialized thread id are the thread's, the rest is the process's.
        process = processes.setdefault(thread & ~0xFFFFFF, _Process())
        process.threads[thread] = ThreadRanges(ranges)
        process.backward += process.threads[thread].phases.get("backward", [])
    for process in processes.values():
        process.backward.sort()
    return processes


def _launches(export: Export, table: str) -> Iterator[Sequence[Any]]:
    """Yields everything that ran: launching thread and moment (None if not recorded), process, ns, name, bytes."""
    columns = export.columns[table]
    named = next((column for column in _ACTIVITIES[table] if column in columns), "NULL")
    if table == "CUPTI_ACTIVITY_KIND_KERNEL" and named != "NULL":
        named = f"coalesce((SELECT value FROM StringIds WHERE id = a.{named}), 'unnamed kernel')"
    bytes_ = "a.bytes" if "bytes" in columns else "NULL"
    own_process = "a.globalPid" if "globalPid" in columns else "NULL"
    if export.has("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "correlationId", "globalTid"):
        calls = """SELECT correlationId, globalTid & ~0xFFFFFF AS pid, globalTid, min(start) AS start
            FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY correlationId, globalTid & ~0xFFFFFF"""
        same = f"r.correlationId = a.correlationId AND coalesce({own_process}, r.pid) = r.pid"
        query = f"""SELECT r.globalTid, r.start, coalesce({own_process}, r.pid), a.start, a.end, {named}, {bytes_}
            FROM {table} a LEFT JOIN ({calls}) r ON {same}"""
    else:
        query = f"SELECT NULL, NULL, {own_process}, a.start, a.end, {named}, {bytes_} FROM {table} a"
    for thread, moment, pid, start, end, name, moved in export.rows(query, most=LAUNCHES, what="calls"):
        duration = None if start is None or end is None or end < start else end - start
        yield thread, moment, pid, duration, *_name_and_bytes(table, name, moved)


def _name_and_bytes(table: str, name: object, moved: object) -> tuple[str, int | None]:
    """Returns the name of what ran, as `nsys stats` writes it, and the bytes that it read and wrote on the device."""
    size = moved if isinstance(moved, int) and 0 <= moved < 2**50 else None
    if table == "CUPTI_ACTIVITY_KIND_MEMCPY":
        kind = name if isinstance(name, int) else 0
        return f"[CUDA memcpy {_COPIES.get(kind, 'other')}]", None if size is None else size * (1 + (kind in _WITHIN))
    if table == "CUPTI_ACTIVITY_KIND_MEMSET":
        return "[CUDA memset]", size
    if table == "CUPTI_ACTIVITY_KIND_GRAPH_TRACE":
        return "[CUDA graph]", None
    return (clean_name(name) if isinstance(name, str) else "") or "unnamed kernel", None


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
_STATS_DO = "Write one with `nsys stats --report cuda_gpu_kern_sum --format csv REPORT`."
_refuse_stats = partial(refuse, "table of `nsys stats`", do=_STATS_DO)


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
        expected = "a table with a total time and a number of calls"
        raise _refuse_stats(path, f"a table with the headings {headings}", expected)
    return _combine(path, whole, rows.get("ranges", []))


def _load_rows(path: Path, table: TextTable, total: re.Match[str], name: str, calls: str) -> list[_LaunchRow]:
    if table.lost:
        raise _refuse_stats(path, table.lost[0], "one value for each heading")
    rows = []
    for row in table.rows:
        told = dict(zip(table.headings, row.cells, strict=True))
        times = parse_cell(told[total[0]], dimension="time", unit=total["unit"]).values
        count, entered = (parse_setting("steps", text)[0] for text in (told[calls], told.get("NVTX Inst") or "0"))
        if len(times) != 1 or times[0] < 0 or not isinstance(count, int) or not isinstance(entered, int):
            got = f"“{told[total[0]][:40]}” and “{told[calls][:40]}” in line {row.line}"
            raise _refuse_stats(path, got, "a time and a whole number of calls")
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
        kernels |= {(phase, "", name): sums for name, sums in _sums(rows).items()}
    placed = _sums(row for rows in by_phase.values() for row in rows)
    for name, sums in (whole or outside).items():
        known = placed.get(name, Launched()) if whole or steps else Launched()
        if sums.calls > known.calls:
            left = max(0, sums.duration_ns - known.duration_ns)
            kernels["", "", name] = Launched(calls=sums.calls - known.calls, duration_ns=left)
    if not kernels:
        got = f"ranges that are no phase and no step ({names})"
        raise _refuse_stats(path, got, "cuda_gpu_kern_sum in the same file")
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
