"""What was recorded of one cell, unsummed: every sample of its rounds, or the peaks of its phases.

    samples(path, "attention", cell_id)       # every iteration, warm-up included
    phase_peaks(path, cell_id)                # of a memory cell, in the order of the step

Rounds of a cell are rows of one run with one key.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from runner.schema import Phase
from runner.store.database import open_reader


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One phase of one step of a cell. `step` counts from the start of the process, warm-up included."""

    round: int
    phase: Phase
    step: int
    is_warmup: bool
    duration_ms: float


_SAMPLES = """
    SELECT s.round, m.phase, m.step, m.is_warmup, m.duration_ms
    FROM {table} asked JOIN {table} s ON s.run_id = asked.run_id AND s.cell_key = asked.cell_key
    JOIN samples m ON m.cell_id = s.cell_id WHERE asked.cell_id = ?
        AND ('{table}' = 'steps' OR m.phase IN ('forward', 'backward'))
    ORDER BY s.round, m.phase, m.step"""


def samples(path: Path, table: Literal["steps", "attention"], cell_id: UUID) -> list[Sample]:
    """Every phase of every step of the cell and of its other rounds. For attention, whose sums are stored too, its
    two phases."""
    with open_reader(path) as reader:
        rows = reader.execute(_SAMPLES.format(table=table), [cell_id]).fetchall()
    names = ("round", "phase", "step", "is_warmup", "duration_ms")
    return [Sample(**dict(zip(names, row, strict=True))) for row in rows]


@dataclass(frozen=True, kw_only=True)
class PhasePeak:
    """Peaks within one phase of a memory cell, in bytes; None where they were not counted."""

    phase: str
    allocated: int | None
    reserved: int | None
    driver: int | None
    left: int | None


_PEAKS = """
    SELECT phase, peak_allocated_bytes, peak_reserved_bytes, peak_driver_bytes, end_allocated_bytes
    FROM phase_peaks WHERE cell_id = ?
    ORDER BY list_position(['forward', 'loss', 'backward', 'optimizer'], phase)"""


def phase_peaks(path: Path, cell_id: UUID) -> list[PhasePeak]:
    """The peaks of each phase, in the order in which the step passes through them."""
    with open_reader(path) as reader:
        rows = reader.execute(_PEAKS, [cell_id]).fetchall()
    return [PhasePeak(**dict(zip(PhasePeak.__dataclass_fields__, row, strict=True))) for row in rows]
