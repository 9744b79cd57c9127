"""The results file, attached to a connection in memory as `file`, and the errors when that cannot be.

    >>> with open_attached(path, patience_s=2.0) as con:
    ...     columns_by_table = load_columns(con, path)

DuckDB lets one process write or many read. A file may come from anybody, so nothing in it is executed: a connection
reaches no other file, and whatever has the name of one of our tables must be a table with our types. Limits: a file
that was cut short is noticed at once, one whose inside was overwritten only when DuckDB comes across it.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import duckdb
from duckdb import DuckDBPyConnection

from runner.allowance import count_cpus
from runner.errors import DatabaseBusy, DatabaseForeign, DatabaseMissing, StoreError
from runner.places import check_place
from runner.schema import STORED, TABLES, Table
from runner.store.spool import RETRY_S, Spool
from runner.store.sql import fetch_count, quote

#: The columns of tables by name.
Columns = Mapping[str, frozenset[str]]

#: Extensions are never fetched from the web; more threads than a query uses only slow the opening.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": min(8, count_cpus()),
}

#: DuckDB's messages when another process, or another connection of this one, has the file open.
_BUSY = ("Could not set lock on file", "Unique file handle conflict")

#: DuckDB's errors for a block that is not as it was written. Some of them end the connection.
_DAMAGE = (duckdb.IOException, duckdb.SerializationException, duckdb.InternalException, duckdb.FatalException)
#: The system's errors that say nothing about the content of a file.
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE)
_STORED = {table.name for table in STORED}
#: The endings of files that DuckDB keeps beside a database.
_LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
_CONFINED = (
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
MAX_ROWS = 1_000_000_000

#: The size of what precedes the first block of a DuckDB file.
_HEADER_BYTES = 3 * 4096


@contextlib.contextmanager
def connect(*files: Path, folder: Path | None = None, limits: Sequence[str] = ()) -> Iterator[DuckDBPyConnection]:
    """Yields a connection with nothing attached, which can open `files`, what is in `folder`, and nothing else.

    `limits` are further settings as SQL; after them no setting can be changed. Opening and closing take 15 ms, which a
    reader spends outside the lock."""
    con = duckdb.connect(config=CONFIG)
    try:
        # DuckDB follows a link, and asks for what lies beside the file itself.
        paths = [
            f"{path}{ending}" for file in files for path in (file, os.path.realpath(file)) for ending in ("", *_LOGS)
        ]
        con.execute(f"SET allowed_paths = [{', '.join(map(quote, paths))}]")
        con.execute(f"SET allowed_directories = [{quote(str(folder) + '/') if folder else ''}]")
        for setting in (*limits, *_CONFINED):
            con.execute(setting)
        yield con
    finally:
        con.close()


@contextlib.contextmanager
def attach(
    con: DuckDBPyConnection, path: Path, *, access: str = "READ_ONLY", patience_s: float, alias: str = "file"
) -> Iterator[None]:
    """Attaches the file under a name. Raises DatabaseBusy when others hold it for longer than `patience_s`,
    DatabaseForeign when it is not DuckDB's or was cut short."""
    deadline = time.monotonic() + patience_s
    check_place(path)
    while True:
        try:
            con.execute(f"ATTACH {quote(str(path))} AS {alias} (TYPE duckdb, {access})")
            break
        except duckdb.Error as error:
            if not any(words in str(error) for words in _BUSY):
                raise unusable_error(path, error) from error
        if time.monotonic() >= deadline:
            raise busy_error(path)
        time.sleep(RETRY_S)
    try:
        if not path.with_name(path.name + ".wal").exists():  # which would count blocks that were never written
            query = f"SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = '{alias}'"
            size, needed = path.stat().st_size, _HEADER_BYTES + fetch_count(con, query)
            if size < needed:  # free blocks may rightly be missing; DuckDB would open the file and write into it
                raise foreign_error(path, f"it was cut short, to {size} of at least {needed} bytes")
        yield
        con.execute(f"DETACH {alias}")  # raises if the last write fails, which close() does not
    except BaseException:
        con.close()  # before the caller releases the lock
        raise


@contextlib.contextmanager
def open_attached(
    path: Path, *others: Path, folder: Path | None = None, patience_s: float = 0.0
) -> Iterator[DuckDBPyConnection]:
    """Yields a connection of its own to which the file is attached read-only, and which can open `others`, too."""
    with connect(path, *others, folder=folder) as con, attach(con, path, patience_s=patience_s):
        yield con


@contextlib.contextmanager
def lock(path: Path, kind: Literal["shared", "exclusive"], *, patience_s: float) -> Iterator[None]:
    """Locks the spool of a file. Raises DatabaseBusy where others hold it for longer than `patience_s`."""
    with Spool(path).lock(kind, patience_s=patience_s) as locked:
        if not locked:
            raise busy_error(path)
        yield


