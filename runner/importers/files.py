"""Imports a file that another tool wrote, whatever its kind, and reports in words what was added.

    for line in import_file(Path("report.sqlite"), db=Path("data/results.duckdb")).lines:
        print(line)

The first bytes tell the kind: the results file of another machine, a torch.cuda.memory snapshot (pickle), the SQLite
export of an Nsight Systems report, what `nsys stats` prints, a trace of torch.profiler, or a table that somebody
published. Nothing in a file is executed. Of a folder, its traces are added as the ranks of one run, else the published
tables of its files.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.formats import format_bytes
from runner.importers.published import ImportedTables, describe_table, import_folder, import_tables
from runner.importers.snapshots.importing import ImportedTimeline, import_snapshot
from runner.importers.traces import importing as traces
from runner.importers.traces.profiler import is_trace
from runner.importers.traces.stats import TOTAL, is_stats
from runner.places import explain_place
from runner.published.tables import ENDINGS, OTHERS
from runner.schema import TABLES
from runner.store.merging import merge

_SQLITE, _PICKLE = b"SQLite format 3\0", b"\x80"
#: A DuckDB file has these from its ninth byte on.
_DUCKDB = b"DUCK"
_BEGINNING_BYTES = 65_536
#: Endings of pickles of any protocol, and of reports that only nsys itself can read.
_PICKLES, _REPORTS = (".pickle", ".pkl"), (".nsys-rep", ".qdrep", ".qdstrm")


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What was added, one line each, and a warning about the file. `is_whole` is False where something that was wanted
    is not stored."""

    lines: tuple[str, ...]
    warning: str | None = None
    is_whole: bool = True


def import_file(path: Path, *, db: Path, label: str | None = None, mapping: Path | None = None) -> ImportReport:
    """Adds what the file holds to `db`; `mapping` says what the columns of published tables mean. Raises UsageError for
    a file of another kind; then nothing was added."""
    if os.path.isdir(path):
        return _import_folder(path, db=db, label=label, mapping=mapping)
    start = _read_beginning(path)
    is_table = path.suffix.lower() in (*ENDINGS, *OTHERS) and not is_stats(path, start)
    if mapping and not is_table:
        raise UsageError(f"--mapping got {str(mapping)!r}.", expected="none: only published tables have a mapping")
    if is_trace(path, start):
        return _report_traces(traces.import_traces([path], db=db, label=label), path)
    if is_table:
        return _report_tables(import_tables(path, db=db, label=label, mapping=mapping))
    if start.startswith(_SQLITE):
        return _report_traces(traces.import_export(path, db=db, label=label), path)
    if start[8:12] == _DUCKDB:
        return _merge(path, db=db, label=label)
    if path.suffix in _REPORTS:
        raise UsageError(
            f"{path} is a report that only Nsight Systems itself can read.",
            expected="its export",
            do=f"Write one with `nsys export --type sqlite {path.name}`, and import that.",
        )
    if start.startswith(_PICKLE) or path.suffix in _PICKLES:
        return _report_timelines(import_snapshot(path, db=db, label=label))
    if TOTAL in start:
        return _report_traces(traces.import_stats(path, db=db, label=label), path)
    raise UsageError(
        f"{path} is no file that can be imported: it begins with {start[:16]!r}.",
        expected="a results file (.duckdb), a memory snapshot (.pickle), the SQLite export of an nsys report, what "
        f"`nsys stats` writes, or a published table ({', '.join(ENDINGS)})",
        do="See `python -m runner import --help`.",
    )


def _import_folder(folder: Path, *, db: Path, label: str | None, mapping: Path | None) -> ImportReport:
    ranks = [path for path in sorted(folder.iterdir()) if path.is_file() and _holds_trace(path)]
    if ranks:
        return _report_traces(traces.import_traces(ranks, db=db, label=label), folder)
    if label:
        raise UsageError(f"--label got {label!r}.", expected="none: the tables of a folder keep their titles")
    imported = import_folder(folder, db=db, mapping=mapping)
    lines = (line for one in imported for line in (one.summary, *one.left_out))
    return ImportReport(lines=tuple(lines), is_whole=all(one.is_whole for one in imported))


