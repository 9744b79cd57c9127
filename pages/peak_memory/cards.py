"""The cards of Peak memory that draw many cells: the parts of each peak, growth with the context, predictions.

    draw_parts(frame, cells, names)

`cells` are of one mode; `names` are the names of the shapes.
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.figures.frame import escape_text, label_of, label_values, title_of
from pages.figures.parts import PeakBar, part_bars
from pages.figures.scaling import Axis, ScalingPoint, scaling_lines
from pages.peak_memory.answers import (
    Names,
    answer,
    describe_bf16,
    describe_growth,
    describe_prediction,
    place_of,
)
from pages.peak_memory.figures import PeakPair, PredictedDot, peak_pairs, predicted_dots
from pages.peak_memory.tensors import draw_part_pairs
from pages.ui.card import Card, draw
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame, label_size
from pages.ui.markdown import quoted, restrict
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from runner.analysis.compare.peaks import pairs_of
from runner.formats import format_tokens, join_parts
from runner.results import Peak
from runner.schema.titles import describe_status
from runner.store.queries.memory import PARTS

#: More bars than these are not one picture any more.
MAX_BARS = 40
_PEAKS = ("peak_phase", "peak_allocated_bytes", "peak_reserved_bytes", "peak_driver_bytes", "predicted_peak_bytes")


def key_columns(cell: Peak, names: Names) -> dict[str, Any]:
    """Returns the key of a cell as a table's first columns."""
    return {"Size": label_size(names, cell.cell), **label_values("memory", cell.cell, ("context", "mode", "precision"))}


def table_of(cells: Sequence[Peak], names: Names) -> list[dict[str, Any]]:
    """Returns one row a cell: its peaks and every part in bytes, peaks of phases, how it ended."""
    return [
        {
            **key_columns(cell, names),
            **label_values("memory", cell, _PEAKS),
            **{title_of("memory", column): cell.parts[name] for name, column in PARTS.items()},
            **{f"Peak in {phase} (bytes)": size for phase, size in cell.phases.items()},
            **label_values("memory", cell, ("status", "message")),
        }
        for cell in cells
    ]


def bar_of(cell: Peak, *, group: str, place: str) -> PeakBar:
    failure = None if cell.status == "ok" else escape_text(describe_status(cell))
    parts = {name: size for name, size in cell.parts.items() if size}
    return PeakBar(group=group, place=place, cell_id=str(cell.cell_id), parts=parts,
                   total=cell.peak_allocated_bytes or 0, failure=failure)  # fmt: skip


def draw_parts(frame: Frame, cells: Sequence[Peak], names: Names) -> None:
    shown = cells[:MAX_BARS]
    bars = [
        bar_of(
            cell,
            group=label_size(names, cell.cell),
            place=join_parts(format_tokens(cell.cell.context, "tok"), cell.cell.precision),
        )
        for cell in shown
    ]
    cut = f" The first {MAX_BARS} of {len(cells)} cells are drawn: filter, or see the table."
    card = Card(
        key="peak-parts",
        title="The parts of every peak",
        note="What is alive when the step's memory is largest, by what it is for; the number is the peak."
        + (cut if len(cells) > MAX_BARS else ""),
        alt=f"Stacked parts of each peak. {answer(cells, names)}",
        rows=table_of(cells, names),
        cells=[cell.cell for cell in cells],
    )
    draw(frame, card, lambda: part_bars(bars, state="peak-parts"), on_click=pin)


