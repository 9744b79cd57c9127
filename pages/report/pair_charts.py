"""The charts of questions about speedups: dots with intervals, of the first variant that has pairs.

chart = draw_precisions(frame, rows)
"""

from collections.abc import Mapping, Sequence

from pages.figures.speedups import SpeedupDot, speedup_dots
from pages.report.chart import MAX_PLACES, Chart
from pages.ui import marks
from pages.ui.frame import Frame
from runner.analysis.compare.speedups import Speedups
from runner.report.questions.attention_ways import compare_ways
from runner.report.questions.compiled import compare_backends
from runner.report.questions.precision import compare_precisions
from runner.report.rows import Rows
from runner.results import AttentionResult, StepResult


def draw_precisions(frame: Frame, rows: Rows) -> Chart | None:
    return _draw_pairs(frame, compare_precisions(rows), axis="precision", baseline="fp32")


def draw_backends(frame: Frame, rows: Rows) -> Chart | None:
    return _draw_pairs(frame, compare_backends(rows), axis="backend", baseline="eager")


def _draw_pairs(frame: Frame, found: Mapping[str, Speedups[StepResult]], *, axis: str, baseline: str) -> Chart | None:
    variant = next((name for name, each in found.items() if each.speedups), None)
    if variant is None:
        return None
    dots = marks.speedup_dots_of(frame, found[variant], axis=axis)
    return _make_speedups(dots, variant=variant, baseline=baseline, others=len(found) - 1)


def draw_fused(frame: Frame, rows: Rows) -> Chart | None:
    return _draw_attention_pairs(compare_ways(rows, compiled=False), baseline="naive")


def draw_compiled(frame: Frame, rows: Rows) -> Chart | None:
    return _draw_attention_pairs(compare_ways(rows, compiled=True), baseline="eager")


def _draw_attention_pairs(found: Mapping[str, Speedups[AttentionResult]], *, baseline: str) -> Chart | None:
    variant = next((name for name, each in found.items() if each.speedups), None)
    if variant is None:
        return None
    dots = [
        marks.speedup_dot_of(
            pair, place=f"{pair.base.cell.seq_len:,} tok · d {pair.base.cell.d_head} · {pair.base.cell.precision}"
        )
        for pair in found[variant].speedups
    ]
    return _make_speedups(dots, variant=variant, baseline=baseline, others=len(found) - 1)


def _make_speedups(dots: Sequence[SpeedupDot], *, variant: str, baseline: str, others: int) -> Chart:
    places = list(dict.fromkeys(dot.place for dot in dots))[:MAX_PLACES]
    shown = [dot for dot in dots if dot.place in places]
    rest = (
        f" {others} other variants are in the table." if others > 1 else " The other is in the table." if others else ""
    )
    note = f"Each line is a pair of cells. Right of 1×, {variant} is faster. Bars are 95% intervals.{rest}"
    return Chart(title=f"{variant} against {baseline}", note=note, figure=lambda: speedup_dots(shown, variant=variant))
