"""Finds the shape of a published row: its own numbers, or the size that its name means in its report's edition.

    find_shape(setting, edition=edition_of(settings))         # Size(name="xl@2025", d_model=1600, …)

The names of sizes are those of the assignment, as reports abbreviate them. `xl` is another shape in each edition: a
report that names a 2.7B beside it, or states the width or the parameters of its own, is of 2025.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from runner.analysis.costs import steps
from runner.results.published import Setting
from runner.schema import StepCell
from runner.schema.sizes import SIZES, Size

Edition = Literal["2025", "2026"]

_NAMES = {
    "s": "small",
    "small": "small",
    "m": "medium",
    "medium": "medium",
    "l": "large",
    "large": "large",
    "2.7b": "xl@2026",
    "2p7": "xl@2026",
    "2p7b": "xl@2026",
    "10b": "10B",
    "xl@2025": "xl@2025",
    "xl@2026": "xl@2026",
}
#: A parameter count that is rounded or cut to three digits is this close.
CLOSE = 0.01


def step_cell(shape: Size, *, batch: int = 4, context: int = 1) -> StepCell:
    """Returns the cell of a forward pass of this shape, for the formulas of `costs`."""
    return StepCell(
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        layers=shape.layers,
        heads=shape.heads,
        vocabulary=shape.vocabulary,
        batch=batch,
        context=context,
        mode="forward",
        precision="fp32",
    )


@lru_cache(maxsize=65536)
def parameters_of(shape: Size) -> int:
    """Returns how many parameters a model of this shape has."""
    return steps.parameter_count(step_cell(shape))


def find_edition(settings: Iterable[Setting]) -> Edition | None:
    """Returns the edition of a report, by what it says of its `xl`; None where it does not say."""
    names = set()
    for setting in settings:
        name = (setting.name or "").lower()
        names.add(name)
        if name == "xl" and setting.d_model:
            return "2026" if setting.d_model == SIZES["xl@2026"].d_model else "2025"
        if name == "xl" and setting.parameters:
            return "2026" if _is_close(setting.parameters, SIZES["xl@2026"]) else "2025"
    return "2025" if names & {"2.7b", "2p7", "2p7b"} else "2026" if "10b" in names else None


def find_shape(setting: Setting, *, edition: Edition | None = None) -> Size | None:
    """Returns the shape, or None where neither numbers nor a known name say it."""
    s = setting
    if s.d_model and s.d_ff and s.layers and s.heads:
        return shape_of(s.d_model, s.d_ff, s.layers, s.heads, s.vocabulary or Size.vocabulary)
    name = (s.name or "").lower()
    if name == "xl" and edition:
        return SIZES[f"xl@{edition}"]
    return SIZES[_NAMES[name]] if name in _NAMES else None


@lru_cache(maxsize=65536)
def shape_of(d_model: int, d_ff: int, layers: int, heads: int, vocabulary: int) -> Size:
    """Returns the shape of these numbers, with its name where it has one."""
    numbers = {"d_model": d_model, "d_ff": d_ff, "layers": layers, "heads": heads, "vocabulary": vocabulary}
    name = next((size.name for size in SIZES.values() if size.numbers == numbers), "")
    return Size(name=name, **numbers)


def fits_known_size(parameters: float) -> bool:
    """Returns whether a parameter count is that of a size of the assignment, within rounding."""
    return any(_is_close(parameters, size) for size in SIZES.values())


def _is_close(parameters: float, size: Size) -> bool:
    return abs(parameters / parameters_of(size) - 1) <= CLOSE


def count_in_name(name: str | None) -> float | None:
    """Returns the parameters that a name states, such as 2.35e9 of "2.35B"; None for the assignment's own names."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MB])", name or "", re.IGNORECASE)
    if not found or (name or "").lower() in _NAMES:
        return None
    return float(found.group(1)) * {"m": 1e6, "b": 1e9}[found.group(2).lower()]
