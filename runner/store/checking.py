"""What is wrong with a results file: pages that cannot be read, rows that contradict one another, what its spool holds;
and the repair of that, with a copy of the file kept.

    >>> check_file(Path("data/results.duckdb")).problems
    (Problem(kind='orphan', sentence='3 rows of timings without a cell.', repair='A repair removes them.'),)

    >>> repair_file(Path("data/results.duckdb"))
    PosixPath('data/results.duckdb.before-repair-20261122-203000')

A check reads every value of every table once and changes nothing. Limits: ten million samples take a minute; a value
that is wrong and possible looks like any other. In a repair, tables that cannot be read are built anew from what of
them can be; then rows that contradict the contract or one another are removed, and runs that are missing are added, in
one transaction; then the spool is ingested. A repair that is killed has changed nothing or has left its copy, and can
be repeated.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import StoreError
from runner.formats import format_count, format_list
from runner.places import check_place
from runner.schema import DONE, STORED, TABLES, Table
from runner.store.attached import (
    Columns,
    foreign_error,
    format_reason,
    is_damage,
    list_unknown,
    load_columns,
    lock,
    open_attached,
    refuse_newer,
)
from runner.store.contract import Survey, find_problems, survey, valid
from runner.store.database import PATIENCE_S, READER_PATIENCE_S, ingest, open_writer
from runner.store.spool import SET_ASIDE, Spool, sync_folder
from runner.store.sql import default_value, fetch_count, quote, select_stored_rows
from runner.store.views import OWNERS, UNREADABLE, check_document, is_newer, load_document

#: The kinds of problems, the worst first. Of `incomplete` and `doubled` ones the rows are kept.
Kind = Literal["damaged", "impossible", "duplicate", "orphan", "incomplete", "doubled", "spool"]
#: How many different words about one table a sentence names.
_MAX_NAMED = 3

#: The beginning of the name of the folder in which a repair builds a new file.
REPAIRING = ".stepscope-repair-"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and what a repair would do about it; empty where that is nothing."""

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
    check_place(path)
    spool, surveyed, problems, notes = Spool(path), Survey(), list[Problem](), list[str]()
    with lock(path, "shared", patience_s=READER_PATIENCE_S):
        if path.exists():
            surveyed = survey(path, patience_s=READER_PATIENCE_S)
            damaged = {**surveyed.damaged, **find_damage(path, surveyed)}
            kept = "A repair keeps what can be read, and loses the rest."
            problems += [Problem("damaged", f"{name} cannot be read: {why}.", kept) for name, why in damaged.items()]
            with open_attached(path) as con:
                readable = {name: columns for name, columns in surveyed.stored.items() if name not in damaged}
                problems += _find_wrong_rows(con, surveyed, readable)
        unread = spool.find_unreadable()
        usable = {file: _is_usable(file) for file in ([] if spool.folder.name in unread else spool.files())}
        problems += _check_spool(path, spool, unread, usable)
        notes += _find_notes(spool, surveyed, [file for file in usable if usable[file] and file.name not in unread])
    return Checked(rows=dict(surveyed.rows), problems=tuple(problems), notes=tuple(notes))


def list_folders(path: Path) -> list[Path]:
    """Returns the folders, beside the file, of repairs that run or were killed."""
    return sorted(path.parent.glob(f"{REPAIRING}{path.name}-*"))


def find_damage(path: Path, surveyed: Survey) -> dict[str, str]:
    """Returns why tables cannot be read to their end, by table."""
    damaged, left = dict[str, str](), [name for name, rows in surveyed.rows.items() if rows]
    while left:  # damage ends a connection, and the next one goes on behind it
        try:
            with open_attached(path) as con:
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
    return f"SELECT rowid FROM file.main.{table.name} QUALIFY row_number() OVER (PARTITION BY {ids} ORDER BY rowid) > 1"


def _find_wrong_rows(con: DuckDBPyConnection, surveyed: Survey, readable: Columns) -> Iterator[Problem]:
    for table in [TABLES[name] for name in readable if surveyed.rows.get(name)]:
        if table.name in surveyed.left_out:
            stored = f"({select_stored_rows(table, readable[table.name])})"
            wrong = find_problems(con, table, stored, published=surveyed.published)
            count, named = surveyed.left_out[table.name], "; ".join(wrong[:_MAX_NAMED])
            said = f"{format_count(count, 'row')} of {table.name} with values that cannot be: {named}."
            invalid = f"SELECT cell_id FROM {stored} WHERE ({valid(table, published=surveyed.published)}) IS NOT TRUE"
            repair = "A repair removes them" + (_name_cells(con, readable, invalid) if table in OWNERS else "")
            yield Problem("impossible", said, f"{repair}.")
        for kind, rows, noun, said, repair in _list_checks(table, readable):
            if count := fetch_count(con, f"SELECT count(*) FROM ({rows})"):
                yield Problem(kind, f"{format_count(count, noun)} of {table.name} {said}.", repair)


