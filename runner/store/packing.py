"""The rows of a results file as Parquet files, small enough for git, and a results file made of them.

    >>> pack(Path("h200.duckdb"), Path("data/reference/h200"))          # bytes by table
    {'runs': 9120, 'steps': 31003, 'timings': 40211, 'samples': 812204}
    >>> unpack(Path("data/reference/h200"), Path("h200.duckdb"))

One file a table, for each table that has rows. Equal rows give equal bytes with one version of DuckDB. Rows are checked
on both ways as those of any foreign file: names, types, the contract, ids. Limits: rows are sorted in memory, at most
2 GB of them.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import DatabaseForeign, StoreError, UsageError
from runner.schema import TABLES, Table
from runner.store.attached import connect, fetch_count, foreign_error, format_reason, quote, select_known
from runner.store.contract import check, check_unique
from runner.store.database import open_writer
from runner.store.extraction import MEMORY, extract
from runner.store.survey import select_runs
from runner.temporary import temporary_folder

ENDING = ".parquet"
#: One thread writes groups of rows in one order. The second version of the format halves columns of times.
_ONE_THREAD = "SET threads = 1"
_FORMAT = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19, PARQUET_VERSION v2"
_PATIENCE_S = 10.0
_DO = "Take the folder from git again, or pack it again: python -m runner export FOLDER --parquet."


def pack(source: Path, folder: Path) -> dict[str, int]:
    """Writes `<table>.parquet` into the folder for each table that has rows, in place of those of an earlier packing;
    returns the bytes by table, the most first.

    Raises UsageError for a folder with anything else in it, StoreError where it cannot be written, and what
    `runner.store.extraction.extract` raises; then the folder is as it was."""
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
    return (path / f"runs{ENDING}").is_file()


def unpack(folder: Path, path: Path) -> None:
    """Makes the results file `path` of a packed folder. Raises DatabaseForeign for a file of the folder that cannot be
    read or is of no table, RowsRefused for rows that break the contract, StoreError; then the new file is of no use."""
    files = sorted(folder.absolute().glob(f"*{ENDING}"))
    with open_writer(path.absolute(), patience_s=_PATIENCE_S, folder=folder.absolute()) as con:
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
