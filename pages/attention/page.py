"""What does attention cost as sequences grow, and where does it run out? Time, memory, speedups, and how long fits."""

import streamlit as st

from pages.attention.answers import agreement, answer
from pages.attention.choose import choose_cells
from pages.attention.headline import TOPICS
from pages.attention.scaling import draw_memory, draw_time, key_columns
from pages.attention.speedups import draw_speedups
from pages.attention.tensors import draw_attention_tensors, draw_worked_sum
from pages.figures.frame import WORDS
from pages.ui.chosen import rows_of
from pages.ui.coverage import draw_grid
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame, Page
from pages.ui.frontier import describe_sequences, draw_frontier, load_answers
from pages.ui.heading import draw_title
from pages.ui.markdown import restrict
from pages.ui.samples import draw_attention_samples
from pages.ui.states import draw_unmeasured
from pages.ui.trust import draw_trust
from runner.results import AttentionResult
from runner.store.queries.attention import load_attention


def page(frame: Frame) -> None:
    draw_title(
        frame,
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
    grid, shown = choose_cells(cells)
    longest = load_answers(frame, "seq_len")
    say(
        frame,
        f"{answer(shown)} {describe_sequences(longest)}",
        of_cells(frame, shown),
        of_cells(frame, longest),
        at=lead,
    )
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


def _list_failures(cells: list[AttentionResult]) -> None:
    """Lists cells that are on no chart: skipped, timed out, crashed."""
    rows = [
        {**key_columns(c), "Ended": WORDS[c.status], "Why": c.message} for c in cells if c.status not in ("ok", "oom")
    ]
    if rows:
        with st.expander(restrict(f"{len(rows)} of {len(cells)} cells have neither a time nor a size")):
            st.dataframe(rows, hide_index=True)


PAGE = Page(
    title="Attention",
    address="attention",
    icon=":material/visibility:",
    draw=page,
    topics=TOPICS,
    filters=("machine", "run"),
)
