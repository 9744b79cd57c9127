"""How much the times of steps vary: within the processes of a cell, and from one process of a machine to the next.

    for known in load_machine_noise(path, Selection()): print(known.table, known.machine, known.noise.std)
    for cell in load_repeated(path, Selection()): print(cell.cell, [one.time.median_ms for one in cell.rounds])

Times are those of whole steps. The rounds of a cell are those of one run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import duckdb

from runner.analysis.audit.findings import Drift
from runner.analysis.audit.time_rules import find_drifts
from runner.results.cells import PhaseSample
from runner.results.rows import MachineNoise, StepSpread
from runner.results.times import RepeatedCell, Repetition, find_bound, pool_bounds
from runner.schema import TABLES, Cell, Phase
from runner.schema.axes import MODEL
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.read.selection import DEVICE, MACHINE, Selection, fetch, fetch_by, with_details
from runner.store.read.timed import STEP_MS, choose, load_noise
from runner.store.shared import remember

#: The tables of timed cells, and the phase that stands for a whole cell.
TIMED = tuple(name for name, table in TABLES.items() if table.timed)
WHOLE: Phase = "step"


@dataclass(frozen=True, kw_only=True)
class _Repetition(Repetition):
    device_ms: float | None
    cell: Cell


#: Where a round was tried again, the last try counts.
_ROUNDS = f"""
    WITH tries AS (
        SELECT s.*, {MACHINE} AS machine
        FROM {{table}} s LEFT JOIN runs r USING (run_id)
        WHERE list_contains($runs, run_id) AND status = 'ok' AND {{stated}}
        QUALIFY row_number() OVER (PARTITION BY run_id, cell_key, round ORDER BY cell_id DESC) = 1),
    measured AS (FROM tries QUALIFY count(*) OVER (PARTITION BY run_id, cell_key) > 1)
    SELECT m.run_id, m.machine, t.device_ms, {{key}}, m.cell_id, m.round, m.started_at,
        t.median_ms, t.low_ms, t.high_ms, t.n
    FROM measured m JOIN timings t USING (cell_id) WHERE t.phase = '{WHOLE}' AND t.median_ms > 0
    ORDER BY m.run_id, m.started_at, m.cell_id"""

#: How many runs are read whole, the newest of those that repeated a cell: one has up to thousands of repeated cells.
MAX_RUNS = 8
_REPEATING = f"""
    SELECT DISTINCT run_id FROM (
        SELECT run_id, cell_key FROM {{table}} s LEFT JOIN runs r USING (run_id)
        WHERE status = 'ok' AND coalesce({MACHINE} = $machine, true) AND coalesce(run_id = $run, true)
        GROUP BY ALL HAVING count(DISTINCT round) > 1) ORDER BY run_id DESC LIMIT {MAX_RUNS}"""


def load_repeated(path: Path, of: Selection) -> list[RepeatedCell]:
    """Returns every cell that the newest runs of a selection measured in several processes, by the order of the runs.
    Leaves out damaged tables."""
    with open_reader(path, damaged="empty") as reader:
        given = {"machine": of.machine, "run": of.run}
        found = [reader.execute(_REPEATING.format(table=table), given).fetchall() for table in TIMED]
        return _load_repeated(reader, sorted({run for rows in found for (run,) in rows})[-MAX_RUNS:])


def load_drifts(path: Path, runs: Iterable[UUID]) -> Mapping[UUID, Sequence[Drift]]:
    """Returns the changes of the machine during each of these runs, computed once for each state of the file. Leaves
    out damaged tables."""
    ordered = sorted(runs)
    with open_reader(path, damaged="empty") as reader:
        return remember(reader, f"drifts of {ordered}", lambda: find_drifts(_load_repeated(reader, ordered)))


def _load_repeated(reader: duckdb.DuckDBPyConnection, runs: list[UUID]) -> list[RepeatedCell]:
    cells: list[RepeatedCell] = []
    for name in TIMED:
        table = TABLES[name]
        key = ", ".join(f"m.{column}" for column in (*table.key, "cell_key"))
        sql = _ROUNDS.format(table=name, stated=is_stated(table, prefix="s."), key=key)
        by = ("run_id", "machine", "cell_key")
        found = fetch_by(reader, sql, {"runs": runs}, kind=_Repetition, by=by, cell=table.cell)
        for (run_id, machine, _), rows in found.items():
            bound = pool_bounds(find_bound(row.time.median_ms, row.device_ms) for row in rows)
            if len(rows) > 1:
                one = RepeatedCell(
                    table=name, machine=machine, run_id=run_id, cell=rows[0].cell, bound=bound, rounds=tuple(rows)
                )
                cells.append(one)
    return cells


#: The id of a cell is that of its first ok round, as `load_steps` has it.
_SPREADS = f"""
    WITH whole AS (
        SELECT cell_id, m.step, {STEP_MS} AS step_ms FROM samples m SEMI JOIN chosen USING (cell_id)
        WHERE NOT m.is_warmup GROUP BY ALL)
    SELECT min(cell_id) AS cell_id, count(*) AS n, min(step_ms) AS least_ms, max(step_ms) AS most_ms
    FROM whole JOIN chosen USING (cell_id) WHERE status = 'ok' AND step_ms IS NOT NULL GROUP BY machine, cell_key"""
#: Of cells that differ in model and context alone, all steps of the one whose std is the largest share of its mean.
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
        samples = fetch_by(reader, _NOISIEST, kind=PhaseSample, by=("of",))
    return with_details(spreads, samples=samples)


def load_machine_noise(path: Path, of: Selection) -> list[MachineNoise]:
    """Returns the noise of whole steps of each kind of cell, of one machine or of all; where several GPUs of a machine
    measured, of each."""
    with open_reader(path) as reader:
        named = dict(reader.execute(f"SELECT DISTINCT {DEVICE}, {MACHINE} FROM runs r").fetchall())
        wanted = [device for device, machine in named.items() if of.machine in (None, machine)]
        known = {table: load_noise(reader, table, wanted) for table in TIMED}
    several = Counter(named.values())
    return [
        MachineNoise(
            table=table,
            machine=named[kind.device],
            device=kind.device.partition(" · ")[0] if several[named[kind.device]] > 1 else "",
            bound=kind.bound,
            clock=kind.clock,
            noise=noise,
        )
        for table, of_table in known.items()
        for kind, noise in of_table.items()
        if kind.phase == WHOLE
    ]
