"""What fills the memory at the peak of a step? Parts by size, context and precision; predictions; what fits."""

from typing import get_args

import streamlit as st

from pages.peak_memory.answers import Names, answer_by_size
from pages.peak_memory.cards import draw_contexts, draw_parts, draw_precisions, draw_predicted
from pages.peak_memory.headline import TOPICS
from pages.peak_memory.phases import draw_phases
from pages.peak_memory.saved import draw_checkpointing, draw_saved
from pages.ui.chosen import chosen, most_common, rows_of
from pages.ui.coverage import draw_grid
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame, Page
from pages.ui.frontier import draw_model_frontiers
from pages.ui.heading import draw_title
from pages.ui.markdown import quoted, restrict
from pages.ui.sections import draw_heading
from pages.ui.states import draw_unmeasured, no_rows
from pages.ui.trust import draw_trust
from runner.results import Peak
from runner.schema import Mode
from runner.schema.sizes import name_models
from runner.store.queries.memory import load_peaks
from runner.store.queries.selection import Model


def page(frame: Frame) -> None:
    draw_title(frame, "Peak memory: what fills it", question="What fills the memory at the peak of a step?")
    measured = frame.ask(load_peaks, rows_of(frame))
    if not measured:
        draw_unmeasured(
            (f"**No memory cell has been measured {frame.where}.** This takes peaks apart, step by step:",
             frame.sweep("--experiment memory --modes inference,train")),
            listed="cells",
        )  # fmt: skip
        draw_model_frontiers(frame)
        return
    names = name_models(sorted({Model.of(cell.cell) for cell in measured}, key=lambda model: model.order))
    cells = [cell for cell in measured if frame.selection.holds(cell.cell)]
    if not cells:
        no_rows("No memory cell matches these filters.", "Clear some of them, or measure what is missing.")
        return
    lead = st.empty()
    shown = _choose(cells)
    plain = [cell for cell in shown if not cell.cell.checkpoint_blocks] or shown
    say(frame, answer_by_size(plain, names), of_cells(frame, plain), at=lead)
    draw_parts(frame, plain, names)
    draw_trust(frame, plain)
    draw_grid(frame, shown)
    _draw_growth(frame, plain, names)
    draw_precisions(frame, plain, names)
    draw_predicted(frame, shown, names)
    draw_model_frontiers(frame)
    draw_saved(frame, shown, names)
    draw_checkpointing(frame, shown, names)
    draw_phases(frame, shown)


def _choose(cells: list[Peak]) -> list[Peak]:
    """Returns the cells of one mode."""
    modes = [mode for mode in reversed(get_args(Mode)) if any(cell.cell.mode == mode for cell in cells)]
    usual = most_common(cell.cell.mode for cell in cells)
    mode = chosen("memory-mode", "Mode", modes, default="train" if "train" in modes else usual)
    return [cell for cell in cells if cell.cell.mode == mode]


def _draw_growth(frame: Frame, cells: list[Peak], names: Names) -> None:
    draw_heading(frame, "How does it grow with the context?", anchor="contexts")
    cells = [cell for cell in cells if cell.cell.context]  # own models may have samples without a length
    if len({cell.cell.context for cell in cells}) < 2:
        command = frame.sweep("--experiment memory --contexts 128,512")
        st.caption(restrict(f"There is only one context here: {quoted(command)}."))
    draw_contexts(frame, cells, names)


PAGE = Page(
    title="Peak memory",
    address="peak-memory",
    icon=":material/memory:",
    draw=page,
    topics=TOPICS,
    filters=("machine", "run", "size", "context", "precision"),
)
