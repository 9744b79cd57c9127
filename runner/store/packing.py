"""A results file written elsewhere: its rows as Parquet files, small enough for git, and back; a whole copy of it.

    >>> pack(Path("h200.duckdb"), Path("data/reference/h200"))          # bytes by table
    {'runs': 9120, 'steps': 31003, 'timings': 40211, 'samples': 812204}
    >>> unpack(Path("data/reference/h200"), Path("h200.duckdb"))

One file a table, for each table that has rows. Equal rows give equal bytes with one version of DuckDB. Rows are checked
on both ways as those of any foreign file: names, types, the contract, ids. Limits: rows are sorted in memory, at most
2 GB of them.

    >>> copy_file(Path("data/results.duckdb"), Path("backup.duckdb"))

A copy is whole at any moment, also while a sweep adds to the file. A plain copy of a file in use may be unusable:
DuckDB writes blocks and its log in an order that a copying program does not know, and the latest cells are in the
spool. Here DuckDB reads the file as it was at one moment, and adds the cells of the spool at that moment.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import DatabaseForeign, DatabaseMissing, StoreError, UsageError
from runner.places import check_place
from runner.schema import TABLES, Table
from runner.store.attached import (
    attach,
    busy_error,
    connect,
    fetch_count,
    foreign_error,
    format_reason,
    is_damage,
    is_refused,
    quote,
    select_known,
)
from runner.store.contract import check, check_unique, select_runs
from runner.store.database import PATIENCE_S, ingest, open_writer
from runner.store.merging import MEMORY, extract
from runner.store.spool import Spool, sync_folder
from runner.temporary import temporary_folder

ENDING = ".parquet"
#: One thread writes groups of rows in one order. The second version of the format halves columns of times.
_ONE_THREAD = "SET threads = 1"
_FORMAT = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19, PARQUET_VERSION v2"
_DO = "Take the folder from git again, or pack it again: python -m runner export FOLDER --parquet."


def pack(source: Path, folder: Path) -> dict[str, int]:
    """Writes `<table>.parquet` into the folder for each table that has rows, in place of those of an earlier packing;
    returns the bytes by table, the most first.

    Raises UsageError for a folder with anything else in it, StoreError where it cannot be written, and what
    `runner.store.merging.extract` raises; then the folder is as it was."""
    folder = folder.absolute()
    before = _list_before(folder)
    with temporary_folder("pack") as temporary:
        (raw := temporary / "raw").mkdir()
        (packed := temporary / "packed").mkdir()
        names = extract(source.absolute(), raw)
        with connect(folder=temporary, limits=(_ONE_THREAD, MEMORY)) as con:
            for name in names:
                rows = f"SELECT * FROM read_parquet({quote(f'{raw / name}{ENDING}')}) ORDER BY {_order(TABLES[name])}"
                con.execute(f"COPY ({rows}) TO {quote(f'{packed / name}{ENDING}')} ({_FORMAT})")
        sizes = {file.stem: file.stat().st_size for file in packed.iterdir()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(packed / f"{name}{ENDING}", folder / f"{name}{ENDING}")
            for file in before - {f"{name}{ENDING}" for name in names}:
                (folder / file).unlink()
        except OSError as error:
            do = "Name a folder with room, where you may write."
            raise StoreError(f"{folder} cannot be written: {error.strerror}.", do=do) from error
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def is_packed(path: Path) -> bool:
    """Returns whether the path is a folder that `pack` wrote."""
    return os.path.lexists(path / f"runs{ENDING}")


def unpack(folder: Path, path: Path) -> None:
    """Makes the results file `path` of a packed folder. Raises DatabaseForeign for a file of the folder that cannot be
    read or is of no table, RowsRefused for rows that break the contract, StoreError; then the new file is of no use."""
    files = sorted(folder.absolute().glob(f"*{ENDING}"))
    with open_writer(path.absolute(), patience_s=PATIENCE_S, folder=folder.absolute()) as con:
        published = select_runs(_find_published(con, files))
        con.begin()
        for file in files:
            if file.stem not in TABLES or not TABLES[file.stem].stored:
                raise foreign_error(file, f"there is no table {file.stem}")
            try:
                _insert(con, TABLES[file.stem], file, published=published)
            except duckdb.Error as error:
                raise _unreadable(file, error) from error
        con.commit()


def _list_before(folder: Path) -> set[str]:
    """Returns the names of the files of an earlier packing. Raises UsageError where there are others."""
    if not folder.exists():
        return set()
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else {folder.name}
    if others := sorted(names - {f"{name}{ENDING}" for name in TABLES}):
        expected = "a new folder, or one with nothing but packed tables"
        raise UsageError(f"{folder} is no folder for Parquet files: {others[0]} is there.", expected=expected)
    return names


def _order(table: Table) -> str:
    """Returns the terms of an ORDER BY that leaves no ties: the columns that identify a row."""
    return ", ".join(table.unique)


def _find_published(con: DuckDBPyConnection, files: Sequence[Path]) -> list[str]:
    """Returns the ids of the published runs, whose cells need not state their whole key."""
    runs = next((file for file in files if file.stem == "runs"), None)
    if runs is None:
        return []
    try:
        query = f"SELECT run_id::VARCHAR FROM read_parquet({quote(str(runs))}) WHERE source = 'published'"
        return [run for (run,) in con.execute(query).fetchall()]
    except duckdb.Error as error:
        raise _unreadable(runs, error) from error


def _insert(con: DuckDBPyConnection, table: Table, file: Path, *, published: str) -> None:
    source = f"read_parquet({quote(str(file))})"
    types = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE FROM {source}").fetchall()}
    for column in table.columns:
        if types.get(column.name, column.sql_type) != column.sql_type:
            reason = f"{table.name}.{column.name} is of the type {types[column.name][:60]}, not {column.sql_type}"
            raise foreign_error(file, reason)
    if missing := set(table.unique) - types.keys():
        raise foreign_error(file, f"{table.name} has no {', '.join(sorted(missing))}")
    rows = f"({select_known(table, frozenset(types), source=source)})"
    check(con, table, rows, where=file, published=published)
    check_unique(con, table, rows, where=file)
    names = ", ".join(column.name for column in table.columns)
    fetch_count(con, f"INSERT INTO file.main.{table.name} ({names}) FROM {rows}")


def _unreadable(file: Path, error: duckdb.Error) -> DatabaseForeign:
    return DatabaseForeign(f"{file} cannot be read: {format_reason(error)}.", expected="a packed table", do=_DO)


def copy_file(path: Path, out: Path) -> int:
    """Writes `out`, with all that the file and its spool hold, and returns how many cells came from the spool.

    Raises UsageError where `out` is there already, DatabaseMissing, DatabaseBusy, DatabaseForeign for a file that
    cannot be read to its end, StoreError where there is no room; then there is no `out`."""
    path, out, spool = path.absolute(), out.absolute(), Spool(path)
    check_place(path)
    if os.path.lexists(out):
        raise UsageError(f"{out} is there already.", expected="the name of a new file")
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".stepscope-copy-", dir=out.parent) as name,
            spool.lock("shared", patience_s=PATIENCE_S) as locked,
        ):
            if not locked:
                raise busy_error(path)
            if not path.exists() and not spool.files():
                raise DatabaseMissing(f"{path} does not exist.", do="Name a results file with --db.")
            copy = Path(name, "copy.duckdb")
            if path.exists():
                _copy_database(path, copy)
            to = Spool(copy)
            spool.check_readable()
            files = spool.files()
            if files:
                to.folder.mkdir(parents=True)
            for file in files:
                shutil.copy2(file, to.folder / file.name)
            waiting = len(files)
            while ingest(copy, patience_s=PATIENCE_S):
                pass
            copy.rename(out)
            sync_folder(out.parent)
    except OSError as error:
        do = "Name a place with room for the whole file, where you may write."
        raise StoreError(f"{out} cannot be written: {error.strerror}.", do=do) from error
    return waiting


def _copy_database(path: Path, copy: Path) -> None:
    """Copies every table of the file, those of others included, as they are at this moment."""
    try:
        with (
            connect(path, copy) as con,
            attach(con, path, access="READ_ONLY", deadline=time.monotonic() + PATIENCE_S),
        ):
            con.execute(f"ATTACH {quote(str(copy))} AS copy (TYPE duckdb, STORAGE_VERSION 'v1.2.0')")
            con.execute("COPY FROM DATABASE file TO copy")
            con.execute("DETACH copy")
    except (duckdb.Error, UnicodeDecodeError) as error:
        if isinstance(error, duckdb.TransactionException) or is_refused(error) or "CHECKPOINT" in str(error):
            raise StoreError(
                f"{copy.parent.parent} has no room for a copy of {path}.", do="Name another place."
            ) from error
        if is_damage(error):
            raise foreign_error(path, format_reason(error)) from error
        raise