def load_columns(con: DuckDBPyConnection, path: Path) -> dict[str, frozenset[str]]:
    """Returns the columns of each of the schema's tables that the attached file has; takes 7 ms.

    Raises DatabaseForeign where one is no plain table of at most MAX_ROWS rows with the schema's types."""
    of_file = "WHERE database_name = 'file' AND schema_name = 'main'"
    tables = f"SELECT table_name, estimated_size, check_constraint_count, sql FROM duckdb_tables() {of_file}"
    columns = f"SELECT table_name, column_name, data_type FROM duckdb_columns() {of_file} AND NOT internal"
    try:
        plain, listed = con.execute(tables).fetchall(), con.execute(columns).fetchall()
    except duckdb.Error as error:
        raise foreign_error(path, format_reason(error)) from error
    for name, rows, checks, made_by in plain:
        if name in _STORED and (checks or "GENERATED ALWAYS AS" in made_by):
            raise foreign_error(path, f"{name} has columns or conditions that are computed")
        if name in _STORED and rows > MAX_ROWS:
            raise foreign_error(path, f"{name} has {rows:,} rows, more than {MAX_ROWS:,}")
    known: dict[str, dict[str, str]] = {name: {} for name, *_ in plain if name in _STORED}
    for name, column, kind in listed:
        if name in _STORED and name not in known:
            raise foreign_error(path, f"{name} is a view, which would be executed, not a table")
        known.get(name, {})[column] = kind
    for name, types in known.items():
        check_columns(path, TABLES[name], types, ids=() if name == "runs" else TABLES[name].unique)
    return {name: frozenset(types) for name, types in known.items()}


def check_columns(path: Path, table: Table, types: Mapping[str, str], *, ids: Sequence[str]) -> None:
    """Raises DatabaseForeign where a file's columns are of other types than the table's, or lack one of `ids`."""
    for column in table.columns:
        if (kind := types.get(column.name, column.sql_type)) != column.sql_type:
            raise foreign_error(path, f"{table.name}.{column.name} is of the type {kind[:60]}, not {column.sql_type}")
    if missing := {*ids} - types.keys():
        raise foreign_error(path, f"{table.name} has no {', '.join(sorted(missing))}")


def is_stepscope(tables: Columns) -> bool:
    """Returns whether these are the tables of a results file: each has had `runs` since the first version."""
    return {"run_id", "sweep_key"} <= tables.get("runs", frozenset())


def list_unknown(tables: Columns) -> list[str]:
    """Returns which of a file's columns, such as `steps.tomorrow`, the schema does not know."""
    return sorted(f"{name}.{column}" for name, columns in tables.items() for column in columns - TABLES[name].names)


def refuse_newer(path: Path, tables: Columns) -> None:
    """Raises DatabaseForeign for a file whose columns the schema does not know."""
    if unknown := list_unknown(tables):
        raise DatabaseForeign(
            f"{path} was written by a newer Stepscope: this one does not know {', '.join(unknown[:3])}.",
            expected="a file that this version or an older one wrote",
            do="Update Stepscope here. Until then the file can be read, and nothing is added to it.",
        )


def missing_error(path: Path) -> DatabaseMissing:
    return DatabaseMissing(f"{path} does not exist.", do="Measure something: python -m runner sweep.")


def busy_error(path: Path) -> DatabaseBusy:
    return DatabaseBusy(
        f"{path} is held by another program.",
        expected="it to be free within seconds",
        do="Close whatever has it open for writing, such as a DuckDB shell, and try again.",
    )


def foreign_error(path: Path, reason: str) -> DatabaseForeign:
    return DatabaseForeign(
        f"{path} is not a results file that this Stepscope can use: {reason}.",
        expected="a file that `python -m runner sweep` made",
        do="Name another with --db or STEPSCOPE_DB; this one was left as it is.",
    )


def is_refused(error: Exception) -> bool:
    """Returns whether the system refused what DuckDB asked for: a full disk, or a missing right."""
    return any(os.strerror(number) in str(error) for number in _REFUSED)


def unusable_error(path: Path, error: Exception) -> StoreError:
    """Returns why a file cannot be used: what the system refused, or what DuckDB says of its content."""
    if not is_refused(error):
        return foreign_error(path, format_reason(error))
    return StoreError(
        f"{path} cannot be used here: {format_reason(error)}.",
        expected="room on the disk, and the right to read and write there",
        do="Make room, or ask whoever owns the file.",
    )


def is_damage(error: Exception) -> bool:
    """Returns whether DuckDB's error means the file is not as written. A wrong checksum is a plain duckdb.Error."""
    return isinstance(error, (*_DAMAGE, UnicodeDecodeError)) or type(error) is duckdb.Error


def format_reason(error: Exception) -> str:
    """Returns the message of DuckDB or the system in one line without a full stop."""
    return str(error).partition("\n")[0].rstrip(".! ")
