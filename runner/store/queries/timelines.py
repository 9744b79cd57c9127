"""The memory timelines of a file, all allocations of one as columns, and the allocations alive at a moment.

    for timeline in load_timelines(path):
        print(timeline.title, timeline.peak_bytes, load_parts_at(path, timeline.cell_id, timeline.peak_at_us))

An allocation is alive at `t` when `born_us <= t` and it is freed after `t` or never. Limits: moments are whole
microseconds, so a block that is freed within the microsecond of the peak does not count; `peak_bytes` is the recorder's
own number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

import duckdb

from runner.results import LiveAllocation, MemoryPart, Timeline
from runner.schema import Category, MemoryCell
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch, select
from runner.store.queries.selection import MACHINE

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
    SELECT t.cell_id, t.run_id, t.title,
        words || CASE WHEN count(*) OVER (PARTITION BY words) > 1 THEN ' · ' || machine ELSE '' END AS label,
        machine, origin, t.allocations, duration_us, baseline_bytes, t.peak_bytes, peak_at_us, lost_events,
        device_bytes, baseline_allocations, baseline_block_bytes, peak_block_bytes,
        {select(MemoryCell, "m.")}
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
    named = ", ".join(rank.format(name) for name in _NAMED)
    query = f"""
        SELECT born_us AS born, coalesce(died_us, -1) AS died, address, allocated_bytes AS bytes,
            (coalesce(list_position(?, category), {len(CATEGORIES)}) - 1)::INTEGER AS category,
            coalesce(stack, -1)::INTEGER AS stack, {named}
        FROM allocations WHERE cell_id = ? ORDER BY born_us, allocation"""
    with open_reader(path) as reader:
        arrays = reader.execute(query, [list(CATEGORIES), cell_id]).fetchnumpy()
        names = {name: _load_names(reader, name, cell_id) for name in _NAMED}
        stacks = dict(reader.execute("SELECT stack, frames FROM stacks WHERE cell_id = ?", [cell_id]).fetchall())
        marks = reader.execute("SELECT at_us, name FROM marks WHERE cell_id = ? ORDER BY at_us", [cell_id]).fetchall()
    return Columns(
        arrays={name: array.filled() if hasattr(array, "filled") else array for name, array in arrays.items()},
        names=names,
        stacks=tuple(stacks.get(number, "") for number in range(max(stacks, default=-1) + 1)),
        marks=tuple(marks),
    )


def _load_names(reader: duckdb.DuckDBPyConnection, name: str, cell_id: UUID) -> tuple[str, ...]:
    """Returns the names that a column's numbers stand for, in the order of `dense_rank`."""
    query = f"SELECT DISTINCT {name} FROM allocations WHERE cell_id = ? AND {name} IS NOT NULL ORDER BY 1"
    return tuple(value for (value,) in reader.execute(query, [cell_id]).fetchall())


def load_marks(path: Path, cell_id: UUID) -> list[tuple[int, str]]:
    """Returns when each phase of a timeline begins (µs), and its name."""
    with open_reader(path) as reader:
        query = "SELECT at_us, name FROM marks WHERE cell_id = ? ORDER BY at_us"
        return reader.execute(query, [cell_id]).fetchall()


def load_parts_at(path: Path, cell_id: UUID, at_us: int, which: Which = "all") -> list[MemoryPart]:
    """Returns the bytes alive at a moment by category, the largest first."""
    query = f"""
        SELECT category, sum(allocated_bytes)::BIGINT AS held_bytes, count(*) AS allocations
        FROM allocations WHERE {_ALIVE}{_WHICH[which]} GROUP BY category ORDER BY held_bytes DESC, category"""
    with open_reader(path) as reader:
        return fetch(reader, query, [cell_id, at_us, at_us], kind=MemoryPart)


def load_largest_at(
    path: Path, cell_id: UUID, at_us: int, limit: int = 25, which: Which = "all"
) -> list[LiveAllocation]:
    """Returns the largest allocations alive at a moment, the largest first."""
    query = f"""
        SELECT allocation, allocated_bytes, category, phase, module, operation, born_us, died_us, frames
        FROM (SELECT * FROM allocations WHERE {_ALIVE}{_WHICH[which]}
            ORDER BY allocated_bytes DESC, allocation LIMIT {int(limit)})
        LEFT JOIN (SELECT stack, frames FROM stacks WHERE cell_id = ?) USING (stack)
        ORDER BY allocated_bytes DESC, allocation"""
    with open_reader(path) as reader:
        return fetch(reader, query, [cell_id, at_us, at_us, cell_id], kind=LiveAllocation)
