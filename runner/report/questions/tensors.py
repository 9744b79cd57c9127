"""M4 and M5: one residual stream, and the largest allocations with their lines."""

from collections.abc import Sequence

from runner.analysis.costs.activations import weight_bytes
from runner.analysis.timeline.stacks import frames_of
from runner.formats import format_bytes, format_count
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.questions.memory import timelines_of
from runner.report.rows import Rows
from runner.report.text import NONE, format_mib
from runner.report.wanted import wanted_cells
from runner.results import LiveAllocation, Peak
from runner.schema import MemoryCell
from runner.schema.sizes import model_name
from runner.schema.titles import title
from runner.store.queries.timelines import load_largest_at

#: The largest allocations that are listed of each timeline.
_LARGEST = 8
#: Functions without a name of their own.
_NAMELESS = ("<genexpr>", "<listcomp>", "<lambda>")


def _answer_stream(rows: Rows) -> Answer:
    peaks = [peak for peak in rows.peaks if peak.residual_stream_bytes and peak.cell.model_key is None]
    cells: dict[tuple[object, ...], Peak] = {}
    for peak in peaks:
        cells.setdefault((model_name(peak.cell), peak.cell.batch, peak.cell.context, peak.cell.weights_dtype), peak)
    if not cells:
        return Answer(lacks="no residual stream was measured")
    known = list(cells.values())
    right = sum(peak.residual_stream_bytes == _stream_bytes(peak.cell) for peak in known)
    largest = max(known, key=lambda peak: peak.residual_stream_bytes or 0)
    name = f"{model_name(largest.cell)} at {largest.cell.context:,} tokens"
    return Answer(
        sentence=f"B·T·d_model·4 bytes, as measured in {right} of {format_count(len(known), 'shape')} and contexts: "
        f"{format_bytes(largest.residual_stream_bytes or 0)} in {name}.",
        tables=(_make_streams(known),),
        behind=behind(known),
    )


def _make_streams(peaks: Sequence[Peak]) -> ReportTable:
    lines = []
    for peak in peaks:
        cell, formula = peak.cell, _stream_bytes(peak.cell)
        factors = f"{cell.batch} × {cell.context} × {cell.shape.d_model} × {weight_bytes(cell)}"
        agrees = "yes" if formula == peak.residual_stream_bytes else "no"
        measured = peak.residual_stream_bytes or 0
        values = (
            model_name(cell),
            f"{cell.context:,}",
            factors,
            f"{formula:,}",
            f"{measured:,}",
            format_mib(measured),
            agrees,
        )
        lines.append(Line(values=values))
    return ReportTable(
        caption="One residual-stream activation",
        headings=(
            "Size",
            "Context (tokens)",
            "B × T × d_model × bytes",
            "Formula (bytes)",
            "Measured (bytes)",
            "Measured (MiB)",
            "Agrees",
        ),
        lines=tuple(lines),
        note="Measured: the tensor between two blocks. It does not vary, so that one process counts.",
    )


def _stream_bytes(cell: MemoryCell) -> int:
    return cell.batch * cell.context * cell.shape.d_model * weight_bytes(cell)


# ------------------------------------------------------------------------------------------------------------------- M5


def _answer_allocations(rows: Rows) -> Answer:
    recorded = timelines_of(rows)
    if not recorded:
        return Answer(lacks="no memory timeline was recorded")
    tables, sentences = [], []
    for line, cell in recorded:
        alive = load_largest_at(rows.path, line.cell_id, line.peak_at_us, _LARGEST, "recorded")
        if not alive:
            continue
        lines = [
            Line(
                values=(
                    format_mib(item.allocated_bytes),
                    item.category,
                    item.phase or NONE,
                    item.module or NONE,
                    item.operation or NONE,
                    line_of(item),
                )
            )
            for item in alive
        ]
        tables.append(
            ReportTable(
                caption=f"The {len(alive)} largest allocations of the step alive at its peak: {title(cell)}",
                headings=("Size (MiB)", "For", "Born in", "Module", "Operation", "Line"),
                lines=tuple(lines),
                note="Made during the recorded step; what was held before it (parameters, optimizer state) is left "
                "out. The "
                "line is the innermost one outside of torch.",
            )
        )
        first = alive[0]
        sentences.append(
            f"In {title(cell)} the largest is {format_bytes(first.allocated_bytes)} ({first.category}, "
            f"{first.operation or 'unknown operation'}), from {line_of(first)}."
        )
    if not tables:
        return Answer(lacks="the recorded timelines hold no allocation at their peak")
    return Answer(sentence=" ".join(sentences), tables=tuple(tables), behind=behind(line for line, _ in recorded))


def line_of(item: LiveAllocation) -> str:
    """Returns the innermost frame outside of torch, else the innermost, as `file:line function`."""
    frames = frames_of(item.frames or "")
    own = [frame for frame in frames if not frame.startswith("torch/") and "site-packages" not in frame]
    named = [frame for frame in own if not frame.endswith(_NAMELESS)]
    return next(iter([*named, *own, *frames]), NONE)


def _want_streams(rows: Rows) -> list[MemoryCell]:
    cells = wanted_cells(rows, "memory", MemoryCell)
    return [cell for cell in cells if cell.precision == "fp32" and cell.mode == "train" and not cell.timeline]


def _want_timelines(rows: Rows) -> list[MemoryCell]:
    cells = [cell for cell in wanted_cells(rows, "memory", MemoryCell) if cell.timeline]
    return [cell for cell in cells if model_name(cell) == model_name(cells[0])]


QUESTIONS = (
    Question[Rows](
        id="M4",
        text="How large is one residual-stream activation?",
        page="peak-memory",
        answer=_answer_stream,
        wanted=_want_streams,
    ),
    Question[Rows](
        id="M5",
        text="Which are the largest allocations, and which line of code do they come from?",
        page="memory-timeline",
        answer=_answer_allocations,
        wanted=_want_timelines,
    ),
)
