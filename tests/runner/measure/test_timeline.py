"""Timelines: allocations followed by hand, and a recorded timeline checked against the allocator's own totals."""

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from runner.analysis.timeline.allocations import (
    Allocation,
    AllocationFinder,
    MemoryEvent,
    columns_of,
    distinct_microseconds,
    follow,
    phase_of,
)
from runner.analysis.timeline.snapshot import Stacks, strip_folders
from runner.engines.local import LocalEngine
from runner.schema import AllocationRow
from tests.runner.measure.test_memory import make_cell, measured
from tests.synthetic.timelines import totals


def event(at_us: int, address: int, change: int) -> MemoryEvent:
    return MemoryEvent(at_us * 1000, address, change)


def test_lives_and_peak_by_hand() -> None:
    """50 bytes existed before; 100 are allocated and freed at one address, 30 at another; 20 are freed without one."""
    events = [event(0, 8, 100), event(5, 8, -100), event(6, 16, 30), event(7, 24, -20), event(9, 8, 60)]
    history = follow(events, held=[Allocation(0, 50, None)])
    assert [(life.address, life.bytes, life.born, life.died) for life in history.allocations] == [
        (0, 50, None, None), (24, 20, None, 3), (8, 100, 0, 1), (16, 30, 2, None), (8, 60, 4, None)
    ]  # fmt: skip
    assert history.baseline_bytes == 70
    assert (history.peak_bytes, history.peak, history.peak_at_us) == (170, 0, 0)
    assert history.lost_events == 1
    assert sorted(life.bytes for life in history.at_peak()) == [20, 50, 100]


def test_reusing_an_address_ends_the_block_that_was_there() -> None:
    history = follow([event(0, 8, 100), event(4, 8, 10)])
    assert [(life.bytes, life.died) for life in history.allocations] == [(100, 1), (10, None)]
    assert (history.lost_events, history.peak_bytes) == (1, 100)


def test_a_timeline_without_events() -> None:
    history = follow([], held=[Allocation(8, 64, None)])
    assert (history.peak_bytes, history.baseline_bytes, history.peak, history.peak_at_us) == (64, 64, None, 0)
    assert len(history.at_peak()) == 1


def test_events_of_one_microsecond_keep_their_order() -> None:
    assert distinct_microseconds([5_000, 5_100, 5_200, 9_000, 9_100]) == [0, 1, 2, 4, 5]
    columns = columns_of(follow([event(0, 8, 7), event(0, 8, -7), event(0, 8, 9)]), stacks=[], marks=[], phased=False)
    assert columns["allocations"]["born_us"] == [0, 2]
    assert columns["allocations"]["died_us"] == [1, None]
    assert columns["timeline"]["peak_at_us"] == 2


def test_a_storage_is_found_by_address_and_time() -> None:
    events = [event(10, 8, 100), event(20, 8, -100), event(30, 8, 50)]
    moments = AllocationFinder(follow(events), events)
    found = [moments.find(8, at_us * 1000) for at_us in (9, 15, 22, 29, 40)]
    assert [life and life.bytes for life in found] == [100, 100, 100, 50, 50]
    assert moments.find(16, 15_000) is None


def test_phases_by_position() -> None:
    assert [phase_of(position, [0, 4], ["forward", "backward"]) for position in (None, 0, 3, 4, 9)] == [
        None, "forward", "forward", "backward", "backward"
    ]  # fmt: skip
    assert phase_of(1, [2], ["forward"]) is None


def test_stacks_are_stored_once_without_folders_of_the_machine() -> None:
    stacks = Stacks()
    here = __file__.replace("tests/runner/measure/test_timeline.py", "runner/models/transformer.py")
    frames = ((here, 85, "forward"), ("/opt/x/lib/python3.11/site-packages/torch/nn/functional.py", 9, "linear"))
    assert stacks.remember(frames, lambda: frames) == stacks.remember(frames, lambda: frames) == 0
    assert stacks.remember(frames[:1], lambda: frames[:1]) == 1
    assert stacks.remember((), lambda: ()) is None
    assert stacks.texts[0] == "runner/models/transformer.py:85 forward\ntorch/nn/functional.py:9 linear"
    assert strip_folders("/home/somebody/secret/code/project/src/model.py") == "project/src/model.py"
    assert strip_folders("C:\\Users\\somebody\\project\\src\\model.py") == "project/src/model.py"
    assert strip_folders("??") == "??"
    assert stacks.remember("odd", lambda: (("a\nb.py", 1, "f\x1b[31m"),)) == 2
    assert stacks.texts[2] == "a b.py:1 f [31m"


