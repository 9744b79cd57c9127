"""Whether rows can be added to a results file, asked before anything is measured.

check_writable(Path("data/results.duckdb"))
"""

import contextlib
import os
from pathlib import Path

from runner.errors import DatabaseBusy, StoreError
from runner.store.attached import list_unknown, newer_error
from runner.store.database import look_through
from runner.store.fleet import is_fleet
from runner.store.members import refuse_fleet
from runner.store.spool import Spool


def check_writable(path: Path) -> None:
    """Raises StoreError unless rows can be added: where the folder or the file is read-only, and DatabaseForeign for a
    file that is not Stepscope's or is a newer one's. Opens the file only for reading, and leaves nothing behind."""
    if is_fleet(path):
        refuse_fleet(path)
    path = path.absolute()
    folder = next(parent for parent in path.parents if parent.exists())
    for place in (folder, *(there for there in (path, Spool(path).folder) if there.exists())):
        if not os.access(place, os.W_OK):
            do = "Name a file elsewhere with --db, or get the right to write there."
            raise StoreError(f"{place} is read-only.", expected="a place where rows can be added", do=do)
    if path.exists():
        with contextlib.suppress(DatabaseBusy):  # whoever holds it lets go later, and cells wait in the spool
            if unknown := list_unknown(look_through(path).stored):
                raise newer_error(path, unknown)
