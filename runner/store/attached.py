"""The results file, attached to a connection in memory as `file`, and what is said when that cannot be.

    >>> with connected(path) as con, attached(con, path, access="READ_ONLY", deadline=time.monotonic() + 2):
    ...     columns_by_table = present(con, path)

DuckDB lets one process write or many read. A file may come from anybody, so that nothing in it is executed: a
connection reaches no other file, and what has the name of one of our tables must be a table, with our types. Limits: a
file that was cut short is noticed, one whose inside was overwritten only when DuckDB comes across it.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import duckdb

from runner.errors import DatabaseBusy, DatabaseForeign
from runner.schema import TABLES, Column, Table
from runner.store.spool import RETRY_S

#: Never fetch an extension from the web; and threads beyond the cores that a query uses only slow the opening.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": min(8, os.cpu_count() or 1),
}

#: How DuckDB says that another process, or another connection of this one, has the file.
_HELD = ("Could not set lock on file", "Unique file handle conflict")

#: What DuckDB raises where it meets a block that is not as it was written. Some of it ends the connection.
_DAMAGE = (
    duckdb.IOException, duckdb.SerializationException, duckdb.InternalException, duckdb.FatalException,
    UnicodeDecodeError,
)  # fmt: skip
#: The tables of a file, with the type of each column.
_STORED = {table.name: {c.name: c.sql_type for c in table.columns} for table in TABLES.values() if table.stored}
#: What a DuckDB file may have beside it.
_LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
_CONFINED = (
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
#: The most rows that a table may have.
MAX_ROWS = 1_000_000_000

#: What a DuckDB file has before its first block.
_HEADER_BYTES = 3 * 4096


@contextlib.contextmanager
def connect(
    *files: Path, folder: Path | None = None, limits: Sequence[str] = ()
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with nothing attached, which can open `files`, what is in `folder`, and nothing else. `limits` are
    further settings, as SQL; from then on none can be changed. Opening and closing it take 15 ms: a reader does it
    without the lock."""
    con = duckdb.connect(config=CONFIG)
    try:
        # DuckDB follows a link, and asks for what lies beside the file itself.
        paths = [f"{path}{ending}" for file in files for path in (file, file.resolve()) for ending in ("", *_LOGS)]
        con.execute(f"SET allowed_paths = [{', '.join(map(literal, paths))}]")
        con.execute(f"SET allowed_directories = [{literal(str(folder) + '/') if folder else ''}]")
        for setting in (*limits, *_CONFINED):
            con.execute(setting)
        yield con
    finally:
        con.close()


@contextlib.contextmanager
def attach(con: duckdb.DuckDBPyConnection, path: Path, *, access: str, deadline: float) -> Iterator[None]:
    """Have the file as `file` meanwhile. Raises DatabaseBusy when others hold it past the deadline (of
    `time.monotonic`), DatabaseForeign when it is not DuckDB's or was cut short."""
    try:
        _attach(con, path, access=access, deadline=deadline)
        yield
        con.execute("DETACH file")  # says if the last write fails, which close() does not
    except BaseException:
        con.close()  # before the caller gives back the lock
        raise


def present(con: duckdb.DuckDBPyConnection, path: Path) -> dict[str, set[str]]:
    """The schema's tables that the attached file has, and their columns; takes 7 ms.
    Raises DatabaseForeign where one is no plain table of at most MAX_ROWS rows with the schema's types."""
    of_file = "WHERE database_name = 'file' AND schema_name = 'main'"
    tables = f"SELECT table_name, estimated_size, check_constraint_count, sql FROM duckdb_tables() {of_file}"
    columns = f"SELECT table_name, column_name, data_type FROM duckdb_columns() {of_file} AND NOT internal"
    try:
        plain, found = con.execute(tables).fetchall(), con.execute(columns).fetchall()
    except duckdb.Error as error:
        raise foreign(path, reason(error)) from error
    for name, rows, checks, made_by in plain:
        if name in _STORED and (checks or "GENERATED ALWAYS AS" in made_by):
            raise foreign(path, f"{name} has columns or conditions that are computed")
        if name in _STORED and rows > MAX_ROWS:
            raise foreign(path, f"{name} has {rows:,} rows, more than {MAX_ROWS:,}")
    ours: dict[str, set[str]] = {name: set() for name, *_ in plain if name in _STORED}
    for name, column, kind in found:
        if name in _STORED and name not in ours:
            raise foreign(path, f"{name} is a view, which would be executed, not a table")
        if kind != _STORED.get(name, {}).get(column, kind):
            raise foreign(path, f"{name}.{column} is of the type {kind[:60]}, not {_STORED[name][column]}")
        ours.get(name, set()).add(column)
    for name, known in ours.items():
        missing = set(TABLES[name].unique) - known
        if missing and name != "runs":  # without these it is no table of ours, as `is_stepscope` says
            raise foreign(path, f"{name} has no {', '.join(sorted(missing))}")
    return ours


def is_stepscope(tables: Mapping[str, Set[str]]) -> bool:
    """Whether these are the tables of a results file: every one since the first has had `runs`."""
    return {"run_id", "sweep_key"} <= tables.get("runs", set())


def busy(path: Path) -> DatabaseBusy:
    return DatabaseBusy(
        f"{path} is held by another program.",
        expected="it to be free within seconds",
        do="Close whatever has it open for writing, such as a DuckDB shell, and try again.",
    )


def foreign(path: Path, reason: str) -> DatabaseForeign:
    return DatabaseForeign(
        f"{path} is not a results file that this Stepscope can use: {reason}.",
        expected="a file that `python -m runner sweep` made",
        do="Name another with --db or STEPSCOPE_DB; this one was left as it is.",
    )


def is_damage(error: Exception) -> bool:
    """Whether DuckDB says that the file is not as it was written. A wrong checksum is an error without a class."""
    return isinstance(error, _DAMAGE) or type(error) is duckdb.Error


def reason(error: Exception) -> str:
    """What DuckDB or the system says, in one line without a full stop."""
    return str(error).partition("\n")[0].rstrip(".!")


def absent(column: Column) -> str:
    """What a row holds in a column that is younger than itself, as SQL."""
    if column.absent is None:
        return f"NULL::{column.sql_type}"
    return f"{literal(str(column.absent))}::{column.sql_type}"


def select_stored_rows(table: Table, columns: frozenset[str]) -> str:
    """The rows of the attached file as a query of all columns of the schema."""
    values = (c.name if c.name in columns else f"{absent(c)} AS {c.name}" for c in table.columns)
    return f"SELECT {', '.join(values)} FROM file.main.{table.name}"


def literal(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def _attach(con: duckdb.DuckDBPyConnection, path: Path, *, access: str, deadline: float) -> None:
    while True:
        try:
            con.execute(f"ATTACH {literal(str(path))} AS file (TYPE duckdb, {access})")
        except duckdb.Error as error:
            if not any(words in str(error) for words in _HELD):
                raise foreign(path, reason(error)) from error
            if time.monotonic() >= deadline:
                raise busy(path) from error
            time.sleep(RETRY_S)
        else:
            break
    _check_length(con, path)


def _check_length(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """DuckDB opens a file that lacks its last blocks, and writes into it. Blocks that are free may rightly be missing;
    with a log to replay, blocks are counted that were never written."""
    if path.with_name(path.name + ".wal").exists():
        return
    query = "SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = 'file'"
    (blocks,) = con.execute(query).fetchone() or (0,)
    size, least = path.stat().st_size, _HEADER_BYTES + blocks
    if size < least:
        raise foreign(path, f"it was cut short, to {size} of at least {least} bytes")