@pytest.fixture(scope="module", params=[{}, {"precision": "bf16", "checkpoint_blocks": 1}, {"mode": "inference"}])
def recorded(request: pytest.FixtureRequest, engine: LocalEngine) -> Any:
    values, details = measured(engine, make_cell(timeline=True, **request.param))
    return SimpleNamespace(**details, timeline=details["timelines"][0], values=values)


def test_the_sum_of_the_allocations_is_the_peak(recorded: Any) -> None:
    total = totals(recorded.allocations)
    assert max(total.values()) == recorded.timeline.peak_bytes == recorded.values["peak_allocated_bytes"]
    assert total[recorded.timeline.peak_at_us] == recorded.timeline.peak_bytes
    assert recorded.timeline.baseline_bytes == total[0]
    assert recorded.timeline.lost_events == 0
    assert recorded.timeline.allocations == len(recorded.allocations)
    assert recorded.timeline.origin == "cpu-profiler"


def test_the_rows_reproduce_the_allocators_peak_of_every_phase(recorded: Any) -> None:
    """On a CPU `phase_peaks` are the allocator's own running total, and the rows follow each allocation."""
    total, ends = totals(recorded.allocations), [mark.at_us for mark in recorded.marks[1:]]
    before = 0
    for mark, end, peak in zip(recorded.marks, [*ends, None], recorded.phase_peaks, strict=True):
        assert mark.name == peak.phase
        within = [size for at_us, size in total.items() if at_us >= mark.at_us and (end is None or at_us < end)]
        assert max([before, *within]) == peak.peak_allocated_bytes
        before = within[-1]


def test_blocks_are_in_order_and_do_not_overlap(recorded: Any) -> None:
    rows = recorded.allocations
    assert [row.allocation for row in rows] == list(range(len(rows)))
    assert [row.born_us for row in rows] == sorted(row.born_us for row in rows)
    assert all(row.died_us is None or row.born_us < row.died_us <= recorded.timeline.duration_us for row in rows)
    assert all(row.allocated_bytes > 0 for row in rows)
    by_address: dict[int, list[AllocationRow]] = {}
    for row in rows:
        by_address.setdefault(row.address, []).append(row)
    for lives in by_address.values():
        for earlier, later in pairwise(lives):
            assert earlier.died_us is not None
            assert earlier.died_us <= later.born_us


def test_marks_are_the_phases_in_order(recorded: Any) -> None:
    assert [mark.name for mark in recorded.marks] == [peak.phase for peak in recorded.phase_peaks]
    assert [mark.at_us for mark in recorded.marks] == sorted({mark.at_us for mark in recorded.marks})
    starts = {mark.name: mark.at_us for mark in recorded.marks}
    for row in recorded.allocations:
        if row.phase:
            assert row.born_us >= starts[row.phase]
    assert {row.phase for row in recorded.allocations} >= {"forward", None}


def test_every_allocation_has_a_category_and_new_ones_a_stack(recorded: Any) -> None:
    assert all(row.category != "unknown" for row in recorded.allocations)
    born = [row for row in recorded.allocations if row.phase]
    assert all(row.operation and row.operation.startswith("aten::") and row.stack is not None for row in born)
    kept = [row for row in born if row.category == "activation" and row.phase == "forward"]
    assert all(row.module is None or re.match(r"embedding|blocks\.\d|final_norm|head", row.module) for row in kept)
    held = {row.category for row in recorded.allocations if row.phase is None}
    assert held <= {"parameter", "optimizer state", "input", "workspace"}
    if recorded.values["optimizer_state_bytes"]:
        backward = [row for row in born if row.category == "gradient"]
        assert {row.phase for row in backward} == {"backward"}
        assert len(backward) == sum(row.category == "parameter" for row in recorded.allocations)
        # A gradient is identified by the module of its weight, and its stack is that of the forward pass.
        named = [row for row in backward if row.module == "blocks.1.feed_forward.gate"]
        assert named
        assert "runner/models/transformer.py" in recorded.stacks[named[0].stack or 0].frames


def test_stacks_are_short_names_of_known_frames(recorded: Any) -> None:
    used = {row.stack for row in recorded.allocations if row.stack is not None}
    assert used <= {row.stack for row in recorded.stacks}
    for row in recorded.stacks:
        for line in row.frames.splitlines():
            assert re.fullmatch(r"[\w./<> -]+:\d+ [\w<>.]+", line), line
            assert not line.startswith("/")
