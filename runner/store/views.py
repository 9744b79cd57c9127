"""The tables as a reader sees them: the file's rows and the spool's as one view a table, in `memory.main`.

    >>> make_views(con, spool, survey)          # a file surveyed by `runner.store.survey`, or an empty `Survey()`
    >>> con.execute("SELECT count(*) FROM steps").fetchone()
    (44,)

A view has all columns of its table; columns that the file lacks hold the default of an axis or NULL. Rows that break
the contract are left out. A damaged table has no view, so that only the queries that need it fail (`explain_damage`
makes their error).
"""

import contextlib
import re
from pathlib import Path

from duckdb import DuckDBPyConnection

from runner.errors import DatabaseDamaged
from runner.schema import TABLES, Table
from runner.store.attached import select_stored_rows
from runner.store.contract import valid
from runner.store.spool import Spool
from runner.store.staging import UNREADABLE, Document, load_document, select_published, stage
from runner.store.survey import Survey

#: DuckDB's message when a query needs a table that has no view.
_MISSING = re.compile(r"Table with name (\w+) does not exist")


def make_views(con: DuckDBPyConnection, spool: Spool, survey: Survey) -> bool:
    """Makes one view a table, in place of those that the connection has; returns False when the spool is empty."""
    waiting = _read_spool(con, spool, survey)
    for table in TABLES.values():
        if table.name in survey.damaged:
            con.execute(f"DROP VIEW IF EXISTS memory.main.{table.name}")
            continue
        view = _view(table, survey, waiting=table in (waiting or ()))
        con.execute(f"CREATE OR REPLACE VIEW memory.main.{table.name} AS {view}")
    return waiting is not None


def explain_damage(error: Exception, path: Path, survey: Survey) -> DatabaseDamaged | None:
    """Returns the error of a query that failed because it needs a damaged table; None for any other failure."""
    missing = _MISSING.search(str(error))
    name = missing[1] if missing else ""
    if name not in survey.damaged:
        return None
    return DatabaseDamaged(
        f"The table {name} of {path} is damaged: {survey.damaged[name]}.",
        expected="a file that reads back as it was written",
        do="Take a copy of the file from a backup. What needs other tables still works.",
        tables=(name,),
    )


def _read_spool(con: DuckDBPyConnection, spool: Spool, survey: Survey) -> list[Table] | None:
    """Stages the spool's rows that the file lacks; returns the tables that have some, or None for an empty spool."""
    documents, tables = [], list(TABLES.values())
    for file in spool.files() + spool.plans():
        with contextlib.suppress(ValueError, FileNotFoundError):  # broken, or a plan that has just been removed
            documents.append(load_document(file))
    if not documents:
        return None
    present = survey.stored.keys() - survey.damaged.keys()
    try:
        staged = stage(con, documents, tables, present=present)
    except UNREADABLE:
        documents = [document for document in documents if _is_readable(con, document)]
        staged = stage(con, documents, tables, present=present)
    runs = select_published(documents, survey.published)
    for table in staged:
        con.execute(f"DELETE FROM temp.main.spool_{table.name} WHERE ({valid(table, published=runs)}) IS NOT TRUE")
    return staged


def _is_readable(con: DuckDBPyConnection, document: Document) -> bool:
    try:
        stage(con, [document], list(TABLES.values()), present={})
    except UNREADABLE:
        return False
    return True


def _view(table: Table, survey: Survey, *, waiting: bool) -> str:
    parts, names = [], ", ".join(column.name for column in table.columns)
    if table.name in survey.stored:
        rows = select_stored_rows(table, survey.stored[table.name])
        only = f" WHERE {valid(table, published=survey.published)}" if table.name in survey.left_out else ""
        parts.append(f"SELECT * FROM ({rows}){only}")
    if waiting:
        parts.append(f"SELECT {names} FROM temp.main.spool_{table.name}")
    nothing = "SELECT " + ", ".join(f"NULL::{c.sql_type} AS {c.name}" for c in table.columns)
    return " UNION ALL ".join(parts or [f"{nothing} WHERE false"])
