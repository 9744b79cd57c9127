"""The results file: rows get in by `ingest` and are read by `open_reader`, at any time, by any process.

    >>> ingest("data/results.duckdb")                        # the spool's rows -> the file; never waits for readers
    1
    >>> with open_reader("data/results.duckdb") as con:      # file and spool as one, every cell exactly once
    ...     con.execute("SELECT count(*) FROM steps").fetchone()
    (44,)

A reader opens, queries and closes: an open connection keeps a sweep's rows in the spool, where they are seen all the
same. Nothing here opens the file except through DuckDB: in a process that has it open, closing a second handle would
drop the first one's lock. Limits: one machine, a local file system.
"""

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import DatabaseBusy, DatabaseMissing, StoreError
from runner.places import check_place, check_results, is_fleet, list_files, refuse_fleet
from runner.schema import STORED, TABLES
from runner.store.attached import (
    attach,
    busy_error,
    foreign_error,
    format_reason,
    is_damage,
    is_refused,
    is_stepscope,
    load_columns,
    lock,
    missing_error,
    refuse_newer,
    unusable_error,
)
from runner.store.contract import Survey, survey, survey_files, survey_fleet
from runner.store.shared import mark, take_connection, take_turn
from runner.store.spool import SET_ASIDE, Spool, sync_folder
from runner.store.sql import default_value, insert_rows
from runner.store.views import (
    UNREADABLE,
    Member,
    drop,
    explain_damage,
    is_newer,
    load_document,
    make_views,
    row_id,
    stage_checked,
)

#: How long a reader waits for a writer (s); an ingest takes about 50 ms.
READER_PATIENCE_S = 2.0
#: The longest that a command such as a merge or a copy waits to be alone with the file (s).
PATIENCE_S = 10.0
#: The limits of an ingest between two cells of a sweep: it does not wait for readers, as long as few cells wait.
BETWEEN_CELLS: Mapping[str, float] = {"patience_s": 0.0, "most_s": 0.1}
#: With more cells than these in the spool an ingest waits so long (s), and new readers wait behind it: every reader
#: reads the whole spool.
MAX_WAITING, BEHIND_PATIENCE_S = 50, 1.0


def fingerprint(db_path: Path | str) -> str:
    """Returns 16 hex digits that change whenever a reader could see other rows. Opens nothing; plans do not count."""
    return _fingerprint(db_path, lambda file: (file, file.with_name(file.name + ".wal"), *Spool(file).files()))


def plan_fingerprint(db_path: Path | str) -> str:
    """Returns 16 hex digits that change with every heartbeat of a running sweep."""
    return _fingerprint(db_path, lambda file: Spool(file).plans())


def _fingerprint(db_path: Path | str, list_parts: Callable[[Path], Iterable[Path]]) -> str:
    files, states = [Path(db_path)], []  # itself where it is a folder that cannot be read
    with contextlib.suppress(StoreError):
        files = list_files(Path(db_path))
    for path in (part for file in files for part in list_parts(file.absolute())):
        with contextlib.suppress(OSError):
            state = path.stat()
            states.append((path.name, state.st_ino, state.st_size, state.st_mtime_ns))
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()[:16]


def ingest(db_path: Path | str, *, patience_s: float = 0.1, most_s: float = 1.0) -> int:
    """Moves the finished cells of the spool into the file, many in a transaction; returns how many.

    Tries for `patience_s`, or longer where many cells wait, to be alone with the file. Returns 0 if readers or another
    writer hold it for longer, and the cells wait for the next call. Makes the file where there is none, and adds tables
    and columns that it lacks. Stops after the transaction that passes `most_s`; a long backlog needs calls until one
    returns 0. A spool file that cannot be used becomes `*.bad`, with a warning; one from a newer Stepscope stays.
    Raises DatabaseForeign, having changed nothing, when the file is not Stepscope's, and StoreError when it cannot be
    written, such as on a full disk: then nothing has left the spool that is not in the file."""
    path = Path(db_path).absolute()
    spool = Spool(path)
    if not os.path.exists(path) and not spool.files():
        return 0
    if len(spool.files()) > MAX_WAITING:
        patience_s = max(patience_s, BEHIND_PATIENCE_S)
    bad: dict[str, str] = {}
    try:
        with open_writer(path, patience_s=patience_s) as con:
            spool.remove_leftovers()
            ingested, end = 0, time.monotonic() + most_s
            for files in _batches(spool.files()):
                ingested += _move(con, spool, files, bad=bad)
                if time.monotonic() > end:
                    break
    except DatabaseBusy:
        return 0
    if bad:
        names = "; ".join(f"{name} ({why})" for name, why in bad.items())
        message = f"Not finished cells of Stepscope, set aside as *.bad in {spool.folder}: {names}"
        warnings.warn(message, stacklevel=2)
    return ingested


