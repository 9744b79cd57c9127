"""The card of attention's tensors: predicted sizes, and what autograd kept.

draw_attention_tensors(frame, cells)
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.figures.tensors import format_ratio
from pages.ui.card import Card
from pages.ui.chosen import select_one
from pages.ui.evidence import of_cells, of_details, say
from pages.ui.frame import Frame
from pages.ui.tensors import describe_tensors, draw_tensors, tensor_rows
from runner.analysis.compare.speedups import way_of
from runner.analysis.costs import attention as accounting
from runner.analysis.costs.tensors import beside
from runner.formats import format_bytes
from runner.results import Attended
from runner.store.queries.memory import load_saved_tensors


def draw_attention_tensors(frame: Frame, cells: Sequence[Attended]) -> None:
    """Draws each tensor that a chosen cell keeps for backward, beside its formula; at first of the largest cell."""
    st.header("Is every tensor as large as predicted?", anchor="attention-tensors")
    done = [cell for cell in cells if cell.status == "ok" and cell.saved_bytes]
    if not done:
        st.caption("Of no cell here is it known what it keeps for backward. Measure some: "
                   "`python -m runner sweep --experiment attention`.")  # fmt: skip
        return
    labels = {_label(cell): cell for cell in done}
    longest = max(labels, key=lambda label: labels[label].saved_bytes or 0)
    cell = labels[select_one("tensors-of", "Cell", list(labels), default=longest)]
    device: Any = cell.device or "cuda"
    say(frame, describe_totals(cell, device), of_cells(frame, [cell]), key="attention-totals")
    measured = frame.ask(load_saved_tensors, cell.cell_id)
    if not measured:
        st.caption("What this cell keeps was not recorded tensor by tensor.")
        return
    found = beside(accounting.saved_tensors(cell.cell, device=device), measured)
    draw_tensors(
        frame,
        Card(
            key="attention-tensors",
            title=f"Kept for backward: {_label(cell)}",
            answer=describe_tensors(found),
            evidence=[of_details(frame, "saved tensors", [cell.cell_id])],
            note="B batch, S sequence length, d head width. What is not kept counts in the totals above alone.",
            rows=tensor_rows(found),
            cells=[cell.cell],
        ),
        found,
    )


def _label(cell: Attended) -> str:
    key = cell.cell
    return f"{way_of(key)} · {key.seq_len:,} tokens · d {key.d_head} · {key.precision}"


def _compare(found: int, predicted: int) -> str:
    return (
        "as predicted"
        if found == predicted
        else f"{format_ratio(found / predicted)}× the predicted {format_bytes(predicted)}"
    )


def describe_totals(cell: Attended, device: Any) -> str:
    """Says the bytes in use between the passes and at the peak against predictions, and the largest tensors then."""
    gpu = cell.device_name or ""
    between = accounting.before_backward_bytes(cell.cell, device=device, gpu=gpu)
    worked = accounting.peak_breakdown(cell.cell, device=device, gpu=gpu)
    peak = sum(size for _, _, size in worked)
    totals = (("in use before backward", cell.before_backward_bytes, between),
              ("at the peak", cell.peak_allocated_bytes, peak))  # fmt: skip
    parts = [
        f"**{format_bytes(found)}** {name}, {_compare(found, predicted)}" for name, found, predicted in totals if found
    ]
    largest = sorted(worked, key=lambda item: -item[2])[:3]
    most = ", ".join(f"{name} {format_bytes(size)}" for name, _, size in largest)
    return f"{'; '.join(parts) or 'Nothing was counted'}. At the peak, the largest by the formula: {most}."
