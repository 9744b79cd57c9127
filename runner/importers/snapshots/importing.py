"""Turns a CUDA memory snapshot that somebody else made into a run with timelines.

    timelines = import_snapshot(Path("snapshot.pickle"), db=Path("data/results.duckdb"), label="their run")

The pickle is read by a process of its own (`runner.importers.snapshots.reading`) that executes nothing of it and
answers with numbers and text only. Limits: a file of FILE_BYTES; a snapshot does not name its machine, so the run's
machine columns stay unknown.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from runner.analysis.timeline.allocations import AboutTimeline, timeline_rows
from runner.errors import UsageError
from runner.importers.runs import INGEST_SECONDS, new_run, write_run
from runner.schema import AllocationRow, TimelineRow, new_id
from runner.store.database import ingest

#: The largest file that is read, and the longest that reading it may take (s).
FILE_BYTES, READING_SECONDS = 2 * 2**30, 300


class ImportedTimeline(NamedTuple):
    """A timeline and how many of its allocations are stored."""

    row: TimelineRow
    stored: int


def import_snapshot(path: Path, *, db: Path, label: str | None = None) -> list[ImportedTimeline]:
    """Reads the snapshot at `path`, adds it to `db` and returns its timelines, one a device, with how many of their
    allocations are stored.

    Raises UsageError for a file that is no snapshot; then nothing was added."""
    timelines = _load(path)
    is_single, run = len(timelines) == 1, new_run(path, label)
    rows: dict[str, list[object]] = {"runs": [run]}
    while timelines:  # each is freed when its rows are made: there may be hundreds of thousands
        columns = timelines.pop(0)
        title = path.name if is_single else f"{path.name} · cuda:{columns['device']}"
        about = AboutTimeline(run_id=run.run_id, cell_id=new_id(), origin="imported", title=title)
        for table, table_rows in timeline_rows(columns, about).items():
            rows.setdefault(table, []).extend(table_rows)
    write_run(rows, run=run, db=db, where=path)
    stored = Counter(row.cell_id for row in rows.get("allocations", ()) if isinstance(row, AllocationRow))
    added = [ImportedTimeline(row, stored[row.cell_id]) for row in rows["timelines"] if isinstance(row, TimelineRow)]
    rows.clear()
    ingest(db, patience_s=INGEST_SECONDS)
    return added


def _load(path: Path) -> list[dict[str, Any]]:
    """Returns the columns of each timeline in the file."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES:
            raise _refusal(path, f"a file of {size:,} bytes", expected=f"at most {FILE_BYTES:,}")
        process = run_reader(path)
    except subprocess.TimeoutExpired:
        got = f"a pickle that takes more than {READING_SECONDS} s to read"
        raise _refusal(path, got, expected="a snapshot") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do="Name the pickle of a snapshot.") from None
    if process.returncode == -signal.SIGXCPU:
        raise _refusal(path, "a pickle that computes longer than a snapshot of its size", expected="a snapshot")
    if process.returncode:
        code = process.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise _refusal(path, f"a pickle whose reading ended with {how}", expected="a snapshot")
    answer = json.loads(process.stdout)
    if "refused" in answer:
        got, expected = answer["refused"]
        raise _refusal(path, got, expected=expected)
    timelines: list[dict[str, Any]] = answer["timelines"]
    return timelines


def run_reader(path: Path) -> "subprocess.CompletedProcess[bytes]":
    """Reads the pickle in a process of its own. Raises TimeoutExpired and OSError."""
    command = [sys.executable, "-m", "runner.importers.snapshots.reading"]
    with path.open("rb") as file:
        return subprocess.run(command, stdin=file, capture_output=True, timeout=READING_SECONDS, check=False)


def _refusal(path: Path, got: str, *, expected: str) -> UsageError:
    return UsageError(
        f"{path} is not a memory snapshot that can be read: got {got}.",
        expected=expected,
        do="Make one with torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot(FILE).",
    )
