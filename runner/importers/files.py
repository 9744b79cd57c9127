"""Files that other tools wrote: which kind is this one, and what came of importing it, in words.

    for line in import_file(Path("report.sqlite"), db=Path("data/results.duckdb")).lines:
        print(line)

The kind is told by the first bytes. Understood are the results file of another machine, a torch.cuda.memory snapshot
(pickle), the SQLite export of an Nsight Systems report, and what `nsys stats` prints. Nothing in a file is executed.
"""

from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.formats import format_bytes
from runner.importers.nsys import importing as nsys
from runner.importers.snapshots.importing import import_snapshot
from runner.schema import TABLES
from runner.store.merging import merge

_SQLITE, _PICKLE = b"SQLite format 3\0", b"\x80"
#: What a DuckDB file has from its ninth byte on.
_DUCKDB = b"DUCK"
_BEGINNING_BYTES = 65_536
#: Endings under which a pickle of any protocol may come, and those of reports that only nsys itself can read.
_PICKLES, _REPORTS = (".pickle", ".pkl"), (".nsys-rep", ".qdrep", ".qdstrm")
#: Endings of tables as text.
_TABLES = (".csv", ".tsv", ".txt")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was added, a line a thing, and what the person should know about the file."""

    lines: tuple[str, ...]
    warning: str | None = None


def import_file(path: Path, *, db: Path, label: str | None = None) -> Report:
    """Adds what the file holds to `db`. Raises UsageError for a file of no such kind; then nothing was added."""
    start = _beginning(path)
    if start.startswith(_SQLITE):
        return _traces(nsys.import_export(path, db=db, label=label), path)
    if start[8:12] == _DUCKDB:
        return _results(path, db=db, label=label)
    if path.suffix in _REPORTS:
        raise UsageError(
            f"{path} is a report that only Nsight Systems itself can read.",
            expected="its export",
            do=f"Write one with `nsys export --type sqlite {path.name}`, and import that.",
        )
    if start.startswith(_PICKLE) or path.suffix in _PICKLES:
        return _timelines(path, db=db, label=label)
    if b"Total Time" in start or path.suffix in _TABLES:
        return _traces(nsys.import_stats(path, db=db, label=label), path)
    raise UsageError(
        f"{path} is no file that can be imported: it begins with {start[:16]!r}.",
        expected="a results file (.duckdb), a memory snapshot (.pickle), the SQLite export of an nsys report, or what "
        "`nsys stats` writes",
        do="See `python -m runner import --help`.",
    )


def _beginning(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UsageError(f"{path} is no file but a pipe or a device.", do="Name a file to import.")
        with path.open("rb") as file:
            return file.read(_BEGINNING_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do="Name a file to import.") from None


def _results(path: Path, *, db: Path, label: str | None) -> Report:
    if label:
        raise UsageError(f"--label got {label!r}.", expected="none: runs of a results file keep the labels they have")
    found = merge(path, into=db)
    if not found:
        return Report(lines=(f"Nothing new: {db} has every row of {path}.",))
    cells = [
        f"{found[name]:,} of {name}" for name, table in TABLES.items() if table.unique == ("cell_id",) and name in found
    ]
    runs = f"{found.get('runs', 0):,} runs" if found.get("runs") != 1 else "1 run"
    return Report(lines=(f"{runs}, cells: {', '.join(cells) or 'none'}; {sum(found.values()):,} rows in all.",))


def _timelines(path: Path, *, db: Path, label: str | None) -> Report:
    lines = []
    for found in import_snapshot(path, db=db, label=label).timelines:
        early = ""
        if found.baseline_allocations:
            held = format_bytes(found.baseline_bytes)
            early = f", {found.baseline_allocations:,} of them older than the recording ({held})"
        blocks = f", in the allocator's blocks {format_bytes(found.peak_block_bytes)}" if found.peak_block_bytes else ""
        peak = f"peak {format_bytes(found.peak_bytes)} asked for{blocks}"
        lines.append(f"{found.title}: {found.allocations:,} allocations{early}; {peak}.")
    return Report(lines=tuple(lines))


def _traces(found: nsys.ImportedTraces, path: Path) -> Report:
    lines = []
    for trace in found.traces:
        row = trace.row
        per = f" a step, over {row.steps} steps" if row.steps else ", over all that was recorded"
        known = f"; {trace.attributed_share:.0%} of it in a known phase" if trace.attributed_share else ""
        twice = "; its ranges count a kernel in each range around it" if trace.overlapping else ""
        lines.append(f"{row.title}: {row.kernels:,} different kernels, {row.kernel_ms:,.3f} ms{per}{known}{twice}.")
    return Report(lines=tuple(lines), warning=_private(found, path))


def _private(found: nsys.ImportedTraces, path: Path) -> str | None:
    """What else the file holds: names of tables and columns, never a value."""
    if not found.private:
        return None
    return (
        f"{path.name} also says who recorded it and where, in {'; '.join(found.private)}. Such a report names the host "
        "and the user and holds the command line and all environment variables, secrets included. None of that was "
        "imported. "
        "Think twice before you give the file away: the texts are in StringIds, too."
    )
