"""Imports a file that another tool wrote, whatever its kind, and reports in words what was added.

    for line in import_file(Path("report.sqlite"), db=Path("data/results.duckdb")).lines:
        print(line)

The first bytes tell the kind: the results file of another machine, a torch.cuda.memory snapshot (pickle), the SQLite
export of an Nsight Systems report, or what `nsys stats` prints. Nothing in a file is executed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.formats import format_bytes
from runner.importers.nsys import importing as nsys
from runner.importers.snapshots.importing import import_snapshot
from runner.schema import TABLES, TimelineRow
from runner.store.merging import merge

_SQLITE, _PICKLE = b"SQLite format 3\0", b"\x80"
#: A DuckDB file has these from its ninth byte on.
_DUCKDB = b"DUCK"
_BEGINNING_BYTES = 65_536
#: Endings of pickles of any protocol, of reports that only nsys itself can read, and of tables as text.
_PICKLES, _REPORTS, _TABLES = (".pickle", ".pkl"), (".nsys-rep", ".qdrep", ".qdstrm"), (".csv", ".tsv", ".txt")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was added, one line each, and a warning about the file."""

    lines: tuple[str, ...]
    warning: str | None = None


def import_file(path: Path, *, db: Path, label: str | None = None) -> Report:
    """Adds what the file holds to `db`. Raises UsageError for a file of another kind; then nothing was added."""
    start = _read_beginning(path)
    if start.startswith(_SQLITE):
        return _report_traces(nsys.import_export(path, db=db, label=label), path)
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
    if b"Total Time" in start or path.suffix in _TABLES:
        return _report_traces(nsys.import_stats(path, db=db, label=label), path)
    raise UsageError(
        f"{path} is no file that can be imported: it begins with {start[:16]!r}.",
        expected="a results file (.duckdb), a memory snapshot (.pickle), the SQLite export of an nsys report, or what "
        "`nsys stats` writes",
        do="See `python -m runner import --help`.",
    )


def _read_beginning(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UsageError(f"{path} is no file but a pipe or a device.", do="Name a file to import.")
        with path.open("rb") as file:
            return file.read(_BEGINNING_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do="Name a file to import.") from None


def _merge(path: Path, *, db: Path, label: str | None) -> Report:
    if label:
        raise UsageError(f"--label got {label!r}.", expected="none: runs of a results file keep the labels they have")
    added = merge(path, into=db)
    if not added:
        return Report(lines=(f"Nothing new: {db} has every row of {path}.",))
    tables = [name for name, table in TABLES.items() if table.unique == ("cell_id",) and name in added]
    cells = ", ".join(f"{added[name]:,} of {name}" for name in tables) or "none"
    runs = f"{added.get('runs', 0):,} runs" if added.get("runs") != 1 else "1 run"
    return Report(lines=(f"{runs}, cells: {cells}; {sum(added.values()):,} rows in all.",))


def _report_timelines(timelines: Sequence[TimelineRow]) -> Report:
    lines = []
    for row in timelines:
        early = ""
        if row.baseline_allocations:
            size = format_bytes(row.baseline_bytes)
            early = f", {row.baseline_allocations:,} of them older than the recording ({size})"
        blocks = f", in the allocator's blocks {format_bytes(row.peak_block_bytes)}" if row.peak_block_bytes else ""
        peak = f"peak {format_bytes(row.peak_bytes)} asked for{blocks}"
        lines.append(f"{row.title}: {row.allocations:,} allocations{early}; {peak}.")
    return Report(lines=tuple(lines))


def _report_traces(imported: nsys.ImportedTraces, path: Path) -> Report:
    lines = []
    for trace in imported.traces:
        row = trace.row
        per = f" a step, over {row.steps} steps" if row.steps else ", over all that was recorded"
        known = f"; {trace.attributed_share:.0%} of it in a known phase" if trace.attributed_share else ""
        twice = "; its ranges count a kernel in each range around it" if trace.overlapping else ""
        lines.append(f"{row.title}: {row.kernels:,} different kernels, {row.kernel_ms:,.3f} ms{per}{known}{twice}.")
    return Report(
        lines=tuple(lines), warning=_warn_of_private(imported.private, path.name) if imported.private else None
    )


def _warn_of_private(tables: Sequence[str], name: str) -> str:
    """Returns a warning that names the file's private tables and columns, never a value of theirs."""
    return (
        f"{name} also says who recorded it and where, in {'; '.join(tables)}. Such a report names the host and the "
        "user and holds the command line and all environment variables, secrets included. None of that was imported. "
        "Think twice before you give the file away: the texts are in StringIds, too."
    )
