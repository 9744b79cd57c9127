"""A results file written elsewhere: its rows as Parquet files, small enough for git, and back; the packed rows that
ship with Stepscope; a whole copy of a file.

    >>> pack(Path("h200.duckdb"), Path("data/reference/h200"))          # bytes by table
    {'runs': 9120, 'steps': 31003, 'timings': 40211, 'samples': 812204}
    >>> copy_file(Path("data/results.duckdb"), Path("backup.duckdb"))
    >>> choose_file()                                # no STEPSCOPE_DB, and no cell in data/results.duckdb
    PosixPath('/home/ann/.cache/stepscope/reference-1f2e3d4c5b6a7988/reference-h200.duckdb')

One file a table, for each table that has rows. Equal rows give equal bytes with one version of DuckDB. Rows are checked
on both ways as those of any foreign file: names, types, the contract, ids. Limits: rows are sorted in memory, at most
2 GB of them.

The app shows the shipped rows until a reader has rows, and compares those with them. `STEPSCOPE_REFERENCE` names
another packed folder; empty, there is no reference. A results file is built of them once for each content of the
folder, in the user's cache (`XDG_CACHE_HOME`) or, where nothing can be written there, in the temporary folder until the
process ends.

A copy is whole at any moment, also while a sweep adds to the file. A plain copy of a file in use may be unusable:
DuckDB writes blocks and its log in an order that a copying program does not know, and the latest cells are in the
spool. Here DuckDB reads the file as it was at one moment, and adds the cells of the spool at that moment.
"""

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import DatabaseForeign, DatabaseMissing, StepscopeError, StoreError, UsageError
from runner.places import SHIPPED, check_place, default_path, explained, join, split, temporary_folder
from runner.schema import TABLES, Table
from runner.store.attached import (
    check_columns,
    connect,
    foreign_error,
    format_reason,
    is_damage,
    is_refused,
    lock,
    open_attached,
)
from runner.store.contract import check, check_unique
from runner.store.database import PATIENCE_S, fingerprint, ingest, open_reader, open_writer
from runner.store.merging import MEMORY, extract
from runner.store.spool import Spool, sync_folder
from runner.store.sql import EVERY_CELL, fetch_count, quote, select_stored_rows

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
    there = [*folder.iterdir()] if folder.is_dir() else [folder] if folder.exists() else []
    before = {file.name for file in there}
    if others := sorted(before - {f"{name}{ENDING}" for name in TABLES}):
        expected = "a new folder, or one with nothing but packed tables"
        raise UsageError(f"{folder} is no folder for Parquet files: {others[0]} is there.", expected=expected)
    with temporary_folder("pack") as temporary:
        (raw := temporary / "raw").mkdir()
        (packed := temporary / "packed").mkdir()
        names = extract(source.absolute(), raw)
        with connect(folder=temporary, limits=(_ONE_THREAD, MEMORY)) as con:
            for name in names:
                order = ", ".join(TABLES[name].unique)  # which leaves no ties
                rows = f"SELECT * FROM read_parquet({quote(f'{raw / name}{ENDING}')}) ORDER BY {order}"
                con.execute(f"COPY ({rows}) TO {quote(f'{packed / name}{ENDING}')} ({_FORMAT})")
        sizes = {file.stem: file.stat().st_size for file in packed.iterdir()}
        with explained(f"{folder} cannot be written", do="Name a folder with room, where you may write."):
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(packed / f"{name}{ENDING}", folder / f"{name}{ENDING}")
            for file in before - {f"{name}{ENDING}" for name in names}:
                (folder / file).unlink()
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def is_packed(path: Path) -> bool:
    """Returns whether the path is a folder that `pack` wrote."""
    return os.path.lexists(path / f"runs{ENDING}")


