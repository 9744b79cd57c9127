"""M1 to M3: the memory of a step over time, its peaks by mode and context, and both under mixed precision."""

from collections.abc import Sequence

from runner.analysis.compare.peaks import PrecisionPair, pairs_of
from runner.answers.keys import make_keys
from runner.formats import at_tokens, format_bytes, format_count, format_list, format_number
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.footnotes import Footnotes, make_footnotes
from runner.report.rows import Rows
from runner.report.text import NONE, describe_failures, format_mib, format_optional
from runner.report.wanted import wanted_cells
from runner.results import Peak, PhasePeak, Timeline
from runner.schema import MemoryCell
from runner.schema.sizes import model_name
from runner.schema.titles import describe_status, title
from runner.store.queries.memory import load_phase_peaks
from runner.store.queries.timelines import load_marks

#: The modes of the question on timelines.
_MODES = ("inference", "train")
_PEAKS = (
    "MiB of 2²⁰ bytes, in a process of its own, after a whole step. Allocated: live tensors. Reserved: held by the "
    "caching allocator. Device: by the driver, context included. Predicted: by closed formulas, before the run."
)


def timelines_of(rows: Rows) -> list[tuple[Timeline, MemoryCell]]:
    """Returns the newest recorded timelines of the largest model with one of inference and one of a training step, at
    the same context, or of the largest model with any."""
    groups: dict[tuple[tuple[object, ...], int, str, str, str], dict[str, tuple[Timeline, MemoryCell]]] = {}
    for line in rows.timelines:
        if line.cell and line.cell.mode in _MODES:
            cell = line.cell
            key = (cell.order, cell.context, model_name(cell), cell.precision, cell.attention)
            groups.setdefault(key, {}).setdefault(cell.mode, (line, cell))
    if not groups:
        return []
    chosen = max(groups, key=lambda key: (len(groups[key]), *key))
    return [groups[chosen][mode] for mode in _MODES if mode in groups[chosen]]


def _answer_timeline(rows: Rows) -> Answer:
    lines = timelines_of(rows)
    if not lines:
        return Answer(lacks="no memory timeline was recorded")
    phases = {line.cell_id: load_phase_peaks(rows.path, line.cell_id) for line, _ in lines}
    missing = [mode for mode in _MODES if mode not in {cell.mode for _, cell in lines}]
    return Answer(
        sentence=" ".join(_describe_timeline(line, cell, phases[line.cell_id]) for line, cell in lines),
        tables=tuple(_make_timeline(rows, line, cell, phases[line.cell_id]) for line, cell in lines),
        behind=behind(line for line, _ in lines),
        lacks=f"no timeline of {format_list(missing)}" if missing else "",
    )


def _describe_timeline(line: Timeline, cell: MemoryCell, phases: Sequence[PhasePeak]) -> str:
    """Says how memory goes from phase to phase, and whether that tells the phases apart."""
    name = (
        f"{'the training step' if cell.mode == 'train' else cell.mode} of {model_name(cell)}{at_tokens(cell.context)}"
    )
    ends = [f"{format_bytes(phase.left)} at the end of {phase.phase}" for phase in phases if phase.left is not None]
    # The allocator counts blocks, which are larger than what the recording says was asked for.
    before = line.baseline_block_bytes if line.origin == "cuda-allocator" else line.baseline_bytes
    at_start = [] if before is None else [f"{format_bytes(before)} at its start"]
    peaks = (phase.allocated for phase in phases if phase.allocated is not None)
    peak = format_bytes(max(peaks, default=line.peak_block_bytes or line.peak_bytes))
    held = ", ".join([*at_start, *ends])
    start = f"In {name} memory in use is {held}; its peak is {peak}." if held else f"The peak of {name} is {peak}."
    left = {phase.phase: phase.left for phase in phases if phase.left is not None}
    if not {"forward", "backward"} <= left.keys():
        return start
    seen = left["forward"] > (before or line.baseline_bytes) and left["forward"] > left["backward"]
    if seen:
        return f"{start} So the phases can be seen: it rises while forward keeps activations and falls in backward."
    return f"{start} It does not fall from the end of forward to that of backward: totals alone do not tell the phases."


