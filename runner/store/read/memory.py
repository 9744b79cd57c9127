"""Peaks and their parts, memory timelines and what they hold, tensors saved for backward, and the cost of a precision:
sums with their partial sums, errors of a pass, dtypes, and statistics of normalization.

for peak in load_peaks(path, Selection()):
    print(peak.cell, peak.peak_allocated_bytes)
for one in load_saved(path, Selection()):
    print(one.cell, one.tensors[0].operation, one.tensors[0].size)

Errors do not vary between measurements as times do, so the first ok round of a cell counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args
from uuid import UUID

from runner.results.cells import AccumulationResult, LiveAllocation, MemoryPart, NormalizationResult, Peak, Timeline
from runner.results.rows import Precise, SavedCell
from runner.schema import TABLES, AttentionCell, Category, DtypeRow, Precision
from runner.schema.memory import AllocationRow, MemoryCell, PhasePeakRow, SavedTensorRow, TimelineRow
from runner.store.database import open_reader
from runner.store.read.selection import (
    MACHINE,
    Selection,
    fetch,
    fetch_by,
    fetch_by_cell,
    fetch_rows,
    select,
    select_chosen,
)
from runner.store.read.timed import choose

KEY = TABLES["memory"].key
#: The column of each part of a peak, in the order of stacking. Names are those of `Category` and two of the allocator.
PARTS: Mapping[str, str] = {
    "parameter": "parameters_bytes",
    "gradient": "gradients_bytes",
    "optimizer state": "optimizer_state_bytes",
    "activation": "activations_bytes",
    "autocast copy": "autocast_copies_bytes",
    "input": "inputs_bytes",
    "temporary": "temporaries_bytes",
    "workspace": "workspace_bytes",
    "rounding": "rounding_bytes",
    "unknown": "residual_bytes",
    "fragmentation": "fragmentation_bytes",
}
_OWN = (
    "failed_phase", "message", "peak_phase", "peak_allocated_bytes", "peak_reserved_bytes",
    "predicted_peak_bytes", "residual_stream_bytes", "saved_bytes", "block_saved_bytes",
)  # fmt: skip

_PEAKS = f"""
    SELECT cell_id, status, machine, device_memory_bytes AS machine_bytes, device, device_name, {", ".join(_OWN)},
        MAP {{{", ".join(f"'{part}': {column}" for part, column in PARTS.items())}}} AS parts, {", ".join(KEY)}
    FROM chosen LEFT JOIN (SELECT run_id, device, device_name, device_memory_bytes FROM runs) USING (run_id)
    ORDER BY model_key IS NOT NULL, model, d_model * d_model * layers, d_model, layers, context, precision <> 'fp32',
        precision, mode, checkpoint_blocks, attention, batch, cell_id"""
_LIVE = """
    SELECT cell_id, phase, peak_allocated_bytes FROM phase_peaks SEMI JOIN chosen USING (cell_id)
    WHERE peak_allocated_bytes IS NOT NULL"""


def load_peaks(path: Path, of: Selection) -> list[Peak]:
    """Returns every cell that counts, smallest model and shortest context first."""
    with open_reader(path) as reader:
        choose(reader, "memory", of, (*_OWN, *PARTS.values()))
        found = fetch(reader, _PEAKS, kind=Peak)
        by_id = {peak.cell_id: peak for peak in found}
        for cell_id, phase, peak_bytes in reader.execute(_LIVE).fetchall():
            by_id[cell_id].phases[phase] = peak_bytes
    return found


#: The peaks of each phase of a memory cell, and when each begins (µs), both in their order.
_PHASES = "phase_peaks WHERE cell_id = ? ORDER BY list_position(['forward', 'loss', 'backward', 'optimizer'], phase)"
_MARKS = "SELECT at_us, name FROM marks WHERE cell_id = ? ORDER BY at_us"

CATEGORIES: tuple[str, ...] = get_args(Category)

_ALIVE = "cell_id = ? AND born_us <= ? AND (died_us IS NULL OR died_us > ?)"
#: The allocations that count: all, those that were held before the recording, or those of the recording.
Which = Literal["all", "held", "recorded"]
_WHICH: Mapping[Which, str] = {"all": "", "held": " AND born_us = 0", "recorded": " AND born_us > 0"}

_TIMELINES = f"""
    WITH recorded AS (
        SELECT t.*, {MACHINE} AS machine, replace(t.title, ' · timeline', '') AS words
        FROM timelines t LEFT JOIN runs r USING (run_id) WHERE $run IS NULL OR t.run_id = $run
        QUALIFY t.cell_id = max(t.cell_id) OVER (PARTITION BY t.title, machine))
    SELECT {select(TimelineRow, "t.")},
        words || CASE WHEN count(*) OVER (PARTITION BY words) > 1 THEN ' · ' || machine ELSE '' END AS label,
        machine, {select(MemoryCell, "m.")}
    FROM recorded t LEFT JOIN memory m USING (cell_id)
    ORDER BY machine IS DISTINCT FROM $first, t.cell_id DESC"""


def load_timelines(path: Path, run: UUID | None = None, first: str | None = None) -> list[Timeline]:
    """Returns the timelines of the file or of one run, those of the machine `first` before others, the newest first. On
    each machine only the newest timeline of a title counts."""
    with open_reader(path) as reader:
        return fetch(reader, _TIMELINES, {"run": run, "first": first}, kind=Timeline)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The allocations of one timeline in order of birth, as NumPy arrays of one length.

    `born`, `died` (µs; -1 for allocations that outlived the recording), `address` and `bytes` are int64. The others are
    int32 indices, -1 where unknown: `category` into `CATEGORIES`, `phase`, `operation` and `module` into `names[…]`,
    `stack` into `stacks`. `marks` are the beginnings of the phases, in order."""

    arrays: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]]
    stacks: tuple[str, ...]
    marks: tuple[tuple[int, str], ...]


