"""Times and samples of the chosen end-to-end cells: what Training step and Mixed precision draw.

    for cell in measured(path, Selection(mode="train")):
        print(cell.cell.context, cell.status, cell.times["step"].median_ms)

Of cells that differ only in effort the preferred one, unless the selection is not settled.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb

from runner.results import EarlyStep, Measured, PhaseTime, Rounds, TimedResult
from runner.schema import TABLES, Phase, StepCell
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch, fetch_by
from runner.store.queries.selection import Selection, select_chosen

KEY = TABLES["steps"].key
_OWN = ("failed_phase", "message", "parameters", "tokens_per_s", "mfu", "compile_seconds")
#: Of the rounds of one cell: the id by which it is known, and how it ended.
POOLED = """coalesce(min(cell_id) FILTER (status = 'ok'), min(cell_id)) AS cell_id,
        CASE WHEN bool_or(status = 'ok') THEN 'ok' ELSE arg_max(status, cell_id) END AS status,
        arg_max(failed_phase, cell_id) AS failed_phase, arg_max(message, cell_id) AS message"""

_CELLS = f"""
    SELECT machine, cell_key, {", ".join(KEY)}, max(run_id) AS run_id, any_value(torch) AS torch,
        any_value(parameters) AS parameters, count(*) AS rounds, count(*) FILTER (status <> 'ok') AS failed_rounds,
        {POOLED}, median(tokens_per_s) AS tokens_per_s, median(mfu) AS mfu, median(compile_seconds) AS compile_seconds
    FROM chosen GROUP BY machine, cell_key, {", ".join(KEY)} ORDER BY min(chosen.cell_id)"""

_TIMES = """
    SELECT c.machine, c.cell_key, t.phase, median(t.median_ms) AS median_ms, avg(t.mean_ms) AS mean_ms,
        sqrt(avg(t.std_ms * t.std_ms)) AS std_ms, min(t.low_ms) AS low_ms, max(t.high_ms) AS high_ms,
        CAST(sum(t.n) AS BIGINT) AS n
    FROM chosen c JOIN timings t USING (cell_id)
    WHERE c.status = 'ok' AND t.median_ms IS NOT NULL GROUP BY c.machine, c.cell_key, t.phase
    ORDER BY c.machine, c.cell_key,
        list_position(['forward', 'loss', 'backward', 'optimizer', 'forward_backward', 'step'], t.phase)"""


def load_steps(path: Path, selection: Selection) -> list[Measured]:
    """Every chosen cell with its times, smallest model and shortest context first."""
    with open_reader(path) as reader:
        choose(reader, "steps", selection, _OWN)
        cells = fetch(reader, _CELLS, kind=Measured)
        add_times(reader, cells)
    return sorted(cells, key=lambda row: _order(row.cell))


def choose(reader: duckdb.DuckDBPyConnection, table: str, of: Selection, names: tuple[str, ...] = ()) -> None:
    """Makes the temporary table `chosen` of the rows that count."""
    query, parameters = select_chosen(table, of, names)
    reader.execute(f"CREATE TEMP TABLE chosen AS {query}", parameters)


@dataclass(frozen=True, kw_only=True)
class _PhaseOf:
    """The time of one phase of a cell."""

    phase: Phase
    time: PhaseTime


def add_times(reader: duckdb.DuckDBPyConnection, cells: list[Any]) -> None:
    """Fills in the times of the cells of `chosen`."""
    times = fetch_by(reader, _TIMES, kind=_PhaseOf, by=("machine", "cell_key"))
    for cell in cells:
        assert isinstance(cell, TimedResult)
        cell.times.update({found.phase: found.time for found in times.get((cell.machine, cell.cell_key), ())})


def _order(cell: StepCell) -> tuple[Any, ...]:
    return (
        cell.d_model * cell.d_model * cell.layers,
        cell.d_model,
        cell.layers,
        cell.d_ff,
        cell.heads,
        cell.vocabulary,
        cell.context,
        cell.batch,
        cell.precision != "fp32",
        cell.precision,
        cell.backend != "eager",
        cell.backend,
        cell.attention,
        cell.warmup_steps,
    )


#: Time of one whole step, of samples grouped by cell and step: as recorded, or else the sum of its phases.
STEP_MS = """coalesce(max(duration_ms) FILTER (phase = 'step'),
    sum(duration_ms) FILTER (phase IN ('forward', 'loss', 'backward', 'optimizer')))"""

_ROUNDS = f"""
    WITH steps_ms AS (
        SELECT c.machine, c.cell_key, c.round, m.step,
            max(duration_ms) FILTER (phase = 'forward') AS forward,
            max(duration_ms) FILTER (phase = 'backward') AS backward,
            {STEP_MS} AS step_ms
        FROM chosen c JOIN samples m USING (cell_id) WHERE c.status = 'ok' AND NOT m.is_warmup GROUP BY ALL)
    SELECT machine, cell_key, list(forward ORDER BY step) FILTER (forward IS NOT NULL) AS forward,
        list(backward ORDER BY step) FILTER (backward IS NOT NULL) AS backward,
        list(step_ms ORDER BY step) FILTER (step_ms IS NOT NULL) AS step
    FROM steps_ms GROUP BY machine, cell_key, round ORDER BY machine, cell_key, round"""


@dataclass(frozen=True, kw_only=True)
class _Round:
    """The samples of one round in ms; None where its mode has no such phase."""

    machine: str
    cell_key: str
    forward: list[float] | None
    backward: list[float] | None
    step: list[float] | None


def samples_by_round(path: Path, selection: Selection) -> dict[tuple[str, str], dict[Phase, Rounds]]:
    """The measured samples in ms of each chosen cell: (machine, cell_key) -> phase -> one tuple a round.

    Phases are `forward`, `backward` and `step`; a mode without a backward pass has no `backward`.
    """
    with open_reader(path) as reader:
        choose(reader, "steps", selection)
        rounds = fetch(reader, _ROUNDS, kind=_Round)
    found: dict[tuple[str, str], dict[Phase, Rounds]] = {}
    for one in rounds:
        cell = found.setdefault((one.machine, one.cell_key), {})
        phases: dict[Phase, list[float] | None] = {"forward": one.forward, "backward": one.backward, "step": one.step}
        cell |= {phase: (*cell.get(phase, ()), tuple(values)) for phase, values in phases.items() if values}
    return found


def find(path: Path, cell_id: UUID) -> Measured | None:
    """The cell with this id, over the rounds of its run; None if the file has no such row."""
    with open_reader(path) as reader:
        row = reader.execute("SELECT run_id, cell_key FROM steps WHERE cell_id = ?", [cell_id]).fetchone()
    if row is None:
        return None
    run_id, cell_key = row
    cells = load_steps(path, Selection(run=run_id, settled=False))
    return next((cell for cell in cells if cell.cell_key == cell_key), None)


_ABLATION = f"""
    WITH ablation AS (
        SELECT * FROM chosen WHERE status = 'ok' AND min_steps = max_steps AND list_contains([0, 1, 2, 5], warmup_steps)
        WINDOW family AS (PARTITION BY machine, run_id, {", ".join(name for name in KEY if name != "warmup_steps")})
        QUALIFY min(warmup_steps) OVER family < max(warmup_steps) OVER family AND round = min(round) OVER family)
    SELECT {", ".join(KEY)}, cell_id, m.step, bool_or(m.is_warmup) AS is_warmup, {STEP_MS} AS step_ms
    FROM ablation a JOIN samples m USING (cell_id) GROUP BY ALL ORDER BY {", ".join(KEY)}, m.step"""


def early_steps(path: Path, selection: Selection) -> list[EarlyStep]:
    """Every step, in one round, of the cells that were measured after several of 0, 1, 2 and 5 warm-up steps."""
    with open_reader(path) as reader:
        choose(reader, "steps", replace(selection, settled=False))
        return fetch(reader, _ABLATION, kind=EarlyStep)
