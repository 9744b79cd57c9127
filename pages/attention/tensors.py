"""The cards of attention's tensors: the worked sum of the smallest cell that ran out, and what autograd kept.

draw_worked_sum(frame, cells)
draw_attention_tensors(frame, cells)
"""

from collections.abc import Sequence

import streamlit as st

from pages.attention.figures import peak_breakdown_bars
from pages.figures.tensors import format_ratio
from pages.ui.card import Card, draw
from pages.ui.chosen import select_one
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame, device_of
from pages.ui.sections import draw_heading
from pages.ui.tensors import draw_tensors
from runner.analysis.compare.speedups import name_attention
from runner.analysis.costs import attention as accounting
from runner.analysis.costs.activations import Device
from runner.analysis.costs.attention import peak_breakdown
from runner.analysis.costs.tensors import beside
from runner.formats import format_bytes
from runner.results import AttentionResult
from runner.store.queries.memory import load_saved_tensors


def draw_worked_sum(frame: Frame, cells: Sequence[AttentionResult]) -> None:
    """Draws every tensor of the smallest cell that ran out, whose sum is more than the device has."""
    lost = [cell for cell in cells if cell.status == "oom"]
    draw_heading(frame, "What fills memory in the smallest out-of-memory case?", anchor="worked-sum")
    if not lost:
        st.caption("No cell here ran out of memory. Longer sequences: "
                   "`python -m runner sweep --experiment attention --seq-lens 16384,32768`.")  # fmt: skip
        return
    first = min(lost, key=lambda cell: (cell.predicted_peak_bytes or 0, cell.cell.seq_len))
    tensors = peak_breakdown(first.cell, device=device_of(first.device), gpu=first.device_name or "")
    words = describe_peak_breakdown(first, tensors)
    say(frame, words, of_cells(frame, [first]), key="worked-sum")
    total = sum(size for _, _, size in tensors)
    rows = [{"Tensor": name, "Formula": formula, "Bytes": size, "Size": format_bytes(size), "Share": size / total}
            for name, formula, size in (*tensors, ("all together", "", total))]  # fmt: skip
    card = Card(
        key="worked-sum",
        folded=True,
        title=_name_cell(first),
        note=f"B = {first.cell.batch}, S = {first.cell.seq_len:,}, d = {first.cell.d_head}. By the closed formula, "
        "at the moment when the most is alive.",
        alt=words,
        rows=rows,
        cells=[first.cell],
    )
    draw(frame, card, lambda: peak_breakdown_bars(tensors, limit_bytes=first.limit_bytes))


def describe_peak_breakdown(cell: AttentionResult, tensors: Sequence[tuple[str, str, int]]) -> str:
    """Says the sum, what makes most of it, and what the allocator reported."""
    total = sum(size for _, _, size in tensors)
    squares = [size for _, formula, size in tensors if "B × S²" in formula]
    largest = max(size for _, _, size in tensors)
    words = f"{name_attention(cell.cell)} over {cell.cell.seq_len:,} tokens needs **{format_bytes(total)}**"
    if squares:
        many = "one tensor" if len(squares) == 1 else f"{len(squares)} tensors"
        words += (
            f"; {many} of B × S² numbers, up to {format_bytes(largest)} each, make {sum(squares) / total:.0%} of it"
        )
    if cell.limit_bytes:
        words += f". There are **{format_bytes(cell.limit_bytes)}**"
    if cell.asked_bytes and cell.in_use_bytes:
        where = f" in {cell.failed_phase}" if cell.failed_phase else ""
        in_use, asked = format_bytes(cell.in_use_bytes), format_bytes(cell.asked_bytes)
        words += f": with {in_use} in use, {asked} more were refused{where}"
    return words + "."


def draw_attention_tensors(frame: Frame, cells: Sequence[AttentionResult]) -> None:
    """Draws each tensor that a chosen cell keeps for backward, beside its formula; at first of the largest cell."""
    draw_heading(frame, "Is every tensor as large as predicted?", anchor="attention-tensors")
    done = [cell for cell in cells if cell.status == "ok" and cell.saved_bytes]
    if not done:
        st.caption("No cell here recorded what it keeps for backward. Measure some: "
                   "`python -m runner sweep --experiment attention`.")  # fmt: skip
        return
    labels = {_name_cell(cell): cell for cell in done}
    longest = max(labels, key=lambda label: labels[label].saved_bytes or 0)
    cell = labels[select_one("tensors-of", "Cell", list(labels), default=longest)]
    device = device_of(cell.device)
    say(frame, describe_totals(cell, device), of_cells(frame, [cell]), key="attention-totals")
    measured = frame.ask(load_saved_tensors, cell.cell_id)
    if not measured:
        st.caption("What this cell keeps was not recorded tensor by tensor.")
        return
    card = Card(
        key="attention-tensors",
        folded=True,
        title=f"Kept for backward: {_name_cell(cell)}",
        note="B batch, S sequence length, d head width. What is not kept counts in the totals above alone.",
        cells=[cell.cell],
    )
    pairs = beside(accounting.saved_tensors(cell.cell, device=device), measured)
    draw_tensors(frame, card, pairs, cell_id=cell.cell_id)


def _name_cell(cell: AttentionResult) -> str:
    key = cell.cell
    return f"{name_attention(key)} · {key.seq_len:,} tokens · d {key.d_head} · {key.precision}"


def _compare(measured: int, predicted: int) -> str:
    if measured == predicted:
        return "as predicted"
    return f"{format_ratio(measured / predicted)}× the predicted {format_bytes(predicted)}"


def describe_totals(cell: AttentionResult, device: Device) -> str:
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
