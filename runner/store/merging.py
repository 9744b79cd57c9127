"""Results files merged into another: the measurements of several machines in one file.

    >>> merge("h200.duckdb", into="data/results.duckdb")
    {'runs': 2, 'steps': 40, 'timings': 200, 'samples': 4000}
    >>> for merged in merge_files([Path("a.duckdb"), Path("b.duckdb")], into=Path("all.duckdb")): print(merged.added)

Rows are told apart by their ids, which are unique across machines. Rows that are there already stay as they are, so
that a growing file can be merged again, and a merge that was killed goes on where it stopped: each file is one
transaction. The other file's spool is read too, and nothing is written to it. A process of its own
(`runner.store.extraction`) reads it, because it may come from anybody. Rows travel as Parquet files in the
system's temporary folder, so that neither file is held while waiting for the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from duckdb import DuckDBPyConnection

from runner.errors import StepscopeError, UsageError
from runner.schema import TABLES, Table
from runner.store.attached import insert_rows, quote
from runner.store.database import open_writer
from runner.store.extraction import extract
from runner.temporary import temporary_folder

#: The longest that merging waits to be alone with the file (s).
PATIENCE_S = 10.0


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
    source, into = Path(source).absolute(), Path(into).absolute()
    with temporary_folder("merge") as folder:
        return _insert_all(into, folder, _extract(source, into, folder))


def merge_files(sources: Sequence[Path], *, into: Path) -> Iterator[Merged]:
    """Merges one file after the other, and reads the next while the rows of one are added. A file that is refused, for
    any reason that `merge` raises, is passed over. Raises what `open_writer` raises where nothing can be added."""
    into = into.absolute()
    with ThreadPoolExecutor(1) as ahead, temporary_folder("merge") as temporary:
        folders = [temporary / str(number) for number in range(len(sources))]
        pending: dict[int, Future[list[str]]] = {}
        for number, source in enumerate(sources):
            for following in range(number, min(number + 2, len(sources))):
                if following not in pending:
                    folders[following].mkdir()
                    task = (sources[following].absolute(), into, folders[following])
                    pending[following] = ahead.submit(_extract, *task)
            try:
                names = pending.pop(number).result()
            except StepscopeError as error:
                yield Merged(source=source, refused=error)
                continue
            yield Merged(source=source, added=_insert_all(into, folders[number], names))
            for parquet in folders[number].iterdir():
                parquet.unlink()


def _extract(source: Path, into: Path, folder: Path) -> list[str]:
    if source.resolve() == into.resolve():
        raise UsageError(f"{source} is the file to merge into.", do="Name another file, or another --db.")
    return extract(source, folder)


def _insert_all(into: Path, folder: Path, names: Sequence[str]) -> dict[str, int]:
    with open_writer(into, patience_s=PATIENCE_S, folder=folder) as con:
        con.begin()
        added = {name: _insert(con, TABLES[name], folder / f"{name}.parquet") for name in names}
        con.commit()
    return {name: count for name, count in added.items() if count}


def _insert(con: DuckDBPyConnection, table: Table, parquet: Path) -> int:
    """Inserts the rows whose ids are not in the file yet; returns how many."""
    same = " AND ".join(f"known.{name} = new.{name}" for name in table.unique)
    missing = f"NOT EXISTS (FROM file.main.{table.name} AS known WHERE {same})"
    return insert_rows(con, table, f"read_parquet({quote(str(parquet))}) AS new WHERE {missing}")
