"""How far is a step from the limit of its machine, and what would help? Roofline, tried changes, what limits it."""

import streamlit as st

from pages.roofline.answers import answer
from pages.roofline.changes import draw_changes
from pages.roofline.headline import TOPICS
from pages.roofline.limits import draw_ceilings, draw_moved, limits_of
from pages.roofline.roof import draw_roof
from pages.roofline.shares import draw_shares, draw_used, profiles_of
from pages.ui.evidence import of_ceilings, of_cells, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.samples import draw_samples
from pages.ui.states import no_rows


def page(frame: Frame) -> None:
    draw_title(
        frame,
        "Roofline: a step against the limits of its machine",
        question="How far is a step from the limit of its machine, and what would help?",
    )
    done = [cell for cell in frame.measured() if cell.status == "ok" and "step" in cell.times]
    cells = [cell for cell in done if cell.cell.model_key is None]
    if done and not cells:
        _draw_own(frame)
        return
    if not cells:
        no_rows("No step of these filters has a result.", "Clear some of them, or measure what is missing.")
        return
    limits, profiles = limits_of(frame), profiles_of(frame)
    say(frame, answer(frame, cells, limits), of_cells(frame, cells), of_ceilings(frame))
    draw_moved(frame, limits)
    draw_roof(frame, cells, profiles, limits)
    draw_changes(frame)
    draw_shares(frame, profiles, limits)
    draw_used(frame, cells, limits)
    draw_ceilings(frame, limits)
    draw_samples(frame, cells)


def _draw_own(frame: Frame) -> None:
    """Draws what is known without a formula for the bytes that a step moves: where kernels spend its time."""
    limits, profiles = limits_of(frame), profiles_of(frame)
    st.info(
        "Only own models are selected, and the fewest bytes that a step of theirs has to move are not known. Their "
        "operations, by PyTorch's counter, and the share of the datasheet's peak are columns of Data and Explore.",
        icon=":material/info:",
    )
    draw_shares(frame, profiles, limits)
    draw_ceilings(frame, limits)


PAGE = Page(title="Roofline", address="roofline", icon=":material/roofing:", draw=page, topics=TOPICS)