def _holds_trace(path: Path) -> bool:
    return path.name.lower().endswith((".json", ".json.gz")) and is_trace(path, _read_beginning(path))


def _report_tables(imported: ImportedTables) -> ImportReport:
    details = [line for table in imported.tables for line in describe_table(table)]
    return ImportReport(lines=(imported.summary, *details, *imported.left_out), is_whole=imported.is_whole)


def _read_beginning(path: Path) -> bytes:
    try:
        if why := explain_place(path):
            raise UsageError(f"{path} cannot be read: {why}.", do="Name a file to import.")
        with path.open("rb") as file:
            return file.read(_BEGINNING_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do="Name a file to import.") from None


def _merge(path: Path, *, db: Path, label: str | None) -> ImportReport:
    if label:
        raise UsageError(f"--label got {label!r}.", expected="none: runs of a results file keep the labels they have")
    added = merge(path, into=db)
    return ImportReport(lines=(describe_added(added) if added else f"Nothing new: {db} has every row of {path}.",))


def describe_added(added: Mapping[str, int]) -> str:
    """Says how many rows of which tables came from a results file."""
    if not added:
        return "nothing new."
    tables = [name for name, table in TABLES.items() if table.unique == ("cell_id",) and name in added]
    cells = ", ".join(f"{added[name]:,} of {name}" for name in tables) or "none"
    runs = f"{added.get('runs', 0):,} runs" if added.get("runs") != 1 else "1 run"
    return f"{runs}, cells: {cells}; {sum(added.values()):,} rows in all."


def _report_timelines(imported: Sequence[ImportedTimeline]) -> ImportReport:
    lines = []
    for row, kept in imported:
        early = ""
        if row.baseline_allocations:
            size = format_bytes(row.baseline_bytes)
            early = f", {row.baseline_allocations:,} of them older than the recording ({size})"
        blocks = f", in the allocator's blocks {format_bytes(row.peak_block_bytes)}" if row.peak_block_bytes else ""
        peak = f"peak {format_bytes(row.peak_bytes)} asked for{blocks}"
        if not row.duration_us and row.baseline_bytes == row.peak_bytes:
            peak = f"no history: {format_bytes(row.peak_bytes)} are what was held, and no peak"
        left = row.allocations - kept
        less = f" {left:,} smaller allocations that were not alive at the peak are left out." if left else ""
        lines.append(f"{row.title}: {row.allocations:,} allocations{early}; {peak}.{less}")
    return ImportReport(lines=tuple(lines))


def _report_traces(imported: traces.ImportedTraces, path: Path) -> ImportReport:
    lines = []
    for trace in imported.traces:
        row = trace.row
        per = f" a step, over {row.steps} steps" if row.steps else ", over all that was recorded"
        known = f"; {trace.attributed_share:.0%} of it in a known phase" if trace.attributed_share else ""
        twice = "; its ranges count a kernel in each range around it" if trace.overlapping else ""
        copies = f"; copies and sets {trace.copies_ms:,.3f} ms" if trace.copies_ms else ""
        if row.step_ms and row.busy_ms is not None:
            known += f"; the device is busy for {row.busy_ms / row.step_ms:.0%} of a step of {row.step_ms:,.3f} ms"
        said = f"{row.title}: {row.kernels:,} different kernels, {row.kernel_ms:,.3f} ms{per}{copies}{known}{twice}."
        lines += [said, *(f"{row.title}: {remark}." for remark in trace.remarks)]
    return ImportReport(
        lines=tuple(lines), warning=_warn_of_private(imported.private, path.name) if imported.private else None
    )


def _warn_of_private(tables: Sequence[str], name: str) -> str:
    """Returns a warning that names the file's private tables and columns, never a value of theirs."""
    return (
        f"{name} also says who recorded it and where, in {'; '.join(tables)}. Such a report names the host and the "
        "user and holds the command line and all environment variables, secrets included. None of that was imported. "
        "Think twice before you give the file away: the texts are in StringIds, too."
    )
