"""Repairs a results file: what `runner.store.checking` finds and says how to repair, with a copy of the file kept.

    >>> repair_file(Path("data/results.duckdb"))
    PosixPath('data/results.duckdb.before-repair-20261122-203000')

Tables that cannot be read are built anew from what of them can be; then rows that contradict the contract or one
another are removed, and runs that are missing are added, in one transaction; then the spool is ingested. A repair that
is killed has changed nothing or has left its copy, and can be repeated.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import StoreError
from runner.schema import TABLES, Table
from runner.store.attached import (
    attach,
    busy_error,
    connect,
    default_value,
    fetch_count,
    foreign_error,
    is_damage,
    list_unknown,
    load_columns,
    newer_error,
    quote,
)
from runner.store.checking import (
    REPAIRING,
    STORED,
    find_damage,
    list_folders,
    repeated,
    without_cell,
    without_run,
)
from runner.store.contract import valid
from runner.store.database import ingest, open_writer
from runner.store.spool import Spool, sync_folder
from runner.store.survey import survey

#: The longest that a repair waits to be alone with the file (s).
PATIENCE_S = 10.0
#: How many rows of a damaged table are given up together: DuckDB reads so many at once.
ROWS_AT_ONCE = 2048


def repair_file(path: Path) -> Path | None:
    """Repairs the file and its spool, and returns the copy of the file as it was; None where there was no file.

    Raises DatabaseBusy, DatabaseForeign for a file of a newer Stepscope or one that cannot be opened, and StoreError
    where there is no room for the copy; then nothing was changed."""
    path = path.resolve()
    copy = _keep_copy(path) if path.exists() else None
    if copy is not None:
        damaged = find_damage(path, survey(path, deadline=time.monotonic() + PATIENCE_S))
        if damaged:
            _rebuild(path)
        _remove_wrong_rows(path)
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
    with Spool(path).lock("exclusive", patience_s=PATIENCE_S) as locked:
        if not locked:
            raise busy_error(path)
        with connect(path) as con, attach(con, path, access="READ_ONLY", deadline=time.monotonic() + PATIENCE_S):
            if unknown := list_unknown(load_columns(con, path)):
                raise newer_error(path, unknown)
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
        with Spool(path).lock("exclusive", patience_s=PATIENCE_S) as locked:
            if not locked:
                raise busy_error(path)
            rescued = {table: list(_rescue(path, table, folder)) for table in _stored_columns(path)}
            with open_writer(new, patience_s=0.0, folder=folder) as con:
                con.begin()
                for table, files in rescued.items():
                    if files:
                        con.execute(f"INSERT INTO file.main.{table} BY NAME FROM read_parquet({_list(files)})")
                con.commit()
            path.with_name(path.name + ".wal").unlink(missing_ok=True)
            new.rename(path)
            sync_folder(path.parent)


def _stored_columns(path: Path) -> Mapping[str, set[str]]:
    with connect(path) as con, attach(con, path, access="READ_ONLY", deadline=time.monotonic() + PATIENCE_S):
        columns = load_columns(con, path)
        others = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'file'").fetchall()
    unknown = sorted({name for (name,) in others} - columns.keys())
    if unknown:
        raise foreign_error(path, f"it also holds {', '.join(unknown)}, which a repair would lose")
    return columns


def _rescue(path: Path, table: str, folder: Path) -> Iterator[Path]:
    """Writes what can be read of a table as Parquet files, and yields them. Rows are given up in pieces of
    ROWS_AT_ONCE at least."""
    with connect(path) as con, attach(con, path, access="READ_ONLY", deadline=time.monotonic() + PATIENCE_S):
        total = fetch_count(con, f"SELECT count(*) FROM file.main.{table}")
    ranges = [(0, total)]
    while ranges:
        start, end = ranges.pop()
        file = folder / f"{table}-{start}.parquet"
        if start >= end:
            continue
        if _copy_rows(path, f"FROM file.main.{table} WHERE rowid >= {start} AND rowid < {end}", file):
            yield file
        elif end - start > ROWS_AT_ONCE:
            middle = start + max((end - start) // 2 // ROWS_AT_ONCE, 1) * ROWS_AT_ONCE
            ranges += [(middle, end), (start, middle)]


def _copy_rows(path: Path, rows: str, file: Path) -> bool:
    """Writes the rows to a Parquet file; returns False when some of them cannot be read, which ends the connection."""
    try:
        with (
            connect(path, folder=file.parent) as con,
            attach(con, path, access="READ_ONLY", deadline=time.monotonic() + PATIENCE_S),
        ):
            con.execute(f"COPY ({rows}) TO {quote(str(file))} (FORMAT parquet)")
    except (duckdb.Error, UnicodeDecodeError) as error:
        if not is_damage(error):
            raise
        return False
    return True


def _remove_wrong_rows(path: Path) -> None:
    """Removes in one transaction the rows that break the contract, repeat others, or belong to no cell, and adds the
    runs that rows name and the file lacks."""
    published = survey(path, deadline=time.monotonic() + PATIENCE_S).published
    with open_writer(path, patience_s=PATIENCE_S) as con:
        columns = {name: frozenset(names) for name, names in load_columns(con, path).items()}
        con.begin()
        for table in STORED:
            _delete(con, table, f"({valid(table, published=published)}) IS NOT TRUE")
            _delete(con, table, f"rowid IN ({repeated(table)})")
        for table in STORED:
            _delete(con, table, without_cell(table, columns))
        for table in STORED:
            _add_runs(con, f"FROM file.main.{table.name} WHERE {without_run(table, columns)}")
        con.commit()


def _delete(con: DuckDBPyConnection, table: Table, condition: str) -> None:
    con.execute(f"DELETE FROM file.main.{table.name} WHERE {condition}")


def _add_runs(con: DuckDBPyConnection, rows: str) -> None:
    """Adds the runs of these rows, of which nothing but their id is known."""
    values = {c.name: default_value(c) for c in TABLES["runs"].columns if c.absent is not None}
    values |= {"sweep_key": "''"}
    con.execute(
        f"INSERT INTO file.main.runs (run_id, {', '.join(values)}) "
        f"SELECT DISTINCT run_id, {', '.join(values.values())} {rows}"
    )


def _list(files: list[Path]) -> str:
    return "[" + ", ".join(quote(str(file)) for file in files) + "]"
