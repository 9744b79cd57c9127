"""What the runner reads from the file: the cells that are done, the run that goes on, the rates to expect.

    done = measured_rounds("data/results.duckdb", machine)

A file that does not exist yet gives empty answers; one that cannot be read raises, before anything is measured.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from runner.errors import DatabaseMissing
from runner.experiments import KINDS
from runner.results.times import RoundTime, find_bound
from runner.schema import DONE, Bound, Cell, Status
from runner.store.database import open_reader
from runner.store.read.selection import fetch_by, select
from runner.store.sql import EVERY_CELL

#: How many rows of each table a forecast reads.
MAX_PAST = 100
#: A cell of a sweep in one round: its key and the round.
CellRound = tuple[str, int]
#: The columns of `timings` that say how long the whole step of a round took.
TIMES = ("median_ms", "low_ms", "high_ms", "n", "undisturbed_ms", "device_ms")
#: What a later measurement must have in common with a run to become part of it.
SAME_RUN = ("host", "device_name", "device_uuid", "torch", "git_commit", "threads", "allocator")

#: A device with a version of torch and, where it is a CPU, so many threads and these settings of its allocator.
_HERE = """device_name IS NOT DISTINCT FROM $device_name AND torch IS NOT DISTINCT FROM $torch
    AND (runs.device IS DISTINCT FROM 'cpu' OR (runs.threads IS NOT DISTINCT FROM $threads
        AND runs.allocator IS NOT DISTINCT FROM $allocator))"""
_HERE_NAMES = ("device_name", "torch", "threads", "allocator")
#: A cell that need not be measured again there.
_DONE = f"""{_HERE} AND ($any_commit OR git_commit IS NOT DISTINCT FROM $git_commit) AND list_contains($done, status)"""


@dataclass(frozen=True, kw_only=True)
class MeasuredRound:
    """What came of a cell in one round, and how long it took without compiling from an empty cache (s), which further
    rounds do not. `time` is that of the whole step; None for what is not timed and for what did not end ok."""

    status: Status
    seconds: float
    bound: Bound | None = None
    time: RoundTime | None = None

    @classmethod
    def of(cls, status: Status, seconds: float, *times: Any) -> Self:
        """Returns the round of a cell whose whole step has these values of `TIMES`, or none."""
        step = dict(zip(TIMES, times, strict=True)) if times and times[0] else {}
        bound = find_bound(step.get("median_ms"), step.get("device_ms"))
        known = {name: value for name, value in step.items() if name != "device_ms"}
        return cls(status=status, seconds=seconds, bound=bound, time=RoundTime(**known) if known else None)


def measured_rounds(
    db: Path, machine: Mapping[str, Any], *, any_commit: bool = False
) -> dict[CellRound, MeasuredRound]:
    """Returns the cells that need not be measured again on this machine: same device name, torch version and commit
    and, on a CPU, as many threads and the same settings of the allocator. With `any_commit` those that other commits
    measured are done, too."""
    rows = _query(
        db,
        f"""
        SELECT c.cell_key, c.round, c.status, coalesce(c.cell_seconds - coalesce(compile_cold_seconds, 0), 0),
            {", ".join(f"t.{name}" for name in TIMES)}
        FROM ({EVERY_CELL}) c JOIN runs USING (run_id)
        LEFT JOIN (SELECT cell_id, compile_cold_seconds FROM steps) s ON s.cell_id = c.cell_id
        LEFT JOIN timings t ON t.cell_id = c.cell_id AND t.phase = 'step' AND c.status = 'ok'
        WHERE {_DONE} ORDER BY c.cell_id
        """,
        {**_subset(machine, *_HERE_NAMES, "git_commit"), "done": sorted(DONE), "any_commit": any_commit},
    )
    return {(key, number): MeasuredRound.of(*values) for key, number, *values in rows}


def find_run(db: Path, sweep_key: str) -> UUID | None:
    """Returns the latest run of the same sweep on the same machine; None if it was never started."""
    rows = _query(db, "SELECT max(run_id) FROM runs WHERE sweep_key = $sweep_key", {"sweep_key": sweep_key})
    return rows[0][0] if rows else None


def measured_keys(db: Path, run_id: UUID) -> set[str]:
    """Returns the keys of the cells that a run has measured."""
    rows = _query(db, f"SELECT DISTINCT cell_key FROM ({EVERY_CELL}) WHERE run_id = $run_id", {"run_id": run_id})
    return {key for (key,) in rows}


def next_rounds(db: Path, run_id: UUID, machine: Mapping[str, Any]) -> dict[str, int] | None:
    """Returns the round after the last one of each cell of a run, by cell key; None where the run is not in the file,
    or was on another machine, with another torch or at another commit."""
    same = " AND ".join(f"runs.{name} IS NOT DISTINCT FROM ${name}" for name in SAME_RUN)
    rows = _query(
        db,
        f"""
        SELECT cell_key, max(round) + 1 FROM runs JOIN ({EVERY_CELL}) USING (run_id)
        WHERE run_id = $run_id AND {same} GROUP BY cell_key
        """,
        {"run_id": run_id, **_subset(machine, *SAME_RUN)},
    )
    return dict(rows) or None


def measured_rates(db: Path, machine: Mapping[str, Any]) -> dict[str, float]:
    """Returns the median FLOP/s of eager cells by precision, as measured on this device with this torch."""
    rows = _query(
        db,
        f"""
        SELECT precision, median(flops_per_s) FROM steps JOIN runs USING (run_id)
        WHERE {_HERE} AND backend = 'eager' AND flops_per_s IS NOT NULL GROUP BY precision
        """,
        _subset(machine, *_HERE_NAMES),
    )
    return dict(rows)


def past_cells(db: Path, machine: Mapping[str, Any]) -> list[tuple[Cell, float]]:
    """Returns the latest MAX_PAST cells of each kind that ended ok in a first round on this device and torch,
    and their seconds."""
    cells: list[tuple[Cell, float]] = []
    given, by = _subset(machine, *_HERE_NAMES), ("cell_id", "cell_seconds")
    with contextlib.suppress(DatabaseMissing), open_reader(db) as reader:
        for kind in KINDS:
            query = f"""
                SELECT {select(kind.cell)}, cell_id, cell_seconds FROM {kind.table.name} JOIN runs USING (run_id)
                WHERE {_HERE} AND status = 'ok' AND round = 0 AND cell_seconds IS NOT NULL
                ORDER BY cell_id DESC LIMIT {MAX_PAST}"""
            found = fetch_by(reader, query, given, kind=kind.cell, by=by)
            cells += [(cell, seconds) for (_, seconds), (cell,) in found.items()]
    return cells


def _subset(machine: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: machine[name] for name in names}


def _query(db: Path, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    try:
        with open_reader(db) as connection:
            return connection.execute(sql, dict(parameters)).fetchall()
    except DatabaseMissing:
        return []
