"""What a memory timeline says, in words and rows: the sentence above it, its alt text, what is alive at the cursor.

    answer(timeline, columns, parts)        # 'The peak of **2.48 GiB** falls in the **optimizer** phase, …'

Standard library and typed rows only.
"""

from collections.abc import Sequence
from itertools import dropwhile
from typing import Any

from pages.ui.formats import format_count
from pages.ui.markdown import literal, plain
from runner.formats import format_bytes, format_number
from runner.results import Alive, MemoryPart, Timeline
from runner.schema import TABLES
from runner.store.queries.timelines import Columns

#: What two timelines hold, each at its own peak.
Pair = tuple[Sequence[MemoryPart], Sequence[MemoryPart]]


def in_ms(microseconds: float) -> str:
    return f"{microseconds / 1e3:,.2f} ms"


def facts(about: Timeline) -> str:
    """Machine, number of allocations, what was held before."""
    older = f"{format_bytes(about.baseline_bytes)} held before"
    if about.baseline_allocations is not None:
        older = (
            f"{about.baseline_allocations:,} of them held before the recording ({format_bytes(about.baseline_bytes)})"
        )
    device = [f"device memory {format_bytes(about.device_bytes)}"] if about.device_bytes else []
    return " · ".join([literal(about.machine), format_count(about.allocations, "allocation"), older, *device])


def totals(about: Timeline) -> str | None:
    """Which total is drawn, and the other one; None where only one is known."""
    if not about.peak_block_bytes:
        return None
    more = about.peak_block_bytes / max(1, about.peak_bytes) - 1
    before = format_bytes(about.baseline_block_bytes or 0)
    return (
        f"Drawn are the bytes asked for. In the allocator's blocks, as torch.cuda.max_memory_allocated counts, the "
        f"peak is {format_bytes(about.peak_block_bytes)} ({more:+.1%}), with {before} held before."
    )


def phase_at(columns: Columns, at_us: int) -> str | None:
    """The phase of the step at a moment; none before the first mark."""
    return next((name for begins, name in reversed(columns.marks) if begins <= at_us), None)


def answer(about: Timeline, columns: Columns, parts: Sequence[MemoryPart]) -> str:
    """Where the peak falls and what it is made of; a snapshot of somebody else's says of neither."""
    phase = phase_at(columns, about.peak_at_us)
    where = f" in the **{literal(phase)}** phase," if phase else " before the first phase," if columns.marks else ""
    moment = f"{format_number(about.peak_at_us / 1e3)} ms into the {format_number(about.duration_us / 1e3)} ms recorded"
    start = f"The peak of **{format_bytes(about.peak_bytes)}** falls{where} {moment}"
    if [part.category for part in parts] == ["unknown"]:
        return f"{start}. A snapshot does not say what its blocks are for: the stacks say where they come from."
    largest = [f"{_share(part, about)} of it are {_plural(part.category)}" for part in parts[:1]]
    rest = [f"{_share(part, about)} {_plural(part.category)}" for part in parts[1:3]]
    made = ", ".join(largest + rest)
    return f"{start}; {made}." if made else f"{start}."


#: What a recording of compiled code's frames begins with: the recorder and the allocator themselves.
_RECORDER = ("torch::unwind", "CapturedTraceback", "gather_with_cpp", "CachingAllocator", "at::detail::empty")


def frames_of(stack: str) -> list[str]:
    """The frames of a stack, innermost first; those without a line (`??:0 malloc`) only if there is nothing else."""
    frames = [frame for frame in stack.split("\n") if frame]
    lines = [frame for frame in frames if not frame.split(" ")[0].endswith(":0")]
    return lines or list(dropwhile(lambda frame: any(name in frame for name in _RECORDER), frames)) or frames


def difference(left: Timeline, right: Timeline, parts: Pair) -> str:
    """Which of two peaks is higher, by how much, and which category makes most of it."""
    high, low = sorted((left, right), key=lambda item: -item.peak_bytes)
    if high.peak_bytes == low.peak_bytes:
        return f"Both peaks are {format_bytes(high.peak_bytes)}."
    gap = high.peak_bytes - low.peak_bytes
    sign = 1 if high is left else -1
    by_category = {row["Category"]: sign * (row["left"] - row["right"]) for row in _both(parts)}
    most = max(by_category, key=lambda name: by_category[name])
    higher = (
        f"The peak of {literal(high.label)} is **{format_bytes(gap)}** higher than that of {literal(low.label)} "
        f"({format_bytes(high.peak_bytes)} against {format_bytes(low.peak_bytes)})"
    )
    if most == "unknown":
        return f"{higher}."
    return f"{higher}; {_plural(most)} differ most, by {format_bytes(by_category[most])}."


def difference_rows(left: Timeline, right: Timeline, parts: Pair) -> list[dict[str, Any]]:
    """One row a category: what it holds at each one's own peak (MiB), and the difference."""
    return [
        {
            "Category": row["Category"],
            f"{left.label} (MiB)": row["left"] / 2**20,
            f"{right.label} (MiB)": row["right"] / 2**20,
            "Difference (MiB)": (row["left"] - row["right"]) / 2**20,
        }
        for row in _both(parts)
    ]


def _both(parts: Pair) -> list[dict[str, Any]]:
    held = [{part.category: part.held_bytes for part in side} for side in parts]
    names = sorted(held[0].keys() | held[1].keys(), key=lambda name: -max(side.get(name, 0) for side in held))
    return [{"Category": name, "left": held[0].get(name, 0), "right": held[1].get(name, 0)} for name in names]


def alive_rows(alive: Sequence[Alive], *, total_bytes: int) -> list[dict[str, Any]]:
    """The rows of the table of the largest allocations at a moment, under the schema's labels."""
    columns = TABLES["allocations"]
    return [
        {
            "Size (MiB)": item.allocated_bytes / 2**20,
            "Share": item.allocated_bytes / max(1, total_bytes),
            columns.column("category").label: item.category,
            columns.column("module").label: item.module,
            columns.column("operation").label: item.operation,
            "Born in": item.phase,
            "Born (ms)": item.born_us / 1e3,
            "Died (ms)": None if item.died_us is None else item.died_us / 1e3,
            "Stack, innermost first": _one_line(item),
        }
        for item in alive
    ]


def alt(about: Timeline, sentence: str) -> str:
    """What the drawing shows, for those who do not see it."""
    return (
        f"Memory timeline of {about.label}: {about.allocations:,} allocations, each a block from birth to death at its "
        f"address, below the exact total. {plain(sentence)}"
    )


def _one_line(item: Alive) -> str:
    if item.frames:
        return " ← ".join(frames_of(item.frames))
    return "" if item.born_us else "held before the recording"


def _share(part: MemoryPart, about: Timeline) -> str:
    return f"{part.held_bytes / max(1, about.peak_bytes):.0%}"


def _plural(category: str) -> str:
    return {"optimizer state": "optimizer state", "autocast copy": "autocast copies", "temporary": "temporaries",
            "workspace": "workspace", "unknown": "of unknown purpose"}.get(category, f"{category}s")  # fmt: skip
