"""Imports a file that another tool wrote, whatever its kind, and reports in words what was added.

    for line in import_file(Path("report.sqlite"), db=Path("data/results.duckdb")).lines:
        print(line)

The first bytes tell the kind: the results file of another machine, a torch.cuda.memory snapshot (pickle), the SQLite
export of an Nsight Systems report, what `nsys stats` prints as CSV, a trace of torch.profiler, or a table that somebody
published. Nothing in a file is executed. Of a folder, its traces are added as the ranks of one run, and its other files
one by one. Of a report of Nsight Systems, which names the host and the user and holds the command line and all
environment variables, only what ran is read, and the GPU's name and memory. Limits: no recording says what was measured
(shape, batch, precision), so an imported trace has no cell; a snapshot does not name its machine.
"""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from runner.analysis.kernels import kernel_class
from runner.analysis.timeline.allocations import timeline_rows
from runner.errors import UsageError
from runner.formats import format_bytes, format_count
from runner.importers.nsys import TOTAL, is_stats, load_processes, load_stats
from runner.importers.profiler import is_trace, load_trace
from runner.importers.published import import_tables
from runner.importers.recordings import (
    INGEST_SECONDS,
    ImportReport,
    TracedProcess,
    new_run,
    read_gpu,
    refuse,
    write_run,
)
from runner.places import explained
from runner.published.reading import PROVENANCE, read_bytes
from runner.published.tables import ENDINGS, OTHERS
from runner.schema import TABLES, AllocationRow, KernelRow, TimelineRow, TraceOrigin, TraceRow, new_id
from runner.store.database import ingest
from runner.store.merging import merge

_SQLITE, _PICKLE = b"SQLite format 3\0", b"\x80"
#: A DuckDB file has these from its ninth byte on.
_DUCKDB = b"DUCK"
_BEGINNING_BYTES = 65_536
#: The ends of the names of results files, their logs and the copies that a repair kept.
_RESULTS = re.compile(r"\.duckdb(\.wal|\.before-repair-.*)?$")
#: Endings of pickles of any protocol, and of reports that only nsys itself can read.
_PICKLES, _REPORTS = (".pickle", ".pkl"), (".nsys-rep", ".qdrep", ".qdstrm")
#: The largest snapshot that is read, and the longest that reading it may take (s).
SNAPSHOT_BYTES, READING_SECONDS = 2 * 2**30, 300
#: The most files of a folder.
MAX_FILES = 1_000
UNKNOWN_PHASE = "unknown"
#: What the names of copies and sets begin with, which are no kernels.
_COPIES = ("[CUDA memcpy", "[CUDA memset")
_DO = "Make one with torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot(FILE)."
_refuse_snapshot = partial(refuse, "memory snapshot", expected="a snapshot", do=_DO)


def import_file(
    path: Path, *, db: Path, label: str | None = None, mapping: Path | None = None, is_merged: bool = False
) -> ImportReport:
    """Adds what the file or the folder holds to `db`; `mapping` says what the columns of published tables mean. Of a
    folder that `is_merged`, whose results files are added already, it takes the others, if there are any. Raises
    UsageError for a file of another kind, and for a folder without any that can be read; then nothing was added."""
    read = partial(_import_folder, is_merged=is_merged) if path.is_dir() else _import
    report = read(path, db=db, label=label, mapping=mapping)
    while ingest(db, patience_s=INGEST_SECONDS):
        pass
    return report


def _import(path: Path, *, db: Path, label: str | None, mapping: Path | None, is_alone: bool = True) -> ImportReport:
    start = read_bytes(path, first=_BEGINNING_BYTES)
    is_table = path.suffix.lower() in (*ENDINGS, *OTHERS) and not is_stats(path, start)
    if mapping and not is_table:
        raise UsageError(f"--mapping got {str(mapping)!r}.", expected="none: only published tables have a mapping")
    if is_trace(path, start):
        return _add_traces(path, [load_trace(path)], db=db, label=label, origin="torch-profiler")
    if is_table:
        return import_tables(path, db=db, label=label, mapping=mapping, is_alone=is_alone)
    if start.startswith(_SQLITE):
        return _add_traces(path, load_processes(path), db=db, label=label, origin="nsys")
    if start[8:12] == _DUCKDB:
        if label:
            expected = "none: runs of a results file keep the labels they have"
            raise UsageError(f"--label got {label!r}.", expected=expected)
        added = merge(path, into=db)
        return ImportReport(lines=(describe_added(added) if added else f"Nothing new: {db} has every row of {path}.",))
    if path.suffix in _REPORTS:
        raise UsageError(
            f"{path} is a report that only Nsight Systems itself can read.",
            expected="its export",
            do=f"Write one with `nsys export --type sqlite {path.name}`, and import that.",
        )
    if start.startswith(_PICKLE) or path.suffix in _PICKLES:
        return _import_snapshot(path, db=db, label=label)
    if TOTAL in start:
        return _add_traces(path, [load_stats(path)], db=db, label=label, origin="nsys")
    raise UsageError(
        f"{path} is no file that can be imported: it begins with {start[:16]!r}.",
        expected="a results file (.duckdb), a memory snapshot (.pickle), the SQLite export of an nsys report, what "
        f"`nsys stats` writes, or a published table ({', '.join(ENDINGS)})",
        do="See `python -m runner import --help`.",
    )