def _name_cells(con: DuckDBPyConnection, readable: Columns, cells: str) -> str:
    """Returns what goes with these cells: `, with 5 rows of timings and 20 rows of samples of the same cells`."""
    counts = {
        name: fetch_count(con, f"SELECT count(*) FROM file.main.{name} WHERE cell_id IN ({cells})")
        for name, columns in readable.items()
        if "cell_id" in columns and TABLES[name] not in OWNERS
    }
    named = [f"{format_count(count, 'row')} of {name}" for name, count in counts.items() if count]
    return f", with {format_list(named)} of the same cells" if named else ""


def _list_checks(table: Table, readable: Columns) -> Iterator[tuple[Kind, str, str, str, str]]:
    """Yields kinds of wrong rows or cells of a table: a query, a noun, what is said of them, and the repair."""
    ids, rows = ", ".join(table.unique), f"FROM file.main.{table.name} AS cell WHERE"
    yield "duplicate", repeated(table), "row", f"with the {ids} of an earlier one", "A repair keeps the first of each."
    alone = f"{rows} {without_cell(table, readable)}"
    yield "orphan", alone, "row", "whose cell is not in the file", "A repair removes them."
    repair = "A repair adds their run, with all that is unknown of it missing."
    yield "orphan", f"{rows} {without_run(table, readable)}", "row", "whose run is not in the file", repair
    if not table.key or not {"runs", "timings"} <= readable.keys():
        return
    # What no sweep leaves behind.
    rows += " run_id IN (SELECT run_id FROM file.main.runs WHERE coalesce(source, 'measured') = 'measured') AND"
    if table.timed:
        untimed = f"{rows} status = 'ok' AND cell_id NOT IN (SELECT cell_id FROM file.main.timings)"
        yield "incomplete", untimed, "cell", "with status ok and no times", ""
    done = f"SELECT 1 {rows} status IN ({', '.join(map(quote, sorted(DONE)))})"
    again = f"{done} GROUP BY run_id, cell_key, round HAVING count(*) > 1"
    yield "doubled", again, "cell", "measured more than once in one round of a run", ""


def _check_spool(path: Path, spool: Spool, unread: Mapping[str, str], usable: Mapping[Path, bool]) -> Iterator[Problem]:
    """Yields what is left over in the spool, which an ingest would set aside or has."""
    if broken := [file.name for file, is_usable in usable.items() if not is_usable]:
        count = format_count(len(broken), "file")
        sentence = f"{count} of {spool.folder.name} without a finished cell: {_name(broken)}."
        yield Problem("spool", sentence, "A repair sets them aside as *.bad.")
    for name, why in unread.items():
        if name not in broken:
            inside = "" if name == spool.folder.name else f"{spool.folder.name}/"
            yield Problem("spool", f"{inside}{name} cannot be read: {why.removesuffix('.')}.")
    if aside := sorted(spool.folder.glob(f"*{SET_ASIDE}")):
        names = _name([file.name for file in aside])
        yield Problem("spool", f"{format_count(len(aside), 'file')} of {spool.folder.name} set aside: {names}.")
    if leftovers := [*spool.leftovers(), *list_folders(path)]:
        names = _name([file.name for file in leftovers])
        sentence = f"{format_count(len(leftovers), 'file')} left over by killed programs: {names}."
        yield Problem("spool", sentence, "A repair removes them.")


def _name(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED])


def _is_usable(file: Path) -> bool:
    """Returns whether a file of the spool holds rows that keep the contract, or is gone or not for this user."""
    try:
        document = load_document(file)
        if not is_newer(document):
            check_document(document, where=file)
    except (FileNotFoundError, PermissionError):
        return True
    except UNREADABLE:
        return False
    return True


def _find_notes(spool: Spool, surveyed: Survey, waiting: Sequence[Path]) -> Iterator[str]:
    missing = {name: table.names - surveyed.stored[name] for name, table in TABLES.items() if name in surveyed.stored}
    columns, tables = sum(map(len, missing.values())), sum(table.name not in surveyed.stored for table in STORED)
    if surveyed.stored and (columns or tables):
        gains = f"{format_count(columns, 'column')} and {format_count(tables, 'table')}"
        yield f"An older Stepscope made it: it gains {gains} with the next sweep."
    if unknown := list_unknown(surveyed.stored):
        yield f"A newer Stepscope wrote it ({_name(unknown)}): nothing is added to it here. Update Stepscope."
    if waiting:
        newer = sum(is_newer(load_document(file)) for file in waiting)
        later = f", {newer} of them for a newer Stepscope" if newer else ""
        cells = "1 finished cell waits" if len(waiting) == 1 else f"{len(waiting):,} finished cells wait"
        yield f"{cells} in {spool.folder.name}{later}; readers see them."
    if plans := len(spool.plans()):
        sweeps = "1 sweep is" if plans == 1 else f"{plans} sweeps are"
        yield f"{sweeps} running or interrupted; the same command goes on."


#: How many rows of a damaged table are given up together: DuckDB reads so many at once.
ROWS_AT_ONCE = 2048


