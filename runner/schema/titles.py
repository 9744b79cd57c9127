"""A cell in words, for people.

    >>> title(cell)
    'small · 512 · train · bf16 · compiled'

Standard library only.
"""

from dataclasses import MISSING, Field, fields
from string import Formatter
from typing import Any

from runner.schema.axes import SHAPE, Shape
from runner.schema.cells import Cell
from runner.schema.columns import columns_of
from runner.schema.sizes import shape_name

_LIMITS = ("min_steps", "max_steps", "max_seconds")


def title(cell: Cell) -> str:
    """A cell in a few words, and what of it is not the default."""
    asked = cell.asked()
    lead = [name for _, name, _, _ in Formatter().parse(asked.TITLE) if name]
    parts = [shape_of(cell)] if isinstance(cell, Shape) else []
    parts += [asked.TITLE.format(**{name: getattr(cell, name) for name in lead}), *cell.remarks()]
    known = {*SHAPE, *lead, *_LIMITS}
    labels = {column.name: column.label.lower() for column in columns_of(asked)}
    parts += [
        _named(labels[item.name], getattr(cell, item.name))
        for item in fields(asked)
        if item.name not in known and _says(item, cell)
    ]
    return " · ".join(part for part in parts if part)


def _says(item: Field[Any], cell: Cell) -> bool:
    return item.default is not MISSING and getattr(cell, item.name) not in (None, item.default)


def _named(label: str, value: object) -> str:
    return label if value is True else f"not {label}" if value is False else f"{label} {value}"


def shape_of(cell: Cell) -> str:
    """The name of a Transformer cell's shape."""
    return shape_name(**{name: getattr(cell, name) for name in SHAPE})
