"""Sentences about memory cells: the page's answer, growth, bf16 beside fp32, checkpointing.

describe_bf16(pairs_of(cells), names)
"""

from collections.abc import Mapping, Sequence
from statistics import median

from pages.figures.parts import CATEGORY_WORDS
from pages.figures.tensors import format_ratio
from pages.peak_memory.figures import PredictedDot
from pages.ui.frame import label_size
from pages.ui.markdown import literal
from runner.analysis.compare.peaks import PrecisionPair
from runner.formats import at_tokens, format_bytes, format_number, format_tokens, join_parts, within_block
from runner.results import Peak, SavedOperation
from runner.schema import MemoryCell
from runner.store.queries.selection import Model

Names = Mapping[Model, str]
#: Sizes that get a line of their own.
_MAX_SIZES = 6


def place_of(cell: MemoryCell, names: Names) -> str:
    """Returns size, context and precision."""
    return join_parts(label_size(names, cell), format_tokens(cell.context, "tok"), cell.precision)


def answer(cells: Sequence[Peak], names: Names) -> str:
    """Says the largest peak here and its three largest parts."""
    top = find_largest(cells)
    lost = [cell for cell in cells if cell.status == "oom"]
    out = f" **{len(lost)} of {len(cells)} cells ran out of memory.**" if lost else ""
    if top is None:
        return f"None of these cells has a {'peak' if any(cell.status == 'ok' for cell in cells) else 'result'}.{out}"
    return f"The largest peak here, **{place_of(top.cell, names)}**, is {_describe_peak(top)}.{out}"


def answer_by_size(cells: Sequence[Peak], names: Names) -> str:
    """Says the same, and below it the largest peak of each other size, the largest first."""
    by_size: dict[str, list[Peak]] = {}
    for cell in cells:
        by_size.setdefault(label_size(names, cell.cell).split(" · ")[0], []).append(cell)
    tops = [top for of_size in by_size.values() if (top := find_largest(of_size))]
    tops.sort(key=lambda top: -(top.peak_allocated_bytes or 0))
    lines = [f"**{place_of(top.cell, names)}**: {_describe_peak(top)}." for top in tops[1:_MAX_SIZES]]
    return "  \n".join([answer(cells, names), *lines])


def _describe_peak(top: Peak) -> str:
    """Returns the bytes of a peak, the phase that it falls in and its three largest parts."""
    peak = top.peak_allocated_bytes or 1
    parts = sorted(
        ((size, name) for name, size in top.parts.items() if size and size / peak >= 0.005 and name != "fragmentation"),
        reverse=True,
    )
    shares = ", ".join(f"{CATEGORY_WORDS[name]} {size / peak:.0%}" for size, name in parts[:3])
    when = f" in the {literal(top.peak_phase)} phase" if top.peak_phase else ""
    return f"**{format_bytes(peak)}**{when}: {shares}"


def find_largest(cells: Sequence[Peak]) -> Peak | None:
    """Returns the cell with the largest peak; None where none has one."""
    done = [cell for cell in cells if cell.status == "ok" and cell.peak_allocated_bytes]
    return max(done, key=lambda cell: cell.peak_allocated_bytes or 0, default=None)


def describe_growth(cells: Sequence[Peak], names: Names) -> str:
    """Says how the peak grows from the shortest to the longest context, where it grows most and where least."""
    lines: dict[str, list[Peak]] = {}
    for cell in sorted(cells, key=lambda cell: cell.cell.context):
        if cell.status == "ok" and cell.peak_allocated_bytes:
            lines.setdefault(f"{label_size(names, cell.cell)} {cell.cell.precision}", []).append(cell)
    grown = [
        ((line[-1].peak_allocated_bytes or 0) / (line[0].peak_allocated_bytes or 1), name, line)
        for name, line in lines.items()
        if line[-1].cell.context > line[0].cell.context
    ]
    if not grown:
        return ""
    most, least = max(grown, key=lambda one: one[0]), min(grown, key=lambda one: one[0])
    return (
        "; ".join(
            f"**{name}** grows **{format_number(ratio)}×** from {line[0].cell.context:,} to "
            f"{line[-1].cell.context:,} tokens"
            for ratio, name, line in ([most] if most is least else [most, least])
        )
        + "."
    )


