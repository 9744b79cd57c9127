"""Parts of queries that several modules of the store write: values, columns of a table, counts, insertions."""

from collections.abc import Mapping
from typing import Any

from duckdb import DuckDBPyConnection

from runner.schema import TABLES, Column, Table, utc_now

#: A query of the cells of all tables of cells, for everything that counts cells.
EVERY_CELL = " UNION ALL ".join(
    f"SELECT run_id, cell_id, cell_key, round, status, cell_seconds FROM {table.name}"
    for table in TABLES.values()
    if table.key
)


def quote(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def default_value(column: Column) -> str:
    """Returns as SQL the value of a column in rows that are older than it."""
    value = "NULL" if column.absent is None else quote(str(column.absent))
    return f"{value}::{column.sql_type}"


def select_stored_rows(table: Table, columns: frozenset[str], *, source: str = "") -> str:
    """Returns a query of `source`, by default the attached file's table, which has these columns, with all columns of
    the schema."""
    values = (c.name if c.name in columns else f"{default_value(c)} AS {c.name}" for c in table.columns)
    return f"SELECT {', '.join(values)} FROM {source or f'file.main.{table.name}'}"


def fetch_count(con: DuckDBPyConnection, query: str, parameters: Mapping[str, Any] | None = None) -> int:
    """Returns the one number that a query answers with."""
    (count,) = con.execute(query, dict(parameters or {})).fetchone() or (0,)
    return int(count)


def insert_rows(con: DuckDBPyConnection, table: Table, source: str) -> int:
    """Inserts rows into a table of the attached file, with the time of now as `ingested_at`; returns how many.

    `source` follows FROM and calls the rows `new`."""
    names = [column.name for column in table.columns]
    values = ", ".join("$now" if name == "ingested_at" else f"new.{name}" for name in names)
    query = f"INSERT INTO file.main.{table.name} ({', '.join(names)}) SELECT {values} FROM {source}"
    return fetch_count(con, query, {"now": utc_now()} if "ingested_at" in names else {})
