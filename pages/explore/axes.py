"""The possible axes of Explore: the config fields of a kind of cell, the name of its size, and the machine.

names = varying(frame, "steps", rows); value_of(frame, rows[0], "size")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pages.ui.frame import Frame
from runner.results import ExploredCell
from runner.schema import TABLES, Model
from runner.schema.axes import MODEL

SIZE, MACHINE = "size", "machine"
#: A value on an axis: a number, or the text of anything else.
Value = float | str


@dataclass(frozen=True, kw_only=True)
class AxisChoice:
    """The axes of a chart. `color` and `panel` are None where color or panels show nothing."""

    table: str
    x: str
    color: str | None
    panel: str | None

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes that are set, x first."""
        return tuple(name for name in (self.x, self.color, self.panel) if name)

    @property
    def used(self) -> set[str]:
        """The axes that the chart shows; one number of the shape stands for the size."""
        return {*self.axes, *((SIZE,) if {*self.axes} & {*MODEL} else ())}


def list_axes(table: str) -> list[str]:
    """Returns the names of all axes of a table, the most telling first."""
    asked = list(TABLES[table].question)
    if "d_model" not in asked:
        return [*asked, MACHINE]
    rest = [name for name in asked if name not in MODEL]
    first = ["context"] if "context" in rest else []
    return [*first, SIZE, *(name for name in rest if name not in first), *MODEL, MACHINE]


def varying(frame: Frame, table: str, rows: Sequence[ExploredCell]) -> list[str]:
    """Returns the axes on which these rows have more than one value."""
    return [name for name in list_axes(table) if len({value_of(frame, row, name) for row in rows}) > 1]


def value_of(frame: Frame, row: ExploredCell, name: str) -> Value:
    """Returns the value of a row on an axis."""
    if name == SIZE:
        return frame.sizes[Model.of(row.cell)]
    if name == MACHINE:
        return row.machine
    value: Any = getattr(row.cell, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, int | float) else str(value)


def label_of(table: str, name: str) -> str:
    """Returns the name of an axis in a chooser."""
    return {SIZE: "Size", MACHINE: "Machine"}.get(name) or TABLES[table].column(name).label


def title_of(table: str, name: str) -> str:
    """Returns the name of an axis with its unit."""
    return label_of(table, name) if name in (SIZE, MACHINE) else TABLES[table].column(name).title


def order_values(frame: Frame, table: str, name: str, rows: Sequence[ExploredCell]) -> list[Value]:
    """Returns the values of these rows in order: numbers by size, texts as in the schema, sizes from small to large."""
    values = {value_of(frame, row, name) for row in rows}
    if name == SIZE:
        return [size for size in frame.sizes.values() if size in values]
    if name == MACHINE:
        return sorted(values, key=lambda value: (value != frame.selection.machine, str(value)))
    choices = TABLES[table].column(name).choices

    def order(value: Value) -> tuple[int, float, str]:
        index = choices.index(value) if isinstance(value, str) and value in choices else 0
        return index, 0.0 if isinstance(value, str) else value, str(value)

    return sorted(values, key=order)


def is_numeric(values: Sequence[Value]) -> bool:
    """Returns whether all values are numbers."""
    return all(isinstance(value, int | float) for value in values)
