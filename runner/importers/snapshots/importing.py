"""A CUDA memory snapshot that somebody else made becomes a run with a timeline: the `import` command's work.

    imported = import_snapshot(Path("snapshot.pickle"), db=Path("data/results.duckdb"), label="their run")

The pickle is read by a process of its own (`runner.importers.snapshots.reading`) that executes nothing of it; its
answer is only numbers and text. Limits: a file of FILE_BYTES; what a machine calls itself is not in a snapshot, so the
run's machine columns stay unknown. Standard library and the store.
"""

import hashlib
import json
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.analysis.timeline.rows import About, timeline_rows
from runner.errors import UsageError
from runner.schema import RunRow, TimelineRow, new_id, utc_now
from runner.store.database import ingest
from runner.store.spool import Spool
from runner.store.staging import check_rows

#: The largest file that is read, and how long reading it may take (s).
FILE_BYTES, READING_SECONDS = 2 * 2**30, 300
#: How long the rows may wait for whoever reads the results file; later they still get in with the next command.
INGEST_SECONDS = 5.0

_DO = "Make one with torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot(FILE)."


@dataclass(frozen=True, kw_only=True)
class ImportedTimelines:
    """The run that an import made, and its timelines: one a device."""

    run_id: UUID
    timelines: tuple[TimelineRow, ...]


def import_snapshot(path: Path, *, db: Path, label: str | None = None) -> ImportedTimelines:
    """Reads the snapshot at `path` and adds it to `db`. Raises UsageError for a file that is none; then nothing was
    added. Importing a file twice makes two runs."""
    timelines = _read(path)
    alone, run_id = len(timelines) == 1, new_id()
    run = RunRow(
        run_id=run_id,
        sweep_key=hashlib.sha256(str(run_id).encode()).hexdigest()[:16],
        source="imported",
        label=label or path.name,
        argv=shlex.join(["python", "-m", "runner", *sys.argv[1:]]),
        started_at=utc_now(),
        device="cuda",
    )
    rows: dict[str, list[object]] = {"runs": [run]}
    while timelines:  # each is let go when its rows are made: there may be hundreds of thousands
        columns = timelines.pop(0)
        title = path.name if alone else f"{path.name} · cuda:{columns['device']}"
        about = About(run_id=run_id, cell_id=new_id(), origin="imported", title=title)
        for table, found in timeline_rows(columns, about).items():
            rows.setdefault(table, []).extend(found)
    check_rows(rows, where=path)
    Spool(db).write(rows, name=f"import-{run_id}")
    added = tuple(row for row in rows["timelines"] if isinstance(row, TimelineRow))
    rows.clear()
    ingest(db, patience_s=INGEST_SECONDS)
    return ImportedTimelines(run_id=run_id, timelines=added)


def _read(path: Path) -> list[dict[str, Any]]:
    """The columns of each timeline in the file."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES:
            raise _refusal(path, f"a file of {size:,} bytes", expected=f"at most {FILE_BYTES:,}")
        process = run_reader(path)
    except subprocess.TimeoutExpired:
        raise _refusal(
            path, f"a pickle that takes more than {READING_SECONDS} s to read", expected="a snapshot"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do="Name the pickle of a snapshot.") from None
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
    return UsageError(f"{path} is not a memory snapshot that can be read: got {got}.", expected=expected, do=_DO)
