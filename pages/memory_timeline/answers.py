"""Sentences and rows about a memory timeline: its answer, its alt text, what is alive at the cursor.

answer(timeline, columns, parts)        # 'The peak of **2.48 GiB** falls in the **optimizer** phase, …'
"""

from collections.abc import Sequence
from typing import Any

from pages.ui.markdown import literal, plain
from runner.analysis.timeline.stacks import frames_of
from runner.formats import format_bytes, format_count, format_number, format_share
from runner.results import LiveAllocation, MemoryPart, Timeline
from runner.schema import TABLES
from runner.store.queries.timelines import Columns

#: The parts of two timelines, each at its own peak.
Pair = tuple[Sequence[MemoryPart], Sequence[MemoryPart]]


def format_ms(microseconds: float) -> str:
    return f"{microseconds / 1e3:,.2f} ms"


def describe_recording(about: Timeline) -> str:
    """Says the machine, the number of allocations, and what was allocated before."""
    older = f"{format_bytes(about.baseline_bytes)} held before"
    if about.baseline_allocations is not None:
        older = (
            f"{about.baseline_allocations:,} of them held before the recording ({format_bytes(about.baseline_bytes)})"
        )
    device = [f"device memory {format_bytes(about.device_bytes)}"] if about.device_bytes else []
    return " · ".join([literal(about.machine), format_count(about.allocations, "allocation"), older, *device])


def describe_totals(about: Timeline) -> str | None:
    """Says which total is drawn, and the other one; None where only one is known."""
    if not about.peak_block_bytes:
        return None
    more = about.peak_block_bytes / max(1, about.peak_bytes) - 1
    before = format_bytes(about.baseline_block_bytes or 0)
    return (
        f"Drawn are the bytes asked for. In the allocator's blocks, as torch.cuda.max_memory_allocated counts, the "
        f"peak is {format_bytes(about.peak_block_bytes)} ({more:+.1%}), with {before} held before."
    )


def phase_at(columns: Columns, at_us: int) -> str | None:
    """Returns the phase of the step at a moment; None before the first mark."""
    return next((name for begins, name in reversed(columns.marks) if begins <= at_us), None)


def answer(about: Timeline, columns: Columns, parts: Sequence[MemoryPart]) -> str:
    """Says where the peak falls and what it is made of; imported snapshots know neither."""
    phase = phase_at(columns, about.peak_at_us)
    where = f" in the **{literal(phase)}** phase," if phase else " before the first phase," if columns.marks else ""
    moment = f"{format_number(about.peak_at_us / 1e3)} ms into the {format_number(about.duration_us / 1e3)} ms recorded"
    start = f"The peak of **{format_bytes(about.peak_bytes)}** falls{where} {moment}"
    if [part.category for part in parts] == ["unknown"]:
        return f"{start}. A snapshot does not say what its blocks are for: the stacks say where they come from."
    whole = max(1, about.peak_bytes)
    shares = [(format_share(part.held_bytes / whole), _pluralize(part.category)) for part in parts[:3]]
    made = ", ".join(f"{share}{'' if place else ' of it are'} {words}" for place, (share, words) in enumerate(shares))
    return f"{start}; {made}." if made else f"{start}."


def describe_difference(left: Timeline, right: Timeline, parts: Pair) -> str:
    """Says which of two peaks is higher, by how much, and which category makes most of it."""
    high, low = sorted((left, right), key=lambda item: -item.peak_bytes)
    if high.peak_bytes == low.peak_bytes:
        return f"Both peaks are {format_bytes(high.peak_bytes)}."
    gap = high.peak_bytes - low.peak_bytes
    sign = 1 if high is left else -1
    by_category = {row["Category"]: sign * (row["left"] - row["right"]) for row in _merge_parts(parts)}
    most = max(by_category, key=lambda name: by_category[name])
    higher = (
        f"The peak of {literal(high.label)} is **{format_bytes(gap)}** higher than that of {literal(low.label)} "
        f"({format_bytes(high.peak_bytes)} against {format_bytes(low.peak_bytes)})"
    )
    if most == "unknown":
        return f"{higher}."
    return f"{higher}; {_pluralize(most)} differ most, by {format_bytes(by_category[most])}."


def difference_rows(left: Timeline, right: Timeline, parts: Pair) -> list[dict[str, Any]]:
    """Returns one row a category: what it holds at each timeline's own peak (MiB), and the difference."""
    return [
        {
            "Category": row["Category"],
            f"{left.label} (MiB)": row["left"] / 2**20,
            f"{right.label} (MiB)": row["right"] / 2**20,
            "Difference (MiB)": (row["left"] - row["right"]) / 2**20,
        }
        for row in _merge_parts(parts)
    ]


def _merge_parts(parts: Pair) -> list[dict[str, Any]]:
    sides = [{part.category: part.held_bytes for part in side} for side in parts]
    names = sorted(sides[0].keys() | sides[1].keys(), key=lambda name: -max(side.get(name, 0) for side in sides))
    return [{"Category": name, "left": sides[0].get(name, 0), "right": sides[1].get(name, 0)} for name in names]


def alive_rows(alive: Sequence[LiveAllocation], *, total_bytes: int) -> list[dict[str, Any]]:
    """Returns the table of the largest allocations at a moment, under the schema's labels."""
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
            "Stack, innermost first": _join_frames(item),
        }
        for item in alive
    ]


def describe_drawing(about: Timeline, sentence: str) -> str:
    """Describes the drawing for readers who do not see it."""
    return (
        f"Memory timeline of {about.label}: {about.allocations:,} allocations, each a block from birth to death at its "
        f"address, below the exact total. {plain(sentence)}"
    )


def _join_frames(item: LiveAllocation) -> str:
    if item.frames:
        return " ← ".join(frames_of(item.frames))
    return "" if item.born_us else "held before the recording"


def _pluralize(category: str) -> str:
    return {"optimizer state": "optimizer state", "autocast copy": "autocast copies", "temporary": "temporaries",
            "workspace": "workspace", "unknown": "of unknown purpose"}.get(category, f"{category}s")  # fmt: skip
