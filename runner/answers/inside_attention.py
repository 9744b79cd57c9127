"""Inside attention, how does softmax compare with the matrix products, in time and in FLOPs?"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from runner.analysis.kernels import MATMULS, attention_ranges
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.shared import about, best, cells_of, name_time, narrow, place_of, sizes_of
from runner.answers.words import CONTEXT, SIZE, lacks, plain_cells
from runner.formats import at_tokens, format_percent, format_share
from runner.results.cells import KernelTrace
from runner.results.rows import Rows
from runner.schema import Model, ProfileCell

PHASE = Field.of("timings", "phase")
RANGE = Field("range", "Range", doc="A named part of attention, all layers together.")
TIME = Field("device_ms", "GPU time", unit="ms", role="value", doc="Per step, under the profiler.")
FLOPS = Field(
    "flops",
    "FLOPs",
    unit="FLOP",
    role="note",
    doc="Of products by the profiler, of softmax by formula: 5 an attention weight forward, 4 backward.",
)
TIMES = Field(
    "time_ratio",
    "Softmax over products",
    unit="×",
    role="value",
    doc="GPU time of softmax over that of the two matrix products around it.",
)
WORK = Field("flop_ratio", "The same in FLOPs", unit="×", role="note")
SOFTMAX = Field("softmax_ms", "Softmax", unit="ms", role="note")
PRODUCTS = Field("products_ms", "Products", unit="ms", role="note")
_PHASES = ("forward", "backward")
TOTAL = "total"


def answer(rows: Rows, asked: Asked) -> Answer:
    traced = [
        one
        for one in rows.traced
        if one.status == "ok" and (one.cell.backend, one.cell.attention) == ("eager", "naive")
        if _compare(one, "forward")
    ]
    if not traced:
        words = "no profiled step has named ranges inside attention (naive attention, eager)"
        return Answer(missing=lacks(words, plain_cells(ProfileCell)))
    shown, choices = narrow(traced, asked, drawn=("size", "context"))
    (one, *_), rest = narrow(shown, asked, drawn=())
    sizes = sizes_of(traced)
    phase = choose(asked, "phase", "Phase", [name for name in _PHASES if any(_compare(one, name) for one in shown)])
    ratios = _draw_ratios(shown, phase.chosen, sizes)
    ranges = _draw_ranges(one, f"{sizes[Model.of(one.cell)]}{at_tokens(one.cell.context)}")
    sentence, most = _say(ratios, phase.chosen, one.cell_id)
    found = Answer(
        sentence=sentence,
        more=f"{most}The profiler counts the FLOPs of the products, a formula those of softmax: 5 an attention weight "
        "forward, 4 backward.",
        views=(ratios, ranges),
        choices=(*rest, *choices, phase),
        cells=cells_of(shown),
    )
    return name_time(found, traced)


def _compare(one: KernelTrace, phase: str) -> tuple[float, float, float | None] | None:
    """Returns the times of softmax and of the products around it (ms), and the ratio of their FLOPs where both are
    known; None where either has no range."""
    by_role = {role: (ms, flops) for role, ms, flops in attention_ranges(one, phase=phase)}
    products, softmax = [by_role[role] for role in MATMULS if role in by_role], by_role.get("softmax")
    took = sum(ms for ms, _ in products)
    if softmax is None or not took:
        return None
    counted = [flops for _, flops in products if flops]
    is_known = softmax[1] is not None and len(counted) == len(products)
    return softmax[0], took, (softmax[1] or 0) / sum(counted) if is_known else None


def _draw_ratios(traced: Sequence[KernelTrace], phase: str, sizes: Mapping[Any, str]) -> View:
    lines = []
    for one in traced:
        if made := _compare(one, phase):
            softmax, products, work = made
            lines.append(Row.of(one, *place_of(one, sizes), softmax / products, work, softmax, products))
    return View(
        name="softmax-over-products",
        title=f"Softmax over the matrix products around it, {phase}",
        about=about(traced, more=["GPU time"]),
        fields=(SIZE, CONTEXT, TIMES, WORK, SOFTMAX, PRODUCTS),
        rows=tuple(lines),
        draw=Draw("matrix", "time_ratio", down=("size",), across="context"),
        note="Products: scores, and probabilities times values; all layers together, under the profiler.",
    )


def _draw_ranges(one: KernelTrace, size: str) -> View:
    lines = []
    for phase in _PHASES:
        ranges = attention_ranges(one, phase=phase)
        total = [(TOTAL, sum(ms for _, ms, _ in ranges), None)] if ranges else []
        lines += [Row.of(one, phase, *each) for each in (*ranges, *total)]
    return View(
        name="attention-ranges",
        title=f"Ranges inside attention: {size}",
        about=about([one], more=["GPU time"]),
        fields=(PHASE, RANGE, TIME, FLOPS),
        rows=tuple(lines),
        draw=Draw("bars", "device_ms", down=("phase",), series="range", total=TOTAL),
    )


def _say(view: View, phase: str, chosen: UUID) -> tuple[str, str]:
    """Says the share of the chosen cell, and then the largest if that is another cell's."""
    top = best(view)
    if top is None:
        return f"No range inside attention ran {phase}.", ""
    row = next((row for row in view.rows if chosen in row.cells), top)
    place, most = (f"**{one.values[0]}**{at_tokens(one.values[1] or 0)}" for one in (row, top))
    share, largest = (f"**{format_share(view.get(one, 'time_ratio'))}**" for one in (row, top))
    text = f"Inside attention of {place}, softmax takes {share} of the GPU time of the matrix products around it in "
    work = view.get(row, "flop_ratio")
    text += f"{phase}, for **{format_percent(work)}** of their FLOPs." if work else f"{phase}."
    return text, "" if row is top else f"Softmax's share is largest, {largest}, in {most}. "


QUESTION = Question(answer=answer, needs=("traced",), course=("K5",))