def unpack(folder: Path, path: Path) -> None:
    """Makes the results file `path` of a packed folder. Raises DatabaseForeign for a file of the folder that cannot be
    read or is of no table, RowsRefused for rows that break the contract, StoreError; then the new file is of no use."""
    files = sorted(folder.absolute().glob(f"*{ENDING}"), key=lambda file: (file.stem != "runs", file))
    with open_writer(path.absolute(), patience_s=PATIENCE_S, folder=folder.absolute()) as con:
        con.begin()
        for file in files:
            if file.stem not in TABLES or not TABLES[file.stem].stored:
                raise foreign_error(file, f"there is no table {file.stem}")
            try:
                _insert(con, TABLES[file.stem], file)
            except duckdb.Error as error:
                got = f"{file} cannot be read: {format_reason(error)}."
                raise DatabaseForeign(got, expected="a packed table", do=_DO) from error
        con.commit()


#: The published runs, whose cells need not state their whole key.
_PUBLISHED = "SELECT run_id FROM file.main.runs WHERE source = 'published'"


def _insert(con: DuckDBPyConnection, table: Table, file: Path) -> None:
    source = f"read_parquet({quote(str(file))})"
    types = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE FROM {source}").fetchall()}
    check_columns(file, table, types, ids=table.unique)
    rows = f"({select_stored_rows(table, frozenset(types), source=source)})"
    check(con, table, rows, where=file, published=_PUBLISHED)
    check_unique(con, table, rows, where=file)
    names = ", ".join(column.name for column in table.columns)
    fetch_count(con, f"INSERT INTO file.main.{table.name} ({names}) FROM {rows}")


def copy_file(path: Path, out: Path) -> int:
    """Writes `out`, with all that the file and its spool hold, and returns how many cells came from the spool.

    Raises UsageError where `out` is there already, DatabaseMissing, DatabaseBusy, DatabaseForeign for a file that
    cannot be read to its end, StoreError where there is no room; then there is no `out`."""
    path, out, spool = path.absolute(), out.absolute(), Spool(path)
    check_place(path)
    if os.path.lexists(out):
        raise UsageError(f"{out} is there already.", expected="the name of a new file")
    with (
        explained(f"{out} cannot be written", do="Name a place with room for the whole file, where you may write."),
        tempfile.TemporaryDirectory(prefix=".stepscope-copy-", dir=out.parent) as name,
        lock(path, "shared", patience_s=PATIENCE_S),
    ):
        if not path.exists() and not spool.files():
            raise DatabaseMissing(f"{path} does not exist.", do="Name a results file with --db.")
        copy = Path(name, "copy.duckdb")
        if path.exists():
            _copy_database(path, copy)
        to = Spool(copy)
        spool.check_readable()
        files = spool.files()
        to.folder.mkdir(parents=True)
        for file in files:
            shutil.copy2(file, to.folder / file.name)
        try:
            while ingest(copy, patience_s=PATIENCE_S):
                pass
        except StepscopeError as error:
            got = error.got.replace(str(copy), str(path))
            raise type(error)(got, expected=error.expected, do=error.do) from error
        copy.rename(out)
        sync_folder(out.parent)
    return len(files)


def _copy_database(path: Path, copy: Path) -> None:
    """Copies every table of the file, those of others included, as they are at this moment."""
    try:
        with open_attached(path, copy, patience_s=PATIENCE_S) as con:
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


#: What commands and pages say of it.
MEASURE = "python -m runner sweep"
_NAME = re.compile(r"reference-[0-9a-f]{16}")
#: What is built again after this time is cheaper than what is kept for ever (s).
_KEPT_S = 30 * 86_400.0
#: Of the schema, too: a file that an older Stepscope built lacks columns.
_SCHEMA = repr([(table.name, column.name, column.sql_type) for table in TABLES.values() for column in table.columns])
_building = threading.Lock()
_own = contextlib.ExitStack()
atexit.register(_own.close)


def choose_file() -> Path:
    """Returns the results file that the app reads: the one that `STEPSCOPE_DB` names, else the reader's own as soon as
    it holds a cell or a published table, else the reference rows, if there are any that can be opened."""
    own = default_path()
    if os.environ.get("STEPSCOPE_DB"):
        return find_file(own)
    with contextlib.suppress(StoreError):  # a file that cannot be read is explained, not replaced
        return own if _has_rows(own.absolute(), fingerprint(own)) else find_stand_in() or own
    return own


