"""The tables as a reader sees them: the rows of files and their spools as one view a table, in `memory.main`.

    >>> make_views(con, [Member(path=path, survey=survey)], {})      # a file surveyed by `runner.store.contract`
    >>> con.execute("SELECT count(*) FROM steps").fetchone()
    (44,)

A view has all columns of its table; columns that a file lacks hold the default of an axis or NULL. Rows that break
the contract are left out. A damaged table has no view, so that only the queries that need it fail (`explain_damage`
makes their error).

Spool files become temporary tables: Python parses the JSON and binds a list for each column, or the one text that all
its rows share; DuckDB casts it to the schema's types. One cell with 1,000 samples takes 9 ms, 500 cells with 40 samples
100 ms; DuckDB's own `read_json` needed 10 ms and 1,700 ms. Limits: tables and columns beyond the schema are dropped
here; `is_newer` tells whether there are any.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import DatabaseDamaged, RowsRefused
from runner.places import explain_place
from runner.schema import STORED, TABLES, Table
from runner.store.contract import NO_RUNS, Survey, check, select_runs, valid
from runner.store.shared import take_connection
from runner.store.spool import Spool
from runner.store.sql import quote, select_stored_rows

#: Tables of one row a cell, to which the rows of all others with a `cell_id` belong.
OWNERS = tuple(table for table in STORED if table.unique == ("cell_id",))
#: The content of one spool file: rows by table.
Document = Mapping[str, Sequence[Mapping[str, Any]]]

#: Raised for a file that is truncated, has a type or value that the schema does not allow, or lacks an id.
UNREADABLE = (
    ValueError, OverflowError, RowsRefused, duckdb.InvalidInputException, duckdb.DataError,
    duckdb.IntegrityError, duckdb.NotSupportedError,
)  # fmt: skip
#: The largest spool file that is read.
MAX_FILE_BYTES = 2**31


def load_document(file: Path) -> Document:
    """Returns what a spool file holds. Raises ValueError when it is no spool file, FileNotFoundError when there is
    none, PermissionError where this user may not read it."""
    if why := explain_place(file):
        raise ValueError(f"{file} is no finished cell: {why}")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{file} has more than {MAX_FILE_BYTES:,} bytes")
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

    `present` names the tables that the attached file has. Raises one of `UNREADABLE` for a value of another type."""
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
            # Drop what is in the file already, because its spool file outlived a kill after the commit. The bounds are
            # literals so that DuckDB skips every row group that cannot hold the ids. Ids begin with the time, so nearly
            # all are skipped: an anti-join without bounds took 300 ms beside 10,000,000 samples, this takes 1 ms.
            key, new = row_id(table), f"temp.main.spool_{table.name}"
            low, high = con.execute(f"SELECT min({key}), max({key}) FROM {new}").fetchone() or (None, None)
            bounds = f"{key} BETWEEN '{low}'::UUID AND '{high}'::UUID" if low else "false"
            same = " AND ".join(f"known.{name} = {new}.{name}" for name in table.unique)
            stored = f"(SELECT * FROM {alias}.main.{table.name} WHERE {bounds})"
            con.execute(f"DELETE FROM {new} USING {stored} AS known WHERE {same}")
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
    with take_connection() as taken:
        drop(taken.con, stage_checked(taken.con, [document], list(TABLES.values()), present={}, where=where))


def drop(con: DuckDBPyConnection, staged: Sequence[Table]) -> None:
    """Drops staged rows, which the connection would keep until the next ones."""
    for table in staged:
        con.execute(f"DROP TABLE temp.main.spool_{table.name}")


def row_id(table: Table) -> str:
    """Returns the id column that every row of this table has. Ids begin with the time."""
    return "cell_id" if "cell_id" in table.unique else "run_id"


