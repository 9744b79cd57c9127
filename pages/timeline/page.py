"""The memory timeline on a canvas: every allocation from birth to death, and what is alive at the cursor.

Two recordings can stand side by side on one scale. A fragment each: moving a cursor draws that pane again alone. The
canvas is a component of our own, whose data is one block of bytes and whose script is local: `pack` puts the columns
behind a JSON head, sorted as the script needs them: by address, by size, by free. Names and stacks are only ever set as
text. Limits: recordings up to 2³¹ µs (35 minutes), addresses up to 2⁵³.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from pages.draw import draw_choices
from pages.frame import ASKED, Frame
from pages.markdown import literal, restrict
from pages.panel import COLORS
from pages.plot.parts import color_of
from runner.analysis.audit.timeline_rules import TIMELINE_REMEDIES
from runner.analysis.timeline.snapshot import frames_of
from runner.answers.answer import Choice, choose
from runner.answers.timelines import describe_slowing
from runner.errors import DatabaseBusy
from runner.formats import format_bytes, format_count, format_share, within_block
from runner.plan.commands import sweep_commands
from runner.results.cells import MemoryPart, Timeline
from runner.results.findings import SEVERITIES
from runner.store.read.findings import load_timeline_findings
from runner.store.read.memory import CATEGORIES, Columns, load_columns, load_largest_at, load_parts_at, load_timelines
from runner.store.read.timed import load_steps

_FOLDER = Path(__file__).parent
_SCRIPTS = ("model.js", "raster.js", "picture.js", "controls.js", "view.js")


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def pack(columns: Columns, about: Timeline, shown: Mapping[str, Any]) -> bytes:
    """Returns the length of the head, the head as JSON, and the columns, each from a multiple of 8 on. `shown` is how
    the recording is drawn."""
    raw = columns.arrays
    by_death = np.argsort(raw["died"], kind="stable")
    arrays = {
        "address": raw["address"].astype(np.float64),
        "bytes": raw["bytes"].astype(np.float64),
        **{name: raw[name].astype(np.int32) for name in ("born", "died", "stack", "module", "operation", "phase")},
        "category": raw["category"].astype(np.uint8),
        "byAddress": np.argsort(raw["address"], kind="stable").astype(np.int32),
        "bySize": np.argsort(raw["bytes"], kind="stable").astype(np.int32),
        "byDeath": by_death[raw["died"][by_death] >= 0].astype(np.int32),
    }
    places, parts, offset = [], [], 0
    for name, array in arrays.items():
        places.append((name, array.dtype.name, offset, len(array)))
        padding = -array.nbytes % 8
        parts += [array.tobytes(), bytes(padding)]
        offset += array.nbytes + padding
    frames: dict[str, int] = {}
    stacks = [[frames.setdefault(frame, len(frames)) for frame in frames_of(text)] for text in columns.stacks]
    present = np.bincount(columns.arrays["category"], minlength=len(CATEGORIES))
    head = {
        "key": str(about.cell_id), "title": about.label, "duration": about.duration_us, "peak": about.peak_bytes,
        "peakAt": about.peak_at_us, "present": present.tolist(),
        "categories": CATEGORIES, "colors": [color_of(name, CATEGORIES) for name in CATEGORIES],
        "phases": columns.names["phase"], "modules": columns.names["module"], "operations": columns.names["operation"],
        "frames": list(frames), "stacks": stacks, "marks": columns.marks, "columns": places,
    }  # fmt: skip
    text = json.dumps({**head, **shown}).encode()
    start = len(text).to_bytes(4, "little") + text
    return b"".join([start, bytes(-len(start) % 8), *parts])


#: Sizes below which blocks are drawn as one.
FOLDS: Mapping[str, int] = {
    "nothing": 0,
    **{f"{size} KiB": size * 2**10 for size in (1, 4, 16, 64, 256)},
    **{f"{size} MiB": size * 2**20 for size in (1, 4, 16, 64)},
}
#: What stands beside a timeline where nothing does.
ALONE = "nothing"
MAX_SHOWN = 25


def draw_timeline(frame: Frame, before: Sequence[Choice] = ()) -> None:
    by_label = {item.label: item for item in frame.load(load_timelines, frame.selection.run, frame.selection.machine)}
    if not by_label:
        st.info("No timeline is recorded here. This records steps, every allocation with its stack:")
        st.code("python -m runner sweep --experiment memory --modes train,inference --timeline", language="bash")
        st.caption("Or bring a snapshot that `torch.cuda.memory._dump_snapshot` wrote:")
        st.code("python -m runner import snapshot.pickle", language="bash")
        return
    asked = st.session_state[ASKED]
    highest = max(
        by_label, key=lambda label: (getattr(by_label[label].cell, "mode", "") == "train", by_label[label].peak_bytes)
    )
    first = choose(asked, "recording", "Timeline", list(by_label), default=highest)
    second = choose(asked, "beside", "Beside it", [ALONE, *by_label], prefix="beside: ")
    fold = choose(asked, "fold", "Fold blocks smaller than", list(FOLDS), default="4 KiB", prefix="fold below ")
    draw_choices([*before, first, second, fold])
    shown = [by_label[name] for name in dict.fromkeys((first.chosen, second.chosen)) if name != ALONE]
    scale = max(item.peak_bytes for item in shown)
    for side, place, item in zip(("left", "right"), st.columns(len(shown)), shown, strict=False):
        with place:
            _draw_pane(frame, item, side=side, fold_bytes=FOLDS[fold.chosen], scale_bytes=scale)
    if len(shown) == 2:
        _draw_difference(frame, *shown)


@st.fragment
def _draw_pane(frame: Frame, about: Timeline, *, side: str, fold_bytes: int, scale_bytes: int) -> None:
    blocks = frame.load(load_columns, about.cell_id)
    # Blocks from before an imported recording have no purpose: they are drawn as one.
    folds_held = about.origin == "imported" and bool(blocks.arrays["born"].any())
    parts = frame.load(load_parts_at, about.cell_id, about.peak_at_us)
    sentence = describe_peak(about, blocks, parts)
    with st.container(border=True, key=f"card-timeline-{side}"):
        st.subheader(restrict(literal(about.label)), anchor=f"timeline-{side}")
        st.markdown(restrict(sentence))
        known = [
            literal(about.machine),
            format_count(about.allocations, "allocation"),
            f"{format_bytes(about.baseline_bytes)} held before",
            f"device memory {format_bytes(about.device_bytes)}" if about.device_bytes else "",
            f"{about.duration_us / 1e3:,.0f} ms recorded",
            describe_slowing(about, frame.load(load_steps, frame.selection.broad())),
        ]
        st.caption(restrict(" · ".join(filter(None, known))))
        # Of recordings of somebody else's; those measured here are judged as memory cells.
        for finding in frame.load(load_timeline_findings, about.cell_id) if about.origin == "imported" else ():
            badge = f":{COLORS[SEVERITIES[finding.severity]]}-badge[{finding.severity}]"
            words = f"{badge} **{finding.code.replace('_', ' ')}**: {literal(finding.sentence)}"
            st.markdown(restrict(f"{words} {literal(TIMELINE_REMEDIES[finding.code])}"))
        alt = f"Memory timeline of {about.label}: {about.allocations:,} allocations, each a block from birth to "
        alt += f"death at its address, below the total. {sentence.replace('**', '')}"
        # Blocks below `fold` are drawn as one, and so are those of before with `foldHeld`; `scale` is the total's axis.
        shown = {"alt": alt, "fold": fold_bytes, "scale": scale_bytes, "foldHeld": folds_held}
        component = st.components.v2.component(
            "stepscope_timeline",
            html=_read("timeline.html"),
            css=_read("timeline.css"),
            js="\n".join(map(_read, _SCRIPTS)),
        )
        state = component(
            key=f"timeline-{side}-canvas",
            data=pack(blocks, about, shown),
            height="content",
            default={"cursor": None},
            on_cursor_change=lambda: None,
        )
        cursor: dict[str, Any] | None = state.cursor
        is_mine = cursor is not None and cursor["timeline"] == str(about.cell_id)
        at_us = int(cursor["at"]) if cursor and is_mine else about.peak_at_us
        try:
            _list_alive(frame, about, blocks, side=side, at_us=at_us, only_recorded=folds_held)
        except DatabaseBusy:
            st.caption("The results file is busy; move the cursor once more for what is alive there.")
        for line in sweep_commands([about.cell] if about.cell else []):
            st.code(line, language="bash", wrap_lines=True)


def describe_peak(about: Timeline, columns: Columns, parts: Sequence[MemoryPart]) -> str:
    """Says where the peak falls and what it is made of; imported snapshots know neither. The peak is the allocator's,
    in its blocks, as everywhere; the plot is of tensors, which fill them but for rounding."""
    phase = phase_at(columns, about.peak_at_us)
    where = f" in **{literal(phase)}**" if phase else ""
    blocks = about.peak_block_bytes or about.peak_bytes
    start = f"The peak of **{format_bytes(blocks)}** falls{where}"
    if format_bytes(blocks) != format_bytes(about.peak_bytes):
        start += f", {format_bytes(about.peak_bytes)} of it in tensors"
    if [part.category for part in parts] == ["unknown"]:
        return f"{start}. A snapshot does not say what its blocks are for: the stacks say where they come from."
    whole = max(1, about.peak_bytes)
    shares = [f"{format_share(part.held_bytes / whole)} {part.category}" for part in parts[:3]]
    return f"{start}: {', '.join(shares)}." if shares else f"{start}."


def phase_at(columns: Columns, at_us: int) -> str | None:
    """Returns the phase of the step at a moment; None before the first mark."""
    return next((name for begins, name in reversed(columns.marks) if begins <= at_us), None)


def _list_alive(frame: Frame, about: Timeline, columns: Columns, *, side: str, at_us: int, only_recorded: bool) -> None:
    """Lists the largest allocations at a moment; of an imported recording, those that it saw being made."""
    which = "recorded" if only_recorded else "all"
    alive = frame.load(load_largest_at, about.cell_id, at_us, MAX_SHOWN, which)
    parts = frame.load(load_parts_at, about.cell_id, at_us)
    total, count = sum(part.held_bytes for part in parts), sum(part.allocations for part in parts)
    when = "At the peak" if at_us == about.peak_at_us else "At the cursor"
    phase = phase_at(columns, at_us)
    where = f"{at_us / 1e3:,.2f} ms{f', {literal(phase)}' if phase else ''}"
    words = f"**{when}** ({where}): {count:,} allocations hold **{format_bytes(total)}**."
    st.markdown(restrict(f"{words} The {len(alive)} largest, like ones in a line:"))
    rows = [
        {
            "Size (MiB)": round(item.allocated_bytes / 2**20, 2),
            "How many": item.alike,
            "Share": item.alike * item.allocated_bytes / max(1, total),
            "For": item.category,
            "Module": (item.alike > 1 and within_block(item.module)) or item.module,
            "Operation": item.operation,
            "Born in": item.phase,
            "Born (ms)": round(item.born_us / 1e3, 2) if item.alike == 1 else None,
            "Died (ms)": None if item.died_us is None or item.alike > 1 else round(item.died_us / 1e3, 2),
            "Stack, innermost first": " ← ".join(frames_of(item.frames or ""))
            or ("" if item.born_us else "held before the recording"),
        }
        for item in alive
    ]
    known = [name for name in (rows[0] if rows else ()) if any(row[name] is not None for row in rows)]
    st.dataframe(
        [{name: row[name] for name in known} for row in rows],
        hide_index=True,
        key=f"alive-{side}",
        height=260,
        placeholder="",
        alt=f"The largest allocations alive at {where}.",
        column_config={
            "Share": st.column_config.NumberColumn(format="percent", help="Of all bytes alive at this moment."),
            "Stack, innermost first": st.column_config.TextColumn(width="large"),
        },
    )


def _draw_difference(frame: Frame, left: Timeline, right: Timeline) -> None:
    """Says which of two peaks is higher and lists what each is made of, at its own peak."""
    sides = [
        {part.category: part.held_bytes for part in frame.load(load_parts_at, item.cell_id, item.peak_at_us)}
        for item in (left, right)
    ]
    names = sorted(sides[0].keys() | sides[1].keys(), key=lambda name: -max(side.get(name, 0) for side in sides))
    high, low = sorted((left, right), key=lambda item: -item.peak_bytes)
    gap = format_bytes(high.peak_bytes - low.peak_bytes)
    st.markdown(restrict(f"The peak of {literal(high.label)} is **{gap}** higher than that of {literal(low.label)}."))
    headings = ("Category", f"{left.label} (MiB)", f"{right.label} (MiB)", "Difference (MiB)")
    rows = []
    for name in names:
        a, b = (side.get(name, 0) / 2**20 for side in sides)
        rows.append(dict(zip(headings, (name, round(a, 1), round(b, 1), round(a - b, 1)), strict=True)))
    st.dataframe(rows, hide_index=True, key="difference", alt="What the two peaks are made of.")