def repair_file(path: Path) -> Path | None:
    """Repairs the file and its spool, and returns the copy of the file as it was; None where there was no file.

    Raises DatabaseBusy, DatabaseForeign for a file of a newer Stepscope or one that cannot be opened, and StoreError
    where there is no room for the copy; then nothing was changed."""
    path = path.resolve()
    copy = _keep_copy(path) if path.exists() else None
    if copy is not None:
        if find_damage(path, survey(path, patience_s=PATIENCE_S)):
            _rebuild(path)
        published = survey(path, patience_s=PATIENCE_S).published
        with open_writer(path, patience_s=PATIENCE_S) as con:
            columns = load_columns(con, path)
            con.begin()
            for table in STORED:
                _delete(con, table, f"({valid(table, published=published)}) IS NOT TRUE")
                _delete(con, table, f"rowid IN ({repeated(table)})")
            for table in STORED:
                _delete(con, table, without_cell(table, columns))
            # Of a run that is added, nothing but its id is known.
            values = {c.name: default_value(c) for c in TABLES["runs"].columns if c.absent is not None}
            values |= {"sweep_key": "''"}
            for table in STORED:
                con.execute(
                    f"INSERT INTO file.main.runs (run_id, {', '.join(values)}) SELECT DISTINCT run_id, "
                    f"{', '.join(values.values())} FROM file.main.{table.name} WHERE {without_run(table, columns)}"
                )
            con.commit()
    while ingest(path, patience_s=PATIENCE_S):
        pass
    Spool(path).remove_leftovers()
    for folder in list_folders(path):
        shutil.rmtree(folder)
    return copy


def _keep_copy(path: Path) -> Path:
    """Copies the file and its log while nobody writes. This process has it closed: closing a second handle would drop
    DuckDB's lock."""
    copy = path.with_name(f"{path.name}.before-repair-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    with lock(path, "exclusive", patience_s=PATIENCE_S):
        with open_attached(path, patience_s=PATIENCE_S) as con:
            refuse_newer(path, load_columns(con, path))
        try:
            for ending in ("", ".wal"):
                source = path.with_name(path.name + ending)
                if source.exists():
                    shutil.copy2(source, copy.with_name(copy.name + ending))
        except OSError as error:
            copy.unlink(missing_ok=True)
            do = "Nothing was changed. Make room, or copy the file elsewhere and repair it there."
            raise StoreError(f"No copy of {path} can be kept: {error.strerror}.", do=do) from error
    return copy


def _rebuild(path: Path) -> None:
    """Replaces the file by a new one with all rows that can be read."""
    with tempfile.TemporaryDirectory(prefix=f"{REPAIRING}{path.name}-", dir=path.parent) as name:
        folder, new = Path(name), Path(name, "new.duckdb")
        with lock(path, "exclusive", patience_s=PATIENCE_S):
            with open_attached(path, patience_s=PATIENCE_S) as con:
                columns = load_columns(con, path)
                held = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'file'").fetchall()
            if unknown := sorted({name for (name,) in held} - columns.keys()):
                raise foreign_error(path, f"it also holds {', '.join(unknown)}, which a repair would lose")
            rescued = {table: list(_rescue(path, table, folder)) for table in columns}
            with open_writer(new, patience_s=0.0, folder=folder) as con:
                con.begin()
                for table, files in rescued.items():
                    if files:
                        listed = ", ".join(quote(str(file)) for file in files)
                        con.execute(f"INSERT INTO file.main.{table} BY NAME FROM read_parquet([{listed}])")
                con.commit()
            path.with_name(path.name + ".wal").unlink(missing_ok=True)
            new.rename(path)
            sync_folder(path.parent)


def _rescue(path: Path, table: str, folder: Path) -> Iterator[Path]:
    """Writes what can be read of a table as Parquet files, and yields them. Rows are given up in pieces of
    ROWS_AT_ONCE at least."""
    with open_attached(path, patience_s=PATIENCE_S) as con:
        ranges = [(0, fetch_count(con, f"SELECT count(*) FROM file.main.{table}"))]
    while ranges:
        start, end = ranges.pop()
        file = folder / f"{table}-{start}.parquet"
        rows = f"FROM file.main.{table} WHERE rowid >= {start} AND rowid < {end}"
        try:
            with open_attached(path, folder=folder, patience_s=PATIENCE_S) as con:  # which damage ends
                con.execute(f"COPY ({rows}) TO {quote(str(file))} (FORMAT parquet)")
            yield file
        except (duckdb.Error, UnicodeDecodeError) as error:
            if not is_damage(error):
                raise
            if end - start > ROWS_AT_ONCE:
                middle = start + max((end - start) // 2 // ROWS_AT_ONCE, 1) * ROWS_AT_ONCE
                ranges += [(middle, end), (start, middle)]


def _delete(con: DuckDBPyConnection, table: Table, condition: str) -> None:
    con.execute(f"DELETE FROM file.main.{table.name} WHERE {condition}")
