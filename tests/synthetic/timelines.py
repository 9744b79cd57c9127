"""Synthetic memory timelines: a made-up step of a Transformer as its allocator would see it.

    write(path, rows.run(), step(mode="train", allocations=100_000))

Everything follows from `allocations`, so that the same call always returns the same timeline. Blocks that exist at the
same time never overlap: as in a caching allocator, a freed block is used again for one of its size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from runner.schema import (
    AllocationRow,
    Category,
    MarkRow,
    MemoryCell,
    MemoryRow,
    Mode,
    RunRow,
    StackRow,
    TimelineRow,
    new_id,
)
from runner.store.spool import Spool
from runner.sweep.loop import ingest_all
from tests.synthetic.rows import key_of

BASE, ALIGNMENT = 0x7F00_0000_0000, 512
KIB, MIB = 2**10, 2**20
LAYER = ("attention.q_proj", "attention.output_proj", "ffn.w1", "ffn.w2", "norm1", "norm2")
#: The size of each tensor of a layer, in units of its smallest. `HOSTILE` is a name that tries to run a script.
WEIGHTS, UNIT = (4, 4, 12, 12, 1, 1), 96 * KIB
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


@dataclass
class Step:
    """A step under construction: an allocator with a clock."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    stacks: list[str] = field(default_factory=list)
    mode: Mode = "train"
    now_us: int = 0
    _end: int = BASE
    _free: dict[int, list[int]] = field(default_factory=dict)

    def allocate(
        self, size: int, category: Category, *, module: str | None = None, operation: str = "aten::empty"
    ) -> int:
        """Allocates a block of at least `size` bytes and returns its number."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        holes = self._free.setdefault(size, [])
        address = holes.pop() if holes else self._end
        if address == self._end:
            self._end += size
        phase = self.marks[-1][1] if self.marks else None
        self.blocks.append({"address": address, "allocated_bytes": size, "born_us": self.now_us, "died_us": None,
                            "category": category, "phase": phase, "module": module, "operation": operation,
                            "stack": self._stack(module)})  # fmt: skip
        self.now_us += 3 if phase else 0
        return len(self.blocks) - 1

    def free(self, block: int) -> None:
        found = self.blocks[block]
        found["died_us"] = self.now_us
        self._free[found["allocated_bytes"]].append(found["address"])
        self.now_us += 2

    def begin(self, phase: str) -> None:
        self.marks.append((self.now_us, phase))

    def _stack(self, module: str | None) -> int:
        own = f"models/transformer.py:{80 + len(module or '') % 40} {(module or 'step').split('.')[-1]}"
        text = "\n".join([own, "models/transformer.py:150 forward", "measure/step.py:61 step", f"{HOSTILE}:1 <module>"])
        if text not in self.stacks:
            self.stacks.append(text)
        return self.stacks.index(text)


def step(*, mode: Mode = "train", allocations: int = 2000) -> Step:
    """Returns a step in fp32 with about this many allocations."""
    made = Step(mode=mode)
    layers, trains = 4, mode == "train"
    temporaries = max(1, allocations // (layers * len(LAYER) * (3 if trains else 1)) - 3)
    weights = [
        (f"layers.{n}.{name}", weight * UNIT)
        for n in range(layers)
        for name, weight in zip(LAYER, WEIGHTS, strict=True)
    ]
    for module, size in weights:
        made.allocate(size, "parameter", module=module)
        if trains:
            made.allocate(2 * size, "optimizer state", module=module)
    made.allocate(64 * KIB, "input")
    made.begin("forward")
    kept: list[tuple[str, int, int]] = []
    for module, size in weights:
        _temporaries(made, temporaries, module=module)
        saved = made.allocate(6 * size, "activation", module=module, operation="aten::mm")
        if trains:
            kept.append((module, size, saved))
        else:
            made.free(saved)
    if trains:
        _train(made, kept, temporaries=temporaries)
    return made


def _train(made: Step, kept: list[tuple[str, int, int]], *, temporaries: int) -> None:
    made.begin("loss")
    logits = made.allocate(48 * UNIT, "activation", operation="aten::log_softmax")
    made.begin("backward")
    grad_logits = made.allocate(48 * UNIT, "temporary", operation="aten::_log_softmax_backward_data")
    gradients = []
    for module, size, saved in reversed(kept):
        _temporaries(made, temporaries, module=module)
        gradients.append(made.allocate(size, "gradient", module=module, operation="aten::mm"))
        made.free(saved)
    made.free(grad_logits)
    made.free(logits)
    made.begin("optimizer")
    for module, size, _ in kept:
        _temporaries(made, temporaries, module=module)
        made.free(made.allocate(size, "temporary", module=module, operation="aten::_foreach_sqrt"))
    for gradient in gradients:
        made.free(gradient)


def _temporaries(made: Step, count: int, *, module: str) -> None:
    """Allocates short-lived blocks of a few sizes, two of them at a time."""
    before = None
    for number in range(count):
        size = (UNIT, 4 * KIB, UNIT // 2, ALIGNMENT, 2 * UNIT)[number % 5]
        operation = ("aten::mul", "aten::add", "aten::softmax")[number % 3]
        block = made.allocate(size, "temporary", module=module, operation=operation)
        if before is not None:
            made.free(before)
        before = block
    if before is not None:
        made.free(before)


def totals(blocks: Iterable[AllocationRow]) -> dict[int, int]:
    """Returns the bytes in use after each microsecond with an event, in order, computed from the rows alone."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.born_us] = changes.get(block.born_us, 0) + block.allocated_bytes
        if block.died_us is not None:
            changes[block.died_us] = changes.get(block.died_us, 0) - block.allocated_bytes
    moments = sorted(changes)
    return dict(zip(moments, accumulate(changes[at_us] for at_us in moments), strict=True))


def tables(of: RunRow, made: Step, *, title: str | None = None) -> dict[str, Sequence[object]]:
    """Returns the rows of one memory cell with its timeline, by table."""
    cell = MemoryCell(d_model=256, d_ff=768, layers=4, heads=8, vocabulary=2048, context=128, mode=made.mode,
                      precision="fp32", timeline=True)  # fmt: skip
    ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
    rows = [AllocationRow(**ids, allocation=number, **block) for number, block in enumerate(made.blocks)]
    held = totals(rows)
    peak_at = max(held, key=held.__getitem__)
    peak = held[peak_at]
    timeline = TimelineRow(
        **ids, origin="cpu-profiler", title=title or f"toy-256 · 128 · {made.mode} · fp32",
        allocations=len(made.blocks), duration_us=made.now_us, peak_bytes=peak, peak_block_bytes=peak + 2 * MIB,
        peak_at_us=peak_at, lost_events=0,
        baseline_bytes=sum(block["allocated_bytes"] for block in made.blocks if block["phase"] is None),
    )  # fmt: skip
    return {
        "runs": [of],
        "memory": [MemoryRow(**key_of(cell), **ids, cell_key=cell.key, status="ok", peak_allocated_bytes=peak)],
        "timelines": [timeline],
        "allocations": rows,
        "stacks": [StackRow(**ids, stack=number, frames=frames) for number, frames in enumerate(made.stacks)],
        "marks": [MarkRow(**ids, at_us=at_us, name=name) for at_us, name in made.marks],
    }


def write(path: Path, of: RunRow, made: Step, *, title: str | None = None) -> TimelineRow:
    """Writes it into the results file as a sweep would."""
    brought = tables(of, made, title=title)
    (timeline,) = brought["timelines"]
    assert isinstance(timeline, TimelineRow)
    Spool(path).write(brought, str(timeline.cell_id))
    ingest_all(path)
    return timeline
