"""The caching allocator's blocks, computed from its events and compared with a simulated allocator that knows them."""

import io
import pickle
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from runner.importers.snapshots import read

MIB, GRANULE = 2**20, 512


@dataclass
class Allocator:
    """CUDA's caching allocator with one stream: best fit, blocks split or given whole, free neighbors merged."""

    blocks: list[list[Any]] = field(default_factory=list)  # [address, size, asked or None, segment]
    events: list[dict[str, Any]] = field(default_factory=list)
    segments: dict[int, int] = field(default_factory=dict)
    allocated: int = 0
    peak: int = 0

    def allocate(self, asked: int) -> int:
        size = max(GRANULE, -(-asked // GRANULE) * GRANULE)
        is_small = size <= MIB
        fit = [b for b in self.blocks if b[2] is None and b[1] >= size and (self.segments[b[3]] == 2 * MIB) == is_small]
        block = min(fit, key=lambda b: (b[1], b[0])) if fit else self._segment(size, is_small)
        left = block[1] - size
        if left >= GRANULE if is_small else left > MIB:
            self.blocks.append([block[0] + size, left, None, block[3]])
            block[1] = size
        block[2] = asked
        self.allocated += block[1]
        self.peak = max(self.peak, self.allocated)
        self._tell("alloc", block[0], asked)
        return int(block[0])

    def free(self, address: int) -> None:
        block = next(b for b in self.blocks if b[0] == address)
        self._tell("free_requested", address, block[2])
        self._tell("free_completed", address, block[2])
        self.allocated -= block[1]
        block[2] = None
        for low, high in ((a, b) for a in self.blocks for b in self.blocks if a[0] + a[1] == b[0] and a[3] == b[3]):
            if low[2] is None and high[2] is None and low in self.blocks and high in self.blocks:
                high[0], high[1] = low[0], low[1] + high[1]
                self.blocks.remove(low)

    def give_back(self) -> None:
        """Does what `torch.cuda.empty_cache` does."""
        for block in [b for b in self.blocks if b[2] is None and b[1] == self.segments[b[3]]]:
            self.blocks.remove(block)
            self._tell("segment_free", block[0], self.segments.pop(block[3]))

    def _segment(self, size: int, is_small: bool) -> list[Any]:
        whole = 2 * MIB if is_small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        address = 2**40 + 2**30 * len(self.events)
        self.segments[address] = whole
        self.blocks.append([address, whole, None, address])
        self._tell("segment_alloc", address, whole)
        return self.blocks[-1]

    def _tell(self, action: str, address: int, size: int) -> None:
        self.events.append({"action": action, "addr": address, "size": size, "time_us": len(self.events)})

    def snapshot(self, since: int = 0) -> dict[str, Any]:
        """Returns what `torch.cuda.memory._snapshot` would if recording had begun with the event of this number."""
        segments = []
        for address, whole in self.segments.items():
            held = sorted(b for b in self.blocks if b[3] == address)
            blocks = [{"address": b[0], "size": b[1], "requested_size": b[2] or 0,
                       "state": "inactive" if b[2] is None else "active_allocated"} for b in held]  # fmt: skip
            segments.append({"address": address, "total_size": whole, "device": 0, "blocks": blocks})
        return {"segments": segments, "device_traces": [self.events[since:]]}


def run(seed: int, *, begins: int) -> tuple[Allocator, int, int]:
    """Makes 400 random allocations and frees, recorded from some point on. Returns the event at which the recording
    begins and the bytes allocated then; the allocator's peak is counted from there."""
    order, made, alive = random.Random(seed), Allocator(), list[int]()
    since = held = 0
    for step in range(400):
        if step == begins:
            since, held, made.peak = len(made.events), made.allocated, made.allocated
        if alive and order.random() < (0.5 if step > 200 else 0.2):
            made.free(alive.pop(order.randrange(len(alive))))
        else:
            alive.append(made.allocate(order.choice((300, 5000, 700_000, 1_300_000, 3_000_001, 9_999_999, 40_000_000))))
        if order.random() < 0.02:
            made.give_back()
    return made, since, held


def timeline(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns of `timelines` after importing the pickled snapshot."""
    (found,) = read(io.BytesIO(pickle.dumps(snapshot)))
    columns: dict[str, Any] = found["timeline"]
    return columns


@pytest.mark.parametrize("seed", range(4))
def test_the_peak_in_blocks_is_the_allocators_own(seed: int) -> None:
    """It is exact if the recording begins with the process; fewer bytes were requested."""
    made, _, _ = run(seed, begins=0)
    row = timeline(made.snapshot())
    assert row["peak_block_bytes"] == made.peak > row["peak_bytes"]
    assert row["baseline_block_bytes"] == row["baseline_allocations"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_recording_that_begins_later_knows_what_is_still_there(seed: int) -> None:
    """For blocks of before that were freed, only the rounded size is known: totals are too small by that at most."""
    made, since, held = run(seed, begins=300)
    row = timeline(made.snapshot(since))
    freed = {event["addr"] for event in made.events[since:] if event["action"] == "free_requested"}
    older = [event for event in made.events[:since] if event["action"] == "alloc" and event["addr"] in freed]
    assert held - len(older) * MIB <= row["baseline_block_bytes"] <= held
    assert made.peak - len(older) * MIB <= row["peak_block_bytes"] <= made.peak
    assert row["peak_bytes"] < row["peak_block_bytes"]
    assert row["baseline_bytes"] < row["baseline_block_bytes"]


@pytest.mark.parametrize(
    ("settings", "known"),
    [({"expandable_segments": False, "max_split_size": -1, "roundup_power2_divisions": {"1": 0}}, True),
     ({"roundup_power2_divisions": {"1": 0, "64": 4}}, False), ("?", True), ({"max_split_size": "x"}, True)],
)  # fmt: skip
def test_settings_that_change_rounding_make_blocks_unknown(settings: object, known: bool) -> None:
    made = Allocator()
    made.allocate(700)
    row = timeline(made.snapshot() | {"allocator_settings": settings})
    assert (row["peak_bytes"], row["peak_block_bytes"]) == (700, 1024 if known else None)


def test_blocks_by_hand() -> None:
    """12 MiB and 1 byte are rounded up by 511 bytes, 7 MiB not at all; 19.25 MiB get a whole segment of 20 MiB."""
    made = Allocator()
    for asked in (12 * MIB + 1, 7 * MIB):
        made.allocate(asked)
    assert made.segments == {2**40: 14 * MIB, 2**40 + 2 * 2**30: 20 * MIB}
    row = timeline(made.snapshot())
    assert (row["peak_bytes"], row["peak_block_bytes"]) == (19 * MIB + 1, 12 * MIB + 512 + 7 * MIB)
    made.allocate(19 * MIB + MIB // 4)
    assert timeline(made.snapshot())["peak_block_bytes"] == 12 * MIB + 512 + 7 * MIB + 20 * MIB
