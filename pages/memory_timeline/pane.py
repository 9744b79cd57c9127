"""One timeline: the drawing, and the largest allocations alive at the cursor.

    pane(frame, about, side="left", look=Look(fold_bytes=65536, scale_bytes=peak, folds_held=True))

A fragment: moving the cursor draws this pane again, not the page.
"""

import re
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from pages.memory_timeline.answers import (
    alive_rows,
    answer,
    describe_drawing,
    describe_recording,
    describe_totals,
    format_ms,
    phase_at,
)
from pages.memory_timeline.component import Drawing, picture_button, timeline
from pages.ui.downloads import downloads
from pages.ui.evidence import of_moment, say
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.permalink import link
from pages.ui.trust import COLORS
from pages.ui.zoom import linked_zoom
from runner.analysis.audit.report import SEVERITIES
from runner.analysis.audit.timeline_rules import TIMELINE_REMEDIES
from runner.errors import DatabaseBusy
from runner.formats import format_bytes, format_count
from runner.plan.commands import sweep_commands
from runner.results import Timeline
from runner.store.queries.timeline_findings import load_timeline_findings
from runner.store.queries.timelines import load_columns, load_largest_at, load_parts_at, load_timelines

MAX_SHOWN = 25
Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is folded, and the top of the total's axis. Allocations from before the recording are folded in imported
    snapshots alone: those of a measured step are known by purpose."""

    fold_bytes: int
    scale_bytes: int
    folds_held: bool


@st.fragment
def pane(frame: Frame, about: Timeline, *, side: str, look: Look) -> None:
    """Draws the pane. `side` tells the panes of a page apart."""
    blocks = frame.ask(load_columns, about.cell_id)
    folds_held = look.folds_held and about.origin == "imported" and bool(blocks.arrays["born"].any())
    sentence = answer(about, blocks, frame.ask(load_parts_at, about.cell_id, about.peak_at_us))
    with st.container(border=True, key=f"card-timeline-{side}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.subheader(restrict(literal(about.label)), anchor=f"timeline-{side}", width="stretch")
            share = st.popover("Share", icon=":material/share:", key=f"timeline-{side}-share", on_change="rerun")
        st.caption(restrict(describe_recording(about)))
        if drawn := describe_totals(about):
            st.caption(restrict(drawn))
        _draw_findings(frame, about, side=side)
        drawing = Drawing(columns=blocks, about=about, fold_bytes=look.fold_bytes, scale_bytes=look.scale_bytes,
                          alt=describe_drawing(about, sentence), folds_held=folds_held)  # fmt: skip
        cursor = timeline(drawing, key=f"timeline-{side}-canvas", on_cursor=lambda: None)
        if cursor and cursor["timeline"] == str(about.cell_id):
            at_us = int(cursor["at"])
        else:
            at_us = _read_cursor(frame, about, side=side)
        try:
            rows = _list_alive(frame, about, side=side, at_us=at_us, folds_held=folds_held)
        except DatabaseBusy:
            st.caption("The results file is busy; move the cursor once more for what is alive there.")
            return
        if share.open:
            with share:
                _draw_share(frame, about, side=side, rows=rows)


def _draw_findings(frame: Frame, about: Timeline, *, side: str) -> None:
    """Says what the audit finds in a recording of somebody else's; those measured here are judged as memory cells."""
    if about.origin != "imported":
        return
    for finding in frame.ask(load_timeline_findings, about.cell_id):
        badge = f":{COLORS[SEVERITIES[finding.severity]]}-badge[{finding.severity}]"
        words = f"{badge} **{finding.code.replace('_', ' ')}**: {literal(finding.sentence)}"
        at_peak = of_moment(frame, about.cell_id, about.peak_at_us)
        say(frame, f"{words} {literal(TIMELINE_REMEDIES[finding.code])}", at_peak, key=f"{finding.code}-{side}")


def _read_cursor(frame: Frame, about: Timeline, *, side: str) -> int:
    """Returns the cursor of the address (`place.js` has its format), else the peak. Warns where the address is about a
    recording that is not listed any more."""
    recording, *rest = (linked_zoom(f"timeline-{side}") or "").split(",")
    if recording == about.cell_id.hex[-8:]:
        cursor = rest[4] if len(rest) > 4 else ""
        known = re.fullmatch("[0-9]{1,16}", cursor) and int(cursor) <= about.duration_us
        return int(cursor) if known else about.peak_at_us
    if recording and recording not in (item.cell_id.hex[-8:] for item in frame.ask(load_timelines, None)):
        st.warning(
            "The link's window, cursor and pinned block are of another recording, which is not in this file or has "
            "been measured anew: this one is shown whole.",
            icon=":material/link_off:",
        )
    return about.peak_at_us