def _make_timeline(rows: Rows, line: Timeline, cell: MemoryCell, phases: Sequence[PhasePeak]) -> ReportTable:
    begins = {name: at_us for at_us, name in reversed(load_marks(rows.path, line.cell_id))}
    lines = [
        Line(
            values=(
                phase.phase,
                NONE if phase.phase not in begins else f"{begins[phase.phase] / 1e3:,.2f}",
                format_mib(phase.allocated),
                format_mib(phase.left),
            )
        )
        for phase in phases
    ]
    if not lines:  # a recording without phases
        lines = [Line(values=("whole recording", "0.00", format_mib(line.peak_bytes), NONE))]
    return ReportTable(
        caption=f"Memory timeline by phase: {title(cell)}",
        headings=("Phase", "Begins (ms)", "Peak in it (MiB)", "In use at its end (MiB)"),
        lines=tuple(lines),
        note=f"{line.allocations:,} allocations recorded over {line.duration_us / 1e3:,.2f} ms (recording slows the "
        "step "
        f"down), of the bytes asked for: {format_bytes(line.baseline_bytes)} held before, peak "
        f"{format_bytes(line.peak_bytes)} after {line.peak_at_us / 1e3:,.2f} ms. The columns count the allocator's "
        "blocks, which are rounded up.",
    )


def _want_timelines(rows: Rows) -> list[MemoryCell]:
    cells = [cell for cell in wanted_cells(rows, "memory", MemoryCell) if cell.timeline]
    return [cell for cell in cells if model_name(cell) == model_name(cells[0])]


# ------------------------------------------------------------------------------------------------------------------- M2


def plain_peaks(rows: Rows) -> list[Peak]:
    """Returns the peaks of eager models with naive attention and without checkpointing, or all where there are none."""
    plain = [peak for peak in rows.peaks if peak.cell.attention == "naive" and not peak.cell.checkpoint_blocks]
    return plain or rows.peaks


def _answer_peaks(rows: Rows) -> Answer:
    peaks = [peak for peak in plain_peaks(rows) if peak.cell.precision == "fp32"]
    if not any(peak.peak_allocated_bytes for peak in peaks):
        return Answer(lacks="no peak in fp32 was measured")
    modes = {peak.cell.mode for peak in peaks if peak.status in ("ok", "oom")}
    missing = [
        words
        for names, words in (({"forward", "inference"}, "a forward pass"), ({"train"}, "a full step"))
        if not names & modes
    ]
    notes = make_footnotes(rows, peaks, "memory")
    return Answer(
        sentence=_describe_peaks(peaks),
        tables=(_make_peaks(peaks, notes),),
        footnotes=notes.texts,
        behind=behind(peaks),
        lacks=f"no peak of {format_list(missing)}" if missing else "",
    )


def _describe_peaks(peaks: Sequence[Peak]) -> str:
    known = [peak for peak in peaks if peak.peak_allocated_bytes]
    parts = []
    for mode, words in (("train", "full step"), ("forward", "forward pass with its graph"), ("inference", "inference")):
        of_mode = [peak for peak in known if peak.cell.mode == mode]
        if of_mode:
            top = max(of_mode, key=lambda peak: peak.peak_allocated_bytes or 0)
            where = f"{model_name(top.cell)}{at_tokens(top.cell.context)}"
            when = f", in {top.peak_phase}" if mode == "train" and top.peak_phase else ""
            parts.append(f"{words}: {format_bytes(top.peak_allocated_bytes or 0)} ({where}{when})")
    lost = sum(peak.status == "oom" for peak in peaks)
    of_all = f"{format_count(lost, 'cell')} of {len(peaks)}"
    out = f" {of_all} ran out of memory; the table says in which phase." if lost else ""
    return f"Largest measured peaks in fp32: {'; '.join(parts)}.{out}"


def _make_peaks(peaks: Sequence[Peak], notes: Footnotes) -> ReportTable:
    keys = make_keys([peak.cell for peak in peaks])
    columns = {
        "Allocated (MiB)": "peak_allocated_bytes",
        "Reserved (MiB)": "peak_reserved_bytes",
        "Device (MiB)": "peak_driver_bytes",
        "Predicted (MiB)": "predicted_peak_bytes",
    }
    known = {head: name for head, name in columns.items() if any(getattr(peak, name) for peak in peaks)}
    lines = []
    for peak in peaks:
        numbers = [format_mib(getattr(peak, name)) for name in known.values()]
        if peak.status != "ok":
            numbers = [describe_status(peak), *numbers[1:]]
        marks = notes.marks(peak.cell_id)
        lines.append(Line(values=(*keys.values(peak.cell), *numbers, peak.peak_phase or NONE), marks=marks))
    return ReportTable(
        caption=f"Peak memory: {keys.shared}",
        headings=(*keys.headings, *known, "Peak in"),
        lines=tuple(lines),
        note=f"{_PEAKS} {describe_failures(peaks)}".strip(),
    )


