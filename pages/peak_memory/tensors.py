"""The cards of predicted and measured bytes, one by one: the parts of a peak, and the tensors that a block keeps.

draw_part_pairs(frame, cells, names); draw_block_tensors(frame, cell, names)
"""

from collections.abc import Sequence

from pages.figures.colors import QUIET, color_of
from pages.figures.parts import ALLOCATOR, CATEGORY_WORDS
from pages.figures.tensors import NEAR, SizePair, format_ratio, size_pairs
from pages.peak_memory.answers import Names, place_of
from pages.ui.card import Card, draw
from pages.ui.chosen import select_one
from pages.ui.evidence import of_cells
from pages.ui.frame import Frame, device_of
from pages.ui.markdown import literal
from pages.ui.tensors import draw_tensors
from runner.analysis.costs.activations import block_tensors
from runner.analysis.costs.steps import PeakBytes, predict_peak
from runner.analysis.costs.tensors import beside
from runner.results import Peak
from runner.store.queries.memory import PARTS, load_saved_tensors

_MOMENTS = {
    "forward": "in the forward pass",
    "loss": "at the start of the backward pass",
    "last block": "in the backward pass of the last block, which is the first to run",
    "first block": "in the backward pass of the first block",
    "end": "when all gradients are there",
}


def choose_cell(cells: Sequence[Peak], names: Names, *, key: str) -> Peak:
    """Returns the cell that the reader chooses by name; the last one unless chosen."""
    labels = {f"{place_of(cell.cell, names)} · {cell.cell.mode}": cell for cell in cells}
    return labels[select_one(key, "Cell", list(labels), default=list(labels)[-1])]


def predicted_of(cell: Peak) -> PeakBytes:
    """Returns the parts by the closed formulas, for the device of the cell."""
    return predict_peak(cell.cell, device=device_of(cell.device), gpu=cell.device_name or "")


def part_pairs(cell: Peak, predicted: PeakBytes) -> list[SizePair]:
    """Returns the parts of the peak; what the allocator adds to tensors has no formula."""
    return [
        SizePair(
            name=CATEGORY_WORDS[name],
            predicted=predicted.parts.get(column.removesuffix("_bytes")),
            measured=cell.parts[name],
            color=QUIET if name in ALLOCATOR else color_of(name),
        )
        for name, column in PARTS.items()
        if name not in ("fragmentation", "unknown")
    ]


def draw_part_pairs(frame: Frame, cells: Sequence[Peak], names: Names) -> None:
    """Draws each part of a chosen cell's peak; the table has those of all cells."""
    done = [c for c in cells if c.status == "ok" and c.peak_allocated_bytes and c.cell.model_key is None]
    if not done:
        return
    cell = choose_cell(done, names, key="parts-of")
    predicted = predicted_of(cell)
    pairs = part_pairs(cell, predicted)
    words = _describe_parts(cell, predicted, pairs)
    rows = [
        {"Cell": place_of(one.cell, names), "Part": pair.name, "Predicted (bytes)": pair.predicted,
         "Measured (bytes)": pair.measured, "Measured / predicted": pair.ratio}
        for one in done for pair in part_pairs(one, predicted_of(one))
    ]  # fmt: skip
    card = Card(
        key="part-pairs",
        folded=True,
        title=f"Part by part: {place_of(cell.cell, names)}",
        answer=words,
        evidence=[of_cells(frame, [cell])],
        note="The table has the parts of every cell here.",
        alt=f"Predicted and measured bytes of each part of the peak. {words}",
        rows=rows,
        cells=[one.cell for one in done],
    )
    draw(frame, card, lambda: size_pairs(pairs, state="part-pairs"))


def _describe_parts(cell: Peak, predicted: PeakBytes, pairs: Sequence[SizePair]) -> str:
    """Says how many parts are as predicted, and when the peak was expected."""
    known = [pair for pair in pairs if pair.ratio is not None]
    near = sum(abs((pair.ratio or 0) - 1) <= NEAR for pair in known)
    when = f"; measured: in the {literal(cell.peak_phase)} phase" if cell.peak_phase else ""
    words = f"{near} of {len(known)} parts are within {NEAR:.0%} of their formulas"
    far = max(known, key=lambda pair: abs((pair.ratio or 0) - 1), default=None)
    if far is not None and near < len(known):
        words += f"; the largest deviation is {far.name}, {format_ratio(far.ratio or 0)}×"
    return f"{words}. Predicted peak: {_MOMENTS[predicted.moment]}{when}."


def draw_block_tensors(frame: Frame, cell: Peak, names: Names) -> None:
    """Draws each tensor that the first block keeps, beside its formula."""
    measured = frame.ask(load_saved_tensors, cell.cell_id)
    if not measured:
        return
    own = cell.cell.model_key is not None
    letters = (
        "No formula is known for an own model."
        if own
        else "N tokens, d model width, f feed-forward width, B batch, T context, H heads."
    )
    again = " The block is checkpointed: it keeps them only while backward runs it again."
    card = Card(
        key="block-tensors",
        folded=True,
        title=f"Tensor by tensor: {place_of(cell.cell, names)}",
        note=f"{letters}{again if cell.cell.checkpoint_blocks else ''}",
        cells=[cell.cell],
    )
    predicted = [] if own else block_tensors(cell.cell, device=device_of(cell.device))
    pairs = beside(predicted, measured)
    draw_tensors(frame, card, pairs, cell_id=cell.cell_id)
