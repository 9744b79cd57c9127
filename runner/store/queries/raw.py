"""The stored rows of any table, and every sample of a cell's rounds.

    fetch_rows(reader, TimingRow, "timings SEMI JOIN chosen USING (cell_id)")
    load_samples(path, "attention", cell_id)       # every iteration, warm-up included

The rounds of a cell are the rows of one run with one key.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar
from uuid import UUID

import duckdb

from runner.results import PhaseSample
from runner.schema import Row, table_of
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.queries.fetch import Parameters, fetch, select

T = TypeVar("T")
R = TypeVar("R", bound=Row)


def fetch_rows(reader: duckdb.DuckDBPyConnection, kind: type[T], source: str, parameters: Parameters = None) -> list[T]:
    """Returns rows of a table as dataclasses of the schema. `source` names the table and may narrow and order it."""
    return fetch(reader, f"SELECT {select(kind)} FROM {source}", parameters, kind=kind)


def load_run_rows(path: Path, run_id: UUID, kind: type[R]) -> list[tuple[R, dict[str, float]]]:
    """Returns every row of a run in one table, each round and each try, in the order of measuring, with the medians of
    its phases (ms)."""
    table = table_of(kind)
    medians = "SELECT cell_id, map_from_entries(list((phase, median_ms))) FROM timings WHERE run_id = ? GROUP BY 1"
    with open_reader(path) as reader:
        source = f"{table.name} WHERE run_id = ? AND {is_stated(table)} ORDER BY cell_id"
        rows = fetch_rows(reader, kind, source, [run_id])
        known = dict(reader.execute(medians, [run_id]).fetchall())
    return [(row, known.get(row.cell_id, {})) for row in rows]


_ROUNDS = """
    SELECT asked.cell_id, list(s.cell_id ORDER BY s.round, s.cell_id) AS rounds
    FROM {table} asked JOIN {table} s ON s.run_id = asked.run_id AND s.cell_key = asked.cell_key
    WHERE list_contains(?, asked.cell_id) AND s.status IN ('ok', 'oom') GROUP BY asked.cell_id"""


def load_rounds(path: Path, table: str, cells: Sequence[UUID]) -> dict[UUID, tuple[UUID, ...]]:
    """Returns the ids of all rounds that have a result, of each of these cells of one table."""
    with open_reader(path) as reader:
        found = reader.execute(_ROUNDS.format(table=table), [list(cells)]).fetchall()
    return {cell_id: tuple(rounds) for cell_id, rounds in found}


_SAMPLES = """
    SELECT s.round, m.phase, m.step, m.is_warmup, m.duration_ms
    FROM {table} asked JOIN {table} s ON s.run_id = asked.run_id AND s.cell_key = asked.cell_key
    JOIN samples m ON m.cell_id = s.cell_id WHERE asked.cell_id = ?
        AND ('{table}' = 'steps' OR m.phase IN ('forward', 'backward'))
    ORDER BY s.round, m.phase, m.step"""


def load_samples(path: Path, table: Literal["steps", "attention"], cell_id: UUID) -> list[PhaseSample]:
    """Returns every phase of every step of the cell and of its other rounds; of attention, without the stored sums of
    phases."""
    with open_reader(path) as reader:
        return fetch(reader, _SAMPLES.format(table=table), [cell_id], kind=PhaseSample)
