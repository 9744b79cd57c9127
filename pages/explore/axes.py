"""What can be an axis: everything that was asked of a kind of cell, its size under its name, and the machine.

names = varying(frame, "steps", rows); value_of(frame, rows[0], "size")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pages.ui.frame import Frame
from runner.results import Explored
from runner.schema import TABLES, Shape
from runner.schema.axes import SHAPE

SIZE, MACHINE = "size", "machine"
#: A value on an axis: a number as it is, anything else in words.
Value = float | str


@dataclass(frozen=True, kw_only=True)
class AxisChoice:
    """What is drawn over what. `color` and `panel` are None where nothing is told apart."""

    table: str
    x: str
    color: str | None
    panel: str | None

    @property
    def used(self) -> set[str]:
        """The axes that the chart tells apart; one number of the shape stands for the size."""
        named = {name for name in (self.x, self.color, self.panel) if name}
        return named | ({SIZE} if named & set(SHAPE) else set())


def every(table: str) -> list[str]:
    """The names of all axes of a table, the most telling first."""
    asked = list(TABLES[table].question)
    if "d_model" not in asked:
        return [*asked, MACHINE]
    rest = [name for name in asked if name not in SHAPE]
    first = ["context"] if "context" in rest else []
    return [*first, SIZE, *(name for name in rest if name not in first), *SHAPE, MACHINE]


def varying(frame: Frame, table: str, rows: Sequence[Explored]) -> list[str]:
    """Those of which these rows hold more than one value."""
    return [name for name in every(table) if len({value_of(frame, row, name) for row in rows}) > 1]


def value_of(frame: Frame, row: Explored, name: str) -> Value:
    """Where a row stands on an axis."""
    if name == SIZE:
        return frame.sizes[Shape.of(row.cell)]
    if name == MACHINE:
        return row.machine
    value: Any = getattr(row.cell, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, int | float) else str(value)


def label_of(table: str, name: str) -> str:
    """An axis as a chooser shows it."""
    return {SIZE: "Size", MACHINE: "Machine"}.get(name) or TABLES[table].column(name).label


def title_of(table: str, name: str) -> str:
    """An axis with its unit."""
    return label_of(table, name) if name in (SIZE, MACHINE) else TABLES[table].column(name).title


def order_values(frame: Frame, table: str, name: str, rows: Sequence[Explored]) -> list[Value]:
    """The values of these rows: numbers by size, words as the schema lists them, sizes from small to large."""
    values = {value_of(frame, row, name) for row in rows}
    if name == SIZE:
        return [size for size in frame.sizes.values() if size in values]
    if name == MACHINE:
        return sorted(values, key=lambda value: (value != frame.selection.machine, str(value)))
    choices = TABLES[table].column(name).choices
    return sorted(
        values, key=lambda value: (choices.index(value) if value in choices else 0, _number(value), str(value))
    )


def _number(value: Value) -> float:
    return value if isinstance(value, int | float) else 0.0


def is_numeric(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int | float) for value in values)
