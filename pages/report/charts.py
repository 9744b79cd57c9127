"""The chart of each question that has one, from the rows that answer it.

    chart = make_chart(frame, rows, "B1")
    chart.figure()

A chart shows what one picture can: the plain cells, the first variant, no more than `MAX_PLACES` lines. The tables have
all of it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pages.figures.frame import WORDS, escape_text, title_of
from pages.figures.kernels import ClassBar, class_bars
from pages.figures.parts import PeakBar, part_bars
from pages.figures.phases import phase_bars
from pages.figures.scaling import Axis, ScalingPoint, scaling_lines
from pages.figures.warmup import WarmupStep, warmup_steps
from pages.report.chart import MAX_PLACES, Chart
from pages.report.figures import TotalLine, total_lines
from pages.report.pair_charts import draw_backends, draw_compiled, draw_fused, draw_precisions
from pages.ui import marks
from pages.ui.frame import Frame, label_size
from runner.analysis.kernel_sums import sum_by_class
from runner.formats import format_tokens, join_parts
from runner.report.questions.attention import eager_cells
from runner.report.questions.kernels import done, phases
from runner.report.questions.memory import plain_peaks, timelines_of
from runner.report.questions.times import usual_cells
from runner.report.questions.warmup import group_by_cell
from runner.report.rows import Rows
from runner.results import AttentionResult, Peak
from runner.schema.titles import describe_status, title
from runner.store.queries.timelines import Columns, load_columns

#: The most points of a line.
MAX_POINTS = 1_200


def make_chart(frame: Frame, rows: Rows, question: str) -> Chart | None:
    """Returns the chart of a question; None where it has none or nothing to draw."""
    make = _CHARTS.get(question)
    return make(frame, rows) if make else None


def _draw_phases(frame: Frame, rows: Rows) -> Chart | None:
    cells = [cell for cell in usual_cells(rows.steps) if cell.times]
    if not cells:
        return None
    modes = [mode for mode in ("train", "backward", "forward", "inference") if any(c.cell.mode == mode for c in cells)]
    of_mode = [cell for cell in cells if cell.cell.mode == modes[0]]
    (way, _), *others = Counter((cell.cell.precision, cell.cell.backend) for cell in of_mode).most_common()
    shown = [cell for cell in of_mode if (cell.cell.precision, cell.cell.backend) == way][:MAX_PLACES]
    bars = marks.phase_bars_of(frame, shown)
    rest = " Other precisions and backends are in the table." if others else ""
    note = f"Medians, each step waited for, with 95% intervals: {modes[0]}, {way[0]}, {way[1]}.{rest}"
    return Chart(title="Phases by size and context", note=note, figure=lambda: phase_bars(bars, view="time"))


def _draw_warmup(frame: Frame, rows: Rows) -> Chart | None:
    families = group_by_cell(rows.early)
    if not families:
        return None
    name, steps = next(iter(families.items()))
    dots = [
        WarmupStep(warmup=step.cell.warmup_steps, step=step.step, is_warmup=step.is_warmup, step_ms=step.step_ms)
        for step in steps
    ]
    note = f"{name}. Each panel is a separate process with that many warm-up steps (hollow dots)."
    return Chart(title="Steps after different warm-up counts", note=note, figure=lambda: warmup_steps(dots))


def _draw_classes(frame: Frame, rows: Rows) -> Chart | None:
    traces = done(rows)
    bars = [
        ClassBar(
            group=escape_text(title(cell)),
            place=phase,
            cell_id=str(trace.cell_id),
            parts=sum_by_class(rows.parts[trace.cell_id], phase=phase),
        )
        for trace, cell in traces
        for phase in phases(rows, trace)
    ][:MAX_PLACES]
    return _make_class_chart(bars, by="phase", of="the time in each phase", state="report-classes")


def _draw_modes(frame: Frame, rows: Rows) -> Chart | None:
    bars = [
        ClassBar(
            group=escape_text(title(replace(cell, mode="train")).replace(" · train", "", 1)),
            place=cell.mode,
            cell_id=str(trace.cell_id),
            parts=sum_by_class(rows.parts[trace.cell_id]),
        )
        for trace, cell in done(rows)
    ][:MAX_PLACES]
    return _make_class_chart(bars, by="mode", of="the time of the whole step", state="report-modes")


def _make_class_chart(bars: Sequence[ClassBar], *, by: str, of: str, state: str) -> Chart | None:
    """Draws the shares of kinds of work, a bar each; nothing without bars."""
    if not bars:
        return None
    note = f"Shares of {of}; the number is that of the matrix products."
    title = f"Kinds of work by {by}"
    return Chart(title=title, note=note, figure=lambda: class_bars(bars, view="share", state=state))


def _draw_timelines(frame: Frame, rows: Rows) -> Chart | None:
    recorded = timelines_of(rows)
    lines = [_make_line(frame.ask(load_columns, line.cell_id), name=title(cell)) for line, cell in recorded]
    note = "All bytes in use, what was held before the step included; a line where each phase begins."
    return Chart(title="Memory over one step", note=note, figure=lambda: total_lines(lines)) if lines else None


def _make_line(columns: Columns, *, name: str) -> TotalLine:
    """Returns the total after births and deaths: the largest in each of `MAX_POINTS` slices of time."""
    born, died, size = (columns.arrays[key] for key in ("born", "died", "bytes"))
    freed = died >= 0
    at = np.concatenate([born, died[freed]])
    change = np.concatenate([size, -size[freed]])
    order = np.lexsort((-change, at))
    at, total = at[order], np.cumsum(change[order])
    last = np.append(at[1:] != at[:-1], True)  # of several changes at a moment the last one counts
    at, total = at[last], total[last]
    slices = max(1, -(-len(at) // MAX_POINTS))
    starts = range(0, len(at), slices)
    chosen: list[Any] = [start + int(np.argmax(total[start : start + slices])) for start in starts]
    return TotalLine(
        name=name,
        at_ms=[float(at[place]) / 1e3 for place in chosen],
        held_bytes=[float(total[place]) for place in chosen],
        marks=[(moment / 1e3, phase) for moment, phase in columns.marks],
    )


def _draw_peaks(frame: Frame, rows: Rows) -> Chart | None:
    peaks = [peak for peak in plain_peaks(rows) if peak.cell.precision == "fp32" and peak.status in ("ok", "oom")]
    bars = [_make_bar(frame, peak) for peak in peaks[:MAX_PLACES]]
    cut = f" The first {MAX_PLACES} of {len(peaks)} are drawn." if len(peaks) > MAX_PLACES else ""
    note = f"fp32. What is alive when the step's memory is largest, by what it is for.{cut}"
    return (
        Chart(title="The parts of every peak", note=note, figure=lambda: part_bars(bars, state="report-peaks"))
        if bars
        else None
    )


def _make_bar(frame: Frame, peak: Peak) -> PeakBar:
    failure = None if peak.status == "ok" else escape_text(describe_status(peak))
    return PeakBar(
        group=label_size(frame.sizes, peak.cell),
        place=join_parts(format_tokens(peak.cell.context, "tok"), peak.cell.mode),
        cell_id=str(peak.cell_id),
        parts={name: size for name, size in peak.parts.items() if size},
        total=peak.peak_allocated_bytes or 0,
        failure=failure,
    )


def _draw_times(frame: Frame, rows: Rows) -> Chart | None:
    cells = [cell for cell in eager_cells(rows) if cell.status == "oom" or "forward_backward" in cell.times]
    points = [
        ScalingPoint(
            line=_line_of(cell),
            entity=cell.cell.implementation,
            length=cell.cell.seq_len,
            value=cell.times["forward_backward"].median_ms if cell.times else None,
            cell_id=str(cell.cell_id),
            ran_out=cell.status == "oom",
        )
        for cell in sorted(cells, key=lambda cell: cell.cell.seq_len)
    ]
    axis = Axis(x=title_of("attention", "seq_len"), y=title_of("timings", "median_ms"), unit="ms", state="report-times")
    return (
        Chart(
            title=f"Time of {WORDS['forward_backward']}",
            note="Medians of forward and backward together.",
            figure=lambda: scaling_lines(points, axis=axis),
        )
        if any(point.value for point in points)
        else None
    )


def _draw_bytes(frame: Frame, rows: Rows) -> Chart | None:
    cells = [cell for cell in eager_cells(rows) if cell.before_backward_bytes or cell.status == "oom"]
    points = [
        ScalingPoint(
            line=_line_of(cell),
            entity=cell.cell.implementation,
            length=cell.cell.seq_len,
            value=cell.predicted_peak_bytes if cell.status == "oom" else cell.before_backward_bytes,
            cell_id=str(cell.cell_id),
            ran_out=cell.status == "oom",
        )
        for cell in sorted(cells, key=lambda cell: cell.cell.seq_len)
    ]
    limits = [cell.limit_bytes for cell in cells if cell.limit_bytes and cell.status == "oom"]
    axis = Axis(
        x=title_of("attention", "seq_len"),
        y="In use before backward",
        unit="bytes",
        state="report-bytes",
        limit_bytes=max(limits, default=None),
    )
    note = "Live tensors between the passes; crosses ran out of memory."
    return (
        Chart(title="Memory before the backward pass", note=note, figure=lambda: scaling_lines(points, axis=axis))
        if any(point.value for point in points)
        else None
    )


def _line_of(cell: AttentionResult) -> str:
    return f"d {cell.cell.d_head} · {cell.cell.precision}"


_CHARTS: Mapping[str, Callable[[Frame, Rows], Chart | None]] = {
    "B1": _draw_phases,
    "B3": _draw_warmup,
    "K3": _draw_classes,
    "K4": _draw_modes,
    "P3": draw_precisions,
    "M1": _draw_timelines,
    "M2": _draw_peaks,
    "A1": _draw_times,
    "A2": _draw_bytes,
    "A3": draw_fused,
    "C1": draw_compiled,
    "C2": draw_backends,
}