def _import_folder(folder: Path, *, db: Path, label: str | None, mapping: Path | None, is_merged: bool) -> ImportReport:
    """Adds the traces of a folder as the ranks of one run, and every other file by itself; names those left out."""
    with explained(f"{folder} cannot be read", do="Name a folder to import.", kind=UsageError):
        found = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", PROVENANCE))]
        files = [path for path in found if path.is_file() and not (is_merged and _RESULTS.search(path.name))]
    if len(files) > MAX_FILES:
        got = f"{folder} holds {len(files):,} files."
        raise UsageError(got, expected=f"at most {MAX_FILES:,}", do="Name a smaller one.")
    ranks: list[Path] = []
    for path in files:
        with suppress(UsageError):
            ranks += [path] if is_trace(path, read_bytes(path, first=_BEGINNING_BYTES)) else []
    lines: list[str] = []
    if ranks:
        named = ranks[0] if len(ranks) == 1 else folder
        lines += _add_traces(named, list(map(load_trace, ranks)), db=db, label=label, origin="torch-profiler").lines
    is_whole, refused = True, 0
    for path in (path for path in files if path not in ranks):
        try:
            report = _import(path, db=db, label=label, mapping=mapping, is_alone=False)
            lines, is_whole = [*lines, *report.lines], is_whole and report.is_whole
        except UsageError as error:
            lines.append(f"{path.name}: left out: {error.got.removeprefix(str(path)).strip()}")
            refused += 1
    if refused == len(files) and not is_merged:
        what = "Name one file to see why it cannot be read."
        raise UsageError(f"{folder} holds no file that can be imported.", expected="at least one", do=what)
    return ImportReport(lines=tuple(lines), is_whole=is_whole and not refused)


def describe_added(added: Mapping[str, int]) -> str:
    """Says how many rows of which tables came from a results file."""
    if not added:
        return "nothing new."
    tables = [name for name, table in TABLES.items() if table.unique == ("cell_id",) and name in added]
    cells = ", ".join(f"{added[name]:,} of {name}" for name in tables) or "none"
    runs, rows = format_count(added.get("runs", 0), "run"), format_count(sum(added.values()), "row")
    return f"{runs}, cells: {cells}; {rows} in all."


def _import_snapshot(path: Path, *, db: Path, label: str | None) -> ImportReport:
    """Reads the memory snapshot at `path` and adds its timelines, one a device. The pickle is read by a process of its
    own (`runner.importers.snapshots`) that executes nothing of it and answers with numbers and text only. Raises
    UsageError for a file that is no snapshot; then nothing was added."""
    try:
        size = path.stat().st_size
        if size > SNAPSHOT_BYTES:
            raise _refuse_snapshot(path, f"a file of {size:,} bytes", expected=f"at most {SNAPSHOT_BYTES:,}")
        process = run_reader(path)
    except subprocess.TimeoutExpired:
        raise _refuse_snapshot(path, f"a pickle that takes more than {READING_SECONDS} s to read") from None
    if process.returncode == -signal.SIGPROF:
        raise _refuse_snapshot(path, "a pickle that computes longer than a snapshot of its size")
    if process.returncode:
        code = process.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise _refuse_snapshot(path, f"a pickle whose reading ended with {how}")
    answer = json.loads(process.stdout)
    if "refused" in answer:
        got, expected = answer["refused"]
        raise _refuse_snapshot(path, got, expected=expected)
    timelines: list[dict[str, Any]] = answer["timelines"]
    is_single, run = len(timelines) == 1, new_run(path, label)
    rows: dict[str, list[object]] = {"runs": [run]}
    while timelines:  # each is freed when its rows are made: there may be hundreds of thousands
        columns = timelines.pop(0)
        title = path.name if is_single else f"{path.name} · cuda:{columns['device']}"
        made = timeline_rows(columns, run_id=run.run_id, cell_id=new_id(), origin="imported", title=title)
        for table, table_rows in made.items():
            rows.setdefault(table, []).extend(table_rows)
    write_run(rows, run=run, db=db, where=path)
    kept = [row for row in rows.get("allocations", ()) if isinstance(row, AllocationRow)]
    stored = Counter(row.cell_id for row in kept)
    changing = {row.cell_id for row in kept if row.born_us or row.died_us is not None}
    added = [row for row in rows["timelines"] if isinstance(row, TimelineRow)]
    lines = (_describe_timeline(row, stored[row.cell_id], has_peak=row.cell_id in changing) for row in added)
    return ImportReport(lines=tuple(lines))


