"""Follows every allocation of a recording from birth to death, by the allocator's events.

    >>> events = [MemoryEvent(at_ns=0, address=64, change=100), MemoryEvent(at_ns=5_000, address=64, change=-100)]
    >>> history = follow(events)
    >>> history.allocations[0].died, history.peak_bytes, history.times_us
    (1, 100, [0, 5])

A mark (the beginning of a phase) is an event that changes nothing. Each event has a microsecond of its own, so that
whole microseconds keep the order of events: where several fall into one, the later ones are moved on.

`block_totals` computes the sizes of the caching allocator's blocks, which `torch.cuda.memory_allocated` counts. A
snapshot's events have only the sizes that were asked for.

CUDA's allocator rounds a size up to GRANULE. Above SMALL bytes it splits the free block that it takes only if more than
SMALL bytes would remain; expandable segments are always split. The events are therefore replayed with the free space
behind each allocation. Blocks in use at the end have their sizes in the snapshot. Limits: for a block that existed
before the recording and was freed, only the rounded size is known; with settings that round in another way
(`roundup_power2_divisions`) no size is known.

A recording passes between processes as columns, in JSON, which become rows of the schema:

    columns = columns_of(history, stacks=stacks.texts, marks=[(0, "forward"), (812, "backward")])
    rows = timeline_rows(columns, about=About(run_id=..., cell_id=..., origin="imported", title="step.pickle"))

Standard library only.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any
from uuid import UUID

from runner.schema import AllocationRow, Category, MarkRow, StackRow, TimelineOrigin, TimelineRow

NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class MemoryEvent:
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

    def at_peak(self) -> list[Allocation]:
        """Returns the allocations that were alive when the total was largest."""
        return [
            allocation
            for allocation in self.allocations
            if _is_alive(allocation, -1 if self.peak is None else self.peak)
        ]


@dataclass(slots=True)
class _Follower:
    alive: dict[int, Allocation]
    before: list[Allocation]
    born: list[Allocation] = field(default_factory=list)
    lost: int = 0

    def add(self, position: int, event: MemoryEvent) -> None:
        known = self.alive.pop(event.address, None) if event.change else None
        if event.change > 0:
            if known is not None:  # its free was lost, but it cannot live on at the address of another
                known.died = position
                self.lost += 1
            allocation = Allocation(event.address, event.change, position, source=event.source)
            self.alive[event.address] = allocation
            self.born.append(allocation)
        elif event.change < 0:
            if known is None:  # its birth was lost, so it existed before the recording
                known = Allocation(event.address, -event.change, None, source=event.source)
                self.before.append(known)
                self.lost += 1
            known.died = position


def follow(events: Sequence[MemoryEvent], held: Iterable[Allocation] = ()) -> History:
    """Returns the allocations behind `events`, which are in the allocator's order; `held` existed before the first of
    them.

    A free of an unknown address counts as lost, and as an allocation that existed before."""
    before = [Allocation(allocation.address, allocation.bytes, None, source=allocation.source) for allocation in held]
    follower = _Follower(alive={allocation.address: allocation for allocation in before}, before=before)
    for position, event in enumerate(events):
        follower.add(position, event)
    allocations = [*follower.before, *follower.born]
    baseline = sum(allocation.bytes for allocation in follower.before)
    peak, peak_bytes = largest_total(len(events), allocations, baseline)
    return History(
        allocations=allocations,
        times_us=distinct_microseconds([event.at_ns for event in events]),
        baseline_bytes=baseline,
        peak_bytes=peak_bytes,
        peak=peak,
        lost_events=follower.lost,
    )


def keep_largest(history: History, most: int) -> History:
    """Returns the history with at most so many allocations: those alive at the peak before others, the largest first.
    Its peak and its baseline stay those of the whole."""
    if len(history.allocations) <= most:
        return history
    at = -1 if history.peak is None else history.peak
    order = sorted(history.allocations, key=lambda one: (_is_alive(one, at), one.bytes), reverse=True)
    kept = {id(one) for one in order[:most]}
    return replace(history, allocations=[one for one in history.allocations if id(one) in kept])


def alive_after(events: Sequence[MemoryEvent]) -> list[Allocation]:
    """Returns the allocations that are alive after all of `events`."""
    return [allocation for allocation in follow(events).allocations if allocation.died is None]


def distinct_microseconds(times_ns: Sequence[int]) -> list[int]:
    """Returns whole microseconds since the first time, each greater than the one before it."""
    found: list[int] = []
    for time_ns in times_ns:
        since = (time_ns - times_ns[0]) // NS_PER_US
        found.append(max(since, found[-1] + 1) if found else since)
    return found


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


def _is_alive(allocation: Allocation, position: int) -> bool:
    return (allocation.born is None or allocation.born <= position) and (
        allocation.died is None or allocation.died > position
    )


def largest_total(
    events: int,
    allocations: Sequence[Allocation],
    baseline: int,
    size_of: Callable[[Allocation], int] = attrgetter("bytes"),
) -> tuple[int | None, int]:
    """Returns the position and the bytes of the largest total over so many events, the first of equals."""
    changes = [0] * events
    for allocation in allocations:
        size = size_of(allocation)
        if allocation.born is not None:
            changes[allocation.born] += size
        if allocation.died is not None:
            changes[allocation.died] -= size
    peak, peak_bytes, total = None, baseline, baseline
    for position, change in enumerate(changes):
        total += change
        if total > peak_bytes:
            peak, peak_bytes = position, total
    return peak, peak_bytes


#: The smallest block, of which all sizes are multiples; the largest block of small segments, which are always split;
#: the size of a small segment (bytes).
GRANULE, SMALL, SMALL_SEGMENT = 512, 2**20, 2 * 2**20


@dataclass(kw_only=True)
class Layout:
    """The segments of one device in a snapshot. `extents` are those at its end, (address, bytes); `changes` are
    (position in events, address, bytes taken from the driver or, negative, returned to it); `in_use` are the blocks at
    the end, address -> bytes."""

    extents: list[tuple[int, int]] = field(default_factory=list)
    changes: list[tuple[int, int, int]] = field(default_factory=list)
    in_use: dict[int, int] = field(default_factory=dict)
    knows_requests: bool = False
    max_split_bytes: int = 2**62
    is_rounded_otherwise: bool = False

    def read_settings(self, settings: object) -> None:
        """Takes the relevant values of a snapshot's `allocator_settings`, which may be anything."""
        if not isinstance(settings, Mapping):
            return
        split, divisions = settings.get("max_split_size"), settings.get("roundup_power2_divisions")
        if type(split) is int and split > 0:
            self.max_split_bytes = split
        values = divisions.values() if isinstance(divisions, Mapping) else [divisions]
        self.is_rounded_otherwise = any(type(value) is int and value > 1 for value in list(values)[:64])