@contextlib.contextmanager
def open_writer(path: Path, *, patience_s: float, folder: Path | None = None) -> Iterator[DuckDBPyConnection]:
    """Yields a connection that has the file to itself as `file`, with every table and column of the schema.

    Makes the file where there is none. The connection reaches no other file but those in `folder`. Raises DatabaseBusy
    when others hold the file for longer than `patience_s`, DatabaseForeign, StoreError."""
    refuse_fleet(path)
    check_place(path)
    spool = Spool(path)
    try:
        # The connection within the lock, where no reader competes for the cores.
        with lock(path, "exclusive", patience_s=patience_s), take_connection(path, folder=folder) as taken:
            con = taken.con
            if not path.exists():
                half = spool.half  # under another name first, so that a kill never leaves half a file
                for leftover in (half, half.with_name(half.name + ".wal")):
                    leftover.unlink(missing_ok=True)
                with attach(con, half, access="STORAGE_VERSION 'v1.2.0'", patience_s=0.0):
                    _upgrade(con, half)
                half.rename(path)
                sync_folder(path.parent)
            with attach(con, path, access="READ_WRITE", patience_s=patience_s):
                _upgrade(con, path)
                yield con
    except (duckdb.Error, OSError) as error:
        if not isinstance(error, duckdb.TransactionException | OSError) and not is_damage(error):
            raise
        raise StoreError(
            f"{path} cannot be written: {format_reason(error)}.",
            expected="a file that is whole, room on the disk and the right to write there",
            do=f"Nothing is lost: the measured cells wait in {spool.folder}.",
        ) from error


def _upgrade(con: DuckDBPyConnection, path: Path) -> None:
    """Adds the tables and columns that the file lacks. Raises DatabaseForeign for a file of other tables, and for one
    of a newer Stepscope, whose columns would stay empty in rows from here."""
    stored = load_columns(con, path)
    if not is_stepscope(stored) and con.execute("SELECT 1 FROM duckdb_tables() WHERE NOT temporary").fetchone():
        raise foreign_error(path, "it holds other tables")
    refuse_newer(path, stored)
    con.begin()
    for table in STORED:
        if table.name not in stored:
            ids = {"run_id", row_id(table)}
            parts = [f"{c.name} {c.sql_type}{' NOT NULL' if c.name in ids else ''}" for c in table.columns]
            if len(table.unique) == 1:  # an index on `samples` would be larger than its data
                parts.append(f"PRIMARY KEY ({table.unique[0]})")
            con.execute(f"CREATE TABLE file.main.{table.name} ({', '.join(parts)})")
            continue
        for column in table.columns:
            if column.name not in stored[table.name]:
                added = f"{column.name} {column.sql_type} DEFAULT {default_value(column)}"
                con.execute(f"ALTER TABLE file.main.{table.name} ADD COLUMN {added}")
    con.commit()


