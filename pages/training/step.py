"""Where does the time of a training step go? Phases by size and context, compiled against eager, warm-up, samples."""

from typing import cast, get_args

import streamlit as st

from pages.charts.phases import View, phase_bars
from pages.parts import marks
from pages.parts.answers import speedup_answer, step_answer
from pages.parts.card import Card, draw
from pages.parts.comparison import choose_variant, comparison, draw_dots, list_left_out, variants
from pages.parts.coverage import draw_grid
from pages.parts.evidence import of_cells, of_pairs, say
from pages.parts.frame import Frame
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
    ways = list(dict.fromkeys(f"{cell.cell.precision} · {cell.cell.backend}" for cell in cells))
    lead = st.empty()
    with st.container(horizontal=True):
        way = st.segmented_control(
            "Precision and backend", ways, default=ways[0], required=True, key="way", wrap=True, bind="query-params"
        )
        view = st.segmented_control(
            "Show as", get_args(View), default="time", required=True, key="as", bind="query-params"
        )
    shown = [cell for cell in cells if f"{cell.cell.precision} · {cell.cell.backend}" == way]
    bars = marks.phase_bars_of(frame, shown)
    answer = step_answer(frame, shown)
    say(frame, answer, of_cells(frame, shown), at=lead)
    draw(
        frame,
        Card(
            key="phases",
            title="Phases by size and context",
            note="Medians over the measured steps, with 95 % intervals; the number is the median of the whole step. "
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
    names = variants(frame, "backend", baseline="eager")
    st.header("Is compiled faster than eager?", anchor="compiled")
    if not names:
        st.caption("Nothing here was compiled. Measure it: `python -m runner sweep --backends eager,compiled`.")
        return
    lead = st.empty()
    variant = choose_variant(names, key="compiled", label="Compared with eager")
    compared = comparison(frame, "backend", baseline="eager", variant=variant)
    words = speedup_answer(compared, baseline="eager", variant=variant)
    say(frame, words, of_pairs(frame, compared), at=lead, key="compiled")
    draw_dots(frame, compared, axis="backend", variant=variant, baseline="eager")
    list_left_out(frame, compared, axis="backend")
