"""The card of raw samples of the pinned cell: on Training step and on Mixed precision, the same.

draw_samples(frame, cells)
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.charts.frame import WORDS, interval, number
from pages.charts.samples import SampleDot, sample_steps
from pages.parts.card import Card, draw
from pages.parts.frame import Frame
from pages.parts.pin import choose
from pages.parts.trust import draw_grade
from runner.schema import TABLES
from runner.store.queries.raw import Sample, samples
from runner.store.queries.steps import Measured
from runner.words import title


def draw_samples(frame: Frame, cells: Sequence[Measured]) -> None:
    """A box to choose a cell, its numbers, and every step of it."""
    st.header("Raw samples", anchor="raw-samples")
    st.caption("Every step of one cell. The link keeps which.")
    cell = choose(frame, cells)
    if cell is None:
        return
    if cell.status != "ok":
        failure = f"{WORDS[cell.status]}" + (f" in {cell.failed_phase}" if cell.failed_phase else "")
        st.error(f"{title(cell.cell)}: {failure}. {cell.message or ''}", icon=":material/error:")
        return
    draw_grade(frame, cell)
    _numbers(cell)
    rows = frame.ask(samples, "steps", cell.cell_id)
    dots = [SampleDot(**{name: getattr(row, name) for name in SampleDot.__dataclass_fields__}) for row in rows]
    draw(
        frame,
        Card(
            key="samples",
            title=title(cell.cell),
            note="Every step since the process began. Hollow dots are warm-up steps, which no summary counts.",
            alt=f"Time of every step and phase of {title(cell.cell)}.",
            rows=_table(rows),
            cells=[cell.cell],
        ),
        lambda: sample_steps(dots, state=str(cell.cell_id)),
    )


def _numbers(cell: Measured) -> None:
    step = cell.times.get("step")
    if step is None:
        return
    with st.container(horizontal=True):
        st.metric(
            "Median step",
            f"{number(step.median_ms)} ms",
            border=True,
            help=f"95 % interval {interval(step.low_ms, step.high_ms, unit='ms')}",
        )
        if step.std_ms is not None and step.mean_ms:
            st.metric("Std / mean", f"{step.std_ms / step.mean_ms:.1%}", border=True)
        if cell.tokens_per_s is not None:
            st.metric("Throughput", f"{number(cell.tokens_per_s)} tok/s", border=True)
        if cell.mfu is not None:
            st.metric(TABLES["steps"].column("mfu").label, f"{cell.mfu:.0%}", border=True)
        if cell.compile_seconds is not None:
            st.metric("Compile time", f"{number(cell.compile_seconds)} s", border=True)
        st.metric("Samples", f"{step.n}" + (f" in {cell.rounds} rounds" if cell.rounds > 1 else ""), border=True)


def _table(rows: Sequence[Sample]) -> list[dict[str, Any]]:
    table = TABLES["samples"]
    names = ("phase", "step", "is_warmup", "duration_ms")
    return [
        {TABLES["steps"].column("round").title: row.round, **{table.column(n).title: getattr(row, n) for n in names}}
        for row in rows
    ]
