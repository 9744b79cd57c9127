"""The recording of a memory timeline: every allocation of one step with its category, on a CPU and on CUDA.

    with (recorder := CpuRecorder()): ...      # from the beginning, so that no allocation is unknown
    recorder.recorded()

The allocator's events come from PyTorch's profiler on a CPU and from the CUDA allocator's own history; their categories
and operations come from an `Observer`, matched by time and address. Limits: memory that a library takes from the system
itself is in neither; MPS has no such history.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch._C._profiler import _EventType, _ProfilerEvent
from torch.profiler import ProfilerActivity, profile

from runner.analysis.timeline.allocations import AllocationFinder, History, MemoryEvent, follow
from runner.analysis.timeline.snapshot import recordings
from runner.measure.device import Device
from runner.measure.observer import Observer

#: The source of events that are marks.
MARK = -2


@dataclass(frozen=True, slots=True)
class PhaseMark:
    """The end of a phase by the host's clock, with the allocator's counters on CUDA (bytes)."""

    at_ns: int
    allocated: int | None = None
    peak_allocated: int | None = None
    peak_requested: int | None = None
    reserved: int | None = None
    driver: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The events of a recorder in the order of the allocator. `totals` are the allocator's own counts after each event,
    where it has them; `reserved` is (position in events, bytes) taken from the driver or given back."""

    events: list[MemoryEvent]
    totals: list[int] = field(default_factory=list)
    reserved: list[tuple[int, int]] = field(default_factory=list)


class CpuRecorder:
    """PyTorch's profiler, which reports each allocation with the allocator's total after it."""

    def __init__(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def __enter__(self) -> Self:
        self._profile.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._profile.__exit__(kind, *error)  # type: ignore[no-untyped-call]

    def mark(self) -> PhaseMark:
        return PhaseMark(time.time_ns())

    def recorded(self) -> Recorded:
        """Returns all allocations on the CPU. The totals count from the first one on."""
        assert self._profile.profiler is not None
        results = self._profile.profiler.kineto_results
        assert results is not None
        events = sorted(_allocations(results.experimental_event_tree()), key=lambda item: item[0].at_ns)
        before = events[0][1] - events[0][0].change if events else 0
        return Recorded(events=[event for event, _ in events], totals=[total - before for _, total in events])


def _allocations(roots: list[_ProfilerEvent]) -> Iterator[tuple[MemoryEvent, int]]:
    """Yields every allocation and free below these events, with the allocator's total after it."""
    waiting = list(roots)
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == _EventType.Allocation:
            fields: Any = event.extra_fields
            if fields.device.type == "cpu":
                yield MemoryEvent(event.start_time_ns, fields.ptr, fields.alloc_size), fields.total_allocated


class CudaRecorder:
    """The CUDA allocator's own history, without stacks: the observer's are cheaper and include backward."""

    def __init__(self, device: Device) -> None:
        self.device = device.torch

    def __enter__(self) -> Self:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python", clear_history=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(None)

    def mark(self) -> PhaseMark:
        """Returns the allocator's counters since the mark before. They follow the host, so nothing is synchronized."""
        free, whole = torch.cuda.mem_get_info(self.device)
        mark = PhaseMark(
            time.time_ns(),
            allocated=torch.cuda.memory_allocated(self.device),
            peak_allocated=torch.cuda.max_memory_allocated(self.device),
            peak_requested=torch.cuda.memory_stats(self.device).get("requested_bytes.all.peak"),
            reserved=torch.cuda.max_memory_reserved(self.device),
            driver=whole - free,
        )
        torch.cuda.reset_peak_memory_stats(self.device)
        return mark

    def recorded(self) -> Recorded:
        found = next((item for item in recordings(self._snapshot) if item.device == self.device.index), None)
        return Recorded(events=found.events, reserved=found.reserved) if found else Recorded(events=[])


@dataclass(frozen=True, kw_only=True)
class StepTimeline:
    """One step's allocations with their categories. `starts` are the marks' positions in `events`, from the step's
    beginning to its end; `before` is the position in the whole recording at which the step begins."""

    events: list[MemoryEvent]
    history: History
    starts: list[int]
    before: int


def step_timeline(recorded: Recorded, *, marks: list[PhaseMark], observer: Observer) -> StepTimeline:
    """Cuts the step out of a recording and names its allocations. Without a note, an allocation from before the step is
    `workspace`, and one from within it `temporary`."""
    before = sum(event.at_ns < marks[0].at_ns for event in recorded.events)
    held = [allocation for allocation in follow(recorded.events[:before]).allocations if allocation.died is None]
    # Python's sort is stable: events of one microsecond stay in the allocator's order.
    pieces = [*recorded.events[before:], *(MemoryEvent(mark.at_ns, 0, 0, MARK) for mark in marks)]
    events = sorted(pieces, key=lambda event: event.at_ns)
    history = follow(events, held)
    _name(history, events, observer)
    starts = [position for position, event in enumerate(events) if event.source == MARK]
    return StepTimeline(events=events, history=history, starts=starts, before=before)


def _name(history: History, events: list[MemoryEvent], observer: Observer) -> None:
    finder = AllocationFinder(history, events)
    for note in observer.notes:
        allocation = finder.find(note.address, note.at_ns)
        if allocation is not None and allocation.category is None:
            allocation.category = note.category
    ends = [end_ns for end_ns, _ in observer.calls]
    for allocation in history.allocations:
        if allocation.category is None:
            allocation.category = "workspace" if allocation.born is None else "temporary"
        # The call in which it was made is the first that ends later; one between two calls belongs to the later.
        position = len(ends) if allocation.born is None else bisect_left(ends, events[allocation.born].at_ns)
        if position < len(ends):
            place = observer.calls[position][1]
            allocation.operation, allocation.module, allocation.stack = place.operation, place.module, place.stack
