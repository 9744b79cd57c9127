"""What does one block keep for backward, and what does checkpointing change?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runner.analysis.costs.steps import best_checkpoint, parameter_count, weight_bytes
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View
from runner.answers.shared import about, cells_of, narrow, place_of, sizes_of
from runner.answers.words import CONTEXT, SIZE, STATUS, ended_with_need, lacks, write
from runner.formats import format_bytes, format_share, within_block
from runner.results.cells import Peak
from runner.results.rows import Rows, SavedCell
from runner.schema import MemoryCell, Model
from runner.schema.axes import MODEL

BLOCK = Field.of("memory", "block_saved_bytes", "value")
WHOLE = Field.of("memory", "saved_bytes", "note")
_OF_BLOCK = "Parameters times their width."
GRADIENTS = Field("gradient_bytes", "Gradients of one block", unit="bytes", role="note", doc=_OF_BLOCK)
PEAK = Field.of("memory", "peak_allocated_bytes", "value")
AGAINST = Field("ratio", "Against none", unit="×", role="note", doc="Peak over the peak without it.")
#: The contributors that the headline adds up.
LARGEST = 5
#: The modes in which checkpointing matters. In the second the optimizer's tensors do not hide those of the blocks.
_STEPPING = ("train", "backward")
_MODES = (*_STEPPING, "forward")


def answer(rows: Rows, asked: Asked) -> Answer:
    by_cell: dict[tuple[str, MemoryCell], Peak] = {}
    # A block keeps the same in every mode, and when a checkpointed one is run again, which stands for a plain one that
    # ran out of memory.
    kept = [one for one in rows.peaks if one.block_saved_bytes]
    for one in sorted(kept, key=lambda one: (one.cell.checkpoint_blocks, _MODES.index(one.cell.mode))):
        by_cell.setdefault((one.machine, replace(one.cell, checkpoint_blocks=0, mode="train")), one)
    if not by_cell:
        return Answer(missing=lacks("no cell counted what a block keeps for backward"))
    known = [*by_cell.values()]
    shown, choices = narrow(known, asked, drawn=("size", "context", "checkpoint_blocks", "mode"))
    sizes = sizes_of(known)
    again = ", and where checkpointing runs it again" if any(one.cell.checkpoint_blocks for one in shown) else ""
    view = View(
        name="saved-by-size",
        title="Kept for backward by one block",
        about=about(shown, "checkpoint_blocks"),
        fields=(SIZE, CONTEXT, BLOCK, WHOLE, GRADIENTS),
        rows=tuple(
            Row.of(
                one,
                *place_of(one, sizes),
                one.block_saved_bytes,
                None if one.cell.checkpoint_blocks else one.saved_bytes,
                block_gradient_bytes(one.cell),
            )
            for one in shown
        ),
        draw=Draw("matrix", "block_saved_bytes", down=("size",), across="context", log="x"),
        note="Storages that autograd keeps from forward to backward, each counted once; the block is the first. It "
        f"keeps the same in all modes but inference{again}.",
    )
    (one, *_), more_choices = narrow(shown, asked, drawn=("mode", "checkpoint_blocks"))
    saved = next((cell for cell in rows.saved if cell.cell_id == one.cell_id), None)
    views = [view]
    if saved:
        views.append(_draw_contributors(saved, f"{sizes[Model.of(one.cell)]}, {one.cell.context:,} tokens", [one]))
    families = _find_families(rows.peaks, one)
    modes = {mode: [one for one in families if one.cell.mode == mode] for mode in _STEPPING}
    views += [_draw_checkpointing(mode, found, sizes) for mode, found in modes.items() if found]
    plain = replace(one.cell, checkpoint_blocks=0, mode="train")
    wanted = tuple(replace(plain, checkpoint_blocks=blocks) for blocks in (0, 1))
    return Answer(
        sentence=_say(one, views, sizes),
        more=f"{_say_gradients(one)}{_say_best(families, sizes)}".strip(),
        views=tuple(views),
        choices=(*choices, *more_choices),
        cells=cells_of(shown, families),
        missing=() if families else lacks("no step was measured with and without checkpointing", wanted),
    )


def block_gradient_bytes(cell: MemoryCell) -> int | None:
    """Returns the bytes of the gradients of one block's parameters; None for an own model."""
    if cell.model_key is not None:
        return None
    outside = parameter_count(replace(cell, layers=0))
    return (parameter_count(cell) - outside) // cell.shape.layers * weight_bytes(cell)


def _draw_contributors(saved: SavedCell, words: str, peaks: Sequence[Peak]) -> View:
    sums: dict[str, int] = {}
    shapes: dict[str, list[str]] = {}
    for tensor in saved.tensors:
        key = f"{tensor.operation.removeprefix('aten::')} in {within_block(tensor.module) or tensor.module or 'it'}"
        sums[key] = sums.get(key, 0) + tensor.storage_bytes
        shapes.setdefault(key, []).append(f"{tensor.shape} {tensor.dtype}")
    total = sum(sums.values())
    return View(
        name="saved-contributors",
        title=f"What keeps it: {words}",
        about=about(peaks),
        fields=(
            Field("operation", "Operation in its module"),
            Field("size", "Kept", unit="bytes", role="value"),
            Field("share", "Share", unit="%", role="note"),
            Field("tensors", "Tensors", role="note"),
            Field("shapes", "Shapes", role="note"),
        ),
        rows=tuple(
            Row.of(saved, key, size, size / total, len(shapes[key]), ", ".join(dict.fromkeys(shapes[key])))
            for key, size in sorted(sums.items(), key=lambda item: -item[1])
        ),
        draw=Draw("bars", "size", down=("operation",), beside=("share",)),
        note="By the operation whose backward needs it; memory that two share counts for the first.",
    )