def block_totals(layout: Layout, events: Sequence[MemoryEvent], history: History) -> tuple[int | None, int | None]:
    """Returns the bytes of all blocks before the recording, and their largest total; None where they are not known."""
    if not layout.knows_requests or layout.is_rounded_otherwise:
        return None, None
    sizes = _compute_sizes(layout, events, history.allocations)

    def size_of(allocation: Allocation) -> int:
        if allocation.died is None and allocation.address in layout.in_use:
            return layout.in_use[allocation.address]
        return round_size(allocation.bytes) if allocation.born is None else sizes[allocation.born]

    baseline = sum(size_of(allocation) for allocation in history.allocations if allocation.born is None)
    return baseline, largest_total(len(events), history.allocations, baseline, size_of)[1]


def round_size(size: int) -> int:
    """Returns a size as the allocator rounds it."""
    return max(GRANULE, -(-size // GRANULE) * GRANULE)


def _compute_sizes(layout: Layout, events: Sequence[MemoryEvent], allocations: Sequence[Allocation]) -> dict[int, int]:
    """Returns the bytes of the block of each allocation, by its position in the events."""
    segments = _Segments(layout)
    taken = sorted(
        allocation.address
        for allocation in allocations
        if allocation.born is None and round_size(allocation.bytes) > SMALL
    )
    found, changes = {}, iter([*layout.changes, (len(events), 0, 0)])
    change = next(changes)
    for position, event in enumerate(events):
        size = round_size(abs(event.change))
        while change[0] <= position:
            segments.change(change[1], change[2])
            change = next(changes)
        if size <= SMALL:
            found[position] = size
        elif event.change < 0:
            place = bisect_left(taken, event.address)
            if place < len(taken) and taken[place] == event.address:
                del taken[place]
        else:
            after = bisect_right(taken, event.address)
            beyond = taken[after] if after < len(taken) else 2**63
            found[position] = _split_block(size, segments.end_of(event.address, beyond), event, layout)
            insort(taken, event.address)
    return found


def _split_block(size: int, end: int | None, event: MemoryEvent, layout: Layout) -> int:
    """Returns the block for `size` bytes at the event's address, where the free space extends to `end`."""
    free = 0 if end is None else end - event.address
    if free < size or (free - size > SMALL and size < layout.max_split_bytes):
        return size
    return free


class _Segments:
    """The large segments at one moment, computed from those at the end and the changes."""

    def __init__(self, layout: Layout) -> None:
        held = dict(layout.extents)
        for _, address, change in reversed(layout.changes):
            if change > 0:
                held.pop(address, None)
            else:
                held[address] = -change
        self._ends = {address: address + size for address, size in held.items() if size > SMALL_SEGMENT}
        self._starts = sorted(self._ends)

    def change(self, address: int, change: int) -> None:
        if change > SMALL_SEGMENT and address not in self._ends:
            self._ends[address] = address + change
            insort(self._starts, address)
        elif change < 0 and self._ends.pop(address, None) is not None:
            del self._starts[bisect_left(self._starts, address)]

    def end_of(self, address: int, beyond: int) -> int | None:
        """Returns the end of the free space from `address` on, before `beyond`; None outside of large segments."""
        place = bisect_right(self._starts, address) - 1
        end = self._ends[self._starts[place]] if place >= 0 else 0
        return min(end, beyond) if end > address else None


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
