"""A1 and A2: single-head attention by length and width: its time and its memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.analysis.costs.activations import Device
from runner.analysis.costs.attention import predicted_peak_bytes
from runner.analysis.growth import Value, growth
from runner.answers.keys import make_keys
from runner.formats import format_bytes, format_count, format_ms, format_number
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.footnotes import make_footnotes
from runner.report.rows import Rows
from runner.report.text import NONE, describe_failures, format_estimate, format_mib, format_spread
from runner.report.wanted import wanted_cells
from runner.results import AttentionResult
from runner.schema import AttentionCell
from runner.schema.titles import describe_status, title

_NAIVE = "naive"
#: The findings that matter for bytes; the others are about times.
_OF_MEMORY = frozenset(
    [
        "impossible_ratio",
        "no_effect",
        "not_by_formula",
        "peak_carried_over",
        "prediction_off",
        "shared_gpu",
        "swapped_axes",
        "unexpected_out_of_memory",
        "unexplained",
        "wrong_result",
    ]
)
#: The longest sequence that a command measures to find one that runs out.
_MAX_LENGTH = 2**20


def eager_cells(rows: Rows) -> list[AttentionResult]:
    """Returns the naive eager cells, in the order of width and length, or all eager ones where there is none."""
    cells = [cell for cell in rows.attention if cell.cell.backend == "eager" and cell.status != "skipped"]
    naive = [cell for cell in cells if cell.cell.implementation == _NAIVE]
    return sorted(naive or cells, key=lambda cell: (cell.cell.d_head, cell.cell.seq_len, cell.cell.precision))


def _answer_times(rows: Rows) -> Answer:
    cells = eager_cells(rows)
    if not any(cell.status in ("ok", "oom") for cell in cells):
        return Answer(lacks="no attention was timed")
    notes, keys = make_footnotes(rows, cells, "attention"), make_keys([cell.cell for cell in cells])
    lines = []
    for cell in cells:
        if cell.status != "ok":
            values = (describe_status(cell), *(NONE,) * 4)
        else:
            times = [cell.times.get(phase) for phase in ("forward", "backward")]
            medians = [format_estimate(time.median_ms, time.low_ms, time.high_ms) if time else NONE for time in times]
            means = [format_spread(time.mean_ms, time.std_ms) if time else NONE for time in times]
            n = next((time.n for time in times if time and time.n), None)
            values = (means[0], medians[0], means[1], medians[1], NONE if n is None else f"{n:,}")
        lines.append(Line(values=(*keys.values(cell.cell), *values), marks=notes.marks(cell.cell_id)))
    lost = [cell for cell in cells if cell.status != "ok"]
    table = ReportTable(
        caption=f"Single-head attention: {keys.shared}",
        headings=(
            *keys.headings,
            "Forward: mean ± std (ms)",
            "Forward: median (ms)",
            "Backward: mean ± std (ms)",
            "Backward: median (ms)",
            "n",
        ),
        lines=tuple(lines),
        note="One pass, in ms; n counts the measured passes of each kind, over all rounds. Forward and backward are "
        "timed "
        "inside the same iterations. Behind the median the 95% interval that holds from process to process; "
        "[unknown]: no "
        f"cell of the kind was repeated. {describe_failures(lost)}".strip(),
    )
    return Answer(
        sentence=_describe_times(cells),
        tables=(table,),
        footnotes=notes.texts,
        behind=behind(cells),
    )


def _describe_times(cells: Sequence[AttentionResult]) -> str:
    done = [cell for cell in cells if cell.status == "ok" and {"forward", "backward"} <= cell.times.keys()]
    lost = [cell for cell in cells if cell.status == "oom"]
    if not done:
        return f"All {format_count(len(lost), 'cell')} ran out of memory."
    longest = max(done, key=lambda cell: (cell.cell.seq_len, cell.cell.d_head))
    forward, backward = (format_ms(longest.times[phase].median_ms) for phase in ("forward", "backward"))
    precisions = {cell.cell.precision for cell in done}
    place = f"{longest.cell.seq_len:,} tokens and d_head {longest.cell.d_head}"
    place += f" in {longest.cell.precision}" if len(precisions) > 1 else ""
    start = f"At {place} the forward pass takes {forward}, the backward pass {backward} (medians)."
    passes = [cell.times["forward"].n or 0 for cell in done]
    few = (
        f" Fewer than 100 passes were measured in {sum(n < 100 for n in passes)} of {len(done)} cells."
        if min(passes) < 100
        else ""
    )
    if not lost:
        return f"{start} No cell ran out of memory.{few}"
    first = min(lost, key=lambda cell: (cell.cell.seq_len, cell.cell.d_head))
    out = f"{format_count(len(lost), 'cell')} of {len(cells)} ran out of memory, from {first.cell.seq_len:,} tokens on."
    return f"{start} {out}{few}"


def want_grid(rows: Rows) -> list[AttentionCell]:
    cells = wanted_cells(rows, "attention", AttentionCell)
    plain = (_NAIVE, "eager", "hot", "fp32")
    return [cell for cell in cells if (cell.implementation, cell.backend, cell.cache, cell.precision) == plain]


# ------------------------------------------------------------------------------------------------------------------- A2


def _answer_memory(rows: Rows) -> Answer:
    cells = eager_cells(rows)
    known = [cell for cell in cells if cell.before_backward_bytes or cell.status == "oom"]
    if not known:
        return Answer(lacks="no attention cell counted its memory before the backward pass")
    notes = make_footnotes(rows, known, "attention", only=_OF_MEMORY)
    keys = make_keys([cell.cell for cell in known])
    lines = []
    for cell in known:
        before = format_mib(cell.before_backward_bytes) if cell.status == "ok" else describe_status(cell)
        peak, predicted = cell.peak_allocated_bytes, cell.predicted_peak_bytes
        ratio = format_number(peak / predicted) if peak and predicted else NONE
        values = (before, *map(format_mib, (cell.saved_bytes, cell.predicted_saved_bytes, peak, predicted)), ratio)
        lines.append(Line(values=(*keys.values(cell.cell), *values), marks=notes.marks(cell.cell_id)))
    table = ReportTable(
        caption=f"Memory of single-head attention: {keys.shared}",
        headings=(
            *keys.headings,
            "Before backward (MiB)",
            "Saved (MiB)",
            "Saved, predicted (MiB)",
            "Peak (MiB)",
            "Peak, predicted (MiB)",
            "Measured / predicted",
        ),
        lines=tuple(lines),
        note="MiB of 2²⁰ bytes; live tensors, in a process of its own. Saved: storages kept for backward. Predicted: "
        "by "
        "closed formula, before the run.",
    )
    lost = [cell for cell in known if cell.status == "oom"]
    first = min(lost, key=lambda cell: (cell.predicted_peak_bytes or 0, cell.cell.seq_len)) if lost else None
    return Answer(
        sentence=f"{_describe_growth(cells)} {_describe_lost(first)}",
        tables=(table, *([_make_accounting(first)] if first else [])),
        footnotes=notes.texts,
        behind=behind(known),
        lacks="" if first else "no cell ran out of memory, whose bytes could be accounted for",
    )


def _describe_growth(cells: Sequence[AttentionResult]) -> str:
    """Says the fitted powers of the length by which memory grows, for each head width, in the precision with the most
    measured cells."""
    measured = Counter(cell.cell.precision for cell in cells if cell.status == "ok")
    if measured:
        precision = measured.most_common(1)[0][0]
        cells = [cell for cell in cells if cell.cell.precision == precision]
    parts: Mapping[str, Value] = {
        "memory before backward": lambda cell: cell.before_backward_bytes,
        "what is saved for backward": lambda cell: cell.saved_bytes,
    }
    sentences = []
    for words, value in parts.items():
        fits = {width: fit for width in _list_widths(cells) if (fit := growth(_of_width(cells, width), value=value))}
        if fits:
            one = next(iter(fits.values()))
            powers = ", ".join(f"S^{fit.exponent:.2f} for d_head {width}" for width, fit in fits.items())
            span = f"{one.lengths} lengths, {one.low:,} to {one.high:,} tokens"
            sentences.append(f"{words} grows as {powers} (least squares over {span}, in {precision})")
    if not sentences:
        return "Too few lengths were measured to fit a growth."
    text = "; ".join(sentences)
    return f"{text[0].upper()}{text[1:]}."


def _list_widths(cells: Sequence[AttentionResult]) -> list[int]:
    return list(dict.fromkeys(cell.cell.d_head for cell in cells))


def _of_width(cells: Sequence[AttentionResult], width: int) -> list[AttentionResult]:
    return [cell for cell in cells if cell.cell.d_head == width]


def _describe_lost(first: AttentionResult | None) -> str:
    if first is None:
        return "None of these cells ran out of memory."
    cell = first.cell
    start = f"The smallest cell that ran out has {cell.seq_len:,} tokens and d_head {cell.d_head}"
    if first.predicted_peak_bytes and first.limit_bytes:
        needed, there = format_bytes(first.predicted_peak_bytes), format_bytes(first.limit_bytes)
        start += f": it needs {needed} by formula, and there are {there}"
    if first.asked_bytes is not None and first.in_use_bytes is not None:
        start += f"; with {format_bytes(first.in_use_bytes)} in use it asked for {format_bytes(first.asked_bytes)} more"
        if first.is_fragmented:
            start += ", which were not free in one piece"
    return f"{start}."


def _make_accounting(first: AttentionResult) -> ReportTable:
    parts = {
        "One S×S tensor": first.tensor_bytes,
        "In use when it failed": first.in_use_bytes,
        "Asked for": first.asked_bytes,
        "In use and asked for": (first.in_use_bytes or 0) + first.asked_bytes if first.asked_bytes else None,
        "Predicted peak": first.predicted_peak_bytes,
        "There is": first.limit_bytes,
    }
    return ReportTable(
        caption=f"Accounting of the smallest cell that ran out: {title(first.cell)}",
        headings=("What", "Bytes", "MiB"),
        lines=tuple(
            Line(values=(name, NONE if size is None else f"{size:,}", format_mib(size))) for name, size in parts.items()
        ),
        note=describe_failures([first]),
    )


def _want_memory(rows: Rows) -> list[AttentionCell]:
    """Returns the grid and, where none of it ran out, the shortest power of two that is predicted not to fit."""
    grid = want_grid(rows)
    cells = eager_cells(rows)
    limit = next((cell.limit_bytes for cell in cells if cell.limit_bytes), rows.device_memory_bytes)
    if not cells or not limit or any(cell.status == "oom" for cell in cells):
        return grid
    longest = max((cell.cell for cell in cells), key=lambda cell: (cell.seq_len, cell.d_head))
    device: Device = "cuda" if rows.device == "cuda" else "cpu"
    longer = longest
    while predicted_peak_bytes(longer, device=device) <= limit and longer.seq_len < _MAX_LENGTH:
        longer = replace(longer, seq_len=2 * longer.seq_len)
    return [longer]


QUESTIONS = (
    Question[Rows](
        id="A1",
        text="How long do 100 forward and 100 backward passes of single-head attention take, per d_head and "
        "sequence length?",
        page="attention",
        answer=_answer_times,
        wanted=want_grid,
    ),
    Question[Rows](
        id="A2",
        text="How much memory is in use before the backward pass, how does it grow with the sequence "
        "length, and what "
        "accounts for the smallest cell that runs out?",
        page="attention",
        answer=_answer_memory,
        wanted=_want_memory,
    ),
)
