"""The cells with which the page Attention opens, and of which Overview speaks: they must be the same.

shown = opening(cells)
"""

from collections import Counter
from collections.abc import Sequence

from pages.ui.chosen import most_common
from runner.results import Attended

#: What else may tell cells apart: a chooser only where there is a choice.
RARE = {"batch": "Batch", "cache": "L2 cache"}


def default_cells(cells: Sequence[Attended]) -> list[Attended]:
    """Of the precision and mask that most cells have, of the first batch and cache: those of the fullest head width."""
    usual = most_common((cell.cell.precision, cell.cell.causal) for cell in cells)
    found = [cell for cell in cells if (cell.cell.precision, cell.cell.causal) == usual]
    for name in RARE:
        first = rare_values(found, name)[0]
        found = [cell for cell in found if str(getattr(cell.cell, name)) == first]
    width = fullest(found)
    return [cell for cell in found if cell.cell.d_head == width]


def rare_values(cells: Sequence[Attended], name: str) -> list[str]:
    """The values of a column of `RARE`, in order."""
    return sorted({str(getattr(cell.cell, name)) for cell in cells}, key=lambda text: (len(text), text))


def fullest(cells: Sequence[Attended]) -> int:
    """The head width of which most was measured eagerly; of equals the widest, as models have it."""
    eager = Counter(cell.cell.d_head for cell in cells if cell.cell.backend == "eager")
    return max((eager[cell.cell.d_head], cell.cell.d_head) for cell in cells)[1]
