"""Where does the time of a training step go? Phases by size and context, warm-up, samples."""

from collections.abc import Mapping, Sequence
from typing import cast, get_args

import streamlit as st

from pages.figures.frame import CLOCKS
from pages.figures.phases import View, phase_bars
from pages.training_step.headline import TOPICS
from pages.training_step.warmup import draw_warmup
from pages.ui import marks
from pages.ui.answers import step_answer, ways
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen
from pages.ui.coverage import draw_grid
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.pin import pin
from pages.ui.samples import draw_samples
from pages.ui.sections import draw_heading
from pages.ui.states import no_rows
from pages.ui.trust import draw_trust
from runner.results import Clock, StepResult

#: What the bars are, by each clock.
_NOTES: Mapping[Clock, str] = {
    "step": "Medians over the measured steps, each waited for",
    "loop": "Medians over steps that follow each other without waiting, as in training",
    "device": "What the device needs if it never waits for the host",
}


def page(frame: Frame) -> None:
    draw_title(
        frame,
        "Training step: forward, backward and optimizer time",
        question="Where does the time of a training step go?",
    )
    cells = frame.measured()
    if not cells:
        no_rows("No cell matches these filters.", "Clear some of them, or measure what is missing.")
        return
    _draw_phases(frame, cells)
    _draw_compiled(frame)
    draw_warmup(frame)
    draw_samples(frame, cells)


def _draw_phases(frame: Frame, cells: list[StepResult]) -> None:
    cells_by_way = ways(cells)
    lead = st.empty()
    with st.container(horizontal=True):
        way = chosen("way", "Precision and backend", list(cells_by_way))
        view = chosen("as", "Show as", get_args(View), default="time")
        shown = cells_by_way[way]
        clock = _choose_clock(shown)
    bars = marks.phase_bars_of(frame, shown, clock=clock)
    answer = step_answer(frame, shown, clock=clock)
    say(frame, answer, of_cells(frame, shown), at=lead)
    card = Card(
        key="phases",
        title="Phases by size and context",
        note=f"{_NOTES[clock]}. The number and the line at the end of a bar are the whole step's median and its 95% "
        "interval; tooltips and the table have those of the phases. Click a bar to see the cell's samples.",
        alt=f"Time of each phase, one bar a size and context. {answer}",
        rows=marks.phase_table(frame, shown),
        cells=[cell.cell for cell in shown],
    )
    draw(frame, card, lambda: phase_bars(bars, view=cast(View, view), clock=clock), on_click=pin)
    draw_trust(frame, shown)
    draw_grid(frame, cells)


def _choose_clock(cells: Sequence[StepResult]) -> Clock:
    """Returns how steps are to be shown; the reader chooses where cells were timed in several ways."""
    clocks = {CLOCKS[clock]: clock for clock in marks.list_clocks(cells)}
    return clocks[chosen("clock", "Step", list(clocks))] if len(clocks) > 1 else "step"


def _draw_compiled(frame: Frame) -> None:
    """Draws the answer of the page torch.compile with a link to it, which keeps the filters."""
    draw_heading(frame, "Is compiled faster than eager?", anchor="compiled")
    found = frame.topics["torch-compile"].ask(frame)
    say(frame, found.words, found.evidence, key="compiled")
    st.page_link(frame.pages["torch-compile"], label="Speedup and cost of torch.compile", icon=":material/bolt:")


PAGE = Page(
    title="Training step", address="training-step", icon=":material/stacked_bar_chart:", draw=page, topics=TOPICS
)
