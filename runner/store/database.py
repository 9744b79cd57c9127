"""The results file: how rows get in, and how they are read, at any time, by anybody.

    >>> ingest("data/results.duckdb")                        # what the spool holds -> the file; never waits for readers
    1
    >>> with open_reader("data/results.duckdb") as con:      # file and spool as one, every cell exactly once
    ...     con.execute("SELECT count(*) FROM steps").fetchone()
    (44,)

Whoever reads opens, queries and closes: a connection kept open keeps the rows of a running sweep out of the file (they
wait in the spool and are seen all the same). Nothing here opens the file except through DuckDB: in a process that has
it open, closing a second handle would drop the first one's lock. Limits: one machine, a local file system.
"""

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import duckdb

from runner.errors import DatabaseBusy, DatabaseMissing, StoreError
from runner.schema import TABLES, Table, utc_now
from runner.store.attached import absent, attach, busy, connect, foreign, is_damage, is_stepscope, present, reason
from runner.store.contract import check
from runner.store.spool import Spool, sync_folder
from runner.store.staging import UNREADABLE, Document, is_newer, read, row_id, select_published, stage
from runner.store.survey import Survey, survey
from runner.store.views import damage, make_views

#: How long a reader waits for whoever writes (an ingest takes about 50 ms).
READER_PATIENCE_S = 2.0
#: Beside a sweep: how long an ingest waits for readers, and when it leaves the rest to the next one. It takes
#: a file in any case. What waits in the spool is seen all the same.
QUICK: Mapping[str, float] = {"patience_s": 0.03, "most_s": 0.03}

_STORED = [table for table in TABLES.values() if table.stored]


def default_path() -> Path:
    """The file that is meant when none is named: `STEPSCOPE_DB`, else `data/results.duckdb`."""
    return Path(os.environ.get("STEPSCOPE_DB") or "data/results.duckdb")


def fingerprint(db_path: Path | str) -> str:
    """16 hex digits that change whenever a reader could see other rows. Opens nothing; plans do not count."""
    path = Path(db_path).absolute()
    return _fingerprint([path, path.with_name(path.name + ".wal"), *Spool(path).files()])


def plan_fingerprint(db_path: Path | str) -> str:
    """The same for `plan`: changes with every heartbeat of a running sweep."""
    return _fingerprint(Spool(db_path).plans())


def _fingerprint(paths: Sequence[Path]) -> str:
    states = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            state = path.stat()
            states.append((path.name, state.st_ino, state.st_size, state.st_mtime_ns))
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()[:16]


# -------------------------------------------------------------------------------------------------------------- writing


def ingest(db_path: Path | str, *, patience_s: float = 0.1, most_s: float = 1.0) -> int:
    """Move the finished cells of the spool into the file, one transaction each; returns how many.

    Tries for `patience_s` to be alone with the file; 0 if readers or another writer hold it for longer, and the cells
    wait for the next call. Makes the file, and adds tables and columns that the schema has and the file lacks. Stops
    after `most_s`, so after a long backlog call it until it returns 0. A spool file that is not of ours becomes
    `*.bad`, with a warning; one from a newer Stepscope stays for that one to take. Raises DatabaseForeign, having
    changed nothing, when the file is not Stepscope's; StoreError when it cannot be written, such as on a full disk:
    then nothing has left the spool that is not in the file.
    """
    path = Path(db_path).absolute()
    spool = Spool(path)
    if not path.exists() and not spool.files():
        return 0
    bad: dict[str, str] = {}
    try:
        with open_writer(path, patience_s=patience_s) as con:
            ingested = _ingest(con, spool, most_s=most_s, bad=bad)
    except DatabaseBusy:
        return 0
    if bad:
        names = "; ".join(f"{name} ({why})" for name, why in bad.items())
        message = f"Not finished cells of Stepscope, set aside as *.bad in {spool.folder}: {names}"
        warnings.warn(message, stacklevel=2)
    return ingested


