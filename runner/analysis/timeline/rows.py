"""Writes a recording as columns, which pass between processes as JSON, and the columns as rows of the schema.

    columns = columns_of(history, stacks=stacks.texts, marks=[(0, "forward"), (812, "backward")])
    rows = timeline_rows(columns, about=About(run_id=..., cell_id=..., origin="imported", title="step.pickle"))

Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runner.analysis.timeline.allocations import History, phase_of
from runner.schema import AllocationRow, MarkRow, StackRow, TimelineOrigin, TimelineRow


@dataclass(frozen=True, kw_only=True)
class AboutTimeline:
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
    times, allocations = history.times_us, history.allocations
    starts, names = [position for position, _ in marks], [name for _, name in marks]
    columns = {
        "address": [item.address for item in allocations],
        "allocated_bytes": [item.bytes for item in allocations],
        "born_us": [0 if item.born is None else times[item.born] for item in allocations],
        "died_us": [None if item.died is None else times[item.died] for item in allocations],
        "category": [item.category or "unknown" for item in allocations],
        "phase": [phase_of(item.born, starts, names) if phased else None for item in allocations],
        "operation": [item.operation for item in allocations],
        "module": [item.module for item in allocations],
        "stack": [item.stack for item in allocations],
    }
    return {
        "allocations": columns,
        "stacks": list(stacks),
        "marks": {"at_us": [times[position] for position in starts], "name": names},
        "timeline": {
            "allocations": len(allocations),
            "duration_us": times[-1] if times else 0,
            "baseline_bytes": history.baseline_bytes,
            "baseline_allocations": history.baseline_allocations,
            "peak_bytes": history.peak_bytes,
            "peak_at_us": history.peak_at_us,
            "lost_events": history.lost_events,
        },
    }


def timeline_rows(columns: Mapping[str, Any], about: AboutTimeline) -> dict[str, list[object]]:
    """Returns the rows of `timelines`, `allocations`, `stacks` and `marks`. Raises TypeError or ValueError for columns
    that `columns_of` cannot have made."""
    ids: dict[str, Any] = {"run_id": about.run_id, "cell_id": about.cell_id}
    allocations = columns["allocations"]
    return {
        "timelines": [
            TimelineRow(
                **ids, origin=about.origin, title=about.title, device_bytes=about.device_bytes, **columns["timeline"]
            )
        ],
        "allocations": [
            AllocationRow(**ids, allocation=number, **dict(zip(allocations, row, strict=True)))
            for number, row in enumerate(zip(*allocations.values(), strict=True))
        ],
        "stacks": [StackRow(**ids, stack=number, frames=text) for number, text in enumerate(columns["stacks"])],
        "marks": [
            MarkRow(**ids, at_us=at_us, name=name)
            for at_us, name in zip(columns["marks"]["at_us"], columns["marks"]["name"], strict=True)
        ],
    }
