"""One chart with everything that belongs to it: the table, the download, the link, the command that makes its rows.

with card(frame, Card(key="phases", title="Where the time goes", note="…")) as shown: …
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages.parts.frame import Frame
from pages.parts.permalink import link
from runner.schema import SweepCell
from runner.words import sweep_command

CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "scrollZoom": False,
    "displayModeBar": "hover",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card is about. `rows` are dicts of table headings to values; `alt` says in words what the chart shows."""

    key: str
    title: str
    note: str = ""
    alt: str = ""
    rows: Sequence[dict[str, Any]] = field(default_factory=list)
    cells: Sequence[SweepCell] = ()


def draw(
    frame: Frame, card: Card, figure: Callable[[], go.Figure], *, on_click: Callable[[str], None] | None = None
) -> None:
    """Draw the card. `figure` is only called when the chart is shown; `on_click` gets the id of a clicked cell."""
    with st.container(border=True, key=f"card-{card.key}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.subheader(card.title, anchor=card.key, width="stretch")
            with st.container(horizontal=True, width="content", gap="small"):
                view = st.segmented_control(
                    f"Show {card.title} as",
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
                        _share(frame, card)
        if card.note:
            st.caption(card.note)
        if view == "Table":
            st.dataframe(table(card.rows), hide_index=True, key=f"{card.key}-table", alt=card.alt)
        else:
            _chart(card, figure(), on_click=on_click)


def _chart(card: Card, figure: go.Figure, *, on_click: Callable[[str], None] | None) -> None:
    key = f"{card.key}-chart"
    if on_click is None:
        st.plotly_chart(figure, key=key, config=CONFIG, alt=card.alt)
        return

    def clicked() -> None:
        points = st.session_state[key].selection.points
        if points and points[0].get("customdata"):
            on_click(points[0]["customdata"][0])

    st.plotly_chart(figure, key=key, config=CONFIG, alt=card.alt, on_select=clicked, selection_mode="points")


def _share(frame: Frame, card: Card) -> None:
    st.download_button(
        "Download CSV",
        data=lambda: csv(card.rows),
        file_name=f"stepscope-{card.key}.csv",
        mime="text/csv",
        key=f"{card.key}-csv",
        icon=":material/download:",
        on_click="ignore",
    )
    st.caption("Link to this card, with every filter written out")
    st.code(link(frame, card.key), language=None, wrap_lines=True)
    if card.cells:
        st.caption("Measure these rows again")
        st.code(sweep_command(list(card.cells)), language="bash", wrap_lines=True)


def table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The rows under their headings."""
    return pd.DataFrame(list(rows))


def csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a spreadsheet reads them."""
    text = io.StringIO()
    table(rows).to_csv(text, index=False)
    return text.getvalue()
