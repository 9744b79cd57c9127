"""M6: what one block saves for backward, its gradients, and what gradient checkpointing changes."""

from collections.abc import Sequence
from dataclasses import replace

from runner.analysis.costs.activations import weight_bytes
from runner.analysis.costs.steps import parameter_count
from runner.answers.keys import make_keys
from runner.formats import format_bytes, format_count, format_number, format_share, within_block
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.rows import Rows
from runner.report.text import NONE, format_mib
from runner.report.wanted import wanted_cells
from runner.results import Peak, SavedOperation
from runner.schema import MemoryCell
from runner.schema.titles import describe_status, title
from runner.store.queries.memory import load_saved_by_operation

#: The largest contributors of a block that are listed.
_FIVE = 5


def _answer_block(rows: Rows) -> Answer:
    plain = [peak for peak in rows.peaks if not peak.cell.checkpoint_blocks and peak.block_saved_bytes]
    if not plain:
        return Answer(lacks="no cell counted what a block saves for backward")
    wide = [peak for peak in plain if peak.cell.precision == "fp32" and peak.cell.mode == "train"]
    chosen = max(wide or plain, key=lambda peak: peak.block_saved_bytes or 0)
    kept = load_saved_by_operation(rows.path, chosen.cell_id)
    families = _find_checkpointed(rows.peaks)
    trained = [peak for peak in plain if peak.cell.mode == "train"]
    tables = [_make_saved(trained or plain)]
    tables += [_make_contributors(chosen, kept)] if kept else []
    tables += [_make_checkpointing(families)] if families else []
    return Answer(
        sentence=f"{_describe_block(chosen, kept)} {_describe_checkpointing(families)}",
        tables=tuple(tables),
        behind=behind([*(trained or plain), *(peak for family in families for peak in family)]),
        lacks="" if families else "no step was measured with gradient checkpointing",
    )


def _block_gradient_bytes(cell: MemoryCell) -> int | None:
    """Returns the bytes of the gradients of one block's parameters, None of an own model."""
    if cell.model_key is not None:
        return None
    outside = parameter_count(replace(cell, layers=0))
    return (parameter_count(cell) - outside) // cell.shape.layers * weight_bytes(cell)


def _gradient_bytes(cell: MemoryCell) -> int | None:
    """Returns the bytes of all gradients, None of an own model."""
    return None if cell.model_key is not None else parameter_count(cell) * weight_bytes(cell)


def _describe_block(chosen: Peak, kept: Sequence[SavedOperation]) -> str:
    total = chosen.block_saved_bytes or 0
    start = f"One block of {title(chosen.cell)} keeps {format_bytes(total)} for backward"
    five = sum(item.kept_bytes for item in kept[:_FIVE])
    top = f", {format_share(five / total)} of it for its five largest contributors" if kept and total else ""
    gradients = _block_gradient_bytes(chosen.cell)
    return f"{start}{top}." if gradients is None else f"{start}{top}; its gradients take {format_bytes(gradients)}."


def _make_saved(peaks: Sequence[Peak]) -> ReportTable:
    keys = make_keys([peak.cell for peak in peaks])
    return ReportTable(
        caption=f"Saved for backward, and gradients: {keys.shared}",
        headings=(
            *keys.headings,
            "One block (MiB)",
            "Whole model (MiB)",
            "Gradients of one block (MiB)",
            "All gradients (MiB)",
        ),
        lines=tuple(
            Line(
                values=(
                    *keys.values(peak.cell),
                    format_mib(peak.block_saved_bytes),
                    format_mib(peak.saved_bytes),
                    format_mib(_block_gradient_bytes(peak.cell)),
                    format_mib(_gradient_bytes(peak.cell)),
                )
            )
            for peak in peaks
        ),
        note="Saved: storages that autograd keeps from forward to backward, each counted once, as measured; the "
        "block is the "
        "first. Gradients: parameters times their width, by formula.",
    )


