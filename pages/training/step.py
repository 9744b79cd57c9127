"""Where does the time of a training step go? Phases by size and context, warm-up, samples."""

from typing import cast, get_args

import streamlit as st

from pages.charts.phases import View, phase_bars
from pages.parts import marks
from pages.parts.answers import step_answer, ways
from pages.parts.card import Card, draw
from pages.parts.chosen import chosen
from pages.parts.coverage import draw_grid
from pages.parts.evidence import of_cells, say
from pages.parts.frame import Frame
from pages.parts.headlines import compiled
from pages.parts.pin import pin
from pages.parts.samples import draw_samples
from pages.parts.states import no_rows
from pages.parts.trust import draw_trust
from pages.parts.warmup import draw_warmup
from runner.store.queries.steps import Measured


def page(frame: Frame) -> None:
    st.title("Where does the time of a training step go?", anchor=False)
    cells = frame.measured()
    if not cells:
        no_rows("No cell matches these filters.", "Clear some of them, or measure what is missing.")
        return
    _phases(frame, cells)
    _compiled(frame)
    draw_warmup(frame)
    draw_samples(frame, cells)


def _phases(frame: Frame, cells: list[Measured]) -> None:
    found = ways(cells)
    lead = st.empty()
    with st.container(horizontal=True):
        way = chosen("way", "Precision and backend", list(found))
        view = chosen("as", "Show as", get_args(View), default="time")
    shown = found[way]
    bars = marks.phase_bars_of(frame, shown)
    answer = step_answer(frame, shown)
    say(frame, answer, of_cells(frame, shown), at=lead)
    draw(
        frame,
        Card(
            key="phases",
            title="Phases by size and context",
            note="Medians over the measured steps, with 95% intervals; the number is the median of the whole step. "
            "Click a bar to see the cell's samples.",
            alt=f"Time of each phase, one bar a size and context. {answer}",
            rows=marks.phase_table(frame, shown),
            cells=[cell.cell for cell in shown],
        ),
        lambda: phase_bars(bars, view=cast(View, view)),
        on_click=pin,
    )
    draw_trust(frame, shown)
    draw_grid(frame, cells)


def _compiled(frame: Frame) -> None:
    """The answer of the page that asks; the link keeps the filters."""
    st.header("Is compiled faster than eager?", anchor="compiled")
    words, found = compiled(frame)
    say(frame, words, found, key="compiled")
    st.page_link(frame.pages["torch-compile"], label="What torch.compile buys and costs", icon=":material/bolt:")
