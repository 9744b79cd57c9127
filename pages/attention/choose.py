"""Which attention cells the page shows: one precision, mask and head width, chosen or the most frequent.

grid, shown = choose_cells(cells)
"""

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from pages.ui.chosen import chosen, most_common
from runner.results import AttentionResult

#: Columns with a chooser where cells differ in them.
_RARE = {"batch": "Batch", "cache": "L2 cache"}


def choose_cells(cells: list[AttentionResult]) -> tuple[list[AttentionResult], list[AttentionResult]]:
    """Returns the cells of the chosen precision and mask with all head widths, and those of the chosen head width."""
    usual = choose_default(cells)[0].cell
    with st.container(horizontal=True):
        heads = st.container(width="content")
        with st.container(width="content"):
            precision = chosen(
                "dtype", "Precision", sorted({cell.cell.precision for cell in cells}), default=usual.precision
            )
        with st.container(width="content"):
            masks = sorted({_name_mask(cell) for cell in cells})
            mask = chosen("mask", "Mask", masks, default="causal" if usual.causal else "full")
        grid = [cell for cell in cells if cell.cell.precision == precision and _name_mask(cell) == mask] or cells
        for name, label in _RARE.items():
            values = _list_values(grid, name)
            if len(values) > 1:
                value = chosen(f"attention-{name}", label, values)
                grid = [cell for cell in grid if str(getattr(cell.cell, name)) == value]
        with heads:
            widths = [str(width) for width in sorted({cell.cell.d_head for cell in grid})]
            width = chosen("d-head", "Head width", widths, default=str(_find_width(grid)))
    return grid, [cell for cell in grid if str(cell.cell.d_head) == width]


def _name_mask(cell: AttentionResult) -> str:
    return "causal" if cell.cell.causal else "full"


def choose_default(cells: Sequence[AttentionResult]) -> list[AttentionResult]:
    """Returns the cells of the precision and mask that most cells have, of the first batch and cache, and of the head
    width with most cells. The page opens with them, and Overview answers for them."""
    usual = most_common((cell.cell.precision, cell.cell.causal) for cell in cells)
    usual_cells = [cell for cell in cells if (cell.cell.precision, cell.cell.causal) == usual]
    for name in _RARE:
        first = _list_values(usual_cells, name)[0]
        usual_cells = [cell for cell in usual_cells if str(getattr(cell.cell, name)) == first]
    width = _find_width(usual_cells)
    return [cell for cell in usual_cells if cell.cell.d_head == width]


def _list_values(cells: Sequence[AttentionResult], name: str) -> list[str]:
    """Returns the values of a column of `_RARE`, in order."""
    return sorted({str(getattr(cell.cell, name)) for cell in cells}, key=lambda text: (len(text), text))


def _find_width(cells: Sequence[AttentionResult]) -> int:
    """Returns the head width with most eager cells; of equals the widest, as models have it."""
    eager = Counter(cell.cell.d_head for cell in cells if cell.cell.backend == "eager")
    return max((eager[cell.cell.d_head], cell.cell.d_head) for cell in cells)[1]