def describe_bf16(pairs: Sequence[PrecisionPair], names: Names) -> str:
    """Says where bf16 needs more and where less, and why, with the bytes of the two extremes."""
    higher = [pair for pair in pairs if pair.ratio > 1]
    most, least = max(pairs, key=lambda pair: pair.ratio), min(pairs, key=lambda pair: pair.ratio)
    if not higher:
        spread = f"all {len(pairs)} pairs, {format_number(least.ratio)}× to {format_number(most.ratio)}×"
        start = f"bf16 needs less than fp32 in {'the only pair' if len(pairs) == 1 else spread}."
        return f"{start} {_explain(least, names)}"
    start = f"bf16 needs **more** memory than fp32 in **{len(higher)} of {len(pairs)}** pairs."
    rest = f" {_explain(least, names)}" if least.ratio <= 1 else ""
    return f"{start} {_explain(most, names)}{rest}"


def _explain(pair: PrecisionPair, names: Names) -> str:
    """Explains one pair: copies of weights cost, narrower activations and temporaries save."""
    cell = pair.other.cell
    change = (pair.other.peak_allocated_bytes or 0) - (pair.base.peak_allocated_bytes or 0)
    copies = (pair.other.parts["autocast copy"] or 0) - (pair.base.parts["autocast copy"] or 0)
    saved = copies - change
    where = f"{label_size(names, cell)}{at_tokens(cell.context)}"
    size = f"{format_bytes(abs(change))} {'more' if change > 0 else 'less'} ({format_number(pair.ratio)}×)"
    if not copies:
        return f"{where} needs {size}: no copies of weights are alive at that peak."
    gained = f"all else shrinks by {format_bytes(saved)}" if saved >= 0 else f"all else grows by {format_bytes(-saved)}"
    kept = f"autocast keeps a 2-byte copy of each weight matrix, {format_bytes(copies)}"
    return f"{where} needs {size}: {kept}, and {gained}."


def describe_prediction(dots: Sequence[PredictedDot]) -> str:
    """Says how far measured peaks are from predicted ones."""
    ratios = [dot.ratio for dot in dots]
    worst = max(dots, key=lambda dot: abs(dot.ratio - 1))
    near = sum(abs(ratio - 1) <= 0.02 for ratio in ratios)
    return (
        f"Measured peaks are **{format_ratio(median(ratios))}×** the predicted ones in the median; {near} of "
        f"{len(dots)} are within 2%. The largest deviation is {format_ratio(worst.ratio)}×, for {worst.place}."
    )


def describe_saved(cell: Peak, kept: Sequence[SavedOperation], names: Names) -> str:
    """Says what one block keeps, its largest contributors, and one residual stream beside its formula."""
    total = sum(item.kept_bytes for item in kept)
    five = sum(item.kept_bytes for item in kept[:5])
    words = (
        f"One block of {place_of(cell.cell, names)} keeps **{format_bytes(total)}** for backward; its five largest "
        f"contributors hold {five / max(total, 1):.0%} of that."
    )
    return f"{words} {describe_stream(cell)}"


def describe_stream(cell: Peak) -> str:
    """Compares one residual-stream activation with B T d numbers."""
    key = cell.cell
    if not cell.residual_stream_bytes or not key.d_model:
        return ""
    width = 2 if key.weights_dtype == "bf16" else 4
    formula = key.batch * key.context * key.d_model * width
    factors = f"{key.batch} × {key.context:,} × {key.d_model:,} × {width} bytes = {format_bytes(formula)}"
    agrees = "as" if formula == cell.residual_stream_bytes else "**not** as"
    return f"One residual stream is {format_bytes(cell.residual_stream_bytes)}, {agrees} B·T·d·bytes: {factors}."


def operation_label(item: SavedOperation) -> str:
    """Returns the operation without its namespace, and the module within the block."""
    operation = item.operation.removeprefix("aten::").strip("_")
    module = within_block(item.module)
    return f"{operation} in {module}" if module else operation


def describe_checkpointing(family: Sequence[Peak], names: Names) -> str:
    """Says what checkpointing does to the peak; `family` begins with the cell without."""
    plain, *others = family
    best = min(others, key=lambda cell: cell.peak_allocated_bytes or 0)
    before, after = plain.peak_allocated_bytes or 1, best.peak_allocated_bytes or 0
    change = "lowers" if after < before else "raises"
    blocks = best.cell.checkpoint_blocks
    many = "every block" if blocks == 1 else f"{blocks} blocks together"
    return (
        f"Recomputing {many} {change} the peak of {place_of(plain.cell, names)} from {format_bytes(before)} to "
        f"**{format_bytes(after)}** ({format_number(after / before)}×)."
    )
