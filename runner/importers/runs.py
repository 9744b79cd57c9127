"""The run of an import: its row, and how its rows get into the results file.

run = new_run(path, label); write_run({"runs": [run], "traces": traces}, run=run, db=db, where=path)
ingest(db, patience_s=INGEST_SECONDS)
"""

import hashlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.schema import RunRow, new_id, utc_now
from runner.store.spool import Spool, to_document
from runner.store.views import check_document

#: The longest that the rows wait for readers of the results file (s); after it they stay in the spool for the next
#: command.
INGEST_SECONDS = 5.0


def new_run(path: Path, label: str | None) -> RunRow:
    """Returns the row of a run that imports the file `path`; importing a file twice makes two runs."""
    run_id = new_id()
    return RunRow(
        run_id=run_id,
        sweep_key=hashlib.sha256(str(run_id).encode()).hexdigest()[:16],
        source="imported",
        label=label or path.name,
        argv=shlex.join(["python", "-m", "runner", *sys.argv[1:]]),
        started_at=utc_now(),
        device="cuda",
    )


def write_run(rows: Mapping[str, Sequence[object]], *, run: RunRow, db: Path, where: Path) -> None:
    """Writes rows by table to the spool of `db`. Raises RowsRefused, naming the file `where`, for rows that break the
    contract; then nothing was written."""
    document = to_document(rows)
    check_document(document, where=where)
    Spool(db).write_document(document, name=f"import-{run.run_id}")
