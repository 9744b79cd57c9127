"""K5: softmax against the matrix products inside attention, in time and in FLOPs."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.analysis.attention_ranges import MATMULS, AttentionRange, attention_ranges, role_of
from runner.answers.keys import make_keys
from runner.formats import format_number, format_percent, format_quantity
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.questions.kernels import ORDER, done, largest, want_profiles
from runner.report.rows import Rows
from runner.report.text import NONE, format_optional
from runner.results import KernelTrace
from runner.schema import ProfileCell
from runner.schema.titles import title
from runner.store.read.kernels import load_ranges

_NOTE = (
    "All layers together, per step, under the profiler. Products: scores, and probabilities times values. FLOPs of "
    "products by the profiler, of softmax by formula: 5 an attention weight forward, 4 backward."
)
_HEADINGS = (
    "Phase",
    "Softmax (ms)",
    "Products (ms)",
    "Time ratio",
    "Softmax FLOPs",
    "Product FLOPs",
    "FLOP ratio",
)


@dataclass(frozen=True, kw_only=True)
class _Inside:
    """Softmax and the products around it in one phase of one trace, in ms and FLOPs, None where not known."""

    trace: KernelTrace
    cell: ProfileCell
    phase: str
    softmax_ms: float
    products_ms: float
    softmax_flops: int | None
    products_flops: int | None

    @property
    def times(self) -> float | None:
        return self.softmax_ms / self.products_ms if self.products_ms else None

    @property
    def flops(self) -> float | None:
        known = self.softmax_flops is not None and self.products_flops
        return (self.softmax_flops or 0) / (self.products_flops or 1) if known else None


def _find_inside(rows: Rows, trace: KernelTrace, cell: ProfileCell) -> list[_Inside]:
    parts = load_ranges(rows.path, trace.cell_id)
    found = []
    for phase in ORDER:
        if not any(part.phase == phase and role_of(part.scope) for part in parts):
            continue
        ranges = {item.role: item for item in attention_ranges(parts, trace, phases=(phase,))}
        products = [ranges[role] for role in MATMULS if role in ranges]
        if "softmax" in ranges and products:
            softmax = ranges["softmax"]
            found.append(
                _Inside(
                    trace=trace,
                    cell=cell,
                    phase=phase,
                    softmax_ms=softmax.device_ms,
                    softmax_flops=softmax.flops,
                    products_ms=sum(item.device_ms for item in products),
                    products_flops=_sum_flops(products),
                )
            )
    return found


def _sum_flops(ranges: Sequence[AttentionRange]) -> int | None:
    return None if any(item.flops is None for item in ranges) else sum(item.flops or 0 for item in ranges)


def _answer_attention(rows: Rows) -> Answer:
    traces = [(trace, cell) for trace, cell in done(rows) if (cell.backend, cell.attention) == ("eager", "naive")]
    found = [one for trace, cell in traces for one in _find_inside(rows, trace, cell)]
    if not found:
        return Answer(lacks="no profiled step has named ranges inside attention (naive attention, eager)")
    keys = make_keys([one.cell for one in found])
    lines = []
    for one in found:
        counted = [
            NONE if flops is None else format_quantity(flops, "FLOP")
            for flops in (one.softmax_flops, one.products_flops)
        ]
        times = (format_number(one.softmax_ms), format_number(one.products_ms), format_optional(one.times))
        lines.append(Line(values=(*keys.values(one.cell), one.phase, *times, *counted, format_optional(one.flops))))
    chosen = largest([(one.trace, one.cell) for one in found], "train")[0].cell_id
    return Answer(
        sentence=_describe_inside([one for one in found if one.trace.cell_id == chosen]),
        tables=(
            ReportTable(
                caption=f"Softmax against matrix products inside attention: {keys.shared}",
                headings=(*keys.headings, *_HEADINGS),
                lines=tuple(lines),
                note=_NOTE,
            ),
        ),
        behind=behind(trace for trace, _ in traces),
    )


def _describe_inside(found: Sequence[_Inside]) -> str:
    known = [(one, one.times, one.flops) for one in found if one.times is not None and one.flops]
    parts = [
        f"in the {one.phase} pass softmax takes {format_percent(times)} of the time of the matrix products around it "
        f"for {format_percent(flops or 0)} of their FLOPs"
        for one, times, flops in known
    ]
    return f"Inside attention of {title(known[0][0].cell)}: {'; '.join(parts)}." if parts else ""


QUESTIONS = (
    Question[Rows](
        id="K5",
        text="Inside attention, how does softmax compare with the matrix products, in time and in FLOPs?",
        page="kernels",
        answer=_answer_attention,
        wanted=want_profiles,
    ),
)