def run_reader(path: Path) -> "subprocess.CompletedProcess[bytes]":
    """Reads the pickle in a process of its own. Raises TimeoutExpired and OSError."""
    command = [sys.executable, "-m", "runner.importers.snapshots"]
    with path.open("rb") as file:
        return subprocess.run(command, stdin=file, capture_output=True, timeout=READING_SECONDS, check=False)


def _describe_timeline(row: TimelineRow, stored: int, *, has_peak: bool) -> str:
    early = ""
    if row.baseline_allocations:
        size = format_bytes(row.baseline_bytes)
        early = f", {row.baseline_allocations:,} of them older than the recording ({size})"
    size = format_bytes(row.peak_bytes)
    peak = f"peak {size} asked for" if has_peak else f"no history: {size} are what was held, and no peak"
    left = row.allocations - stored
    less = f" {left:,} smaller allocations that were not alive at the peak are left out." if left else ""
    return f"{row.title}: {row.allocations:,} allocations{early}; {peak}.{less}"


def _add_traces(
    path: Path, processes: Sequence[TracedProcess], *, db: Path, label: str | None, origin: TraceOrigin
) -> ImportReport:
    """Adds a trace for each process, or rank of a folder, as one run."""
    gpu, memory = read_gpu({process.gpu for process in processes})
    run = replace(new_run(path, label), device_name=gpu, device_memory_bytes=memory)
    traces: list[TraceRow] = []
    kernels: list[KernelRow] = []
    lines: list[str] = []
    for process in processes:
        ids: dict[str, Any] = {"run_id": run.run_id, "cell_id": new_id()}
        per = process.steps or 1
        rows = [
            KernelRow(
                **ids,
                phase=phase or UNKNOWN_PHASE,
                scope=scope,
                kernel=name,
                kernel_class=kernel_class(name, phase=phase),
                calls=sums.calls / per,
                device_ms=sums.duration_ns / 1e6 / per,
                operator=next(iter(sums.operators)) or None if len(sums.operators) == 1 else None,
                moved_bytes=round(sums.moved_bytes / per) if 0 < sums.moved_bytes < 2**62 else None,
            )
            for (phase, scope, name), sums in process.kernels.items()
        ]
        ran = [row for row in rows if not row.kernel.startswith(_COPIES)]
        trace = TraceRow(
            **ids,
            origin=origin,
            title=process.title,
            kernels=len(ran),
            steps=process.steps,
            kernel_ms=sum(row.device_ms for row in ran),
            step_ms=process.step_ms,
            busy_ms=process.busy_ms,
            gap_ms=process.gap_ms,
        )
        lines += [_describe_trace(trace, rows), *(f"{process.title}: {remark}." for remark in process.remarks)]
        traces.append(trace)
        kernels += rows
    write_run({"runs": [run], "traces": traces, "kernels": kernels}, run=run, db=db, where=path)
    return ImportReport(lines=tuple(lines))


def _describe_trace(trace: TraceRow, rows: Sequence[KernelRow]) -> str:
    per = f" a step, over {trace.steps} steps" if trace.steps else ", over all that was recorded"
    ran = [row for row in rows if not row.kernel.startswith(_COPIES)]
    copies = sum(row.device_ms for row in rows) - trace.kernel_ms
    said = f"; copies and sets {copies:,.3f} ms" if len(ran) < len(rows) else ""
    if sent := sum(row.device_ms for row in ran if row.kernel_class == "communication"):
        said += f"; {sent:,.3f} ms of it communication"
    if known := sum(row.device_ms for row in ran if row.phase != UNKNOWN_PHASE):
        said += f"; {known / trace.kernel_ms:.0%} of it in a known phase"
    if trace.step_ms and trace.busy_ms is not None:
        said += f"; the device is busy for {trace.busy_ms / trace.step_ms:.0%} of a step of {trace.step_ms:,.3f} ms"
    return f"{trace.title}: {trace.kernels:,} different kernels, {trace.kernel_ms:,.3f} ms{per}{said}."
