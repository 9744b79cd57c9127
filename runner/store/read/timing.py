"""How much the times of steps vary: within the processes of a cell, and from one process of a machine to the next.

for one in load_spreads(path, Selection()):
    print(one.cell_id, one.n, one.least_ms, one.most_ms)
"""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from runner.results import PhaseSample
from runner.results.rows import MachineNoise, StepSpread
from runner.schema import TABLES
from runner.schema.axes import MODEL
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch, fetch_by
from runner.store.queries.noise import load_known_noise
from runner.store.queries.selection import Selection
from runner.store.queries.steps import STEP_MS, choose

#: The id of a cell is that of its first ok round, as `load_steps` has it.
_SPREADS = f"""
    WITH whole AS (
        SELECT cell_id, m.step, {STEP_MS} AS step_ms FROM samples m SEMI JOIN chosen USING (cell_id)
        WHERE NOT m.is_warmup GROUP BY ALL)
    SELECT min(cell_id) AS cell_id, count(*) AS n, min(step_ms) AS least_ms, max(step_ms) AS most_ms
    FROM whole JOIN chosen USING (cell_id) WHERE status = 'ok' AND step_ms IS NOT NULL GROUP BY machine, cell_key"""
#: Of the cells that differ in model and context alone, all steps of the one whose standard deviation is the largest
#: share of its mean.
_FAMILY = ", ".join(name for name in TABLES["steps"].question if name not in (*MODEL, "context"))
_NOISIEST = f"""
    WITH noisiest AS (
        SELECT machine, cell_key, min(cell_id) AS of, {_FAMILY}
        FROM chosen JOIN timings t USING (cell_id) WHERE status = 'ok' AND t.phase = 'step' AND t.std_ms IS NOT NULL
        GROUP BY machine, cell_key, {_FAMILY}
        QUALIFY row_number() OVER (PARTITION BY machine, {_FAMILY}
            ORDER BY sqrt(avg(t.std_ms * t.std_ms)) / avg(t.mean_ms) DESC, min(cell_id)) = 1)
    SELECT of, round, 'step' AS phase, m.step, bool_or(m.is_warmup) AS is_warmup, {STEP_MS} AS duration_ms
    FROM noisiest JOIN chosen USING (machine, cell_key) JOIN samples m USING (cell_id)
    WHERE status = 'ok' GROUP BY of, round, m.step HAVING duration_ms IS NOT NULL ORDER BY of, round, m.step"""


def load_spreads(path: Path, of: Selection) -> list[StepSpread]:
    """Returns the least and the most time of a measured step of each chosen cell, over its rounds."""
    with open_reader(path) as reader:
        choose(reader, "steps", of)
        spreads = fetch(reader, _SPREADS, kind=StepSpread)
        samples: dict[UUID, list[PhaseSample]] = fetch_by(reader, _NOISIEST, kind=PhaseSample, by=("of",))
    return [replace(one, samples=tuple(samples.get(one.cell_id, ()))) for one in spreads]


def load_machine_noise(path: Path, of: Selection) -> list[MachineNoise]:
    """Returns the noise of whole steps of each kind of cell, of one machine or of all."""
    return [
        MachineNoise(
            table=one.table, machine=one.kind.machine, bound=one.kind.bound, clock=one.kind.clock, noise=one.noise
        )
        for one in load_known_noise(path)
        if of.machine in (None, one.kind.machine)
    ]
