"""Loads times of the chosen end-to-end cells, for Training step and Mixed precision.

    for cell in load_steps(path, Selection(mode="train")):
        print(cell.cell.context, cell.status, cell.times["step"].median_ms)

Of cells that differ only in effort, the preferred one counts, unless the selection is not settled.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb

from runner.results import EarlyStep, StepResult
from runner.schema import TABLES, StepCell
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.selection import Selection, select_chosen
from runner.store.queries.times import with_times

KEY = TABLES["steps"].key
_OWN = ("failed_phase", "message", "parameters", "tokens_per_s", "mfu", "compile_seconds")
#: The id and the status of a cell, over its rounds.
POOLED = """coalesce(min(cell_id) FILTER (status = 'ok'), min(cell_id)) AS cell_id,
        CASE WHEN bool_or(status = 'ok') THEN 'ok' ELSE arg_max(status, cell_id) END AS status,
        arg_max(failed_phase, cell_id) AS failed_phase, arg_max(message, cell_id) AS message"""

_CELLS = f"""
    SELECT machine, cell_key, {", ".join(KEY)}, max(run_id) AS run_id, any_value(torch) AS torch,
        any_value(parameters) AS parameters, count(*) AS rounds,
        {POOLED}, median(tokens_per_s) AS tokens_per_s, median(mfu) AS mfu, median(compile_seconds) AS compile_seconds
    FROM chosen GROUP BY machine, cell_key, {", ".join(KEY)} ORDER BY min(chosen.cell_id)"""


def load_steps(path: Path, selection: Selection) -> list[StepResult]:
    """Returns every chosen cell with its times, smallest model and shortest context first."""
    with open_reader(path) as reader:
        choose(reader, "steps", selection, _OWN)
        cells = with_times(reader, "steps", fetch(reader, _CELLS, kind=StepResult))
    return sorted(cells, key=lambda row: _order(row.cell))


def load_rounds(reader: duckdb.DuckDBPyConnection, run: UUID, cell_key: str) -> StepResult | None:
    """Returns one cell over the rounds of one run; None if the run has no such cell."""
    choose(reader, "steps", Selection(run=run, settled=False), _OWN)
    reader.execute("DELETE FROM chosen WHERE cell_key <> ?", [cell_key])
    return next(iter(with_times(reader, "steps", fetch(reader, _CELLS, kind=StepResult))), None)


def choose(reader: duckdb.DuckDBPyConnection, table: str, of: Selection, names: tuple[str, ...] = ()) -> None:
    """Makes the temporary table `chosen` of the rows that count."""
    query, parameters = select_chosen(table, of, names)
    reader.execute(f"CREATE OR REPLACE TEMP TABLE chosen AS {query}", parameters)


def _order(cell: StepCell) -> tuple[Any, ...]:
    return (
        cell.order,
        cell.context,
        cell.batch,
        cell.precision != "fp32",
        cell.precision,
        cell.backend != "eager",
        cell.backend,
        cell.attention,
        cell.warmup_steps,
    )


#: The time of one whole step, for samples grouped by cell and step: as recorded, or else the sum of its phases.
STEP_MS = """coalesce(max(duration_ms) FILTER (phase = 'step'),
    sum(duration_ms) FILTER (phase IN ('forward', 'loss', 'backward', 'optimizer')))"""


def find(path: Path, cell_id: UUID) -> StepResult | None:
    """Returns the cell with this id, over the rounds of its run; None if the file has no such row."""
    with open_reader(path) as reader:
        row = reader.execute("SELECT run_id, cell_key FROM steps WHERE cell_id = ?", [cell_id]).fetchone()
        return load_rounds(reader, *row) if row else None


_ABLATION = f"""
    WITH ablation AS (
        SELECT * FROM chosen WHERE status = 'ok' AND min_steps = max_steps AND list_contains([0, 1, 2, 5], warmup_steps)
        WINDOW family AS (PARTITION BY machine, run_id, {", ".join(name for name in KEY if name != "warmup_steps")})
        QUALIFY min(warmup_steps) OVER family < max(warmup_steps) OVER family AND round = min(round) OVER family)
    SELECT {", ".join(KEY)}, machine, cell_id, m.step, bool_or(m.is_warmup) AS is_warmup, {STEP_MS} AS step_ms
    FROM ablation a JOIN samples m USING (cell_id) GROUP BY ALL ORDER BY {", ".join(KEY)}, m.step"""


def load_early_steps(path: Path, selection: Selection) -> list[EarlyStep]:
    """Returns every step, in one round, of the cells that were measured after several of 0, 1, 2 and 5 warm-up
    steps."""
    with open_reader(path) as reader:
        choose(reader, "steps", replace(selection, settled=False))
        return fetch(reader, _ABLATION, kind=EarlyStep)