def draw_contexts(frame: Frame, cells: Sequence[Peak], names: Names) -> None:
    if len({cell.cell.context for cell in cells}) < 2:
        return
    limits = [cell.machine_bytes for cell in cells if cell.machine_bytes and cell.status == "oom"]
    axis = Axis(x=title_of("memory", "context"), y=label_of("memory", "peak_allocated_bytes"),
                unit="bytes", state="peak-context", limit_bytes=max(limits, default=None))  # fmt: skip
    points = [
        ScalingPoint(
            line=f"{label_size(names, cell.cell)} {cell.cell.precision}", entity=cell.cell.precision,
            length=cell.cell.context, cell_id=str(cell.cell_id), ran_out=cell.status == "oom",
            value=cell.predicted_peak_bytes if cell.status == "oom" else cell.peak_allocated_bytes,
        )
        for cell in sorted(cells, key=lambda cell: cell.cell.context)
        if cell.status in ("ok", "oom")
    ]  # fmt: skip
    words = describe_growth(cells, names)
    card = Card(
        key="peak-context",
        title="Peak against context",
        answer=words,
        evidence=[of_cells(frame, cells)],
        note="Flat: weights and optimizer state dominate. ∝ S: activations. ∝ S²: attention's scores.",
        alt=f"Peak of memory against context length, log-log, a line a size and precision. {words}",
        rows=table_of(cells, names),
        cells=[cell.cell for cell in cells],
    )
    draw(frame, card, lambda: scaling_lines(points, axis=axis), on_click=pin)


def draw_precisions(frame: Frame, cells: Sequence[Peak], names: Names) -> None:
    """Draws bf16 beside fp32, with the reason where it needs more."""
    draw_heading(frame, "Does bf16 need less memory?", anchor="bf16")
    pairs = pairs_of(cells)
    if not pairs:
        command = frame.sweep("--experiment memory --precisions fp32,bf16")
        words = f"No two cells here with a peak differ in nothing but fp32 and bf16. Measure both: {quoted(command)}."
        st.caption(restrict(words))
        return
    words = describe_bf16(pairs, names)
    sides = [side for pair in pairs for side in (pair.base, pair.other)]
    say(frame, words, of_cells(frame, sides), key="peak-precision")
    dots = [
        PeakPair(place=join_parts(label_size(names, pair.base.cell), format_tokens(pair.base.cell.context, "tok")),
                 base=pair.base.peak_allocated_bytes or 0, other=pair.other.peak_allocated_bytes or 0)
        for pair in pairs[:MAX_BARS]
    ]  # fmt: skip
    rows = [{**row, "bf16 / fp32": pair.ratio} for pair in pairs for row in table_of([pair.base, pair.other], names)]
    card = Card(
        key="peak-precision",
        title="bf16 beside fp32",
        note="Each line is a pair of cells that differ in the precision alone; the number is bf16 over fp32.",
        alt=f"Peaks in fp32 and bf16. {words}",
        rows=rows,
        cells=[side.cell for side in sides],
    )
    draw(frame, card, lambda: peak_pairs(dots, names=("fp32", "bf16")))


def draw_predicted(frame: Frame, cells: Sequence[Peak], names: Names) -> None:
    known = [cell for cell in cells if cell.predicted_peak_bytes and cell.peak_allocated_bytes]
    dots = [
        PredictedDot(place=place_of(cell.cell, names), cell_id=str(cell.cell_id), precision=cell.cell.precision,
                     predicted=cell.predicted_peak_bytes or 0, measured=cell.peak_allocated_bytes or 0)
        for cell in known
    ]  # fmt: skip
    if not dots:
        return
    draw_heading(frame, "Does it match the prediction?", anchor="predicted")
    words = describe_prediction(dots)
    say(frame, words, of_cells(frame, known), key="peak-predicted")
    card = Card(
        key="peak-predicted",
        folded=True,
        title="Predicted against measured",
        note="Predicted by closed formulas from the shape alone. On the line, prediction and measurement agree.",
        alt=f"Measured peaks over predicted ones. {words}",
        rows=[
            {
                "Cell": dot.place,
                "Predicted (bytes)": dot.predicted,
                "Measured (bytes)": dot.measured,
                "Measured / predicted": dot.ratio,
            }
            for dot in dots
        ],
        cells=[cell.cell for cell in cells],
    )
    draw(frame, card, lambda: predicted_dots(dots), on_click=pin)
    draw_part_pairs(frame, cells, names)
