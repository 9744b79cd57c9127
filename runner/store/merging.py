"""Results files merged into another: the measurements of several machines in one file.

    >>> merge("h200.duckdb", into="data/results.duckdb")
    {'runs': 2, 'steps': 40, 'timings': 200, 'samples': 4000}
    >>> for merged in merge_files([Path("a.duckdb"), Path("b.duckdb")], into=Path("all.duckdb")): print(merged.added)

Rows are told apart by their ids, which are unique across machines. Rows that are there already stay as they are, so
that a growing file can be merged again, and a merge that was killed goes on where it stopped: each file is one
transaction. The other file's spool is read too, and nothing is written to it. Rows travel as Parquet files in the
system's temporary folder, so that neither file is held while waiting for the other.

`python -m runner.store.merging` is the process that reads the other file and can do nothing else (`extract`):

    {"path": "there.duckdb", "folder": "/tmp/stepscope-merge-1"}                                     on stdin
    {"tables": ["runs", "steps"]}                                                                    on stdout
    {"refused": ["DatabaseForeign", "got", "expected", "do"]}                                        or this

It is a process of its own because a file may come from anybody, and one of a few kilobytes can hold billions of rows
or end the process that reads it. It can open this file and write to this folder, has PROCESS_BYTES of memory,
PROCESS_SECONDS of computing and OUTPUT_BYTES for each table, and writes only rows that keep the contract. Limits: macOS
does not enforce the limit of memory.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import duckdb
from duckdb import DuckDBPyConnection

from runner import errors
from runner.errors import DatabaseBusy, DatabaseForeign, RowsDiffer, RowsRefused, StepscopeError, UsageError
from runner.formats import format_count
from runner.places import temporary_folder
from runner.schema import TABLES, Table
from runner.store.attached import foreign_error, format_reason
from runner.store.contract import check, check_unique, survey
from runner.store.database import PATIENCE_S, open_reader, open_writer
from runner.store.spool import Spool
from runner.store.sql import fetch_count, insert_rows, quote, select_stored_rows
from runner.store.views import UNREADABLE, check_document, is_newer, load_document


@dataclass(frozen=True, kw_only=True)
class Merged:
    """One of several files: how many rows of it were added, by table, or why none were."""

    source: Path
    added: Mapping[str, int] = field(default_factory=dict)
    refused: StepscopeError | None = None


def merge(source: Path | str, *, into: Path | str) -> dict[str, int]:
    """Adds the rows of `source` that `into` lacks, all or none, and makes `into` where it does not exist.

    Returns how many rows were added, by table, tables without any left out. Raises UsageError for a file merged into
    itself or made by a newer Stepscope, RowsRefused for rows that break the contract, DatabaseForeign for a file
    that holds no results or cannot be read, DatabaseBusy, StoreError."""
    (merged,) = merge_files([Path(source)], into=Path(into))
    if merged.refused:
        raise merged.refused
    return dict(merged.added)


def merge_files(sources: Sequence[Path], *, into: Path) -> Iterator[Merged]:
    """Merges one file after the other, and reads the next while the rows of one are added. A file that is refused, for
    any reason that `merge` raises, is passed over. Raises what `open_writer` raises where nothing can be added."""
    into = into.absolute()
    with ThreadPoolExecutor(1) as ahead, temporary_folder("merge") as temporary:
        folders = [temporary / str(number) for number in range(len(sources))]
        pending = list[Future[list[str]]]()
        for number, source in enumerate(sources):
            while len(pending) < min(number + 2, len(sources)):
                (folder := folders[len(pending)]).mkdir()
                pending.append(ahead.submit(_extract, sources[len(pending)].absolute(), into, folder))
            try:
                names = pending[number].result()
            except StepscopeError as error:
                yield Merged(source=source, refused=error)
                continue
            try:
                with open_writer(into, patience_s=PATIENCE_S, folder=folders[number]) as con:
                    con.begin()
                    added = {name: _insert(con, TABLES[name], folders[number] / f"{name}.parquet") for name in names}
                    con.commit()
                yield Merged(source=source, added={name: count for name, count in added.items() if count})
            except RowsDiffer as error:
                yield Merged(source=source, refused=error)
            for parquet in folders[number].iterdir():
                parquet.unlink()


def _extract(source: Path, into: Path, folder: Path) -> list[str]:
    if os.path.realpath(source) == os.path.realpath(into):
        raise UsageError(f"{source} is the file to merge into.", do="Name another file, or another --db.")
    return extract(source, folder)


def _insert(con: DuckDBPyConnection, table: Table, parquet: Path) -> int:
    """Inserts the rows whose ids are not in the file yet; returns how many. Raises RowsDiffer where the rows with ids
    that are there have other values."""
    new = f"read_parquet({quote(str(parquet))}) AS new"
    same = " AND ".join(f"known.{name} = new.{name}" for name in table.unique)
    total = fetch_count(con, f"SELECT count(*) FROM {new}")
    added = insert_rows(con, table, f"{new} WHERE NOT EXISTS (FROM file.main.{table.name} AS known WHERE {same})")
    if added == total:
        return added
    values = [column.name for column in table.columns if column.name not in (*table.unique, "ingested_at")]
    differs = " OR ".join(f"known.{name} IS DISTINCT FROM new.{name}" for name in values)
    if table.name == "runs":  # an import of published tables has its id by their content, whoever read them and when
        differs = f"({differs}) AND known.source IS DISTINCT FROM 'published'"
    ids = " || ' ' || ".join(f"'{name} ' || new.{name}" for name in table.unique)
    query = f"SELECT count(*), min({ids}) FROM {new} JOIN file.main.{table.name} AS known ON {same} WHERE {differs}"
    count, first = con.execute(query).fetchone() or (0, None)
    if count:
        raise RowsDiffer(
            f"{count:,} rows of {table.name} have the ids of rows that are there, and other values: first {first}.",
            expected="rows that were not changed after they were measured",
            do="Nothing of it was added, and nothing overwritten.",
        )
    return added


#: The limits of the process: bytes, seconds of computing, seconds altogether, bytes of one table, rows of all.
PROCESS_BYTES, PROCESS_SECONDS, MAX_SECONDS, OUTPUT_BYTES, MAX_ROWS = 4 * 2**30, 600, 600.0, 8 * 2**30, 100_000_000
#: The memory of one connection.
MEMORY = "SET memory_limit = '2GB'"
_ROOT = Path(__file__).parents[2]
_DO = "Nothing of it is stored. Take another copy of the file, or ask whoever made it."


def extract(source: Path, folder: Path) -> list[str]:
    """Writes `<table>.parquet` into `folder` for each table that has rows, and returns their names. Raises
    DatabaseForeign, DatabaseDamaged, RowsRefused, DatabaseBusy, DatabaseMissing, UsageError."""
    try:
        done = subprocess.run(
            [sys.executable, "-X", "utf8", "-m", "runner.store.merging"],
            cwd=_ROOT,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},  # nothing of this process's secrets
            input=json.dumps({"path": str(source), "folder": str(folder)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            timeout=MAX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DatabaseForeign(f"{source} takes more than {MAX_SECONDS:.0f} s to read.", do=_DO) from None
    if done.returncode or not done.stdout:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise DatabaseForeign(
            f"{source} cannot be read: the process that tried ended with {how}.",
            expected=f"a results file that is whole and needs less than {PROCESS_BYTES // 2**30} GiB",
            do=_DO,
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        kind, got, expected, do = answer["refused"]
        raise getattr(errors, kind)(got, expected=expected, do=do)
    return cast(list[str], answer["tables"])


def answer(source: Path, folder: Path) -> dict[str, Any]:
    """Returns the reply of this process: the tables that it wrote, or why it wrote none."""
    try:
        (spool := Spool(source)).check_readable()
        for file in spool.files():
            with contextlib.suppress(FileNotFoundError):
                _check_document(file)
        with open_reader(source, folder=folder, limits=(MEMORY,)) as con:
            _refuse_newer(con, source)
            if source.exists():
                surveyed = survey(source)
                for name in surveyed.left_out:
                    rows = select_stored_rows(TABLES[name], surveyed.stored[name])
                    check(con, TABLES[name], f"({rows})", where=source, published=surveyed.published)
            stored = [name for name, table in TABLES.items() if table.stored]
            counts = {name: fetch_count(con, f"SELECT count(*) FROM {name}") for name in stored}
            if sum(counts.values()) > MAX_ROWS:
                raise foreign_error(source, f"it has {sum(counts.values()):,} rows, more than {MAX_ROWS:,}")
            names = [name for name, rows in counts.items() if rows]
            for name in names:
                check_unique(con, TABLES[name], name, where=source)
                # Nothing would say where rows without their run were measured.
                alone = f"FROM {name} WHERE run_id NOT IN (SELECT run_id FROM runs)"
                count, first = con.execute(f"SELECT count(*), min(run_id) {alone}").fetchone() or (0, None)
                if count:
                    rows = format_count(count, "row")
                    got = f"{source} has {rows} of {name} without their run: first run_id {first}."
                    raise RowsRefused(got, expected="the row of the run beside them", do=_DO)
                con.execute(f"COPY {name} TO {quote(str(folder / name) + '.parquet')} (FORMAT parquet)")
        return {"tables": names}
    except StepscopeError as error:
        do = error.do if isinstance(error, DatabaseBusy | UsageError) else _DO
        return {"refused": [type(error).__name__, error.got, error.expected, do]}
    except (duckdb.Error, MemoryError, OSError, UnicodeDecodeError) as error:
        got = f"{source} cannot be read: {format_reason(error)}."
        return {"refused": ["DatabaseForeign", got, "a results file", _DO]}


def main() -> None:
    """Reads one request and writes one answer."""
    limit()
    request = json.load(sys.stdin)
    json.dump(answer(Path(request["path"]), Path(request["folder"])), sys.stdout)
    sys.stdout.flush()


def limit() -> None:
    """Sets the limits of this process, for good."""
    for kind, value in (
        (resource.RLIMIT_DATA, PROCESS_BYTES),
        (resource.RLIMIT_CPU, PROCESS_SECONDS),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # macOS; or a lower limit is set already
            resource.setrlimit(kind, (value, value))


def _check_document(file: Path) -> None:
    """Raises RowsRefused for a file of the spool that a reader would leave out, UsageError for a newer one."""
    try:
        document = load_document(file)
        if is_newer(document):
            raise UsageError(f"{file} has columns that this Stepscope does not know.", do="Update Stepscope here.")
        check_document(document, where=file)
    except RowsRefused:
        raise
    except UNREADABLE as error:
        got = f"{file} is no finished cell: {format_reason(error)}."
        raise RowsRefused(got, expected="JSON as a sweep writes") from error


def _refuse_newer(con: DuckDBPyConnection, source: Path) -> None:
    query = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'file' AND NOT internal"
    known = {(table.name, name) for table in TABLES.values() for name in table.names}
    unknown = [f"{table}.{column}" for table, column in con.execute(query).fetchall() if (table, column) not in known]
    if unknown:
        raise UsageError(
            f"{source} has columns that this Stepscope does not know: {', '.join(sorted(unknown)[:3])}.",
            expected="a file that this version or an older one wrote",
            do="Update Stepscope here; merging would lose them.",
        )


if __name__ == "__main__":
    main()