def _draw_share(frame: Frame, about: Timeline, *, side: str, rows: Rows) -> None:
    st.caption("The largest allocations at the cursor")
    with st.container(horizontal=True, gap="small"):
        downloads(rows, name=f"stepscope-memory-timeline-alive-{frame.contents.edition}", key=f"timeline-{side}")
    st.caption("The timeline as you see it")
    picture_button(side)
    st.caption("Link to this timeline as you see it: its window, cursor, pinned block and search, and every filter")
    st.code(link(frame, f"timeline-{side}"), language=None, wrap_lines=True)
    if about.cell and (commands := sweep_commands([about.cell])):
        st.caption("Record it again")
        st.code(commands[0], language="bash", wrap_lines=True)


def _list_alive(frame: Frame, about: Timeline, *, side: str, at_us: int, folds_held: bool) -> Rows:
    """Lists the largest allocations at a moment, those from before the recording as one entry if `folds_held`."""
    alive = frame.ask(load_largest_at, about.cell_id, at_us, MAX_SHOWN, "recorded" if folds_held else "all")
    parts = frame.ask(load_parts_at, about.cell_id, at_us)
    total, count = sum(part.held_bytes for part in parts), sum(part.allocations for part in parts)
    when = "At the peak" if at_us == about.peak_at_us else "At the cursor"
    phase = phase_at(frame.ask(load_columns, about.cell_id), at_us)
    where = f"{format_ms(at_us)}{f', {literal(phase)}' if phase else ''}"
    of_these = " of the recording" if folds_held else ""
    say(
        frame,
        f"**{when}** ({where}): {count:,} allocations hold **{format_bytes(total)}**. "
        f"The {len(alive)} largest{of_these}, with the code that made them:",
        of_moment(frame, about.cell_id, at_us),
        key=f"alive-{side}",
    )
    rows = alive_rows(alive, total_bytes=total)
    _draw_table(rows, key=f"alive-{side}", alt=f"The largest allocations alive at {format_ms(at_us)}.")
    if folds_held:
        _list_held(frame, about, side=side, at_us=at_us, total_bytes=total)
    return rows


def _list_held(frame: Frame, about: Timeline, *, side: str, at_us: int, total_bytes: int) -> None:
    """Lists what was allocated before the recording and still is, as one entry that can be opened."""
    parts = frame.ask(load_parts_at, about.cell_id, at_us, "held")
    count = sum(part.allocations for part in parts)
    if not count:
        return
    size = format_bytes(sum(part.held_bytes for part in parts))
    label = f"Held since before the recording: {format_count(count, 'allocation')}, {size}"
    opened = st.expander(label, key=f"_held-{side}", on_change="rerun")
    if opened.open:
        with opened:
            rows = alive_rows(
                frame.ask(load_largest_at, about.cell_id, at_us, MAX_SHOWN, "held"), total_bytes=total_bytes
            )
            st.caption(restrict(f"The {len(rows)} largest"))
            _draw_table(
                rows, key=f"held-{side}", alt=f"The largest allocations that were held before {format_ms(at_us)}."
            )


def _draw_table(rows: Rows, *, key: str, alt: str) -> None:
    # A snapshot of somebody else's knows neither module nor operation.
    known = pd.DataFrame(rows).dropna(axis=1, how="all")
    st.dataframe(known, hide_index=True, key=key, height=300, column_config=_COLUMNS, placeholder="", alt=alt)


_COLUMNS: dict[str, Any] = {
    "Size (MiB)": st.column_config.NumberColumn(format="%.2f"),
    "Share": st.column_config.NumberColumn(format="percent", help="Of all bytes alive at this moment."),
    "Born (ms)": st.column_config.NumberColumn(format="%.2f"),
    "Died (ms)": st.column_config.NumberColumn(format="%.2f"),
    "Stack, innermost first": st.column_config.TextColumn(width="large"),
}
