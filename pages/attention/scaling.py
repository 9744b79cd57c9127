"""The two cards of growth: time and memory against the sequence length.

draw_time(frame, cells); draw_memory(frame, cells)
"""

from collections.abc import Sequence
from typing import Any

from pages.attention.answers import growth_sentence, milliseconds
from pages.figures.frame import WORDS, label_of, label_values, title_of
from pages.figures.scaling import Axis, ScalingPoint, scaling_lines
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame
from pages.ui.marks import time_columns
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from runner.analysis.compare.speedups import name_attention
from runner.analysis.growth import Value
from runner.results import AttentionResult
from runner.schema import Phase

_PHASES: dict[str, Phase] = {"both": "forward_backward", "forward": "forward", "backward": "backward"}
_BYTES = {
    "peak": "peak_allocated_bytes",
    "in use before backward": "before_backward_bytes",
    "saved for backward": "saved_bytes",
}
_COMPILED = "Dashed and hollow: compiled. "
_KEY = ("implementation", "backend", "seq_len", "d_head", "precision", "causal", "batch", "cache")
_MEMORY = (
    "status", "saved_bytes", "predicted_saved_bytes", "before_backward_bytes", "peak_allocated_bytes",
    "predicted_peak_bytes", "tensor_bytes", "asked_bytes", "in_use_bytes", "device_bytes", "failed_phase",
)  # fmt: skip


def draw_time(frame: Frame, cells: Sequence[AttentionResult]) -> None:
    draw_heading(frame, "How does the time grow with the length?", anchor="time")
    phase = _PHASES[chosen("phase", "Phase", list(_PHASES))]
    words = growth_sentence(cells, what=f"Time of {WORDS[phase]}", value=milliseconds(phase))
    say(frame, words, of_cells(frame, cells), key="attention-time")
    axis = Axis(
        x=title_of("attention", "seq_len"), y=title_of("timings", "median_ms"), unit="ms", state=f"time-{phase}"
    )
    card = Card(
        key="attention-time",
        title=f"Time of {WORDS[phase]}",
        note=f"Medians with 95% intervals. {_COMPILED}Click a point to see the cell's samples.",
        alt=f"Time against sequence length, log-log. {words}",
        rows=[row for cell in cells for row in _make_time_rows(cell)],
        cells=[cell.cell for cell in cells],
    )
    draw(
        frame,
        card,
        lambda: scaling_lines(points_of(cells, value=milliseconds(phase), phase=phase), axis=axis),
        on_click=pin,
    )


def draw_memory(frame: Frame, cells: Sequence[AttentionResult]) -> None:
    """Draws memory against the length, and the device's limit."""
    draw_heading(frame, "How does the memory grow with the length?", anchor="memory")
    what = chosen("bytes", "Bytes", list(_BYTES))
    name = _BYTES[what]

    def value(cell: AttentionResult) -> float | None:
        if cell.status == "oom":
            return cell.predicted_peak_bytes
        found: int | None = getattr(cell, name)
        return found

    words = growth_sentence(cells, what=label_of("attention", name), value=value)
    say(frame, words, of_cells(frame, cells), key="attention-memory")
    limits = [cell.limit_bytes for cell in cells if cell.limit_bytes and cell.status == "oom"]
    axis = Axis(x=title_of("attention", "seq_len"), y=label_of("attention", name), unit="bytes",
                state=f"memory-{what}", limit_bytes=max(limits, default=None))  # fmt: skip
    card = Card(
        key="attention-memory",
        title=label_of("attention", name),
        note=f"The peak is over forward and backward. {_COMPILED}The table has predicted bytes, too.",
        alt=f"Memory against sequence length, log-log. {words}",
        rows=[_make_memory_row(cell) for cell in cells],
        cells=[cell.cell for cell in cells],
    )
    draw(frame, card, lambda: scaling_lines(points_of(cells, value=value), axis=axis), on_click=pin)


def points_of(cells: Sequence[AttentionResult], *, value: Value, phase: Phase | None = None) -> list[ScalingPoint]:
    """Returns what the chart draws: cells that ended ok or ran out of memory."""
    times = [cell.times.get(phase) if phase else None for cell in cells]
    return [
        ScalingPoint(
            line=name_attention(cell.cell), entity=cell.cell.implementation, length=cell.cell.seq_len,
            value=value(cell), cell_id=str(cell.cell_id), dash="solid" if cell.cell.backend == "eager" else "dash",
            low=time.low_ms if time else None, high=time.high_ms if time else None, ran_out=cell.status == "oom",
        )
        for cell, time in sorted(zip(cells, times, strict=True), key=lambda pair: pair[0].cell.seq_len)
        if cell.status == "oom" or (cell.status == "ok" and value(cell))
    ]  # fmt: skip


def key_columns(cell: AttentionResult) -> dict[str, Any]:
    """Returns the key of a cell as a table's first columns."""
    return label_values("attention", cell.cell, _KEY)


def _make_time_rows(cell: AttentionResult) -> list[dict[str, Any]]:
    start, status = key_columns(cell), label_values("attention", cell, ("status",))
    if not cell.times:
        return [{**start, title_of("timings", "phase"): cell.failed_phase, **status}]
    times = [(phase, time) for phase, time in cell.times.items() if phase != "step"]
    return [{**start, **time_columns(phase, time), **status} for phase, time in times]


def _make_memory_row(cell: AttentionResult) -> dict[str, Any]:
    peak, predicted = cell.peak_allocated_bytes, cell.predicted_peak_bytes
    return {
        **key_columns(cell),
        **label_values("attention", cell, _MEMORY),
        "Measured / predicted peak": peak / predicted if peak and predicted else None,
    }
