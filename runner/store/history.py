"""What the file already knows, for the runner: which cells are done, which run goes on, which rates to expect.

    done = done_cells("data/results.duckdb", machine)

A file that does not exist yet knows nothing; one that cannot be read raises, before anything is measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.errors import DatabaseMissing
from runner.experiments import KINDS
from runner.schema import (
    DONE,
    TABLES,
    Cell,
    FrontierRow,
    Status,
    Table,
)
from runner.store.cells import EVERY_CELL
from runner.store.contract import is_stated
from runner.store.database import open_reader

#: So many rows of a table say what its cells take.
MAX_PAST = 100
#: Cells and rounds are told apart by key and round.
Done = Mapping[tuple[str, int], Status]

_HERE = "device_name IS NOT DISTINCT FROM $device_name AND torch IS NOT DISTINCT FROM $torch"


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run and how its cells ended."""

    run_id: UUID
    started_at: datetime | None
    label: str | None
    preset: str | None
    device_name: str | None
    torch: str | None
    cells: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A row with the median of each of its phases and its measured steps in order (ms)."""

    row: Any
    medians_ms: Mapping[str, float]
    step_ms: Sequence[float]


def done_cells(db: Path, machine: Mapping[str, Any]) -> Done:
    """The cells that need not be measured again on this machine: same key, device name, torch version and commit."""
    rows = _query(
        db,
        f"""
        SELECT cell_key, round, status FROM ({EVERY_CELL}) JOIN runs USING (run_id)
        WHERE {_HERE} AND git_commit IS NOT DISTINCT FROM $git_commit AND list_contains($done, status)
        ORDER BY cell_id
        """,
        {**_named(machine, "device_name", "torch", "git_commit"), "done": sorted(DONE)},
    )
    return {(key, number): status for key, number, status in rows}


def run_of(db: Path, sweep_key: str) -> UUID | None:
    """The latest run of the same sweep on the same machine; None if it was never started."""
    rows = _query(db, "SELECT max(run_id) FROM runs WHERE sweep_key = $sweep_key", {"sweep_key": sweep_key})
    return rows[0][0] if rows else None


def measured_rates(db: Path, machine: Mapping[str, Any]) -> dict[str, float]:
    """Median FLOP/s of eager cells by precision, as measured on this device with this torch."""
    rows = _query(
        db,
        f"""
        SELECT precision, median(flops_per_s) FROM steps JOIN runs USING (run_id)
        WHERE {_HERE} AND backend = 'eager' AND flops_per_s IS NOT NULL GROUP BY precision
        """,
        _named(machine, "device_name", "torch"),
    )
    return dict(rows)


def past_cells(db: Path, machine: Mapping[str, Any]) -> list[tuple[Cell, float]]:
    """The latest cells that ended ok on this device with this torch, some of each table, with their seconds."""
    found: list[tuple[Cell, float]] = []
    for kind in KINDS:
        cell, table = kind.cell, kind.table
        rows = _query(
            db,
            f"""
            SELECT {", ".join(cell.names())}, cell_seconds FROM {table.name} JOIN runs USING (run_id)
            WHERE {_HERE} AND status = 'ok' AND cell_seconds IS NOT NULL ORDER BY cell_id DESC LIMIT {MAX_PAST}
            """,
            _named(machine, "device_name", "torch"),
        )
        for *key, seconds in rows:
            asked: Any = cell(**dict(zip(cell.names(), key, strict=True)))
            found.append((asked, seconds))
    return found


def runs(db: Path) -> list[RunSummary]:
    """Every run in the file, newest first."""
    rows = _query(
        db,
        f"""
        SELECT run_id, any_value(runs.started_at), any_value(label), any_value(preset), any_value(device_name),
               any_value(torch), count(cell_id), count(cell_id) FILTER (status != 'ok')
        FROM runs LEFT JOIN ({EVERY_CELL}) USING (run_id) GROUP BY run_id ORDER BY run_id DESC
        """,
        {},
    )
    names = ("run_id", "started_at", "label", "preset", "device_name", "torch", "cells", "failed")
    return [RunSummary(**dict(zip(names, row, strict=True))) for row in rows]


def cells_of(db: Path, run_id: UUID, *, table: Table = TABLES["steps"]) -> list[Measured]:
    """Every cell of a run in a table, in the order of measuring."""
    names = [column.name for column in table.columns]
    rows = _query(
        db,
        f"""
        WITH medians AS (
            SELECT cell_id, map_from_entries(list((phase, median_ms))) AS medians FROM timings
            WHERE run_id = $run_id GROUP BY cell_id
        ), series AS (
            SELECT cell_id, list(duration_ms ORDER BY step) AS step_ms FROM samples
            WHERE run_id = $run_id AND phase = 'step' AND NOT is_warmup GROUP BY cell_id
        )
        SELECT {", ".join(f"asked.{name}" for name in names)}, medians, step_ms
        FROM {table.name} asked LEFT JOIN medians USING (cell_id) LEFT JOIN series USING (cell_id)
        WHERE run_id = $run_id AND {is_stated(table)} ORDER BY cell_id
        """,
        {"run_id": run_id},
    )
    return [
        Measured(row=table.row(**dict(zip(names, values, strict=True))), medians_ms=medians or {}, step_ms=steps or ())
        for *values, medians, steps in rows
    ]


def frontier_of(db: Path, run_id: UUID) -> list[FrontierRow]:
    """Every answer of a run in the order in which they were found."""
    return [item.row for item in cells_of(db, run_id, table=TABLES["frontier"])]


def _named(machine: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: machine[name] for name in names}


def _query(db: Path, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    try:
        with open_reader(db) as connection:
            return connection.execute(sql, dict(parameters)).fetchall()
    except DatabaseMissing:
        return []