def _find_families(peaks: Sequence[Peak], of: Peak) -> list[Peak]:
    """Returns the cells of the chosen settings that differ in size, context, checkpointing and the optimizer's step
    alone, of each size and context where the step without checkpointing and one with it were measured."""
    free = ("mode", "checkpoint_blocks", "context", *MODEL, "timeline")
    fixed = [name for name in MemoryCell.names() if name not in free]
    groups: dict[tuple[Any, ...], dict[int, Peak]] = {}
    for one in peaks:
        is_alike = all(getattr(one.cell, name) == getattr(of.cell, name) for name in fixed)
        if is_alike and one.machine == of.machine and one.status in ("ok", "oom") and one.cell.mode in _STEPPING:
            key = (one.cell.mode, Model.of(one.cell), one.cell.context)
            groups.setdefault(key, {}).setdefault(one.cell.checkpoint_blocks, one)
    return [one for group in groups.values() if 0 in group and len(group) > 1 for _, one in sorted(group.items())]


def _draw_checkpointing(mode: str, families: Sequence[Peak], sizes: dict[Any, str]) -> View:
    plain = {(Model.of(one.cell), one.cell.context): one for one in families if not one.cell.checkpoint_blocks}

    def row(one: Peak) -> Row:
        base = plain[Model.of(one.cell), one.cell.context]
        before, after = base.peak_allocated_bytes, one.peak_allocated_bytes
        ratio = after / before if before and after and one is not base else None
        blocks = str(one.cell.checkpoint_blocks or "none")
        values = (sizes[Model.of(one.cell)], one.cell.context, blocks, after, ratio, ended_with_need(one))
        return Row(values=values, cells=tuple(dict.fromkeys((base.cell_id, one.cell_id))))

    return View(
        name="saved-checkpointing" if mode == "train" else f"saved-checkpointing-{mode}",
        title=f"Peak with checkpointing{'' if mode == 'train' else f', {mode}'}, by the blocks recomputed together",
        about=about(families, "checkpoint_blocks"),
        fields=(SIZE, CONTEXT, Field("blocks", "Blocks recomputed together"), PEAK, AGAINST, STATUS),
        rows=tuple(map(row, families)),
        draw=Draw("bars", "peak_allocated_bytes", down=("size", "context", "blocks"), beside=("ratio",)),
        note="A checkpointed block keeps its input alone and computes the rest again in backward.",
    )


def _say_gradients(one: Peak) -> str:
    size = block_gradient_bytes(one.cell)
    return f"The gradients of its parameters take {format_bytes(size)}. " if size else ""


def _say(one: Peak, views: Sequence[View], sizes: dict[Any, str]) -> str:
    name = f"**{sizes[Model.of(one.cell)]}** at {one.cell.context:,} tokens"
    text = f"One block of {name} keeps **{format_bytes(one.block_saved_bytes or 0)}** for backward"
    contributors = next((view for view in views if view.name == "saved-contributors"), None)
    if contributors:
        share = sum(contributors.get(row, "share") for row in contributors.rows[:LARGEST])
        text += f", {format_share(share)} of it in five operations"
    checkpointing = next((view for view in views if view.name.startswith("saved-checkpointing")), None)
    return f"{text}{_say_checkpointing(checkpointing) if checkpointing else ''}."


def _say_checkpointing(view: View) -> str:
    """Says what fits only so, else where the peak falls most."""
    plain = {row.values[:2]: view.get(row, PEAK.name) for row in view.rows if view.get(row, "blocks") == "none"}
    fits = [row for row in view.rows if plain[row.values[:2]] is None and view.get(row, PEAK.name)]
    ratios = [row for row in view.rows if view.get(row, "ratio")]
    if fits:
        least = min(fits, key=lambda row: view.get(row, PEAK.name))
        needs = format_bytes(view.get(least, PEAK.name))
        return f"; with checkpointing {least.values[0]} at {least.values[1]:,} needs **{needs}**, without it runs out"
    if not ratios:
        return ""
    best = min(ratios, key=lambda row: view.get(row, "ratio"))
    if view.get(best, "ratio") > 0.99:
        return "; checkpointing lowers no size's peak"
    words = write(view.get(best, "ratio"), "×")
    return f"; checkpointing takes {best.values[0]} at {best.values[1]:,} to **{words}** its peak"


def _say_best(families: Sequence[Peak], sizes: dict[Any, str]) -> str:
    """Says how many blocks recomputed together needed least, where several numbers were tried, and what the formula
    says; of the step without the optimizer where it was measured."""
    tried: dict[tuple[str, int, Any], list[Peak]] = {}
    for one in families:
        if one.cell.checkpoint_blocks and one.peak_allocated_bytes and one.cell.model_key is None:
            tried.setdefault((one.cell.mode, -one.cell.context, Model.of(one.cell)), []).append(one)
    several = min((key for key, found in tried.items() if len(found) > 1), key=lambda key: key[:2], default=None)
    if several is None:
        return ""
    least = min(tried[several], key=lambda one: one.peak_allocated_bytes or 0)
    cell, formula = least.cell, best_checkpoint(least.cell, device="cuda" if least.device == "cuda" else "cpu")
    where = f"{sizes[Model.of(cell)]}, {cell.context:,} tokens, {cell.mode}"
    return (
        f"Of {len(tried[several])} numbers of blocks recomputed together **{cell.checkpoint_blocks}** needs least at "
        f"{where}: **{format_bytes(least.peak_allocated_bytes or 0)}**. By the formula it is {formula}."
    )


QUESTION = Question(answer=answer, needs=("peaks", "saved"), course=("M6",))
