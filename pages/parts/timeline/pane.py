"""One timeline with what belongs to it: the drawing, and the largest allocations alive at the cursor.

    pane(frame, about, fold_bytes=65536, scale_bytes=peak)

A fragment: moving the cursor draws this pane again, not the page.
"""

import re
from typing import Any

import pandas as pd
import streamlit as st

from pages.charts.bytes import in_unit
from pages.parts.evidence import of_moment, say
from pages.parts.frame import Frame
from pages.parts.permalink import link
from pages.parts.takeaway import downloads
from pages.parts.timeline import Drawing, picture_button, timeline
from pages.parts.timeline.words import alive_rows, alt, answer, in_ms, phase_at
from pages.parts.zoom import linked
from runner.commands import sweep_commands
from runner.errors import DatabaseBusy
from runner.store.queries.timelines import Timeline, columns, largest_at, parts_at, timelines

MOST_SHOWN = 25
Rows = list[dict[str, Any]]


@st.fragment
def pane(frame: Frame, about: Timeline, *, side: str, fold_bytes: int, scale_bytes: int) -> None:
    """Draw it. `side` tells the panes of a page apart."""
    held = frame.ask(columns, about.cell_id)
    sentence = answer(about, held, frame.ask(parts_at, about.cell_id, about.peak_at_us))
    with st.container(border=True, key=f"card-timeline-{side}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.subheader(about.label, anchor=f"timeline-{side}", width="stretch")
            share = st.popover("Share", icon=":material/share:", key=f"timeline-{side}-share", on_change="rerun")
        st.caption(_facts(about))
        drawing = Drawing(
            columns=held, about=about, fold_bytes=fold_bytes, scale_bytes=scale_bytes, alt=alt(about, sentence)
        )
        cursor = timeline(drawing, key=f"timeline-{side}-canvas", on_cursor=lambda: None)
        if cursor and cursor["timeline"] == str(about.cell_id):
            at_us = int(cursor["at"])
        else:
            at_us = _linked_cursor(frame, about, side=side)
        try:
            rows = _alive(frame, about, side=side, at_us=at_us, phase=phase_at(held, at_us))
        except DatabaseBusy:
            st.caption("The results file is busy; move the cursor once more for what is alive there.")
            return
        if share.open:
            with share:
                _share(frame, about, side=side, rows=rows)


def _linked_cursor(frame: Frame, about: Timeline, *, side: str) -> int:
    """Where the address (`place.js` says how) has the cursor, else the peak. That its place is of a recording that is
    not listed any more is said."""
    recording, *rest = (linked(f"timeline-{side}") or "").split(",")
    if recording == about.cell_id.hex[-8:]:
        asked = rest[4] if len(rest) > 4 else ""
        known = re.fullmatch("[0-9]{1,16}", asked) and int(asked) <= about.duration_us
        return int(asked) if known else about.peak_at_us
    if recording and recording not in (item.cell_id.hex[-8:] for item in frame.ask(timelines, None)):
        st.warning(
            "The link's window, cursor and pinned block are of another recording, which is not in this file or has "
            "been measured anew: this one is shown whole.",
            icon=":material/link_off:",
        )
    return about.peak_at_us


def _facts(about: Timeline) -> str:
    facts = [about.machine, f"{about.allocations:,} allocations", f"{in_unit(about.baseline_bytes)} held before"]
    if about.device_bytes:
        facts.append(f"device memory {in_unit(about.device_bytes)}")
    if about.lost_events:
        were = "block was" if about.lost_events == 1 else "blocks were"
        facts.append(f"{about.lost_events:,} freed {were} there before the recording began")
    return " · ".join(facts)


def _share(frame: Frame, about: Timeline, *, side: str, rows: Rows) -> None:
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


def _alive(frame: Frame, about: Timeline, *, side: str, at_us: int, phase: str | None) -> Rows:
    alive = frame.ask(largest_at, about.cell_id, at_us, MOST_SHOWN)
    parts = frame.ask(parts_at, about.cell_id, at_us)
    total, count = sum(part.held_bytes for part in parts), sum(part.allocations for part in parts)
    when = "At the peak" if at_us == about.peak_at_us else "At the cursor"
    where = f"{in_ms(at_us)}{f', {phase}' if phase else ''}"
    say(
        frame,
        f"**{when}** ({where}): {count:,} allocations hold **{in_unit(total)}**. "
        f"The {len(alive)} largest, with the code that made them:",
        of_moment(frame, about.cell_id, at_us),
        key=f"alive-{side}",
    )
    rows = alive_rows(alive, total_bytes=total)
    known = pd.DataFrame(rows).dropna(
        axis=1, how="all"
    )  # a snapshot of somebody else's knows neither module nor operation
    st.dataframe(known, hide_index=True, key=f"alive-{side}", height=300, column_config=_COLUMNS, placeholder="",
                 alt=f"The largest allocations alive at {in_ms(at_us)}.")  # fmt: skip
    return rows


_COLUMNS: dict[str, Any] = {
    "Size (MiB)": st.column_config.NumberColumn(format="%.2f"),
    "Share": st.column_config.NumberColumn(format="percent", help="Of all bytes alive at this moment."),
    "Born (ms)": st.column_config.NumberColumn(format="%.2f"),
    "Died (ms)": st.column_config.NumberColumn(format="%.2f"),
    "Stack, innermost first": st.column_config.TextColumn(width="large"),
}
