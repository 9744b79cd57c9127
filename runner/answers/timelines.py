"""How does memory go through a step, and which allocations are largest at its peak?"""

import re
from collections.abc import Sequence
from dataclasses import replace

from runner.analysis.timeline.snapshot import frames_of
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose, verbatim
from runner.answers.shared import narrow, sizes_of
from runner.answers.words import ended_with_need, lacks
from runner.formats import format_bytes, format_number, within_block
from runner.results.cells import LiveAllocation, Peak, StepResult, Timeline
from runner.results.rows import Rows
from runner.schema import TABLES, Model

PHASE = Field.of("timings", "phase")
PEAK = Field("peak_bytes", "Peak in it", unit="bytes", role="value", doc="Blocks of the allocator.")
LEFT = Field("left_bytes", "In use at its end", unit="bytes", role="note")
BEGINS = Field("begins_ms", "Begins", unit="ms", role="note", doc="Recording slows the step down.")
#: The recordings of measured cells, beside imported ones.
MEASURED = "measured cells"
#: Frames of the libraries that a model is written with, and functions without a name of their own.
_OTHERS = re.compile(r"torch/|(.*/)?(einops|site-packages)/")
_NAMELESS = ("<genexpr>", "<listcomp>", "<lambda>")


def answer(rows: Rows, asked: Asked) -> Answer:
    if not rows.recorded:
        return Answer(missing=lacks("no memory timeline was recorded"))
    imported = {one.label: one for one in rows.recorded if one.cell is None}
    own = [one for one in rows.recorded if one.cell]
    trained = [one for one in own if one.cell and one.cell.mode == "train"] or own
    cell = max(trained, key=lambda one: one.peak_bytes).cell if trained else None
    if cell:  # the highest peak opens by itself
        asked = {"size": sizes_of(own)[Model.of(cell)], **asked}
    recording = choose(asked, "recording", "Recording", [*([MEASURED] if own else []), *imported])
    found, choices = narrow(own, asked, drawn=())
    is_own = recording.chosen == MEASURED
    one = found[0] if is_own else imported[recording.chosen]
    about = f"{one.machine.split(' · ')[0]} · {one.label}"
    return Answer(
        sentence=_say(one),
        more=f"{_say_lost(one, rows.peaks)}{describe_slowing(one, rows.steps)}".strip(),
        views=(_draw_phases(one, about), _draw_largest(one, about)),
        choices=(recording, *(choices if is_own else ())),
        cells={one.cell_id: one.cell} if one.cell else {},
    )


def _draw_phases(one: Timeline, about: str) -> View:
    begins = {phase: us / 1000 for phase, us in one.begins_us.items()}
    lines = [
        Row.of(one, phase.phase, phase.peak_allocated_bytes, phase.end_allocated_bytes, begins.get(phase.phase))
        for phase in one.phases
        if phase.peak_allocated_bytes is not None
    ]
    if not lines:  # a recording without phases
        lines = [Row.of(one, "whole recording", one.peak_block_bytes or one.peak_bytes, None, 0.0)]
    return View(
        name="timeline-phases",
        title="Peak of each phase",
        about=about,
        fields=(PHASE, PEAK, LEFT, BEGINS),
        rows=tuple(lines),
        draw=Draw("bars", "peak_bytes", down=("phase",), beside=("left_bytes",)),
        note=f"{one.allocations:,} allocations, with those held before, in "
        f"{one.duration_us / 1000:,.0f} ms, which recording makes longer.",
    )


def _draw_largest(one: Timeline, about: str) -> View:
    return View(
        name="timeline-largest",
        title="The largest allocations of the step at its peak",
        about=about,
        fields=(
            Field("rank", "#"),
            Field("size", "Size", unit="bytes", role="value"),
            Field("alike", "How many", role="note", doc="Equal in all but their block."),
            Field("operation", "Operation", role="note"),
            Field("line", "Line", role="note", doc="The innermost one outside of torch and einops."),
            Field("category", "For", role="note"),
            Field("phase", "Born in", role="note"),
            Field("module", "Module", role="note"),
        ),
        rows=tuple(
            Row.of(
                one,
                place,
                item.allocated_bytes,
                item.alike,
                (item.operation or "").removeprefix("aten::") or None,
                line_of(item),
                item.category,
                item.phase,
                within_block(item.module) or item.module,
            )
            for place, item in enumerate(one.largest, 1)
        ),
        draw=Draw("table", "size", down=("rank",)),
        columns=("size", "alike", "category", "module", "line"),
        note="What was held before the recording (parameters, optimizer state) is left out.",
    )


def _say_lost(one: Timeline, peaks: Sequence[Peak]) -> str:
    """Says at which contexts the same step ran out of memory, and what it would have needed by the formula."""
    if (cell := one.cell) is None:
        return ""
    return "".join(
        f"At {peak.cell.context:,} tokens it ran {ended_with_need(peak)}. "
        for peak in peaks
        if peak.status == "oom" and replace(peak.cell, context=cell.context, timeline=cell.timeline).key == cell.key
    )


def describe_slowing(line: Timeline, steps: Sequence[StepResult]) -> str:
    """Says how much recording with stacks made the step slower, where the same step was timed without; else empty."""
    if line.cell is None:
        return ""
    alike = [name for name in TABLES["memory"].question if name in TABLES["steps"].question]
    for one in steps:
        if one.cell.backend == "eager" and all(getattr(one.cell, name) == getattr(line.cell, name) for name in alike):
            time = one.time("step", "step")
            if time and line.duration_us > 1000 * time.ms:
                taken = f"{format_number(time.ms)} → {format_number(line.duration_us / 1000)} ms"
                return f"Recording every allocation with its stack slows the step: {taken}."
    return ""


def line_of(item: LiveAllocation) -> str | None:
    """Returns the innermost frame outside of torch and einops, else the innermost, as `file:line function`."""
    frames = frames_of(item.frames or "")
    own = [frame for frame in frames if not _OTHERS.match(frame)]
    named = [frame for frame in own if not frame.endswith(_NAMELESS)]
    return next(iter([*named, *own, *frames]), None)


def _say(one: Timeline) -> str:
    peaks = {phase.phase: phase.peak_allocated_bytes for phase in one.phases if phase.peak_allocated_bytes is not None}
    top = max(peaks, key=lambda name: peaks[name] or 0, default="")
    peak = peaks.get(top) or one.peak_block_bytes or one.peak_bytes
    text = f"**{verbatim(one.label)}** peaks at **{format_bytes(peak)}**" + (f" in {top}" if top else "")
    left = {phase.phase: phase.end_allocated_bytes for phase in one.phases if phase.end_allocated_bytes is not None}
    if "forward" in left and "backward" in left:
        text += f": {format_bytes(left['forward'])} after forward, {format_bytes(left['backward'])} after backward"
    if one.largest and (where := line_of(one.largest[0])):
        largest, line = one.largest[0], verbatim(where.split(" ")[0].split("/")[-1])
        kind = f"{largest.category}, " if largest.category not in (None, "unknown") else ""
        text += f"; the largest allocations have {format_bytes(largest.allocated_bytes)} ({kind}{line})"
    return f"{text}."


QUESTION = Question(answer=answer, needs=("recorded", "steps", "peaks"), course=("M1", "M5"))
