"""Follows every allocation of a recording from birth to death, by the allocator's events.

    >>> events = [MemoryEvent(at_ns=0, address=64, change=100), MemoryEvent(at_ns=5_000, address=64, change=-100)]
    >>> history = follow(events)
    >>> history.allocations[0].died, history.peak_bytes, history.times_us
    (1, 100, [0, 5])

A mark (the beginning of a phase) is an event that changes nothing. Each event has a microsecond of its own, so that
whole microseconds keep the order of events: where several fall into one, the later ones are moved on. Standard library
only.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from runner.schema import Category

NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """An allocation (`change` > 0 bytes), a free (< 0), or a mark (0). `source` is the recorder's number for it, or
    -1."""

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