#: DuckDB's message when a query needs a table that has no view.
_MISSING = re.compile(r"Table with name (\w+) does not exist")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A results file that is attached as `alias`, if it exists. `waiting` are the tables of which its spool has rows,
    None for an empty spool; `left_to_others` are runs that are taken from another file."""

    path: Path
    survey: Survey = field(default_factory=Survey)
    alias: str = "file"
    waiting: tuple[Table, ...] | None = None
    left_to_others: tuple[str, ...] = ()


def make_views(con: DuckDBPyConnection, members: Sequence[Member], made: dict[str, str]) -> bool:
    """Makes one view a table over all members; returns False when all spools are empty.

    `made` are the views that the connection has, by table, as SQL. Those that would be the same stay."""
    read = _share_runs(con, [_read_spool(con, member) for member in members])
    damaged = {name for member in members for name in member.survey.damaged}
    statements = []
    for table in TABLES.values():
        if table.name in damaged:
            statements.append(f"DROP VIEW IF EXISTS memory.main.{table.name}")
            made.pop(table.name, None)
            continue
        nothing = "SELECT " + ", ".join(f"NULL::{c.sql_type} AS {c.name}" for c in table.columns) + " WHERE false"
        view = " UNION ALL ".join(part for member in read for part in _parts(table, member)) or nothing
        if made.get(table.name) != view:
            statements.append(f"CREATE OR REPLACE VIEW memory.main.{table.name} AS {view}")
            made[table.name] = view
    con.execute("; ".join(["BEGIN", *statements, "COMMIT"]))
    return any(member.waiting is not None for member in read)


def _share_runs(con: DuckDBPyConnection, members: list[Member]) -> list[Member]:
    """Returns the members, each of which leaves the runs to others of which these have more cells."""
    counts = Counter(run for member in members for run in member.survey.runs)
    shared = sorted(run for run, count in counts.items() if count > 1)
    if not shared:
        return members
    best: dict[str, tuple[int, str]] = {}
    for member in members:
        rows = " UNION ALL ".join(f"SELECT run_id FROM ({part})" for table in OWNERS for part in _parts(table, member))
        known = con.execute(f"SELECT run_id::VARCHAR, count(*) FROM ({rows}) GROUP BY 1").fetchall() if rows else ()
        for run, count in {**dict.fromkeys(member.survey.runs, 0), **dict(known)}.items():
            best[run] = max(best.get(run, (-1, "")), (count, member.alias))
    left = {member.alias: tuple(run for run in shared if best[run][1] != member.alias) for member in members}
    return [replace(member, left_to_others=left[member.alias]) for member in members]


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


def _read_spool(con: DuckDBPyConnection, member: Member) -> Member:
    """Stages the rows of a member's spool that its file lacks; returns the member with the tables that have some."""
    documents, tables, spool = [], list(TABLES.values()), Spool(member.path)
    for file in spool.files() + spool.plans():
        with contextlib.suppress(ValueError, OSError):  # broken, not ours to read, or just removed
            documents.append(load_document(file))
    if not documents:
        return member
    present = member.survey.stored.keys() - member.survey.damaged.keys()
    try:
        staged = stage(con, documents, tables, present=present, alias=member.alias)
    except UNREADABLE:
        readable = []
        for document in documents:
            with contextlib.suppress(*UNREADABLE):
                stage(con, [document], tables, present={})
                readable.append(document)
        documents, staged = readable, stage(con, readable, tables, present=present, alias=member.alias)
    runs = select_published(documents, member.survey.published)
    for table in staged:
        con.execute(f"DELETE FROM temp.main.spool_{table.name} WHERE ({valid(table, published=runs)}) IS NOT TRUE")
        con.execute(f"DROP TABLE IF EXISTS temp.main.{member.alias}_{table.name}")
        con.execute(f"ALTER TABLE temp.main.spool_{table.name} RENAME TO {member.alias}_{table.name}")
    return replace(member, waiting=tuple(staged))


def _parts(table: Table, member: Member) -> list[str]:
    """Returns queries of a member's rows: those of its file and those of its spool."""
    parts, names, known = [], ", ".join(column.name for column in table.columns), member.survey
    if table.name in known.stored and (known.rows.get(table.name) or member.alias == "file"):
        rows = select_stored_rows(table, known.stored[table.name], source=f"{member.alias}.main.{table.name}")
        only = f" WHERE {valid(table, published=known.published)}" if table.name in known.left_out else ""
        parts.append(f"SELECT * FROM ({rows}){only}" if only else rows)
    if table in (member.waiting or ()):
        parts.append(f"SELECT {names} FROM temp.main.{member.alias}_{table.name}")
    if not member.left_to_others:
        return parts
    others = ", ".join(f"{quote(run)}::UUID" for run in member.left_to_others)
    return [f"SELECT * FROM ({part}) WHERE run_id NOT IN ({others})" for part in parts]
