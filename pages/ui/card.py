"""Draws one chart with its table, downloads, link and the command that measures its rows again.

draw(frame, Card(key="phases", title="Where the time goes", note="…", rows=rows), lambda: phase_bars(bars))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import plotly.graph_objects as go
import streamlit as st

from pages.figures.frame import restrict as restrict_texts
from pages.ui.downloads import Picture, downloads, pictures
from pages.ui.evidence import LoadEvidence, say
from pages.ui.formats import shorten, table
from pages.ui.frame import Frame
from pages.ui.markdown import plain, restrict
from pages.ui.permalink import link
from pages.ui.sections import fold
from runner.plan.commands import sweep_commands
from runner.schema import Cell

CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "scrollZoom": False,
    "displayModeBar": "hover",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
#: More commands than these scroll, in a box of this height (px).
_MAX_SHOWN, _TALL = 4, 300


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card shows. `answer` is a sentence that opens to its `evidence`, `note` says how to read the chart, `alt`
    describes it. `rows` are dicts of table headings to values. A `folded` card is its answer and one line that opens to
    the rest."""

    key: str
    title: str
    answer: str = ""
    evidence: Sequence[LoadEvidence | None] = ()
    note: str = ""
    alt: str = ""
    rows: Sequence[dict[str, Any]] = field(default_factory=list)
    cells: Sequence[Cell] = ()
    folded: bool = False


def draw(
    frame: Frame, card: Card, figure: Callable[[], go.Figure], *, on_click: Callable[[str], None] | None = None
) -> None:
    """Draws the card. `figure` is only called when the chart is shown; `on_click` gets the id of a clicked cell."""
    if card.folded:
        if card.answer:
            say(frame, card.answer, *card.evidence, key=card.key)
        box = fold(card.title, key=card.key)
        if box.open:
            with box:
                draw(frame, replace(card, folded=False, answer=""), figure, on_click=on_click)
        return
    with st.container(border=True, key=f"card-{card.key}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.subheader(restrict(card.title), anchor=card.key, width="stretch")
            with st.container(horizontal=True, width="content", gap="small", vertical_alignment="center"):
                view = st.segmented_control(
                    restrict(f"Show {card.title} as"),
                    ("Chart", "Table"),
                    default="Chart",
                    required=True,
                    key=f"{card.key}-as",
                    bind="query-params",
                    label_visibility="collapsed",
                )
                share = st.popover("Share", icon=":material/share:", key=f"{card.key}-share", on_change="rerun")
                if share.open:
                    with share:
                        _draw_share(frame, card, has_chart=view != "Table")
        if card.answer:
            say(frame, card.answer, *card.evidence, key=card.key)
        if card.note:
            st.caption(restrict(card.note))
        if view == "Table":
            st.dataframe(shorten(table(card.rows)), hide_index=True, key=f"{card.key}-table", alt=plain(card.alt))
        else:
            _chart(card, restrict_texts(figure()), on_click=on_click)


def _chart(card: Card, figure: go.Figure, *, on_click: Callable[[str], None] | None) -> None:
    key, reported = f"{card.key}-chart", f"_{card.key}-told"
    if on_click is None:
        st.plotly_chart(figure, key=key, config=CONFIG, alt=plain(card.alt))
        return

    def report_click() -> None:
        """Calls `on_click` once for each clicked point."""
        points = st.session_state[key].selection.points
        cell_id = (points[0].get("customdata") or [None])[0] or None if points else None
        if cell_id != st.session_state.get(reported):
            st.session_state[reported] = cell_id
            if cell_id:
                on_click(cell_id)

    st.plotly_chart(
        figure, key=key, config=CONFIG, alt=plain(card.alt), on_select=report_click, selection_mode="points"
    )
    # Streamlit may not call back where a click meets the run of a fragment, such as the one that shows a running sweep.
    before = st.session_state.get(reported)
    report_click()
    if st.session_state.get(reported) not in (None, before):
        st.rerun()


def _draw_share(frame: Frame, card: Card, *, has_chart: bool) -> None:
    page = urlsplit(st.context.url or "").path.strip("/").rsplit("/", 1)[-1] or "overview"
    name = f"stepscope-{page}-{card.key}-{frame.contents.edition}"
    st.caption("The rows")
    with st.container(horizontal=True, gap="small"):
        downloads(card.rows, name=name, key=card.key)
    st.caption("The chart as you see it" if has_chart else "Show the chart to save it as a picture.")
    if has_chart:
        source = f"Stepscope · {frame.file}, edition {frame.contents.edition} · {page}"
        pictures(Picture(card=card.key, title=plain(card.title), alt=plain(card.alt), name=name, source=source))
    st.caption("Link to this card, with every filter written out")
    st.code(link(frame, card.key), language=None, wrap_lines=True)
    if commands := sweep_commands(card.cells):
        st.caption(
            restrict("Measure these rows again" + (", one command after the other" if len(commands) > 1 else ""))
        )
        with st.container(height=_TALL if len(commands) > _MAX_SHOWN else "content", border=False):
            st.code("\n\n".join(commands), language="bash", wrap_lines=True)
