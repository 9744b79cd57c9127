"""Where attention runs out: the map of what fits, and the worked sum of the smallest cell that did not.

draw_frontier(frame, cells); draw_worked_sum(frame, cells)
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.charts.bytes import in_unit
from pages.charts.frame import number
from pages.charts.frontier import FrontierSpan, Tried, frontier_map
from pages.charts.worked_sum import worked_sum_bars
from pages.parts.attention.words import way_of
from pages.parts.card import Card, draw
from pages.parts.chosen import rows_of
from pages.parts.frame import Frame
from runner.analysis.attention import worked_sum
from runner.schema import TABLES
from runner.store.queries.attention import Attended, Frontier, frontiers

_COMMAND = "python -m runner frontier --attention naive,sdpa-flash --d-heads 16,32,64,128"
_COLUMNS = ("implementation", "precision", "d_head", "causal", "batch", "limit_bytes")
_ANSWERS = ("predicted", "largest", "smallest_failing", "largest_peak_bytes", "trials")


def draw_frontier(frame: Frame, cells: Sequence[Attended]) -> None:
    """How long a sequence fits, over the head width; `cells` are the whole grid of one mask."""
    st.header("How long a sequence fits?", anchor="frontier")
    masks = {cell.cell.causal for cell in cells}
    found = [
        row for row in frame.ask(frontiers, rows_of(frame))
        if row.cell.limited == "seq_len" and row.status == "ok" and row.cell.causal in masks
    ]  # fmt: skip
    lost = {_group_of(cell) for cell in cells if cell.status == "oom"}
    tried = [
        Tried(group=_group_of(cell), d_head=cell.cell.d_head, seq_len=cell.cell.seq_len, fitted=cell.status == "ok")
        for cell in cells
        if cell.status in ("ok", "oom") and _group_of(cell) in lost
    ]
    if not found:
        st.markdown("The longest sequence that fits was not looked for. This looks for it, by prediction and trial:")
        st.code(_COMMAND, language="bash")
        if not tried:
            return
    words = _frontier_words(found)
    if words:
        st.markdown(words)
    spans = [
        FrontierSpan(group=f"{row.cell.implementation} · {row.cell.precision} · {in_unit(row.cell.limit_bytes)}",
                     d_head=row.cell.d_head or 0, fits=row.largest or 0, fails=row.smallest_failing,
                     predicted=row.predicted)
        for row in found
    ]  # fmt: skip
    asked = [cell.cell for cell in cells if _group_of(cell) in lost]
    draw(
        frame,
        Card(
            key="frontier",
            title="What fits, by sequence length and head width",
            note=f"Bars: `{_COMMAND}`; the memory it had to fit in stands beside the name. Dots and crosses are "
            "cells that a sweep measured, on the whole device.",
            alt=f"Longest sequence that fits, for each head width. {words}",
            rows=[_frontier_row(row) for row in found],
            cells=asked,
        ),
        lambda: frontier_map(spans, tried),
    )


def _group_of(cell: Attended) -> str:
    """Measured cells are rows of their own: the limit they met is not the one that a frontier was looked for in."""
    return f"{way_of(cell.cell)} · {cell.cell.precision} · measured"


def _frontier_words(found: Sequence[Frontier]) -> str:
    """The longest of all beside the written-out implementation's, in the same memory, and how good predictions were."""
    if not found:
        return ""
    best = max(found, key=lambda row: row.largest or 0)
    limit = f"In {in_unit(best.cell.limit_bytes)}, at d {best.cell.d_head} and {best.cell.precision}"
    words = f"{limit}, {best.cell.implementation} fits **{best.largest or 0:,} tokens**"
    same = ("precision", "d_head", "causal", "batch", "limit_bytes")
    naive = [
        row for row in found
        if row.cell.implementation == "naive" and all(getattr(row.cell, n) == getattr(best.cell, n) for n in same)
    ]  # fmt: skip
    if naive and naive[0] is not best and naive[0].largest:
        ratio = (best.largest or 0) / naive[0].largest
        words += f", naive {naive[0].largest:,}: **{number(ratio)}× as long**"
    off = [abs((row.predicted or 0) / row.largest - 1) for row in found if row.largest and row.predicted]
    return words + (f". Predictions were off by at most {max(off):.0%}." if off else ".")


def _frontier_row(row: Frontier) -> dict[str, Any]:
    columns = TABLES["frontier"]
    key = {columns.column(name).title: getattr(row.cell, name) for name in _COLUMNS}
    return {**key, **{columns.column(name).title: getattr(row, name) for name in _ANSWERS}}


def draw_worked_sum(frame: Frame, cells: Sequence[Attended]) -> None:
    """Every tensor of the smallest cell that ran out, and that their sum is more than there is."""
    lost = [cell for cell in cells if cell.status == "oom"]
    st.header("What fills the memory of the smallest that runs out?", anchor="worked-sum")
    if not lost:
        st.caption("No cell here ran out of memory. Longer sequences: "
                   "`python -m runner sweep --experiment attention --seq-lens 16384,32768`.")  # fmt: skip
        return
    first = min(lost, key=lambda cell: (cell.predicted_peak_bytes or 0, cell.cell.seq_len))
    tensors = worked_sum(first.cell)
    words = worked_words(first, tensors)
    st.markdown(words)
    total = sum(size for _, _, size in tensors)
    rows = [{"Tensor": name, "Formula": formula, "Bytes": size, "Size": in_unit(size), "Share": size / total}
            for name, formula, size in (*tensors, ("all together", "", total))]  # fmt: skip
    asked = [first.cell]
    draw(
        frame,
        Card(
            key="worked-sum",
            title=f"{way_of(first.cell)} · {first.cell.seq_len:,} tokens · d {first.cell.d_head} · "
            f"{first.cell.precision}",
            note=f"B = {first.cell.batch}, S = {first.cell.seq_len:,}, d = {first.cell.d_head}. By the closed formula, "
            "at the moment when the most is alive.",
            alt=words.replace("*", ""),
            rows=rows,
            cells=asked,
        ),
        lambda: worked_sum_bars(tensors, limit_bytes=first.limit_bytes),
    )


def worked_words(cell: Attended, tensors: Sequence[tuple[str, str, int]]) -> str:
    """What the sum comes to, what makes most of it, and what the allocator said."""
    total = sum(size for _, _, size in tensors)
    squares = [size for _, formula, size in tensors if "B × S²" in formula]
    largest = max(size for _, _, size in tensors)
    words = f"{way_of(cell.cell)} over {cell.cell.seq_len:,} tokens needs **{in_unit(total)}**"
    if squares:
        many = "one tensor" if len(squares) == 1 else f"{len(squares)} tensors"
        words += f"; {many} of B × S² numbers, up to {in_unit(largest)} each, make {sum(squares) / total:.0%} of it"
    if cell.limit_bytes:
        words += f". There are **{in_unit(cell.limit_bytes)}**"
    if cell.asked_bytes and cell.in_use_bytes:
        where = f" in {cell.failed_phase}" if cell.failed_phase else ""
        words += f": with {in_unit(cell.in_use_bytes)} in use, {in_unit(cell.asked_bytes)} more were refused{where}"
    return words + "."