@contextlib.contextmanager
def open_reader(
    db_path: Path | str,
    *,
    damaged: Literal["refused", "empty"] = "refused",
    folder: Path | None = None,
    limits: Sequence[str] = (),
) -> Iterator[DuckDBPyConnection]:
    """Yields a connection with one view for each table of the schema: the file's rows and the spool's, each once.

    Every view has all columns of its table; columns that the file lacks hold the default of an axis, else NULL. Columns
    that the schema does not know are left out, and so are rows that break the contract (`look_through` counts them).
    The rows are those of one moment. The connection reaches no file but this one and those in `folder`; `limits` are
    settings for it, as SQL. Raises DatabaseBusy when a writer holds the file for longer than READER_PATIENCE_S,
    DatabaseMissing when there is neither file nor spool, DatabaseForeign when the file is not one to read, and
    DatabaseDamaged in a query of a damaged table, unless damaged ones are to be `empty`.

    Of several files those that can be read are, without their damaged tables. Raises DatabaseMissing where there is no
    file, and what is wrong with the first where none can be read."""
    path, is_one = Path(db_path), not is_fleet(Path(db_path))
    files = [file.absolute() for file in list_files(path)]
    if not files:
        raise DatabaseMissing(f"{path} has no results file.", expected="files *.duckdb", do="Merge or copy some there.")
    with take_turn(), take_connection(*files, folder=folder, limits=limits) as taken, contextlib.ExitStack() as held:
        # Nothing can leave a spool while its lock is shared, so no row is missed between a file and its spool.
        locks = {file: Spool(file).lock("shared", patience_s=READER_PATIENCE_S) for file in files}
        locked = [file for file in files if held.enter_context(locks[file])]
        surveyed, broken = survey_files(locked, patience_s=READER_PATIENCE_S, taken=taken if is_one else None)
        broken |= {file: busy_error(file) for file in files if file not in locked}
        members = []
        for number, (file, found) in enumerate(surveyed.items()):
            alias, patience_s = ("file", READER_PATIENCE_S) if is_one else (f"file{number}", 0.0)
            try:
                if file.exists():
                    held.enter_context(attach(taken.con, file, patience_s=patience_s, alias=alias))
            except DatabaseBusy as error:
                broken[file] = error
                continue
            shown = found if is_one and damaged == "refused" else found.readable()
            members.append(Member(path=file, survey=shown, alias=alias))
        if not members:
            raise broken[files[0]]
        kept = " ".join(f"{member.path} {sorted(member.survey.damaged)}" for member in members)
        state, plans = f"{fingerprint(path)} {kept}", plan_fingerprint(path)
        if taken.shown != (state, plans):
            has_waiting = make_views(taken.con, members, taken.views)
            if not has_waiting and not any(member.path.exists() for member in members):
                raise missing_error(files[0])
            origins = " ".join(member.survey.origin or fingerprint(member.path) for member in members)
            mark(taken.con, state=state, origin=f"{origins} {kept}")
            taken.shown = (state, plans)
        try:
            yield taken.con
        except (duckdb.Error, UnicodeDecodeError) as error:
            for member in members:
                if damage := explain_damage(error, member.path, member.survey):
                    raise damage from error
            if is_damage(error) or is_refused(error):
                raise unusable_error(files[0] if is_one else path, error) from error
            raise


def look_through(db_path: Path | str) -> Survey:
    """Returns what is wrong with the file: rows that `open_reader` leaves out, and tables that cannot be read;
    and which files are left out, of several or of the spool, because they cannot be read."""
    if is_fleet(Path(db_path)):
        return survey_fleet(Path(db_path), patience_s=READER_PATIENCE_S)
    path = Path(db_path).absolute()
    check_place(path)
    with lock(path, "shared", patience_s=READER_PATIENCE_S):
        found = survey(path, patience_s=READER_PATIENCE_S) if path.exists() else Survey()
        return replace(found, broken=Spool(path).find_unreadable())


#: What one transaction takes at most of the spool. Most of its time goes to planning its 30 statements: 100 cells took
#: 5.2 s one by one and 0.2 s together.
BATCH_BYTES = 2**20


def _batches(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yields the files in groups of at most BATCH_BYTES, or of one file that is larger."""
    batch, held = list[Path](), 0
    for file in files:
        size = file.lstat().st_size
        if batch and held + size > BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(file)
        held += size
    if batch:
        yield batch


def _move(con: DuckDBPyConnection, spool: Spool, files: Sequence[Path], *, bad: dict[str, str]) -> int:
    """Moves the cells of these files in one transaction; returns how many. Where one cannot be used, each is moved
    alone, and that one is set aside."""
    documents = {}
    con.begin()
    try:
        for file in files:
            with contextlib.suppress(PermissionError):  # somebody else's, who will move it
                if not is_newer(document := load_document(file)):
                    documents[file] = document
        staged = stage_checked(con, list(documents.values()), STORED, present=TABLES, where=files[0])
        for table in staged:
            insert_rows(con, table, f"temp.main.spool_{table.name} AS new")
        drop(con, staged)
    except UNREADABLE as error:
        con.rollback()
        if len(files) > 1:
            return sum(_move(con, spool, [file], bad=bad) for file in files)
        files[0].rename(f"{files[0]}{SET_ASIDE}")
        bad[files[0].name] = format_reason(error)
        return 0
    con.commit()
    for file in documents:
        file.unlink()
    return len(documents)


def check_writable(path: Path) -> None:
    """Raises StoreError unless rows can be added (`check_results`), and DatabaseForeign for a file that is not
    Stepscope's or is a newer one's. Opens the file only for reading, and leaves nothing behind."""
    refuse_fleet(path)
    path = check_results(path.absolute(), adds=True)
    if path.exists():
        with contextlib.suppress(DatabaseBusy):  # whoever holds it lets go later, and cells wait in the spool
            refuse_newer(path, look_through(path).stored)
