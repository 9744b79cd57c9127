"""Spool files as temporary tables of a connection, for the store's readers and its writer.

    >>> stage(con, [load_document(file)], [TABLES["steps"]], present={})
    >>> con.execute("SELECT status FROM temp.main.spool_steps").fetchone()
    ('ok',)

Python parses the JSON and binds a list for each column, or the one text that all its rows share; DuckDB casts it to the
schema's types. One cell with 1,000 samples takes 9 ms, 500 cells with 40 samples 100 ms; DuckDB's own `read_json`
needed 10 ms and 1,700 ms. Limits: tables and columns beyond the schema are dropped here; `is_newer` tells whether there
are any.
"""

import json
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import RowsRefused
from runner.schema import TABLES, Table
from runner.store.contract import check
from runner.store.shared import take_connection
from runner.store.survey import NO_RUNS, select_runs

#: The content of one spool file: rows by table.
Document = Mapping[str, Sequence[Mapping[str, Any]]]

#: Raised for a file that is truncated, has a type or value that the schema does not allow, or lacks an id.
UNREADABLE = (
    ValueError,
    OverflowError,
    RowsRefused,
    duckdb.InvalidInputException,
    duckdb.DataError,
    duckdb.IntegrityError,
    duckdb.NotSupportedError,
)
#: The largest spool file that is read.
MAX_FILE_BYTES = 2**31


def load_document(file: Path) -> Document:
    """Returns what a spool file holds. Raises ValueError when it is no spool file, FileNotFoundError when there is
    none."""
    state = file.stat()
    if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_FILE_BYTES:
        raise ValueError(f"{file} is no file of at most {MAX_FILE_BYTES:,} bytes")
    try:
        document = json.loads(file.read_bytes())
    except RecursionError:
        raise ValueError(f"{file} holds lists within lists") from None
    if not isinstance(document, dict) or document.keys().isdisjoint(TABLES):
        raise ValueError(f"{file} holds no table of Stepscope")
    for rows in document.values():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"{file} holds something else than rows")
        if not {type(value) for row in rows for value in row.values()}.isdisjoint((list, dict)):
            raise ValueError(f"{file} holds a list where a value belongs")
    return document


def select_published(documents: Sequence[Document], also: str = NO_RUNS) -> str:
    """Returns a query of the published runs in the documents, and of the runs of the query `also`."""
    runs = [row for document in documents for row in document.get("runs", ()) if row.get("source") == "published"]
    return f"{select_runs([str(row.get('run_id')) for row in runs])} UNION ALL {also}"


def is_newer(document: Document) -> bool:
    """Returns whether it has tables or columns that this Stepscope does not know."""
    return any(
        name not in TABLES or any(row.keys() - TABLES[name].names for row in rows) for name, rows in document.items()
    )


def stage(
    con: DuckDBPyConnection,
    documents: Sequence[Document],
    tables: Sequence[Table],
    *,
    present: Collection[str],
    alias: str = "file",
) -> list[Table]:
    """Copies rows that the file attached as `alias` lacks into `temp.main.spool_<table>`, each once; returns the tables
    that have some.

    `present` names the tables that the attached file has. Raises one of `UNREADABLE` when a value is not of its
    column's type."""
    staged = []
    for table in tables:
        # Every cell may repeat its run's row: the first one counts, as it does in the file.
        rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        for document in documents:
            for row in document.get(table.name, ()):
                rows.setdefault(tuple(row.get(name) for name in table.unique), row)
        if not rows:
            continue
        columns = [_shorten([row.get(column.name) for row in rows.values()]) for column in table.columns]
        casts = ", ".join(
            f"unnest(?::{column.sql_type}[]) AS {column.name}"
            if isinstance(values, list)
            else f"?::{column.sql_type} AS {column.name}"
            for column, values in zip(table.columns, columns, strict=True)
        )
        con.execute(f"CREATE OR REPLACE TEMP TABLE spool_{table.name} AS SELECT {casts}", columns)
        if table.name in present:
            _drop_known(con, table, alias)
        staged.append(table)
    return staged


def _shorten(values: list[Any]) -> list[Any] | str | None:
    """Returns the one text of all rows, None where none has a value, otherwise `values`. A list of 100,000 equal ids
    takes 40 ms to bind, an id none. Equal numbers may be of different types, which DuckDB tells apart."""
    first = values[0]
    return first if isinstance(first, str | None) and values.count(first) == len(values) else values


def stage_checked(
    con: DuckDBPyConnection,
    documents: Sequence[Document],
    tables: Sequence[Table],
    *,
    present: Collection[str],
    where: Path,
) -> list[Table]:
    """Stages documents. Raises RowsRefused, naming the file `where`, for rows that break the contract, and whatever
    `stage` raises."""
    staged = stage(con, documents, tables, present=present)
    for table in staged:
        check(con, table, f"temp.main.spool_{table.name}", where=where, published=select_published(documents))
    return staged


def check_document(document: Document, *, where: Path) -> None:
    """Raises RowsRefused unless rows that were made from the file `where` keep the contract."""
    with take_connection(None) as taken:
        drop(taken.con, stage_checked(taken.con, [document], list(TABLES.values()), present={}, where=where))


def drop(con: DuckDBPyConnection, staged: Sequence[Table]) -> None:
    """Drops staged rows, which the connection would keep until the next ones."""
    for table in staged:
        con.execute(f"DROP TABLE temp.main.spool_{table.name}")


def row_id(table: Table) -> str:
    """Returns the id column that every row of this table has. Ids begin with the time."""
    return "cell_id" if "cell_id" in table.unique else "run_id"


def _drop_known(con: DuckDBPyConnection, table: Table, alias: str) -> None:
    """Drops staged rows that are in the file already, because their spool file outlived a kill after the commit.

    The bounds are literals so that DuckDB skips every row group that cannot hold the ids. Ids begin with the time, so
    nearly all are skipped: an anti-join without bounds took 300 ms beside 10,000,000 samples, this takes 1 ms."""
    key, staged, stored = row_id(table), f"temp.main.spool_{table.name}", f"{alias}.main.{table.name}"
    low, high = con.execute(f"SELECT min({key}), max({key}) FROM {staged}").fetchone() or (None, None)
    bounds = f"{key} BETWEEN '{low}'::UUID AND '{high}'::UUID" if low else "false"
    same = " AND ".join(f"known.{name} = {staged}.{name}" for name in table.unique)
    con.execute(f"DELETE FROM {staged} USING (SELECT * FROM {stored} WHERE {bounds}) AS known WHERE {same}")
