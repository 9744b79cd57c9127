"""Any measured number of any kind of cell, with the cell's settings, for the page Explore.

    for found in load_measures(path, "steps"):
        print(found.name, found.title)
    rows = load_explored(path, Wanted(table="steps", measure="median_ms", phase="backward"))

The rows are the latest of each cell on every machine. Rounds are pooled as elsewhere: the estimate of times, the
largest of bytes and errors, the median of other numbers.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

from runner.results import ExploredCell
from runner.schema import TABLES, Phase
from runner.store.database import open_reader
from runner.store.queries.counted import select_counted
from runner.store.queries.fetch import fetch
from runner.store.queries.raw import fetch_rows
from runner.store.queries.selection import Selection
from runner.store.queries.times import TimesByCell, load_times

#: The tables that can be explored, and what their rows are called.
KINDS = {name: table.words for name, table in TABLES.items() if table.words}
#: The numbers of a row that describe the measurement, not the cell.
_EFFORT = ("cell_seconds", "build_seconds", "warmup_seconds", "measure_seconds", "steps", "round", "threads")
#: The endings of the names of columns whose largest value over the rounds counts.
_LARGEST = ("_bytes", "_error", "tolerance")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One number of a row, or the time of a phase."""

    name: str
    title: str
    unit: str
    phase: Phase | None = None


@dataclass(frozen=True, kw_only=True)
class WantedMeasure:
    """One measure of the rows of a table. With `run`, only rows of that run count on its machine."""

    table: str
    measure: str
    phase: Phase | None = None
    machine: str | None = None
    run: UUID | None = None


def load_measures(path: Path, table: str) -> list[Measure]:
    """Returns what has a value in any row that is ok: the times of the phases, then the columns in the schema's
    order."""
    columns = [
        column
        for column in TABLES[table].columns
        if column.type in (int, float) and column.name not in (*TABLES[table].key, *_EFFORT)
    ]
    counts = ", ".join(f"count({column.name})" for column in columns)
    with open_reader(path) as reader:
        found = reader.execute(f"SELECT {counts} FROM {table} WHERE status = 'ok'").fetchone()
        query = f"SELECT DISTINCT phase FROM timings SEMI JOIN {table} USING (cell_id) WHERE median_ms IS NOT NULL"
        phases = {phase for (phase,) in reader.execute(query).fetchall()}
    assert found is not None
    timed = [
        Measure(name="median_ms", title="Median time", unit="ms", phase=phase)
        for phase in sorted(get_args(Phase), key=lambda phase: phase != "step")
        if phase in phases and TABLES[table].timed
    ]
    return timed + [
        Measure(name=column.name, title=column.label, unit=column.unit)
        for column, count in zip(columns, found, strict=True)
        if count
    ]


def load_explored(path: Path, wanted: WantedMeasure) -> list[ExploredCell]:
    """Returns every cell that counts, with its value; smaller models and shorter sequences first."""
    table, key = wanted.table, TABLES[wanted.table].key
    # On the run's machine only its rows count; on other machines the latest do.
    query = f"SELECT * FROM ({select_counted(table, Selection())})"
    if wanted.run is not None:
        own = select_counted(table, Selection(machine=wanted.machine, run=wanted.run))
        query = f"{query} WHERE machine IS DISTINCT FROM $machine UNION ALL BY NAME FROM ({own})"
    largest = wanted.measure.endswith(_LARGEST)
    value = (
        "NULL::DOUBLE"
        if wanted.phase
        else f"{'max' if largest else 'median'}(s.{wanted.measure}) FILTER (c.status = 'ok')"
    )
    cells = f"""
        SELECT coalesce(min(c.cell_id) FILTER (c.status = 'ok'), min(c.cell_id)) AS cell_id, c.machine,
            any_value(r.source) AS source,
            CASE WHEN bool_or(c.status = 'ok') THEN 'ok' ELSE arg_max(c.status, c.cell_id) END AS status,
            arg_max(s.failed_phase, s.cell_id) AS failed_phase, arg_max(s.message, s.cell_id) AS message,
            count(*) AS rounds, {value} AS value,
            {", ".join(f"c.{name}" for name in key)}
        FROM chosen c JOIN {table} s USING (cell_id) LEFT JOIN runs r ON r.run_id = c.run_id
        GROUP BY c.machine, c.cell_key, {", ".join(f"c.{name}" for name in key)}
        ORDER BY {", ".join(f"c.{name}" for name in TABLES[table].question)}, c.machine"""
    with open_reader(path) as reader:
        parameters = {"machine": wanted.machine} if wanted.run is not None else {}
        reader.execute(f"CREATE OR REPLACE TEMP TABLE chosen AS {query}", parameters)
        found = fetch(reader, cells, kind=ExploredCell, cell=TABLES[table].cell)
        times = load_times(reader, table) if wanted.phase else {}
    return [_with_time(cell, times, wanted.phase) for cell in found] if wanted.phase else found


def _with_time(cell: ExploredCell, times: TimesByCell, phase: Phase) -> ExploredCell:
    """Returns the cell with its time in the phase, if it has one."""
    time = times[cell.machine, cell.cell.key][1].get(phase) if (cell.machine, cell.cell.key) in times else None
    return replace(cell, value=time.median_ms, low=time.low_ms, high=time.high_ms) if time else cell


def load_row(path: Path, table: str, cell_id: UUID) -> dict[str, Any]:
    """Returns all values of one row by column, nothing if the file has no such row."""
    with open_reader(path) as reader:
        found: list[object] = fetch_rows(reader, TABLES[table].row, f"{table} WHERE cell_id = ?", [cell_id])
    return dict(vars(found[0])) if found else {}
