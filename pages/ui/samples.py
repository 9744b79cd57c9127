"""The card of raw samples of the pinned cell.

draw_samples(frame, cells)
draw_attention_samples(frame, cells)
"""

from collections.abc import Sequence
from typing import Any, Literal

import streamlit as st

from pages.figures.frame import format_interval, label_of, label_values
from pages.figures.samples import sample_steps
from pages.ui.card import Card, draw
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.pin import choose
from pages.ui.sections import draw_heading
from pages.ui.trust import draw_grade
from runner.formats import format_bytes, format_number
from runner.results import AttentionResult, PhaseSample, PhaseTime, StepResult
from runner.schema.titles import describe_status, title
from runner.store.queries import raw
from runner.store.queries.attention import load_attention
from runner.store.queries.selection import Selection
from runner.store.queries.steps import find


def draw_samples(frame: Frame, cells: Sequence[StepResult]) -> None:
    _draw_heading(frame, "Every step of one cell. Your choice is kept in the link.")
    cell = choose(cells, elsewhere=lambda cell_id: frame.ask(find, cell_id))
    if cell and _has_result(frame, cell):
        with st.container(horizontal=True):
            _draw_step_numbers(cell)
        _draw_card(frame, cell, table="steps")


def draw_attention_samples(frame: Frame, cells: Sequence[AttentionResult]) -> None:
    _draw_heading(frame, "Every forward and backward pass of one cell. Your choice is kept in the link.")
    every = {cell.cell_id: cell for cell in frame.ask(load_attention, Selection())}
    cell = choose(cells, elsewhere=every.get)
    if cell and _has_result(frame, cell):
        with st.container(horizontal=True):
            _draw_attention_numbers(cell)
        _draw_card(frame, cell, table="attention")


def _draw_heading(frame: Frame, words: str) -> None:
    draw_heading(frame, "Raw samples", anchor="raw-samples")
    st.caption(restrict(words))


def _has_result(frame: Frame, cell: StepResult | AttentionResult) -> bool:
    """Returns whether there is something to draw; otherwise says why not."""
    if cell.status != "ok":
        why = literal(f"{describe_status(cell)}. {cell.message or ''}")
        st.error(restrict(f"{title(cell.cell)}: {why}"), icon=":material/error:")
        return False
    draw_grade(frame, cell)
    return True


def _draw_card(frame: Frame, cell: StepResult | AttentionResult, *, table: Literal["steps", "attention"]) -> None:
    rows = frame.ask(raw.load_samples, table, cell.cell_id)
    words = title(cell.cell)
    card = Card(
        key="samples",
        title=words,
        note="Every step since the process began. Hollow dots are warm-up steps, which no summary includes.",
        alt=f"Time of every step and phase of {words}.",
        rows=_make_rows(rows),
        cells=[cell.cell],
    )
    draw(frame, card, lambda: sample_steps(rows, state=str(cell.cell_id)))


def _draw_median(label: str, time: PhaseTime) -> None:
    st.metric(label, f"{format_number(time.median_ms)} ms", border=True,
              help=f"95% interval {format_interval(time.low_ms, time.high_ms, unit='ms')}")  # fmt: skip
    if time.std_ms is not None and time.mean_ms:
        st.metric("Std / mean", f"{time.std_ms / time.mean_ms:.1%}", border=True)


def _draw_step_numbers(cell: StepResult) -> None:
    step = cell.times.get("step")
    if step is None:
        return
    _draw_median("Median step", step)
    if cell.tokens_per_s is not None:
        st.metric("Throughput", f"{format_number(cell.tokens_per_s)} tok/s", border=True)
    if cell.mfu is not None:
        st.metric(label_of("steps", "mfu"), f"{cell.mfu:.0%}", border=True)
    if cell.compile_seconds is not None:
        st.metric("Compile time", f"{format_number(cell.compile_seconds)} s", border=True)
    st.metric("Samples", f"{step.n}" + (f" in {cell.rounds} rounds" if cell.rounds > 1 else ""), border=True)


def _draw_attention_numbers(cell: AttentionResult) -> None:
    whole = cell.times.get("forward_backward")
    if whole is not None:
        _draw_median("Median, both passes", whole)
    for name in ("peak_allocated_bytes", "saved_bytes"):
        size: int | None = getattr(cell, name)
        if size is not None:
            st.metric(label_of("attention", name), format_bytes(size), border=True)
    if cell.gradient_error is not None:
        st.metric(label_of("attention", "gradient_error"), f"{cell.gradient_error:.1e}", border=True,
                  help=f"At most {cell.tolerance:.0e}." if cell.tolerance else None)  # fmt: skip
    if whole is not None:
        st.metric("Samples", f"{whole.n}", border=True)


def _make_rows(rows: Sequence[PhaseSample]) -> list[dict[str, Any]]:
    names = ("phase", "step", "is_warmup", "duration_ms")
    return [{**label_values("steps", row, ("round",)), **label_values("samples", row, names)} for row in rows]
