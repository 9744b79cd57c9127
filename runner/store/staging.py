"""Spool files as temporary tables of a connection: what the store's reading and its writing have in common.

    >>> stage(con, [read(file)], [TABLES["steps"]], present={})
    >>> con.execute("SELECT status FROM temp.main.spool_steps").fetchone()
    ('ok',)

Python parses the JSON and binds one list a column; DuckDB casts it to the schema's types. One cell with 1,000 samples
takes 9 ms, 500 cells with 40 samples 100 ms; DuckDB's own `read_json` needed 10 ms and 1,700 ms. Limits: what a file
says beyond the schema is dropped here, so ask `is_newer` before a file is given up.
"""

import json
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from runner.errors import RowsRefused
from runner.schema import TABLES, Table
from runner.store.attached import connect
from runner.store.contract import check
from runner.store.spool import plain
from runner.store.survey import NO_RUNS, runs_query

#: What one spool file holds: the names of tables and their rows.
Document = Mapping[str, Sequence[Mapping[str, Any]]]

#: What is raised for a file that is truncated, holds another type or value than the schema's, or lacks an id.
UNREADABLE = (
    ValueError, OverflowError, RowsRefused, duckdb.InvalidInputException, duckdb.DataError, duckdb.IntegrityError,
    duckdb.NotSupportedError,
)  # fmt: skip
#: The largest spool file that is read.
MAX_FILE_BYTES = 2**31


def read(file: Path) -> Document:
    """What a spool file holds. Raises ValueError when it is not one, FileNotFoundError when it has gone."""
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
        if any(isinstance(value, list | dict) for row in rows for value in row.values()):
            raise ValueError(f"{file} holds a list where a value belongs")
    return document


def select_published(documents: Sequence[Document], also: str = NO_RUNS) -> str:
    """A query of the runs that were transcribed, of the documents and `also` of another query."""
    runs = [row for document in documents for row in document.get("runs", ()) if row.get("source") == "published"]
    return f"{runs_query([str(row.get('run_id')) for row in runs])} UNION ALL {also}"


def is_newer(document: Document) -> bool:
    """Whether it has tables or columns that this Stepscope does not know yet."""
    return any(
        name not in TABLES or any(row.keys() - {column.name for column in TABLES[name].columns} for row in rows)
        for name, rows in document.items()
    )


def stage(
    con: duckdb.DuckDBPyConnection,
    documents: Sequence[Document],
    tables: Sequence[Table],
    *,
    present: Collection[str],
) -> list[Table]:
    """Put the rows that the attached `file` lacks into `temp.main.spool_<table>`, each row once.

    `present` names the tables that the attached file has. Returns the tables for which there are rows. Raises one of
    `UNREADABLE` when a value is not of its column's type.
    """
    staged = []
    for table in tables:
        # Every cell may repeat its run's row: the first one counts, as it does in the file.
        rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        for document in documents:
            for row in document.get(table.name, ()):
                rows.setdefault(tuple(row.get(name) for name in table.unique), row)
        if not rows:
            continue
        columns = [[row.get(column.name) for row in rows.values()] for column in table.columns]
        casts = ", ".join(f"unnest(?::{column.sql_type}[]) AS {column.name}" for column in table.columns)
        con.execute(f"CREATE OR REPLACE TEMP TABLE spool_{table.name} AS SELECT {casts}", columns)
        if table.name in present:
            _drop_known(con, table)
        staged.append(table)
    return staged


def check_rows(rows: Mapping[str, Sequence[object]], *, where: Path) -> None:
    """Raises RowsRefused unless rows that were made from the file `where` keep the contract."""
    with connect() as con:
        document = plain(rows)
        for table in stage(con, [document], list(TABLES.values()), present={}):
            check(con, table, f"temp.main.spool_{table.name}", where=where, published=select_published([document]))


def row_id(table: Table) -> str:
    """The id that a row of this table always has, and whose value begins with the time."""
    return "cell_id" if "cell_id" in table.unique else "run_id"


def _drop_known(con: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Drop the staged rows that are in the file already: their spool file outlived a kill after the commit.

    The bounds are literals so that DuckDB skips every row group that cannot hold them. Ids begin with the time, so
    that is nearly all: an anti-join without bounds took 300 ms beside 10,000,000 samples, this takes 1 ms.
    """
    key, staged, stored = row_id(table), f"temp.main.spool_{table.name}", f"file.main.{table.name}"
    low, high = con.execute(f"SELECT min({key}), max({key}) FROM {staged}").fetchone() or (None, None)
    bounds = f"{key} BETWEEN '{low}'::UUID AND '{high}'::UUID" if low else "false"
    same = " AND ".join(f"known.{name} = {staged}.{name}" for name in table.unique)
    con.execute(f"DELETE FROM {staged} USING (SELECT * FROM {stored} WHERE {bounds}) AS known WHERE {same}")
