"""Stores a finished cell: in the spool at once, and in the file unless readers hold it.

store(db, {"steps": [row]}, name=str(row.cell_id))
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.errors import StoreError
from runner.store.database import BETWEEN_CELLS, ingest
from runner.store.spool import Spool

#: The longest that the last ingest of a sweep waits for readers (s).
LAST_INGEST_SECONDS = 5.0


def make_folder(db: Path) -> None:
    """Makes the folder of a new file. Raises StoreError where that is not allowed."""
    try:
        db.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        do = "Name a file elsewhere with --db."
        raise StoreError(f"{db.parent} cannot be made: {error.strerror}.", expected="a folder", do=do) from error


def store(db: Path, rows: Mapping[str, Sequence[object]], *, name: str) -> None:
    """Writes rows to the spool, and moves the spool into the file as far as that takes no waiting.

    Raises StoreError when the folder is gone or read-only or the disk is full. What had been written is not lost by
    that, and what is missing is measured by the next sweep."""
    folder, spool = db.absolute().parent, Spool(db)
    again = "The cell that was just measured is not kept; the same command measures it again and goes on."
    if not folder.exists():
        raise StoreError(f"{folder} is gone: it was there when this began.", do=f"Bring it back. {again}")
    try:
        spool.write(rows, name=name)
    except OSError as error:
        raise StoreError(
            f"{spool.folder} cannot be written: {error.strerror}.",
            expected="room on the disk and the right to write there",
            do=f"Cells that were finished before are kept. {again}",
        ) from error
    ingest(db, **BETWEEN_CELLS)


def ingest_all(db: Path) -> int:
    """Moves the whole spool into the file, unless others hold it for LAST_INGEST_SECONDS; returns how many cells are
    left."""
    spool = Spool(db)
    while spool.files() and ingest(db, patience_s=LAST_INGEST_SECONDS):
        pass
    return len(spool.files())