@contextlib.contextmanager
def open_writer(path: Path, *, patience_s: float, folder: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """The file as `file`, made where there is none, with every table and column of the schema, and nobody else in it.
    The connection reaches no other file but those in `folder`.
    Raises DatabaseBusy when others hold it for longer than `patience_s`, DatabaseForeign, StoreError."""
    spool, deadline = Spool(path), time.monotonic() + patience_s
    try:
        with spool.lock("exclusive", patience_s=patience_s) as alone:
            if not alone:
                raise busy(path)
            # Within the lock, where no reader competes for the cores.
            with connect(path, _half(spool), folder=folder) as con:
                if not path.exists():
                    _create(con, path, spool)
                with attach(con, path, access="READ_WRITE", deadline=deadline):
                    _upgrade(con, path)
                    yield con
    except (duckdb.Error, OSError) as error:
        if not isinstance(error, duckdb.TransactionException | OSError) and not is_damage(error):
            raise
        raise StoreError(
            f"{path} cannot be written: {reason(error)}.",
            expected="a file that is whole, room on the disk and the right to write there",
            do=f"Nothing is lost: the measured cells wait in {spool.folder}.",
        ) from error


def _ingest(con: duckdb.DuckDBPyConnection, spool: Spool, *, most_s: float, bad: dict[str, str]) -> int:
    spool.remove_leftovers()
    ingested, end = 0, time.monotonic() + most_s
    for file in spool.files():
        if time.monotonic() > end:
            break
        try:
            document = read(file)
            if is_newer(document):
                continue
            _insert(con, document, file)
        except UNREADABLE as error:
            spool.set_aside(file)
            bad[file.name] = reason(error)
        else:
            file.unlink()
            ingested += 1
    return ingested


def _insert(con: duckdb.DuckDBPyConnection, document: Document, file: Path) -> None:
    """Add one file's rows in one transaction; no change when one of `UNREADABLE` is raised."""
    con.begin()
    try:
        for table in stage(con, [document], _STORED, present=TABLES):
            check(con, table, f"temp.main.spool_{table.name}", where=file, published=select_published([document]))
            names = [column.name for column in table.columns]
            values = ("$now" if name == "ingested_at" else name for name in names)
            con.execute(
                f"INSERT INTO file.main.{table.name} ({', '.join(names)}) "
                f"SELECT {', '.join(values)} FROM temp.main.spool_{table.name}",
                {"now": utc_now()} if "ingested_at" in names else {},
            )
    except UNREADABLE:
        con.rollback()
        raise
    con.commit()


def _create(con: duckdb.DuckDBPyConnection, path: Path, spool: Spool) -> None:
    """Make the file whole under another name, so that a kill never leaves half a file. Needs the spool's lock."""
    half = _half(spool)
    for leftover in (half, half.with_name(half.name + ".wal")):
        leftover.unlink(missing_ok=True)
    with attach(con, half, access="STORAGE_VERSION 'v1.2.0'", deadline=0.0):
        _upgrade(con, half)
    half.rename(path)
    sync_folder(path.parent)


def _half(spool: Spool) -> Path:
    return spool.folder / ".new.duckdb"


def _upgrade(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Add the tables and columns that the schema has and the file lacks. Refuses a file of somebody else's tables."""
    stored = present(con, path)
    if not is_stepscope(stored) and con.execute("SELECT 1 FROM duckdb_tables() WHERE NOT temporary").fetchone():
        raise foreign(path, "it holds other tables")
    con.begin()
    for table in _STORED:
        if table.name not in stored:
            con.execute(_ddl(table))
            continue
        for column in table.columns:
            if column.name not in stored[table.name]:
                added = f"{column.name} {column.sql_type} DEFAULT {absent(column)}"
                con.execute(f"ALTER TABLE file.main.{table.name} ADD COLUMN {added}")
    con.commit()


def _ddl(table: Table) -> str:
    """Only tables of one row a cell or run have a primary key: an index on `samples` would weigh more than its data."""
    ids = {"run_id", row_id(table)}
    parts = [f"{c.name} {c.sql_type}{' NOT NULL' if c.name in ids else ''}" for c in table.columns]
    if len(table.unique) == 1:
        parts.append(f"PRIMARY KEY ({table.unique[0]})")
    return f"CREATE TABLE file.main.{table.name} ({', '.join(parts)})"


# -------------------------------------------------------------------------------------------------------------- reading


@contextlib.contextmanager
def open_reader(
    db_path: Path | str,
    *,
    damaged: Literal["refused", "empty"] = "refused",
    folder: Path | None = None,
    limits: Sequence[str] = (),
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with one view for each table of the schema: the file's rows and the spool's, each exactly once.

    Every view has all columns of its table, where the file is older with the default of an axis, else NULL; what the
    schema does not know is left out, and so are rows that break the contract (`look_through` counts them).
    The rows are those of one moment. Waits up to `READER_PATIENCE_S` for whoever writes, then raises DatabaseBusy;
    DatabaseMissing when there is neither file nor spool; DatabaseForeign when the file is not one to read;
    DatabaseDamaged by a query that needs a damaged table, unless such are to be `empty`. The connection reaches
    no file but this one and those in `folder`; `limits` are settings for it.
    """
    path = Path(db_path).absolute()
    spool, deadline = Spool(path), time.monotonic() + READER_PATIENCE_S
    # Nothing can leave the spool while its lock is shared, so no row is missed between the file and the spool.
    with (
        connect(path, folder=folder, limits=limits) as con,
        spool.lock("shared", patience_s=READER_PATIENCE_S) as held,
    ):
        if not held:
            raise busy(path)
        if not path.exists():
            if not make_views(con, spool, Survey()):
                raise DatabaseMissing(f"{path} does not exist.", do="Measure something: python -m runner sweep.")
            yield con
            return
        found = survey(path, deadline=deadline)
        if damaged == "empty":
            found = found.readable()
        with attach(con, path, access="READ_ONLY", deadline=deadline):
            make_views(con, spool, found)
            try:
                yield con
            except (duckdb.Error, UnicodeDecodeError) as error:
                if said := damage(error, path, found):
                    raise said from error
                if is_damage(error):
                    raise foreign(path, reason(error)) from error
                raise


def look_through(db_path: Path | str) -> Survey:
    """What is wrong with the file: rows that `open_reader` leaves out, by table, and tables that cannot be read."""
    path = Path(db_path).absolute()
    with Spool(path).lock("shared", patience_s=READER_PATIENCE_S) as held:
        if not held:
            raise busy(path)
        return survey(path, deadline=time.monotonic() + READER_PATIENCE_S) if path.exists() else Survey()