_NAMED = ("phase", "operation", "module")


def load_columns(path: Path, cell_id: UUID) -> Columns:
    """Returns the allocations of a timeline, with their names, stacks and marks."""
    rank = "CASE WHEN {0} IS NOT NULL THEN dense_rank() OVER (ORDER BY {0} NULLS LAST) - 1 ELSE -1 END::INTEGER AS {0}"
    query = f"""
        SELECT born_us AS born, coalesce(died_us, -1) AS died, address, allocated_bytes AS bytes,
            (coalesce(list_position(?, category), {len(CATEGORIES)}) - 1)::INTEGER AS category,
            coalesce(stack, -1)::INTEGER AS stack, {", ".join(rank.format(name) for name in _NAMED)}
        FROM allocations WHERE cell_id = ? ORDER BY born_us, allocation"""
    with open_reader(path) as reader:
        arrays = reader.execute(query, [list(CATEGORIES), cell_id]).fetchnumpy()
        distinct = "SELECT DISTINCT {0} FROM allocations WHERE cell_id = ? AND {0} IS NOT NULL ORDER BY 1"
        found = {name: reader.execute(distinct.format(name), [cell_id]).fetchall() for name in _NAMED}
        stacks = dict(reader.execute("SELECT stack, frames FROM stacks WHERE cell_id = ?", [cell_id]).fetchall())
        marks = reader.execute(_MARKS, [cell_id]).fetchall()
    return Columns(
        arrays={name: array.filled() if hasattr(array, "filled") else array for name, array in arrays.items()},
        names={name: tuple(value for (value,) in values) for name, values in found.items()},
        stacks=tuple(stacks.get(number, "") for number in range(max(stacks, default=-1) + 1)),
        marks=tuple(marks),
    )


def load_parts_at(path: Path, cell_id: UUID, at_us: int) -> list[MemoryPart]:
    """Returns the bytes alive at a moment by category, the largest first."""
    query = f"""
        SELECT category, sum(allocated_bytes)::BIGINT AS held_bytes, count(*) AS allocations
        FROM allocations WHERE {_ALIVE} GROUP BY category ORDER BY held_bytes DESC, category"""
    with open_reader(path) as reader:
        return fetch(reader, query, [cell_id, at_us, at_us], kind=MemoryPart)


def load_largest_at(
    path: Path, cell_id: UUID, at_us: int, limit: int = 25, which: Which = "all"
) -> list[LiveAllocation]:
    """Returns the largest allocations alive at a moment, the largest first, of those alike the first one."""
    query = f"""
        WITH alive AS (SELECT * FROM allocations WHERE {_ALIVE}{_WHICH[which]}),
        largest AS (
            SELECT min(allocation) AS allocation, count(*) AS alike FROM alive
            GROUP BY allocated_bytes, category, phase, operation, stack, regexp_replace(module, '[0-9]+', '', 'g')
            ORDER BY allocated_bytes DESC, allocation LIMIT {int(limit)})
        SELECT {select(AllocationRow)}, frames, alike FROM alive JOIN largest USING (allocation)
        LEFT JOIN (SELECT stack, frames FROM stacks WHERE cell_id = ?) USING (stack)
        ORDER BY allocated_bytes DESC, allocation"""
    with open_reader(path) as reader:
        return fetch(reader, query, [cell_id, at_us, at_us, cell_id], kind=LiveAllocation)


