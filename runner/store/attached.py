"""The results file, attached to a connection in memory as `file`, and what is said when that cannot be.

    >>> with connected() as con, attached(con, path, access="READ_ONLY", deadline=time.monotonic() + 2):
    ...     columns_by_table = present(con)

DuckDB lets one process write or many read. Limits: a file that was cut short is noticed, one whose inside was
overwritten only when DuckDB comes across it.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb

from runner.errors import DatabaseBusy, DatabaseForeign
from runner.schema import TABLES
from runner.store.spool import RETRY_S

#: Never fetch an extension from the web; and threads beyond the cores that a query uses only slow the opening.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": min(8, os.cpu_count() or 1),
}

#: How DuckDB says that another process, or another connection of this one, has the file.
_HELD = ("Could not set lock on file", "Unique file handle conflict")

#: What a DuckDB file has before its first block.
_HEADER_BYTES = 3 * 4096


@contextlib.contextmanager
def connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with nothing attached. Opening and closing it take 15 ms: a reader does it without the lock."""
    con = duckdb.connect(config=CONFIG)
    try:
        yield con
    finally:
        con.close()


@contextlib.contextmanager
def attached(con: duckdb.DuckDBPyConnection, path: Path, *, access: str, deadline: float) -> Iterator[None]:
    """Have the file as `file` meanwhile. Raises DatabaseBusy when others hold it past the deadline (of
    `time.monotonic`), DatabaseForeign when it is not DuckDB's or was cut short."""
    try:
        _attach(con, path, access=access, deadline=deadline)
        yield
        con.execute("DETACH file")  # says if the last write fails, which close() does not
    except BaseException:
        con.close()  # before the caller gives back the lock
        raise


def present(con: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    """The schema's tables that the attached file has, and their columns. (`duckdb_columns()` takes 13 ms, this 1.)"""
    tables: dict[str, set[str]] = {}
    for name in (table.name for table in TABLES.values() if table.stored):
        with contextlib.suppress(duckdb.CatalogException):
            rows = con.execute(f"SELECT name FROM pragma_table_info('file.main.{name}')").fetchall()
            tables[name] = {column for (column,) in rows}
    return tables


def is_stepscope(tables: Mapping[str, set[str]]) -> bool:
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


def reason(error: Exception) -> str:
    """What DuckDB or the system says, in one line without a full stop."""
    return str(error).partition("\n")[0].rstrip(".!")


def _attach(con: duckdb.DuckDBPyConnection, path: Path, *, access: str, deadline: float) -> None:
    literal = "'" + str(path).replace("'", "''") + "'"
    while True:
        try:
            con.execute(f"ATTACH {literal} AS file (TYPE duckdb, {access})")
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
