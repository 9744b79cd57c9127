"""A whole copy of a results file at any moment, also while a sweep adds to it.

    >>> copy_file(Path("data/results.duckdb"), Path("backup.duckdb"))

A plain copy of a file in use may be unusable: DuckDB writes blocks and its log in an order that a copying program does
not know, and the latest cells are in the spool. Here DuckDB reads the file as it was at one moment, and adds the cells
of the spool at that moment. Sweeps go on meanwhile, and their cells wait in the spool.
"""

import shutil
import tempfile
import time
from pathlib import Path

import duckdb

from runner.errors import DatabaseMissing, StoreError, UsageError
from runner.store.attached import attach, busy_error, connect, foreign_error, format_reason, is_damage, quote
from runner.store.database import ingest
from runner.store.spool import Spool, sync_folder

#: The longest that a copy waits for a writer to be done (s).
PATIENCE_S = 10.0


def copy_file(path: Path, out: Path) -> int:
    """Writes `out`, with all that the file and its spool hold, and returns how many cells came from the spool.

    Raises UsageError where `out` is there already, DatabaseMissing, DatabaseBusy, DatabaseForeign for a file that
    cannot be read to its end, StoreError where there is no room; then there is no `out`."""
    path, out, spool = path.absolute(), out.absolute(), Spool(path)
    if out.exists():
        raise UsageError(f"{out} is there already.", expected="the name of a new file")
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".stepscope-copy-", dir=out.parent) as name,
            spool.lock("shared", patience_s=PATIENCE_S) as locked,
        ):
            if not locked:
                raise busy_error(path)
            if not path.exists() and not spool.files():
                raise DatabaseMissing(f"{path} does not exist.", do="Name a results file with --db.")
            copy = Path(name, "copy.duckdb")
            if path.exists():
                _copy_database(path, copy)
            waiting = _copy_spool(spool, Spool(copy))
            while ingest(copy, patience_s=PATIENCE_S):
                pass
            copy.rename(out)
            sync_folder(out.parent)
    except OSError as error:
        do = "Name a place with room for the whole file, where you may write."
        raise StoreError(f"{out} cannot be written: {error.strerror}.", do=do) from error
    return waiting


def _copy_database(path: Path, copy: Path) -> None:
    """Copies every table of the file, those of others included, as they are at this moment."""
    try:
        with (
            connect(path, copy) as con,
            attach(con, path, access="READ_ONLY", deadline=time.monotonic() + PATIENCE_S),
        ):
            con.execute(f"ATTACH {quote(str(copy))} AS copy (TYPE duckdb, STORAGE_VERSION 'v1.2.0')")
            con.execute("COPY FROM DATABASE file TO copy")
            con.execute("DETACH copy")
    except (duckdb.Error, UnicodeDecodeError) as error:
        if isinstance(error, duckdb.TransactionException):
            raise StoreError(
                f"{copy.parent.parent} has no room for a copy of {path}.", do="Name another place."
            ) from error
        if is_damage(error):
            raise foreign_error(path, format_reason(error)) from error
        raise


def _copy_spool(spool: Spool, to: Spool) -> int:
    files = spool.files()
    if files:
        to.folder.mkdir(parents=True)
    for file in files:
        shutil.copy2(file, to.folder / file.name)
    return len(files)
