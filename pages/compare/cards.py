"""The cards of Compare beside the pairs: the largest changes, and the cells that were left out.

draw_movers(frame, verdict); list_left_out(verdict)
"""

import streamlit as st

from pages.compare.figures import Mover, movers
from pages.figures.frame import escape_text
from pages.ui.card import Card, draw
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.pairs import list_cells, make_row, name_pairs, write_note
from runner.analysis.compare.verdict import Verdict, compared_values, select_movers
from runner.analysis.compare.verdict_text import change
from runner.schema.titles import title

#: The most lines of the figure.
MAX_MOVERS = 12


def draw_movers(frame: Frame, verdict: Verdict) -> None:
    """Draws the pairs that are better or worse, the largest change first, with both values."""
    ranked = select_movers(verdict)
    if not ranked:
        return
    shown = ranked[:MAX_MOVERS]
    shared, names = name_pairs(verdict, shown)
    rows = [
        Mover(place=place, cell_id=str(pair.other.cell_id), outcome=pair.outcome, a=a, b=b, words=change(verdict, pair))
        for place, pair in zip(names, shown, strict=True)
        for a, b in [compared_values(pair)]
    ]
    a, b = (side.title for side in verdict.sides)
    cut = f"The first {MAX_MOVERS} of {len(ranked)} are drawn; the table has all."
    draw(
        frame,
        Card(
            key="compare-movers",
            title="Largest changes",
            note=write_note(
                shared,
                [
                    f"Significant changes, the largest first: hollow is {literal(a)}, filled is {literal(b)}.",
                    cut if len(ranked) > MAX_MOVERS else "",
                ],
            ),
            alt=f"The largest changes from {a} to {b}: "
            + "; ".join(f"{row.place.replace('<br>', ' · ')} {row.words}" for row in rows[:5]),
            rows=[{"Rank": rank, **make_row(verdict, pair)} for rank, pair in enumerate(ranked, start=1)],
            cells=list_cells(verdict, ranked),
        ),
        lambda: movers(
            rows, names=(escape_text(a), escape_text(b)), unit="bytes" if verdict.table == "memory" else "ms"
        ),
    )


def list_left_out(verdict: Verdict) -> None:
    """Lists the cells that were not compared, with the reasons."""
    if not verdict.left_out:
        return
    words = f"Left out: {len(verdict.left_out):,} of {len(verdict.left_out) + len(verdict.pairs):,} cells"
    expander = st.expander(restrict(words), key="_left-out", on_change="rerun")
    if expander.open:
        rows = [
            {"Cell": title(item.named.cell), "Why": item.reason, "Known of it": item.detail}
            for item in verdict.left_out
        ]
        expander.dataframe(rows, hide_index=True, alt="Cells that were not compared, with the reason.")
