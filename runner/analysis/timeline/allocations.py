"""Follows every allocation of a recording from birth to death, by the allocator's events.

    >>> events = [MemoryEvent(at_ns=0, address=64, change=100), MemoryEvent(at_ns=5_000, address=64, change=-100)]
    >>> history = follow(events)
    >>> history.allocations[0].died, history.peak_bytes, history.times_us
    (1, 100, [0, 5])

A mark (the beginning of a phase) is an event that changes nothing. Each event has a microsecond of its own, so that
whole microseconds keep the order of events: where several fall into one, the later ones are moved on.

Sizes are those that were asked for: a snapshot's events have no others.

A recording passes between processes as columns, in JSON (`columns_of`), which become rows of the schema
(`timeline_rows`). Standard library only.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

from runner.schema import AllocationRow, Category, MarkRow, StackRow, TimelineRow

NS_PER_US = 1000


class MemoryEvent(NamedTuple):
    """An allocation (`change` > 0 bytes), a free (< 0), or a mark (0). `source` is the recorder's number, or -1."""

    at_ns: int
    address: int
    change: int
    source: int = -1


@dataclass(slots=True)
class Allocation:
    """One allocation. `born` and `died` are positions in the events, None for before and after the recording."""

    address: int
    bytes: int
    born: int | None
    died: int | None = None
    source: int = -1
    category: Category | None = None
    operation: str | None = None
    module: str | None = None
    stack: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """All allocations of a recording: those that existed before it first, then in order of birth.

    `peak` is the position of the event after which most bytes were alive, None if that was before the first."""

    allocations: Sequence[Allocation]
    times_us: Sequence[int]
    baseline_bytes: int
    peak_bytes: int
    peak: int | None
    lost_events: int

    @property
    def baseline_allocations(self) -> int:
        """The number of allocations that existed before the first event."""
        return sum(allocation.born is None for allocation in self.allocations)

    @property
    def peak_at_us(self) -> int:
        return 0 if self.peak is None else self.times_us[self.peak]

    def is_at_peak(self, allocation: Allocation) -> bool:
        """Returns whether an allocation was alive when the total was largest."""
        at = -1 if self.peak is None else self.peak
        is_born = allocation.born is None or allocation.born <= at
        return is_born and (allocation.died is None or allocation.died > at)

    def at_peak(self) -> list[Allocation]:
        """Returns the allocations that were alive when the total was largest."""
        return list(filter(self.is_at_peak, self.allocations))


def follow(events: Sequence[MemoryEvent], held: Iterable[Allocation] = ()) -> History:
    """Returns the allocations behind `events`, which are in the allocator's order; `held` existed before the first of
    them.

    A free of an unknown address counts as lost, and as an allocation that existed before."""
    before = [Allocation(allocation.address, allocation.bytes, None, source=allocation.source) for allocation in held]
    alive, born, lost = {allocation.address: allocation for allocation in before}, list[Allocation](), 0
    for position, event in enumerate(events):
        known = alive.pop(event.address, None) if event.change else None
        if event.change > 0:
            if known is not None:  # its free was lost, but it cannot live on at the address of another
                known.died = position
                lost += 1
            alive[event.address] = Allocation(event.address, event.change, position, source=event.source)
            born.append(alive[event.address])
        elif event.change < 0:
            if known is None:  # its birth was lost, so it existed before the recording
                known = Allocation(event.address, -event.change, None, source=event.source)
                before.append(known)
                lost += 1
            known.died = position
    allocations = [*before, *born]
    changes = [0] * len(events)
    for allocation in allocations:
        if allocation.born is not None:
            changes[allocation.born] += allocation.bytes
        if allocation.died is not None:
            changes[allocation.died] -= allocation.bytes
    baseline = sum(allocation.bytes for allocation in before)
    totals = list(accumulate(changes, initial=baseline))
    peak_bytes = max(totals)
    return History(
        allocations=allocations,
        times_us=distinct_microseconds([event.at_ns for event in events]),
        baseline_bytes=baseline,
        peak_bytes=peak_bytes,
        peak=totals.index(peak_bytes) - 1 if peak_bytes > baseline else None,
        lost_events=lost,
    )


def keep_largest(history: History, most: int) -> History:
    """Returns the history with at most so many allocations: those alive at the peak before others, the largest first.
    Its peak and its baseline stay those of the whole."""
    if len(history.allocations) <= most:
        return history
    order = sorted(history.allocations, key=lambda one: (history.is_at_peak(one), one.bytes), reverse=True)
    kept = {id(one) for one in order[:most]}
    return replace(history, allocations=[one for one in history.allocations if id(one) in kept])


def distinct_microseconds(times_ns: Sequence[int]) -> list[int]:
    """Returns whole microseconds since the first time, each greater than the one before it."""
    since = ((time_ns - times_ns[0]) // NS_PER_US for time_ns in times_ns)
    return list(accumulate(since, lambda before, at: max(at, before + 1)))


class AllocationFinder:
    """Finds the allocation at an address at a time, across clocks that differ by microseconds."""

    def __init__(self, history: History, events: Sequence[MemoryEvent]) -> None:
        self.times_ns = [event.at_ns for event in events]
        self.at: dict[int, list[Allocation]] = {}
        for allocation in history.allocations:
            self.at.setdefault(allocation.address, []).append(allocation)

    def find(self, address: int, at_ns: int) -> Allocation | None:
        """Returns the allocation at `address` whose allocation is nearest to `at_ns`, None if there never was one."""
        return min(self.at.get(address, ()), key=lambda allocation: self._distance(allocation, at_ns), default=None)

    def _distance(self, allocation: Allocation, at_ns: int) -> int:
        born = at_ns if allocation.born is None else self.times_ns[allocation.born]
        died = at_ns if allocation.died is None else self.times_ns[allocation.died]
        return max(born - at_ns, at_ns - died, 0)


def phase_of(position: int | None, starts: Sequence[int], names: Sequence[str]) -> str | None:
    """Returns the phase of an event. `starts` are the positions of the marks, in order."""
    found = -1 if position is None else bisect_right(starts, position) - 1
    return names[found] if found >= 0 else None


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


def timeline_rows(
    columns: Mapping[str, Any], *, run_id: UUID, cell_id: UUID, **about: Any
) -> dict[str, Sequence[object]]:
    """Returns the rows of `timelines`, `allocations`, `stacks` and `marks`; `about` are further columns of the first.
    Raises TypeError or ValueError for columns that `columns_of` cannot have made."""
    ids: dict[str, Any] = {"run_id": run_id, "cell_id": cell_id}
    allocations = columns["allocations"]
    return {
        "timelines": [TimelineRow(**ids, **about, **columns["timeline"])],
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