#: The largest allocations that are read of each timeline.
MAX_ALLOCATIONS = 12

_TENSORS = "saved_tensors SEMI JOIN chosen USING (cell_id) WHERE storage_bytes > 0 ORDER BY cell_id, position"


def load_saved(path: Path, of: Selection) -> list[SavedCell]:
    """Returns the memory and attention cells that count and recorded what they keep for backward, tensor by tensor."""
    cells = list[SavedCell]()
    with open_reader(path) as reader:
        for table, kind in (("memory", MemoryCell), ("attention", AttentionCell)):
            choose(reader, table, of)
            tensors = fetch_by_cell(reader, SavedTensorRow, _TENSORS)
            keys = ", ".join(TABLES[table].key)
            query = f"SELECT cell_id, machine, {keys} FROM chosen WHERE list_contains(?, cell_id) ORDER BY {keys}"
            found = fetch(reader, query, [list(tensors)], kind=SavedCell, cell=kind)
            cells += [replace(one, tensors=tuple(tensors[one.cell_id])) for one in found]
    return cells


def load_recorded(path: Path, of: Selection) -> list[Timeline]:
    """Returns the newest timeline of each title on each machine, with its phases and what was largest at its peak."""
    recorded = []
    for line in load_timelines(path, of.run, of.machine):
        with open_reader(path) as reader:
            phases = fetch_rows(reader, PhasePeakRow, _PHASES, [line.cell_id])
            marks = reader.execute(_MARKS, [line.cell_id]).fetchall()
        recorded.append(
            replace(
                line,
                phases=tuple(phases),
                begins_us={name: at_us for at_us, name in reversed(marks)},
                largest=tuple(load_largest_at(path, line.cell_id, line.peak_at_us, MAX_ALLOCATIONS, "recorded")),
            )
        )
    return recorded


_SENSITIVE = """
    SELECT cell_id, statistic, computed_in, scale, CASE WHEN count(n.error) = count(*) THEN max(n.error) END AS error,
        max(overflowed_share) AS overflowed_share, max(underflowed_share) AS underflowed_share
    FROM normalisation n WHERE list_contains(?, cell_id) GROUP BY ALL ORDER BY statistic, computed_in, scale"""


def load_precise(path: Path, of: Selection) -> list[Precise]:
    """Returns the latest row of each model and precision, which was measured beside a reference, smallest model first,
    with its dtypes and the errors of normalization over its residual streams, by statistic, dtype and scale."""
    found = _load_rows(path, of, table="numerics", kind=Precise)
    asked = [[one.cell_id for one in found]]
    with open_reader(path) as reader:
        dtypes = fetch_by_cell(reader, DtypeRow, "dtypes WHERE list_contains(?, cell_id) ORDER BY position", asked)
        errors = fetch_by(reader, _SENSITIVE, asked, kind=NormalizationResult, by=("cell_id",))
    known = [
        replace(one, dtypes=tuple(dtypes.get(one.cell_id, ())), normalization=tuple(errors.get(one.cell_id, ())))
        for one in found
    ]
    names = get_args(Precision)
    key = attrgetter("order", "context", "batch", "attention", "weights_dtype")
    return sorted(known, key=lambda one: (*key(one), names.index(one.precision)))


R = TypeVar("R", AccumulationResult, Precise)


def load_accumulations(path: Path, of: Selection) -> list[AccumulationResult]:
    """Returns the latest row of each sum, narrow accumulators last."""
    found = _load_rows(path, of, table="accumulation", kind=AccumulationResult)
    points: dict[UUID, list[tuple[int, float]]] = {one.cell_id: [] for one in found}
    query = "SELECT cell_id, addend, total FROM partial_sums WHERE list_contains(?, cell_id) ORDER BY addend"
    with open_reader(path) as reader:
        for cell_id, addend, total in reader.execute(query, [list(points)]).fetchall():
            points[cell_id].append((addend, total))
    order = ("fp64", "fp32", "bf16", "fp16")
    return sorted(
        (replace(one, on_the_way=tuple(points[one.cell_id])) for one in found),
        key=lambda one: (order.index(one.accumulator), order.index(one.addend), one.upcast),
    )


def _load_rows(path: Path, of: Selection, *, table: str, kind: type[R]) -> list[R]:
    """Returns the rows that count, with their machine, one round of each cell."""
    query, parameters = select_chosen(table, of, tuple(column.name for column in TABLES[table].columns))
    with open_reader(path) as reader:
        return fetch(reader, f"SELECT {select(TABLES[table].row)}, machine FROM ({query})", parameters, kind=kind)
