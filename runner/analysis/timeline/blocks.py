"""Computes the sizes of the caching allocator's blocks, which `torch.cuda.memory_allocated` counts. A snapshot's events
have only the sizes that were asked for.

    baseline, peak = block_totals(recording, history)        # bytes; or None, None where the snapshot does not say

CUDA's allocator rounds a size up to GRANULE. Above SMALL bytes it splits the free block that it takes only if more than
SMALL bytes would remain; expandable segments are always split. The events are therefore replayed with the free space
behind each allocation. Blocks in use at the end have their sizes in the snapshot. Limits: for a block that existed
before the recording and was freed, only the rounded size is known; with settings that round in another way
(`roundup_power2_divisions`) no size is known. Standard library only.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runner.analysis.timeline.allocations import Allocation, History, MemoryEvent, largest_total

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
        """Returns the end of the free space from `address` on, before `beyond`; None where no large segment holds
        it."""
        place = bisect_right(self._starts, address) - 1
        end = self._ends[self._starts[place]] if place >= 0 else 0
        return min(end, beyond) if end > address else None
