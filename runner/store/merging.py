"""One results file into another: what several machines measured, in one file.

    >>> merge("h200.duckdb", into="data/results.duckdb")
    {'runs': 2, 'steps': 40, 'timings': 200, 'samples': 4000}

Rows are told apart by their ids, which no two machines make alike: what is there already stays as it is, so that a file
that grows can be merged again. Of the other file the spool is read too, and nothing is written to it. A process of its
own (`runner.store.extraction`) reads it, as it may come from anybody. Rows travel as Parquet files in the system's
temporary folder, so that neither file is held while the other one is waited for.
"""

import tempfile
from pathlib import Path

import duckdb

from runner.errors import UsageError
from runner.schema import TABLES, Table, utc_now
from runner.store.attached import literal
from runner.store.database import open_writer
from runner.store.extraction import extract

#: How long merging waits to be alone with the file.
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
            found = {name: _insert(con, TABLES[name], folder / f"{name}.parquet") for name in names}
            con.commit()
    return {name: count for name, count in found.items() if count}


def _insert(con: duckdb.DuckDBPyConnection, table: Table, parquet: Path) -> int:
    """Adds the rows whose ids are not in the file yet; returns how many."""
    names = [column.name for column in table.columns]
    values = ", ".join("$now" if name == "ingested_at" else f"new.{name}" for name in names)
    same = " AND ".join(f"known.{name} = new.{name}" for name in table.unique)
    query = f"""
        INSERT INTO file.main.{table.name} ({", ".join(names)})
        SELECT {values} FROM read_parquet({literal(str(parquet))}) AS new
        WHERE NOT EXISTS (FROM file.main.{table.name} AS known WHERE {same})"""
    (count,) = con.execute(query, {"now": utc_now()} if "ingested_at" in names else {}).fetchone() or (0,)
    return int(count)
