"""One results file merged into another: the measurements of several machines in one file.

    >>> merge("h200.duckdb", into="data/results.duckdb")
    {'runs': 2, 'steps': 40, 'timings': 200, 'samples': 4000}

Rows are told apart by their ids, which are unique across machines. Rows that are there already stay as they are, so
that a growing file can be merged again. The other file's spool is read too, and nothing is written to it. A process of
its own (`runner.store.extraction`) reads it, because it may come from anybody. Rows travel as Parquet files in the
system's temporary folder, so that neither file is held while waiting for the other.
"""

import tempfile
from pathlib import Path

from duckdb import DuckDBPyConnection

from runner.errors import UsageError
from runner.schema import TABLES, Table
from runner.store.attached import insert_rows, quote
from runner.store.database import open_writer
from runner.store.extraction import extract

#: The longest that merging waits to be alone with the file (s).
PATIENCE_S = 10.0


def merge(source: Path | str, *, into: Path | str) -> dict[str, int]:
    """Adds the rows of `source` that `into` lacks, all or none, and makes `into` where it does not exist.

    Returns how many rows were added, by table, tables without any left out. Raises UsageError for a file merged into
    itself or made by a newer Stepscope, RowsRefused for rows that break the contract, DatabaseForeign for a file
    that holds no results or cannot be read, DatabaseBusy, StoreError."""
    source, into = Path(source).absolute(), Path(into).absolute()
    if source.resolve() == into.resolve():
        raise UsageError(f"{source} is the file to merge into.", do="Name another file, or another --db.")
    with tempfile.TemporaryDirectory(prefix="stepscope-merge-") as temporary:
        folder = Path(temporary)
        names = extract(source, folder)
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
