"""One results file into another: what several machines measured, in one file.

    >>> merge("h200.duckdb", into="data/results.duckdb")
    {'runs': 2, 'steps': 40, 'timings': 200, 'samples': 4000}

Rows are told apart by their ids, which no two machines make alike: what is there already stays as it is, so that a file
that grows can be merged again. Of the other file the spool is read too, and nothing is written to it. Rows travel as
Parquet files in the system's temporary folder, so that neither file is held while the other one is waited for.
"""

import tempfile
from pathlib import Path

import duckdb

from runner.errors import UsageError
from runner.schema import TABLES, Table, utc_now
from runner.store.database import open_reader, writing

#: How long merging waits to be alone with the file.
PATIENCE_S = 10.0


def merge(source: Path | str, *, into: Path | str) -> dict[str, int]:
    """Adds the rows of `source` that `into` lacks, all or none, and makes `into` where it does not exist.

    Returns how many rows were added, by table, tables without any left out. Raises UsageError for a file merged into
    itself or made by a newer Stepscope, DatabaseForeign for one that holds no results, DatabaseBusy, StoreError."""
    source, into = Path(source).absolute(), Path(into).absolute()
    if source.resolve() == into.resolve():
        raise UsageError(f"{source} is the file to merge into.", do="Name another file, or another --db.")
    with tempfile.TemporaryDirectory(prefix="stepscope-merge-") as folder:
        with open_reader(source) as con:
            _refuse_newer(con, source)
            for table in TABLES.values():
                if table.stored:
                    con.execute(f"COPY {table.name} TO '{_parquet(folder, table)}' (FORMAT parquet)")
        with writing(into, patience_s=PATIENCE_S) as con:
            con.begin()
            found = {table.name: _insert(con, table, _parquet(folder, table)) for table in TABLES.values()
                     if table.stored}  # fmt: skip
            con.commit()
    return {name: count for name, count in found.items() if count}


def _parquet(folder: str, table: Table) -> str:
    return str(Path(folder, f"{table.name}.parquet")).replace("'", "''")


def _insert(con: duckdb.DuckDBPyConnection, table: Table, parquet: str) -> int:
    """Adds the rows whose ids are not in the file yet; returns how many."""
    names = [column.name for column in table.columns]
    values = ", ".join("$now" if name == "ingested_at" else f"new.{name}" for name in names)
    same = " AND ".join(f"known.{name} = new.{name}" for name in table.unique)
    query = f"""
        INSERT INTO file.main.{table.name} ({", ".join(names)})
        SELECT {values} FROM read_parquet('{parquet}') AS new
        WHERE NOT EXISTS (FROM file.main.{table.name} AS known WHERE {same})"""
    (count,) = con.execute(query, {"now": utc_now()} if "ingested_at" in names else {}).fetchone() or (0,)
    return int(count)


def _refuse_newer(con: duckdb.DuckDBPyConnection, source: Path) -> None:
    query = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'file' AND NOT internal"
    known = {(table.name, column.name) for table in TABLES.values() for column in table.columns}
    unknown = [f"{table}.{column}" for table, column in con.execute(query).fetchall() if (table, column) not in known]
    if unknown:
        raise UsageError(
            f"{source} has columns that this Stepscope does not know: {', '.join(sorted(unknown)[:3])}.",
            expected="a file that this version or an older one wrote",
            do="Update Stepscope here; merging would lose them.",
        )