def find_stand_in() -> Path | None:
    """Returns the results file of the reference rows for a reader who names no file. Raises StoreError."""
    return None if os.environ.get("STEPSCOPE_DB") else find_reference()


def find_file(named: Path | None = None) -> Path:
    """Returns the results file to read where this one is named, or none: a packed folder, alone or in a list, stands
    for the file that is built of it. Raises StoreError for a folder that cannot be opened."""
    return join(_build(one.absolute()) if is_packed(one) else one for one in split(named or default_path()))


def find_reference() -> Path | None:
    """Returns the file of the reference rows, None without any. Raises StoreError if they cannot be opened."""
    folder = Path(os.environ.get("STEPSCOPE_REFERENCE", SHIPPED))
    return _build(folder.absolute()) if is_packed(folder) else None


def is_reference(path: Path) -> bool:
    """Returns whether the results file was built of a packed folder."""
    return _NAME.fullmatch(path.parent.name) is not None


def describe_reference(devices: Sequence[str | None]) -> str:
    """Says whose rows these are, given the devices of the runs, after the word `reference`."""
    names = list(dict.fromkeys(with_article(name) for name in devices if name)) or ["another machine"]
    return f"rows of {', '.join(names)} that come with Stepscope, not of your machine."


def with_article(device: str) -> str:
    """Returns the name as it is said: `an NVIDIA H200`, `a Tesla V100`."""
    word = device.split()[0] if device.split() else ""
    vowels = "AEFHILMNORSX" if word.isupper() else "AEIOUaeiou"
    return f"{'an' if word[:1] in vowels else 'a'} {device}"


@lru_cache(maxsize=4)
def _has_rows(path: Path, state: str) -> bool:
    """Returns whether the file has a cell or a published table, worked out once for each `state` of it."""
    query = f"SELECT EXISTS (FROM ({EVERY_CELL})) OR EXISTS (FROM runs WHERE source = 'published')"
    try:
        with open_reader(path) as reader:
            return reader.execute(query).fetchone() == (True,)
    except DatabaseMissing:
        return False


def _build(folder: Path) -> Path:
    """Returns the results file of a packed folder, and makes it where this content has none yet."""
    files = tuple(sorted(folder.glob(f"*{ENDING}")))
    for file in files:
        check_place(file)
    with explained(f"{folder} cannot be read", do="Let this user read it (chmod a+rX)."):
        states = tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files)
        name = f"reference-{_hash(folder.name, files, states)}"
    with _building:
        cache = _find_cache()
        path = cache / name / f"reference-{folder.name}.duckdb"
        if not path.exists():
            do = "Make room there, or name another folder with XDG_CACHE_HOME."
            with explained(f"{cache} cannot be written", do=do):
                _make(folder, path)
            for made in cache.iterdir():
                with contextlib.suppress(OSError):
                    if time.time() - made.stat().st_mtime > _KEPT_S:
                        shutil.rmtree(made)
    return path


@lru_cache(maxsize=4)
def _hash(name: str, files: tuple[Path, ...], states: tuple[tuple[int, int], ...]) -> str:
    """Returns 16 hex digits of the folder's name and content, read once for each of its `states`."""
    found = hashlib.sha256(f"{_SCHEMA} {name} ".encode())
    for file in files:
        found.update(f"{file.name} {file.stat().st_size} ".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def _find_cache() -> Path:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope"
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except (OSError, RuntimeError):  # a home that is read-only, or none
        pass
    return _find_temporary()


@lru_cache(maxsize=1)
def _find_temporary() -> Path:
    """Returns a folder that lasts as long as the process."""
    return _own.enter_context(temporary_folder("reference"))


def _make(folder: Path, path: Path) -> None:
    """Builds the file beside its place and puts it there as a whole; of two processes that build it one is first."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parents[1]) as name:
        half = Path(name, "half.duckdb")
        unpack(folder, half)
        (whole := Path(name, "whole")).mkdir()
        half.rename(whole / path.name)
        try:
            whole.rename(path.parent)
        except OSError:
            if not path.exists():
                raise
