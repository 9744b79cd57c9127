"""Times and samples of the chosen end-to-end cells: what Training step and Mixed precision draw.

    for cell in measured(path, Selection(mode="train")):
        print(cell.cell.context, cell.status, cell.times["step"].median_ms)

Rounds of one cell are pooled here: the median of the rounds' medians, with the envelope of their intervals, which is
never narrower than any of them. Ratios need the samples instead (`samples_by_round`).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.results import Measured, PhaseTime, Rounds
from runner.schema import TABLES, Phase, StepCell
from runner.store.database import open_reader
from runner.store.queries.selection import Selection

KEY = TABLES["steps"].key


_CELLS = """
    SELECT machine, cell_key, {key}, max(run_id) AS run_id, any_value(torch) AS torch, any_value(parameters),
        coalesce(min(cell_id) FILTER (status = 'ok'), min(cell_id)) AS cell_id, count(*) AS rounds,
        count(*) FILTER (status <> 'ok') AS failed,
        CASE WHEN bool_or(status = 'ok') THEN 'ok' ELSE arg_max(status, cell_id) END AS status,
        arg_max(failed_phase, cell_id), arg_max(message, cell_id),
        median(tokens_per_s), median(mfu), median(compile_seconds)
    FROM chosen GROUP BY ALL"""

_TIMES = """
    SELECT c.machine, c.cell_key, t.phase, median(t.median_ms), avg(t.mean_ms), sqrt(avg(t.std_ms * t.std_ms)),
        min(t.low_ms), max(t.high_ms), CAST(sum(t.n) AS BIGINT)
    FROM chosen c JOIN timings t USING (cell_id)
    WHERE c.status = 'ok' AND t.median_ms IS NOT NULL GROUP BY ALL"""


def measured(path: Path, selection: Selection) -> list[Measured]:
    """Every chosen cell with its times, smallest model and shortest context first."""
    chosen, parameters = selection.chosen()
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {chosen}", parameters)
        cells = reader.execute(_CELLS.format(key=", ".join(KEY))).fetchall()
        timings = reader.execute(_TIMES).fetchall()
    times: dict[tuple[str, str], dict[Phase, PhaseTime]] = {}
    for machine, cell_key, phase, *numbers in timings:
        names = ("median_ms", "mean_ms", "std_ms", "low_ms", "high_ms", "n")
        times.setdefault((machine, cell_key), {})[phase] = PhaseTime(**dict(zip(names, numbers, strict=True)))
    rows = [_measured(row, times.get((row[0], row[1]), {})) for row in cells]
    return sorted(rows, key=lambda row: _order(row.cell))


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


def _measured(row: tuple[Any, ...], times: dict[Phase, PhaseTime]) -> Measured:
    names = (
        "run_id",
        "torch",
        "parameters",
        "cell_id",
        "rounds",
        "failed_rounds",
        "status",
        "failed_phase",
        "message",
        "tokens_per_s",
        "mfu",
        "compile_seconds",
    )
    cell = StepCell(**dict(zip(KEY, row[2 : 2 + len(KEY)], strict=True)))
    rest: dict[str, Any] = dict(zip(names, row[2 + len(KEY) :], strict=True))
    return Measured(machine=row[0], cell_key=row[1], cell=cell, times=times, **rest)


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
    SELECT machine, cell_key, list(forward ORDER BY step) FILTER (forward IS NOT NULL),
        list(backward ORDER BY step) FILTER (backward IS NOT NULL),
        list(step_ms ORDER BY step) FILTER (step_ms IS NOT NULL)
    FROM steps_ms GROUP BY machine, cell_key, round ORDER BY machine, cell_key, round"""


def samples_by_round(path: Path, selection: Selection) -> dict[tuple[str, str], dict[Phase, Rounds]]:
    """The measured samples in ms of each chosen cell: (machine, cell_key) -> phase -> one tuple a round.

    Phases are `forward`, `backward` and `step`; a mode without a backward pass has no `backward`.
    """
    chosen, parameters = selection.chosen()
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {chosen}", parameters)
        rows = reader.execute(_ROUNDS).fetchall()
    phases: tuple[Phase, ...] = ("forward", "backward", "step")
    found: dict[tuple[str, str], dict[Phase, Rounds]] = {}
    for machine, cell_key, *lists in rows:
        cell = found.setdefault((machine, cell_key), {})
        for phase, values in zip(phases, lists, strict=True):
            if values:
                cell[phase] = (*cell.get(phase, ()), tuple(values))
    return found


def find(path: Path, cell_id: UUID) -> Measured | None:
    """The cell with this id, over the rounds of its run; None if the file has no such row."""
    with open_reader(path) as reader:
        row = reader.execute("SELECT run_id, cell_key FROM steps WHERE cell_id = ?", [cell_id]).fetchone()
    if row is None:
        return None
    cells = measured(path, Selection(run=row[0], settled=False))
    return next((cell for cell in cells if cell.cell_key == row[1]), None)


@dataclass(frozen=True, kw_only=True)
class EarlyStep:
    """One whole step of a cell that was measured after other counts of warm-up steps as well."""

    cell_id: UUID
    cell: StepCell
    step: int
    is_warmup: bool
    step_ms: float


_ABLATION = """
    WITH ablation AS (
        SELECT * FROM chosen WHERE status = 'ok' AND min_steps = max_steps AND list_contains([0, 1, 2, 5], warmup_steps)
        WINDOW family AS (PARTITION BY machine, run_id, {family})
        QUALIFY min(warmup_steps) OVER family < max(warmup_steps) OVER family AND round = min(round) OVER family)
    SELECT {key}, cell_id, m.step, bool_or(m.is_warmup), {step_ms}
    FROM ablation a JOIN samples m USING (cell_id) GROUP BY ALL ORDER BY {key}, m.step"""


def early_steps(path: Path, selection: Selection) -> list[EarlyStep]:
    """Every step, in one round, of the cells that were measured after several of 0, 1, 2 and 5 warm-up steps."""
    chosen, parameters = replace(selection, settled=False).chosen()
    family = ", ".join(name for name in KEY if name != "warmup_steps")
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {chosen}", parameters)
        rows = reader.execute(_ABLATION.format(family=family, key=", ".join(KEY), step_ms=STEP_MS)).fetchall()
    return [
        EarlyStep(
            cell=StepCell(**dict(zip(KEY, row[: len(KEY)], strict=True))),
            cell_id=row[-4],
            step=row[-3],
            is_warmup=row[-2],
            step_ms=row[-1],
        )
        for row in rows
    ]
