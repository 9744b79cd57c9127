"""What does attention cost as sequences grow, and where does it run out? Time, memory, speedups, and how long fits."""

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from pages.attention.answers import agreement, answer
from pages.attention.scaling import draw_memory, draw_time, key_columns
from pages.attention.speedups import draw_speedups
from pages.attention.tensors import draw_attention_tensors, draw_worked_sum
from pages.figures.frame import WORDS
from pages.ui.chosen import chosen, most_common, rows_of
from pages.ui.coverage import draw_grid
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Answer, Frame, Page
from pages.ui.frontier import draw_frontier
from pages.ui.heading import draw_title
from pages.ui.markdown import restrict
from pages.ui.samples import draw_attention_samples
from pages.ui.states import draw_unmeasured
from pages.ui.trust import draw_trust
from runner.results import Attended
from runner.store.queries.attention import load_attention

#: Columns with a chooser where cells differ in them.
_RARE = {"batch": "Batch", "cache": "L2 cache"}


def page(frame: Frame) -> None:
    draw_title(
        "Attention: time and memory against sequence length",
        question="What does attention cost as sequences grow, and where does it run out of memory?",
    )
    cells = frame.ask(load_attention, rows_of(frame))
    if not cells:
        draw_unmeasured(
            (f"**No attention cell has been measured {frame.where}.** This measures the naive and the fused ones:",
             "python -m runner sweep --experiment attention"),
            listed="cells",
        )  # fmt: skip
        return
    lead = st.empty()
    grid, shown = _choose(cells)
    say(frame, answer(shown), of_cells(frame, shown), at=lead)
    draw_time(frame, shown)
    draw_memory(frame, shown)
    say(frame, agreement(shown), of_cells(frame, shown), key="agreement")
    _list_failures(shown)
    draw_trust(frame, shown)
    draw_grid(frame, grid)
    draw_speedups(frame, grid, kind="fused")
    draw_speedups(frame, grid, kind="compiled")
    draw_frontier(frame, grid)
    draw_worked_sum(frame, shown if any(cell.status == "oom" for cell in shown) else grid)
    draw_attention_tensors(frame, shown)
    draw_attention_samples(frame, shown)


def _choose(cells: list[Attended]) -> tuple[list[Attended], list[Attended]]:
    """Returns the cells of the chosen precision and mask with all head widths, and those of the chosen head width."""
    usual = _choose_default(cells)[0].cell
    with st.container(horizontal=True):
        heads = st.container(width="content")
        with st.container(width="content"):
            precision = chosen(
                "dtype", "Precision", sorted({cell.cell.precision for cell in cells}), default=usual.precision
            )
        with st.container(width="content"):
            masks = sorted({_name_mask(cell) for cell in cells})
            mask = chosen("mask", "Mask", masks, default="causal" if usual.causal else "full")
        grid = [cell for cell in cells if cell.cell.precision == precision and _name_mask(cell) == mask] or cells
        for name, label in _RARE.items():
            values = _list_values(grid, name)
            if len(values) > 1:
                value = chosen(f"attention-{name}", label, values)
                grid = [cell for cell in grid if str(getattr(cell.cell, name)) == value]
        with heads:
            widths = [str(width) for width in sorted({cell.cell.d_head for cell in grid})]
            width = chosen("d-head", "Head width", widths, default=str(_find_width(grid)))
    return grid, [cell for cell in grid if str(cell.cell.d_head) == width]


def _name_mask(cell: Attended) -> str:
    return "causal" if cell.cell.causal else "full"


def _list_failures(cells: list[Attended]) -> None:
    """Lists cells that are on no chart: skipped, timed out, crashed."""
    rows = [
        {**key_columns(c), "Ended": WORDS[c.status], "Why": c.message} for c in cells if c.status not in ("ok", "oom")
    ]
    if rows:
        with st.expander(restrict(f"{len(rows)} of {len(cells)} cells have neither a time nor a size")):
            st.dataframe(rows, hide_index=True)


def _choose_default(cells: Sequence[Attended]) -> list[Attended]:
    """Returns the cells of the precision and mask that most cells have, of the first batch and cache, and of the head
    width with most cells. The page opens with them, and Overview answers for them."""
    usual = most_common((cell.cell.precision, cell.cell.causal) for cell in cells)
    usual_cells = [cell for cell in cells if (cell.cell.precision, cell.cell.causal) == usual]
    for name in _RARE:
        first = _list_values(usual_cells, name)[0]
        usual_cells = [cell for cell in usual_cells if str(getattr(cell.cell, name)) == first]
    width = _find_width(usual_cells)
    return [cell for cell in usual_cells if cell.cell.d_head == width]


def _list_values(cells: Sequence[Attended], name: str) -> list[str]:
    """Returns the values of a column of `_RARE`, in order."""
    return sorted({str(getattr(cell.cell, name)) for cell in cells}, key=lambda text: (len(text), text))


def _find_width(cells: Sequence[Attended]) -> int:
    """Returns the head width with most eager cells; of equals the widest, as models have it."""
    eager = Counter(cell.cell.d_head for cell in cells if cell.cell.backend == "eager")
    return max((eager[cell.cell.d_head], cell.cell.d_head) for cell in cells)[1]


def headline(frame: Frame) -> Answer:
    """Returns the answer for the cells with which the page opens."""
    cells = frame.ask(load_attention, rows_of(frame))
    if not cells:
        return f"Not measured {frame.where}: `python -m runner sweep --experiment attention`.", None
    shown = _choose_default(cells)
    return answer(shown), of_cells(frame, shown)


PAGE = Page(title="Attention", address="attention", icon=":material/visibility:", draw=page, headline=headline)
