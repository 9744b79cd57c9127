"""How far is a step from the limit of its machine, and what would help? Roofline, tried changes, what limits it."""

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
    cells = [cell for cell in frame.measured() if cell.status == "ok" and "step" in cell.times]
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


PAGE = Page(title="Roofline", address="roofline", icon=":material/roofing:", draw=page, topics=TOPICS)
