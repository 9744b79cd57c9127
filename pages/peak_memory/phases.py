"""The card of the pinned memory cell: the peak of each phase of its step, and its grade.

draw_phases(frame, cells)
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.figures.frame import escape_text
from pages.peak_memory.figures import PhasePeakBar, phase_peak_bars
from pages.ui.card import Card, draw
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.pin import choose
from pages.ui.sections import draw_heading
from pages.ui.trust import draw_grade
from runner.formats import format_bytes
from runner.results import Peak, PhasePeak
from runner.schema import TABLES
from runner.schema.titles import describe_status, title
from runner.store.queries.memory import load_peaks, load_phase_peaks
from runner.store.queries.selection import Selection


def draw_phases(frame: Frame, cells: Sequence[Peak]) -> None:
    draw_heading(frame, "One cell, phase by phase", anchor="phases")
    st.caption("Peak memory in each phase of the step. Your choice is kept in the link.")
    every = {cell.cell_id: cell for cell in frame.ask(load_peaks, Selection())}
    cell = choose(cells, elsewhere=every.get)
    if cell is None:
        return
    words = title(cell.cell)
    draw_grade(frame, cell)
    if cell.status != "ok":
        why = literal(f"{describe_status(cell)}. {cell.message or ''}")
        st.error(restrict(f"{words}: {why}"), icon=":material/error:")
        return
    loaded = frame.ask(load_phase_peaks, cell.cell_id)
    card = Card(
        key="phase-peaks",
        title=words,
        note="Live tensors at each phase's own peak and at its end; on CUDA also what the allocator holds and what "
        "the driver counts.",
        alt=f"Peak of memory in each phase of {words}: " + ", ".join(map(_describe, loaded)) + ".",
        rows=[_make_row(phase) for phase in loaded],
        cells=[cell.cell],
    )
    draw(frame, card, lambda: phase_peak_bars([_make_bar(phase) for phase in loaded], state=str(cell.cell_id)))


def _describe(peak: PhasePeak) -> str:
    return f"{peak.phase} {format_bytes(peak.allocated or 0)}"


def _make_bar(peak: PhasePeak) -> PhasePeakBar:
    sizes = {"peak, live tensors": peak.allocated, "held by the allocator": peak.reserved,
            "counted by the driver": peak.driver, "left at its end": peak.left}  # fmt: skip
    return PhasePeakBar(
        phase=escape_text(peak.phase), held={name: size for name, size in sizes.items() if size is not None}
    )


def _make_row(peak: PhasePeak) -> dict[str, Any]:
    columns = TABLES["phase_peaks"]
    names = {"phase": peak.phase, "peak_allocated_bytes": peak.allocated, "peak_reserved_bytes": peak.reserved,
             "peak_driver_bytes": peak.driver, "end_allocated_bytes": peak.left}  # fmt: skip
    return {columns.column(name).title: value for name, value in names.items()}
