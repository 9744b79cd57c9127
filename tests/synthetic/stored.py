"""Meaningless cells in a results file, for the tests of the store: only their ids matter."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from runner.schema import RunRow, StepRow, new_id
from runner.store.database import open_reader
from runner.store.spool import Spool
from runner.sweep.loop import ingest_all
from tests.bench.store import cell_rows

RUN = RunRow(run_id=new_id(), sweep_key="test", host="bench1")


def write_cell(db: Path, **values: Any) -> StepRow:
    """Writes one cell with three samples into the spool."""
    rows = cell_rows(RUN, new_id(), samples=3)
    (step,) = rows["steps"]
    assert isinstance(step, StepRow)
    step = replace(step, **values)
    Spool(db).write({**rows, "steps": [step]}, str(step.cell_id))
    return step


def made(db: Path) -> bytes:
    """Writes a results file of three cells and returns its bytes."""
    for _ in range(3):
        write_cell(db)
    ingest_all(db)
    return db.read_bytes()


def change(file: Path, *statements: str) -> None:
    """Executes the statements in a file that nobody has open, which is made where there is none."""
    with duckdb.connect(str(file)) as con:
        for statement in statements:
            con.execute(statement)


def read(db: Path, query: str) -> list[tuple[Any, ...]]:
    """Returns the result for a reader who opens the file now."""
    with open_reader(db) as con:
        return con.execute(query).fetchall()


def counts(db: Path) -> tuple[int, ...]:
    """Returns the numbers of rows and of distinct rows of `steps`, of rows of `samples` and of rows of `runs`."""
    query = """SELECT count(*), count(DISTINCT cell_id), (SELECT count(*) FROM samples), (SELECT count(*) FROM runs)
               FROM steps"""
    return read(db, query)[0]
