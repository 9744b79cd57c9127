"""Loads the cells that were measured in several processes, and the noise of a machine that they show, for Trust.

    for known in load_known_noise(path): print(known.table, known.kind.machine, known.noise.std)
    for cell in load_repeated(path, Selection()): print(cell.cell, [found.time.median_ms for found in cell.rounds])

Times are those of whole steps. The rounds of a cell are those of one run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from uuid import UUID

import duckdb

from runner.analysis.audit.drift import find_drifts
from runner.analysis.audit.findings import Drift
from runner.results import Noise, RepeatedCell, Repetition, RoundTime
from runner.results.times import find_bound, pool_bounds
from runner.schema import TABLES, Cell, Phase
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.selection import MACHINE, Selection
from runner.store.queries.times import NoiseKind, load_noise
from runner.store.shared import remember

#: The tables of timed cells, and the phase that stands for a whole cell.
TIMED = tuple(name for name, table in TABLES.items() if table.timed)
WHOLE: Phase = "step"


@dataclass(frozen=True, kw_only=True)
class KnownNoise:
    """The noise of one kind of cell that the repeated cells of one table show."""

    table: str
    kind: NoiseKind
    noise: Noise


@dataclass(frozen=True, kw_only=True)
class _RepeatedRow:
    run_id: UUID
    machine: str
    device_ms: float | None
    cell: Cell
    cell_id: UUID
    round: int
    started_at: datetime | None
    time: RoundTime


#: Where a round was tried again, the last try counts.
_ROUNDS = f"""
    WITH tries AS (
        SELECT s.*, {MACHINE} AS machine
        FROM {{table}} s LEFT JOIN runs r USING (run_id) WHERE {{chosen}} AND status = 'ok' AND {{stated}}
        QUALIFY row_number() OVER (PARTITION BY run_id, cell_key, round ORDER BY cell_id DESC) = 1),
    measured AS (FROM tries QUALIFY count(*) OVER (PARTITION BY run_id, cell_key) > 1)
    SELECT m.run_id, m.machine, t.device_ms, {{key}}, m.cell_id, m.round, m.started_at,
        t.median_ms, t.low_ms, t.high_ms, t.n
    FROM measured m JOIN timings t USING (cell_id) WHERE t.phase = '{WHOLE}' AND t.median_ms > 0
    ORDER BY m.run_id, m.started_at, m.cell_id"""


def load_known_noise(path: Path) -> list[KnownNoise]:
    """Returns the noise of whole steps, of each machine and kind of cell."""
    with open_reader(path) as reader:
        machines = [name for (name,) in reader.execute(f"SELECT DISTINCT {MACHINE} FROM runs r").fetchall()]
        found = {table: load_noise(reader, table, machines) for table in TIMED}
    return [
        KnownNoise(table=table, kind=kind, noise=noise)
        for table, of_table in found.items()
        for kind, noise in of_table.items()
        if kind.phase == WHOLE
    ]


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
        runs = sorted({run for rows in found for (run,) in rows})[-MAX_RUNS:]
        return _load_repeated(reader, chosen="list_contains($runs, run_id)", runs=runs)


def load_drifts(path: Path, runs: Iterable[UUID]) -> Mapping[UUID, Sequence[Drift]]:
    """Returns the changes of the machine during each of these runs, computed once for each state of the file. Leaves
    out damaged tables."""
    ordered = sorted(runs)
    with open_reader(path, damaged="empty") as reader:
        return remember(reader, f"drifts of {ordered}", partial(_compute_drifts, reader, ordered))


def _compute_drifts(reader: duckdb.DuckDBPyConnection, runs: list[UUID]) -> Mapping[UUID, Sequence[Drift]]:
    return find_drifts(_load_repeated(reader, chosen="list_contains($runs, run_id)", runs=runs))


def _load_repeated(reader: duckdb.DuckDBPyConnection, *, chosen: str, **parameters: list[UUID]) -> list[RepeatedCell]:
    """Returns the repeated cells of the rows that the condition `chosen` holds for."""
    cells: list[RepeatedCell] = []
    for name in TIMED:
        table = TABLES[name]
        key = ", ".join(f"m.{column}" for column in table.key)
        stated = is_stated(table, prefix="s.")
        sql = _ROUNDS.format(table=name, stated=stated, key=key, chosen=chosen)
        groups: dict[tuple[UUID, Cell], list[_RepeatedRow]] = {}
        for row in fetch(reader, sql, parameters, kind=_RepeatedRow, cell=table.cell):
            groups.setdefault((row.run_id, row.cell), []).append(row)
        cells += [_gather(name, rows) for rows in groups.values() if len(rows) > 1]
    return cells


def _gather(table: str, rows: Sequence[_RepeatedRow]) -> RepeatedCell:
    first = rows[0]
    return RepeatedCell(
        table=table,
        machine=first.machine,
        run_id=first.run_id,
        cell=first.cell,
        bound=pool_bounds(find_bound(row.time.median_ms, row.device_ms) for row in rows),
        rounds=tuple(
            Repetition(cell_id=row.cell_id, round=row.round, started_at=row.started_at, time=row.time) for row in rows
        ),
    )