# ------------------------------------------------------------------------------------------------------------------- M3


def _answer_mixed(rows: Rows) -> Answer:
    peaks = plain_peaks(rows)
    pairs = [pair for pair in pairs_of(peaks) if pair.base.status == pair.other.status == "ok"]
    if not pairs:
        return Answer(lacks="no peak was measured both in fp32 and in bf16")
    sides = [side for pair in pairs for side in (pair.base, pair.other)]
    notes, keys = (
        make_footnotes(rows, sides, "memory"),
        make_keys([pair.base.cell for pair in pairs], without=("precision",)),
    )
    lines = []
    for pair in pairs:
        copies = pair.other.parts["autocast copy"]
        numbers = (format_mib(pair.base.peak_allocated_bytes), format_mib(pair.other.peak_allocated_bytes))
        values = (*keys.values(pair.base.cell), *numbers, format_optional(pair.ratio), format_mib(copies))
        lines.append(Line(values=values, marks=notes.marks(pair.base.cell_id, pair.other.cell_id)))
    lost = [peak for peak in peaks if peak.cell.precision == "bf16" and peak.status == "oom"]
    lines += [Line(values=(*keys.values(peak.cell), NONE, describe_status(peak), NONE, NONE)) for peak in lost]
    table = ReportTable(
        caption=f"Peak memory in fp32 and under bf16 autocast: {keys.shared}",
        headings=(*keys.headings, "fp32 (MiB)", "bf16 (MiB)", "bf16 / fp32", "Autocast copies (MiB)"),
        lines=tuple(lines),
        note="Peak of live tensors. Copies: 2-byte copies of weights that autocast keeps, alive at the peak. Bytes "
        "do not "
        "vary from process to process, so that there is no interval.",
    )
    return Answer(
        sentence=_describe_mixed(pairs),
        tables=(table,),
        footnotes=notes.texts,
        behind=behind(sides),
    )


def _describe_mixed(pairs: Sequence[PrecisionPair]) -> str:
    higher = [pair for pair in pairs if pair.ratio > 1]
    most, least = max(pairs, key=lambda pair: pair.ratio), min(pairs, key=lambda pair: pair.ratio)
    start = f"bf16 needs more memory than fp32 in {len(higher)} of {format_count(len(pairs), 'pair')}, "
    start += f"from {format_number(least.ratio)}× ({title(least.other.cell)}) to {format_number(most.ratio)}× "
    start += f"({title(most.other.cell)})."
    copies = most.other.parts["autocast copy"] or 0
    if not higher or not copies:
        return start
    return (
        f"{start} That is right: in {title(most.other.cell)} autocast keeps a 2-byte copy of each weight matrix, "
        f"{format_bytes(copies)}, and narrower activations save less than that at this context."
    )


def _want_peaks(rows: Rows) -> list[MemoryCell]:
    cells = wanted_cells(rows, "memory", MemoryCell)
    return [cell for cell in cells if cell.precision == "fp32" and not cell.timeline]


def _want_mixed(rows: Rows) -> list[MemoryCell]:
    return [cell for cell in wanted_cells(rows, "memory", MemoryCell) if not cell.timeline]


QUESTIONS = (
    Question[Rows](
        id="M1",
        text="What is the memory timeline of inference and of a full training step; can the phases be seen?",
        page="memory-timeline",
        answer=_answer_timeline,
        wanted=_want_timelines,
    ),
    Question[Rows](
        id="M2",
        text="What is the peak memory of the forward pass and of the full step, per context?",
        page="peak-memory",
        answer=_answer_peaks,
        wanted=_want_peaks,
    ),
    Question[Rows](
        id="M3",
        text="What is it under mixed precision?",
        page="peak-memory",
        answer=_answer_mixed,
        wanted=_want_mixed,
    ),
)
