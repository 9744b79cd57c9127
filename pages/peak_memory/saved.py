"""The cards of what backward needs: what one block keeps, by operation, and what checkpointing does to the peak.

draw_saved(frame, cells, names); draw_checkpointing(frame, cells, names)
"""

from collections.abc import Sequence

import streamlit as st

from pages.figures.parts import part_bars
from pages.peak_memory.answers import Names, describe_checkpointing, describe_saved, operation_label, place_of
from pages.peak_memory.cards import bar_of, table_of
from pages.peak_memory.figures import saved_bars
from pages.peak_memory.tensors import choose_cell, draw_block_tensors
from pages.ui.card import Card, draw
from pages.ui.evidence import of_cells, of_details, say
from pages.ui.frame import Frame
from pages.ui.markdown import quoted, restrict
from pages.ui.sections import draw_heading
from runner.formats import format_bytes
from runner.results import Peak
from runner.store.queries.memory import KEY, load_saved_by_operation

LARGEST = 5
_WORDS = "--experiment memory --modes train"
_KEPT_NOTE = (
    "Tensors that autograd keeps until backward has used them, by the operation that needs them; parameters are not "
    "counted, and memory that several share counts once."
)
_CHECKPOINTED = " Checkpointed, so they are there only while backward runs the block again."


def draw_saved(frame: Frame, cells: Sequence[Peak], names: Names) -> None:
    """Draws what one block of a chosen cell keeps for backward: the total and its five largest contributors."""
    draw_heading(frame, "What does one block keep for backward?", anchor="kept")
    kept_cells = [cell for cell in cells if cell.block_saved_bytes]
    if not kept_cells:
        command = frame.sweep(_WORDS)
        st.caption(restrict(f"No cell here recorded what a block keeps for backward. Measure one: {quoted(command)}."))
        return
    cell = choose_cell(kept_cells, names, key="block-of")
    kept = frame.ask(load_saved_by_operation, cell.cell_id)
    words = describe_saved(cell, kept, names)
    tensors = of_details(frame, "saved tensors", [cell.cell_id])
    say(frame, words, tensors, of_cells(frame, [cell]), key="kept")
    total = sum(item.kept_bytes for item in kept)
    if not total:
        return
    rows = [
        {"Kept by": operation_label(item), "Operation": item.operation, "Module": item.module, "Shapes": item.shapes,
         "Tensors": item.tensors, "Size (bytes)": item.kept_bytes, "Size": format_bytes(item.kept_bytes),
         "Share": item.kept_bytes / total}
        for item in kept
    ]  # fmt: skip
    card = Card(
        key="kept",
        folded=True,
        title="The five largest contributors",
        note=_KEPT_NOTE + (_CHECKPOINTED if cell.cell.checkpoint_blocks else ""),
        alt=words,
        rows=rows,
        cells=[cell.cell],
    )
    draw(
        frame,
        card,
        lambda: saved_bars(
            [(operation_label(item), item.kept_bytes) for item in kept[:LARGEST]],
            rest=sum(item.kept_bytes for item in kept[LARGEST:]),
        ),
    )
    draw_block_tensors(frame, cell, names)


def families(cells: Sequence[Peak]) -> list[list[Peak]]:
    """Returns cells that differ in checkpointing alone, those without it first; only where both were measured."""
    rest = [name for name in KEY if name != "checkpoint_blocks"]
    groups: dict[tuple[object, ...], list[Peak]] = {}
    for cell in cells:
        if cell.status == "ok":
            groups.setdefault((cell.machine, *(getattr(cell.cell, name) for name in rest)), []).append(cell)
    ordered = [sorted(family, key=lambda cell: cell.cell.checkpoint_blocks) for family in groups.values()]
    return [family for family in ordered if len(family) > 1 and family[0].cell.checkpoint_blocks == 0]


def draw_checkpointing(frame: Frame, cells: Sequence[Peak], names: Names) -> None:
    """Draws the parts of the peak without checkpointing and with each number of blocks recomputed together."""
    draw_heading(frame, "What does checkpointing save?", anchor="checkpointing")
    groups = families(cells)
    if not groups:
        command = frame.sweep(_WORDS, "--checkpoint 0,1" if frame.own_models else "--checkpoint 0,1,2,4")
        st.caption(restrict(f"No cell here was measured both with and without checkpointing: {quoted(command)}."))
        return
    words = " ".join(describe_checkpointing(family, names) for family in groups[:3])
    drawn = [cell for family in groups for cell in family]
    say(frame, words, of_cells(frame, drawn), key="checkpointing")
    bars = [
        bar_of(cell, group=place_of(family[0].cell, names).replace(" · ", "<br>", 1),
               place=_format_blocks(cell.cell.checkpoint_blocks))
        for family in groups for cell in family
    ]  # fmt: skip
    card = Card(
        key="checkpointing",
        folded=True,
        title="The peak with and without checkpointing",
        note="Checkpointed blocks keep only their input and compute the rest again during backward.",
        alt=words,
        rows=table_of(drawn, names),
        cells=[cell.cell for cell in drawn],
    )
    draw(frame, card, lambda: part_bars(bars, state="checkpointing"))


def _format_blocks(count: int) -> str:
    return {0: "keep all", 1: "every block"}.get(count, f"{count} blocks")
