"""Where attention runs out of memory: the worked sum of the smallest cell that did not fit.

draw_worked_sum(frame, cells)
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.attention.figures import peak_breakdown_bars
from pages.ui.card import Card, draw
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame
from runner.analysis.compare.speedups import way_of
from runner.analysis.costs.attention import peak_breakdown
from runner.formats import format_bytes
from runner.results import Attended


def draw_worked_sum(frame: Frame, cells: Sequence[Attended]) -> None:
    """Draws every tensor of the smallest cell that ran out, whose sum is more than the device has."""
    lost = [cell for cell in cells if cell.status == "oom"]
    st.header("What fills the memory of the smallest that runs out?", anchor="worked-sum")
    if not lost:
        st.caption("No cell here ran out of memory. Longer sequences: "
                   "`python -m runner sweep --experiment attention --seq-lens 16384,32768`.")  # fmt: skip
        return
    first = min(lost, key=lambda cell: (cell.predicted_peak_bytes or 0, cell.cell.seq_len))
    device: Any = first.device or "cuda"
    tensors = peak_breakdown(first.cell, device=device, gpu=first.device_name or "")
    words = describe_peak_breakdown(first, tensors)
    say(frame, words, of_cells(frame, [first]), key="worked-sum")
    total = sum(size for _, _, size in tensors)
    rows = [{"Tensor": name, "Formula": formula, "Bytes": size, "Size": format_bytes(size), "Share": size / total}
            for name, formula, size in (*tensors, ("all together", "", total))]  # fmt: skip
    asked = [first.cell]
    card = Card(
        key="worked-sum",
        title=f"{way_of(first.cell)} · {first.cell.seq_len:,} tokens · d {first.cell.d_head} · {first.cell.precision}",
        note=f"B = {first.cell.batch}, S = {first.cell.seq_len:,}, d = {first.cell.d_head}. By the closed formula, "
        "at the moment when the most is alive.",
        alt=words,
        rows=rows,
        cells=asked,
    )
    draw(frame, card, lambda: peak_breakdown_bars(tensors, limit_bytes=first.limit_bytes))


def describe_peak_breakdown(cell: Attended, tensors: Sequence[tuple[str, str, int]]) -> str:
    """Says the sum, what makes most of it, and what the allocator reported."""
    total = sum(size for _, _, size in tensors)
    squares = [size for _, formula, size in tensors if "B × S²" in formula]
    largest = max(size for _, _, size in tensors)
    words = f"{way_of(cell.cell)} over {cell.cell.seq_len:,} tokens needs **{format_bytes(total)}**"
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
