"""The tables as a reader sees them: the rows of files and their spools as one view a table, in `memory.main`.

    >>> make_views(con, [Member(path=path, survey=survey)], {})      # a file surveyed by `runner.store.survey`
    >>> con.execute("SELECT count(*) FROM steps").fetchone()
    (44,)

A view has all columns of its table; columns that a file lacks hold the default of an axis or NULL. Rows that break
the contract are left out. A damaged table has no view, so that only the queries that need it fail (`explain_damage`
makes their error).
"""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from duckdb import DuckDBPyConnection

from runner.errors import DatabaseDamaged
from runner.schema import TABLES, Table
from runner.store.attached import quote, select_stored_rows
from runner.store.contract import valid
from runner.store.spool import Spool
from runner.store.staging import UNREADABLE, Document, load_document, select_published, stage
from runner.store.survey import Survey

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
    read = [member if member.waiting is not None else read_spool(con, member) for member in members]
    damaged = {name for member in members for name in member.survey.damaged}
    for table in TABLES.values():
        if table.name in damaged:
            con.execute(f"DROP VIEW IF EXISTS memory.main.{table.name}")
            made.pop(table.name, None)
        elif made.get(table.name) != (view := _view(table, read)):
            con.execute(f"CREATE OR REPLACE VIEW memory.main.{table.name} AS {view}")
            made[table.name] = view
    return any(member.waiting is not None for member in read)


def choose_files(con: DuckDBPyConnection, members: Sequence[Member]) -> list[Member]:
    """Returns the members, each of which leaves the runs to others of which these have more cells."""
    counts = Counter(run for member in members for run in member.survey.runs)
    shared = sorted(run for run, count in counts.items() if count > 1)
    if not shared:
        return list(members)
    read = [read_spool(con, member) for member in members]
    best: dict[str, tuple[int, str]] = {}
    for member in read:
        for run, count in _count_cells(con, member, shared).items():
            best[run] = max(best.get(run, (-1, "")), (count, member.alias))
    return [
        replace(member, left_to_others=tuple(run for run in shared if best[run][1] != member.alias)) for member in read
    ]


def _count_cells(con: DuckDBPyConnection, member: Member, runs: Sequence[str]) -> Mapping[str, int]:
    """Returns how many cells of these runs a member has, by run."""
    tables = [table for table in TABLES.values() if table.unique == ("cell_id",)]
    rows = " UNION ALL ".join(f"SELECT run_id FROM ({part})" for table in tables for part in _parts(table, member))
    known = f"SELECT run_id, count(*) FROM ({rows or 'SELECT NULL AS run_id WHERE false'}) GROUP BY run_id"
    counts = {str(run): int(count) for run, count in con.execute(known).fetchall()}
    return {run: counts.get(run, 0) for run in runs if run in counts or run in member.survey.runs}


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


def read_spool(con: DuckDBPyConnection, member: Member) -> Member:
    """Stages the rows of a member's spool that its file lacks; returns the member with the tables that have some."""
    documents, tables, spool = [], list(TABLES.values()), Spool(member.path)
    for file in spool.files() + spool.plans():
        with contextlib.suppress(ValueError, FileNotFoundError):  # broken, or a plan that has just been removed
            documents.append(load_document(file))
    if not documents:
        return member
    present = member.survey.stored.keys() - member.survey.damaged.keys()
    try:
        staged = stage(con, documents, tables, present=present, alias=member.alias)
    except UNREADABLE:
        documents = [document for document in documents if _is_readable(con, document)]
        staged = stage(con, documents, tables, present=present, alias=member.alias)
    runs = select_published(documents, member.survey.published)
    for table in staged:
        con.execute(f"DELETE FROM temp.main.spool_{table.name} WHERE ({valid(table, published=runs)}) IS NOT TRUE")
        con.execute(f"DROP TABLE IF EXISTS temp.main.{member.alias}_{table.name}")
        con.execute(f"ALTER TABLE temp.main.spool_{table.name} RENAME TO {member.alias}_{table.name}")
    return replace(member, waiting=tuple(staged))


def _is_readable(con: DuckDBPyConnection, document: Document) -> bool:
    try:
        stage(con, [document], list(TABLES.values()), present={})
    except UNREADABLE:
        return False
    return True


def _view(table: Table, members: Sequence[Member]) -> str:
    nothing = "SELECT " + ", ".join(f"NULL::{c.sql_type} AS {c.name}" for c in table.columns)
    return " UNION ALL ".join(part for member in members for part in _parts(table, member)) or f"{nothing} WHERE false"


def _parts(table: Table, member: Member) -> list[str]:
    """Returns queries of a member's rows: those of its file and those of its spool."""
    parts, names, known = [], ", ".join(column.name for column in table.columns), member.survey
    if table.name in known.stored and (known.rows.get(table.name) or member.alias == "file"):
        rows = select_stored_rows(table, known.stored[table.name], alias=member.alias)
        only = f" WHERE {valid(table, published=known.published)}" if table.name in known.left_out else ""
        parts.append(f"SELECT * FROM ({rows}){only}" if only else rows)
    if table in (member.waiting or ()):
        parts.append(f"SELECT {names} FROM temp.main.{member.alias}_{table.name}")
    if not member.left_to_others:
        return parts
    others = ", ".join(f"{quote(run)}::UUID" for run in member.left_to_others)
    return [f"SELECT * FROM ({part}) WHERE run_id NOT IN ({others})" for part in parts]
