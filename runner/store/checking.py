"""What is wrong with a results file: pages that cannot be read, rows that contradict one another, what its spool holds.

    >>> check_file(Path("data/results.duckdb")).problems
    (Problem(kind='orphan', sentence='3 of timings belong to no cell.', repair='They are removed.'),)

Every value of every table is read once. Nothing is changed; `runner.store.repairing` repairs. Limits: ten million
samples take a minute; a value that is wrong and possible looks like any other.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb
from duckdb import DuckDBPyConnection

from runner.schema import DONE, TABLES, Table
from runner.store.attached import (
    attach,
    busy_error,
    connect,
    fetch_count,
    format_reason,
    is_damage,
    list_unknown,
    quote,
    select_stored_rows,
)
from runner.store.contract import find_problems
from runner.store.database import READER_PATIENCE_S
from runner.store.spool import Spool
from runner.store.staging import UNREADABLE, is_newer, load_document
from runner.store.survey import Survey, survey

#: The kinds of problems, the worst first. Of `incomplete` and `doubled` ones the rows are kept.
Kind = Literal["damaged", "impossible", "duplicate", "orphan", "incomplete", "doubled", "spool"]
#: How many different words about one table a sentence names.
_MAX_NAMED = 3

#: The beginning of the name of the folder in which a repair builds a new file.
REPAIRING = ".stepscope-repair-"
#: The columns of tables by name.
Columns = Mapping[str, frozenset[str]]

STORED = tuple(table for table in TABLES.values() if table.stored)
#: Tables of one row a cell, to which the rows of all others with a `cell_id` belong.
OWNERS = tuple(table for table in STORED if table.unique == ("cell_id",))


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong, and what a repair does about it; empty where it does nothing."""

    kind: Kind
    sentence: str
    repair: str = ""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was found: the rows by table, problems, and notes about what is unusual but allowed."""

    rows: dict[str, int]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def check_file(path: Path) -> Checked:
    """Reads the whole file and its spool. Raises DatabaseBusy when a writer holds the file, DatabaseForeign when it is
    no results file or cannot be opened at all."""
    spool, surveyed, problems, notes = Spool(path), Survey(), list[Problem](), list[str]()
    with spool.lock("shared", patience_s=READER_PATIENCE_S) as locked:
        if not locked:
            raise busy_error(path)
        if path.exists():
            surveyed = survey(path, deadline=time.monotonic() + READER_PATIENCE_S)
            damaged = {**surveyed.damaged, **find_damage(path, surveyed)}
            problems += [
                Problem(
                    kind="damaged",
                    sentence=f"{name} cannot be read: {why}.",
                    repair="What can be read is kept, the rest is lost.",
                )
                for name, why in damaged.items()
            ]
            with connect(path) as con, attach(con, path, access="READ_ONLY", deadline=time.monotonic()):
                readable = {name: columns for name, columns in surveyed.stored.items() if name not in damaged}
                problems += _find_wrong_rows(con, surveyed, readable)
        problems += _check_spool(path, spool)
        notes += _find_notes(spool, surveyed)
    return Checked(rows=dict(surveyed.rows), problems=tuple(problems), notes=tuple(notes))


def list_folders(path: Path) -> list[Path]:
    """Returns the folders, beside the file, of repairs that run or were killed."""
    return sorted(path.parent.glob(f"{REPAIRING}{path.name}-*"))


def find_damage(path: Path, surveyed: Survey) -> dict[str, str]:
    """Returns why tables cannot be read to their end, by table."""
    damaged, left = dict[str, str](), [name for name, rows in surveyed.rows.items() if rows]
    while left:  # damage ends a connection, and the next one goes on behind it
        try:
            with connect(path) as con, attach(con, path, access="READ_ONLY", deadline=time.monotonic()):
                while left:
                    con.execute(f"SELECT bit_xor(hash(t)) FROM file.main.{left[0]} AS t").fetchall()
                    left.pop(0)
        except (duckdb.Error, UnicodeDecodeError) as error:
            if not left or not is_damage(error):
                raise
            damaged[left.pop(0)] = format_reason(error)
    return damaged


def without_cell(table: Table, readable: Columns) -> str:
    """Returns the SQL condition of a row of `table` whose cell is not in the attached file, of which these tables can
    be read; `false` for a row that belongs to no cell."""
    owners = [owner.name for owner in OWNERS if owner.name in readable]
    if "cell_id" not in table.names or table in OWNERS or not owners:
        return "false"
    cells = " UNION ALL ".join(f"SELECT cell_id FROM file.main.{name}" for name in owners)
    return f"cell_id NOT IN ({cells})"


def without_run(table: Table, readable: Columns) -> str:
    """Returns the SQL condition of a row of `table` whose run is not in the attached file; `false` for a row that
    belongs to a cell, whose run counts."""
    belongs = table in OWNERS or "cell_id" not in table.names
    if not belongs or table.name == "runs" or "runs" not in readable or "run_id" not in readable[table.name]:
        return "false"
    return "run_id NOT IN (SELECT run_id FROM file.main.runs)"


def repeated(table: Table) -> str:
    """Returns a query of the `rowid` of all rows but the first of those with equal ids."""
    ids = ", ".join(table.unique)
    numbered = f"SELECT rowid AS place, row_number() OVER (PARTITION BY {ids} ORDER BY rowid) AS number"
    return f"SELECT place FROM ({numbered} FROM file.main.{table.name}) WHERE number > 1"


def _find_wrong_rows(con: DuckDBPyConnection, surveyed: Survey, readable: Columns) -> Iterator[Problem]:
    for table in [TABLES[name] for name in readable if surveyed.rows.get(name)]:
        if table.name in surveyed.left_out:
            stored = f"({select_stored_rows(table, readable[table.name])})"
            wrong = find_problems(con, table, stored, published=surveyed.published)
            count, named = surveyed.left_out[table.name], "; ".join(wrong[:_MAX_NAMED])
            yield Problem(
                kind="impossible",
                sentence=f"{count:,} rows of {table.name} hold what their columns cannot: {named}.",
                repair="They are removed.",
            )
        if count := fetch_count(con, f"SELECT count(*) FROM ({repeated(table)})"):
            ids = ", ".join(table.unique)
            sentence = f"{count:,} rows of {table.name} repeat the {ids} of an earlier one."
            yield Problem(kind="duplicate", sentence=sentence, repair="The first of each is kept.")
        rows = f"FROM file.main.{table.name}"
        if count := fetch_count(con, f"SELECT count(*) {rows} WHERE {without_cell(table, readable)}"):
            sentence = f"{count:,} rows of {table.name} belong to no cell of the file."
            yield Problem(kind="orphan", sentence=sentence, repair="They are removed.")
        if count := fetch_count(con, f"SELECT count(*) {rows} WHERE {without_run(table, readable)}"):
            sentence = f"{count:,} rows of {table.name} belong to no run of the file."
            repair = "Their run is added, with all that is unknown of it missing."
            yield Problem(kind="orphan", sentence=sentence, repair=repair)
    yield from _find_torn_cells(con, readable)


def _find_torn_cells(con: DuckDBPyConnection, readable: Columns) -> Iterator[Problem]:
    """Yields what no sweep leaves behind: measured cells without times, and cells measured twice in one round."""
    if not {"runs", "timings"} <= readable.keys():
        return
    measured = "SELECT run_id FROM file.main.runs WHERE coalesce(source, 'measured') = 'measured'"
    done = ", ".join(map(quote, sorted(DONE)))
    for table in [table for table in STORED if table.key and table.name in readable]:
        rows = f"FROM file.main.{table.name} AS cell WHERE run_id IN ({measured})"
        if table.timed:
            timed = "SELECT cell_id FROM file.main.timings"
            count = fetch_count(con, f"SELECT count(*) {rows} AND status = 'ok' AND cell_id NOT IN ({timed})")
            if count:
                sentence = f"{count:,} cells of {table.name} ended ok and have no times."
                yield Problem(kind="incomplete", sentence=sentence)
        again = f"SELECT 1 {rows} AND status IN ({done}) GROUP BY run_id, cell_key, round HAVING count(*) > 1"
        if count := fetch_count(con, f"SELECT count(*) FROM ({again})"):
            sentence = f"{count:,} cells of {table.name} were measured more than once in one round of a run."
            yield Problem(kind="doubled", sentence=sentence)


def _check_spool(path: Path, spool: Spool) -> Iterator[Problem]:
    """Yields what is left over in the spool, which an ingest would set aside or has."""
    broken = [file.name for file in spool.files() if not _is_readable(file)]
    if broken:
        sentence = f"{len(broken)} files of {spool.folder.name} are no finished cells: {_name(broken)}."
        yield Problem(kind="spool", sentence=sentence, repair="They are set aside as *.bad.")
    aside = spool.set_aside_files()
    if aside:
        names = _name([file.name for file in aside])
        yield Problem(kind="spool", sentence=f"{len(aside)} files of {spool.folder.name} were set aside: {names}.")
    leftovers = [*spool.leftovers(), *list_folders(path)]
    if leftovers:
        sentence = f"{len(leftovers)} files of killed programs are left over: {_name([f.name for f in leftovers])}."
        yield Problem(kind="spool", sentence=sentence, repair="They are removed.")


def _name(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED])


def _is_readable(file: Path) -> bool:
    try:
        load_document(file)
    except FileNotFoundError:
        return True  # it has just been ingested
    except UNREADABLE:
        return False
    return True


def _find_notes(spool: Spool, surveyed: Survey) -> Iterator[str]:
    missing = {name: table.names - surveyed.stored[name] for name, table in TABLES.items() if name in surveyed.stored}
    columns, tables = sum(map(len, missing.values())), sum(table.name not in surveyed.stored for table in STORED)
    if surveyed.stored and (columns or tables):
        yield f"An older Stepscope made it: it gains {columns} columns and {tables} tables with the next sweep."
    if unknown := list_unknown(surveyed.stored):
        yield f"A newer Stepscope wrote it ({_name(unknown)}): nothing is added to it here. Update Stepscope."
    waiting = [file for file in spool.files() if _is_readable(file)]
    if waiting:
        newer = sum(is_newer(load_document(file)) for file in waiting)
        later = f", {newer} of them for a newer Stepscope" if newer else ""
        yield f"{len(waiting)} finished cells wait in {spool.folder.name}{later}; readers see them."
    if plans := len(spool.plans()):
        sweeps = "1 sweep is" if plans == 1 else f"{plans} sweeps are"
        yield f"{sweeps} running or interrupted; the same command goes on."