def _make_contributors(chosen: Peak, kept: Sequence[SavedOperation]) -> ReportTable:
    total = chosen.block_saved_bytes or 0
    return ReportTable(
        caption=f"The five largest contributors within one block: {title(chosen.cell)}",
        headings=("Operation", "Module", "Tensors", "Shapes", "Saved (MiB)", "Share"),
        lines=tuple(
            Line(
                values=(
                    item.operation,
                    _within_block(item),
                    str(item.tensors),
                    item.shapes,
                    format_mib(item.kept_bytes),
                    format_share(item.kept_bytes / total) if total else NONE,
                )
            )
            for item in kept[:_FIVE]
        ),
        note="By the operation whose backward needs them; memory that two operations share counts for the first.",
    )


def _within_block(item: SavedOperation) -> str:
    """Returns the module's path within the block."""
    return within_block(item.module) or NONE


def _find_checkpointed(peaks: Sequence[Peak]) -> list[list[Peak]]:
    """Returns cells that differ in checkpointing alone, the one without first."""
    groups: dict[MemoryCell, list[Peak]] = {}
    for peak in peaks:
        groups.setdefault(replace(peak.cell, checkpoint_blocks=0, timeline=False), []).append(peak)
    sorted_groups = [sorted(group, key=lambda peak: peak.cell.checkpoint_blocks) for group in groups.values()]
    return [group for group in sorted_groups if len(group) > 1 and not group[0].cell.checkpoint_blocks]


def _make_checkpointing(families: Sequence[Sequence[Peak]]) -> ReportTable:
    keys = make_keys([peak.cell for family in families for peak in family], without=("checkpoint_blocks",))
    lines = []
    for family in families:
        for peak in family:
            size, base = peak.peak_allocated_bytes, family[0].peak_allocated_bytes
            written = format_mib(size) if peak.status == "ok" else describe_status(peak)
            ratio = format_number(size / base) if size and base else NONE
            together = str(peak.cell.checkpoint_blocks or "none")
            lines.append(Line(values=(*keys.values(peak.cell), together, written, ratio)))
    return ReportTable(
        caption=f"Peak memory with gradient checkpointing: {keys.shared}",
        headings=(*keys.headings, "Blocks recomputed together", "Peak allocated (MiB)", "Against none"),
        lines=tuple(lines),
    )


def _describe_checkpointing(families: Sequence[Sequence[Peak]]) -> str:
    known = [family for family in families if all(peak.peak_allocated_bytes for peak in family[:2])]
    if not known:
        return "The effect of gradient checkpointing was not measured."
    plain, *others = max(known, key=lambda family: family[0].peak_allocated_bytes or 0)
    best = min((peak for peak in others if peak.peak_allocated_bytes), key=lambda peak: peak.peak_allocated_bytes or 0)
    before, after = plain.peak_allocated_bytes or 1, best.peak_allocated_bytes or 0
    word = "lowers" if after < before else "does not lower"
    blocks = format_count(best.cell.checkpoint_blocks, "block")
    return (
        f"Recomputing {blocks} at a time {word} the peak of {title(plain.cell)}: "
        f"{format_bytes(before)} without, {format_bytes(after)} with ({format_number(after / before)}×)."
    )


def _want_block(rows: Rows) -> list[MemoryCell]:
    """Returns the full step of the smallest size in fp32, as it is and with every block recomputed."""
    cells = [cell for cell in wanted_cells(rows, "memory", MemoryCell) if not cell.timeline]
    plain = [cell for cell in cells if cell.mode == "train" and cell.precision == "fp32"][:1]
    return [replace(cell, checkpoint_blocks=blocks) for cell in plain for blocks in (0, 1)]


QUESTIONS = (
    Question[Rows](
        id="M6",
        text="How much does one block save for backward, what are its five largest contributors, how large are "
        "its gradients, and what does gradient checkpointing change?",
        page="peak-memory",
        answer=_answer_block,
        wanted=_want_block,
    ),
)
