"""Writes a recording as columns, which pass between processes as JSON, and the columns as rows of the schema.

    columns = columns_of(history, stacks=stacks.texts, marks=[(0, "forward"), (812, "backward")])
    rows = timeline_rows(columns, about=About(run_id=..., cell_id=..., origin="imported", title="step.pickle"))

Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runner.analysis.timeline.lives import History, phase_of
from runner.schema import AllocationRow, MarkRow, StackRow, TimelineOrigin, TimelineRow


@dataclass(frozen=True, kw_only=True)
class About:
    """The title of a timeline, and the run and the cell that it belongs to."""

    run_id: UUID
    cell_id: UUID
    origin: TimelineOrigin
    title: str
    device_bytes: int | None = None


def columns_of(
    history: History, *, stacks: Sequence[str], marks: Sequence[tuple[int, str]], phased: bool
) -> dict[str, Any]:
    """Returns every column of the timeline's tables but the ids. `marks` are (position in the events, name) in order;
    `phased` says whether they are phases, to which allocations belong."""
    times, lives = history.times_us, history.lives
    starts, names = [position for position, _ in marks], [name for _, name in marks]
    allocations = {
        "address": [life.address for life in lives],
        "allocated_bytes": [life.bytes for life in lives],
        "born_us": [0 if life.born is None else times[life.born] for life in lives],
        "died_us": [None if life.died is None else times[life.died] for life in lives],
        "category": [life.category or "unknown" for life in lives],
        "phase": [phase_of(life.born, starts, names) if phased else None for life in lives],
        "operation": [life.operation for life in lives],
        "module": [life.module for life in lives],
        "stack": [life.stack for life in lives],
    }
    return {
        "allocations": allocations,
        "stacks": list(stacks),
        "marks": {"at_us": [times[position] for position in starts], "name": names},
        "timeline": {
            "allocations": len(lives),
            "duration_us": times[-1] if times else 0,
            "baseline_bytes": history.baseline_bytes,
            "baseline_allocations": history.baseline_allocations,
            "peak_bytes": history.peak_bytes,
            "peak_at_us": history.peak_at_us,
            "lost_events": history.lost_events,
        },
    }


def timeline_rows(columns: Mapping[str, Any], about: About) -> dict[str, list[object]]:
    """Returns the rows of `timelines`, `allocations`, `stacks` and `marks`. Raises TypeError or ValueError for columns
    that `columns_of` cannot have made."""
    ids: dict[str, Any] = {"run_id": about.run_id, "cell_id": about.cell_id}
    names, values = tuple(columns["allocations"]), tuple(columns["allocations"].values())
    return {
        "timelines": [
            TimelineRow(
                **ids, origin=about.origin, title=about.title, device_bytes=about.device_bytes, **columns["timeline"]
            )
        ],
        "allocations": [
            AllocationRow(**ids, allocation=number, **dict(zip(names, row, strict=True)))
            for number, row in enumerate(zip(*values, strict=True))
        ],
        "stacks": [StackRow(**ids, stack=number, frames=text) for number, text in enumerate(columns["stacks"])],
        "marks": [
            MarkRow(**ids, at_us=at_us, name=name)
            for at_us, name in zip(columns["marks"]["at_us"], columns["marks"]["name"], strict=True)
        ],
    }
