"""A cell in words, for people.

    >>> title(cell)
    'small · 512 · train · bf16 · compiled'

Standard library only.
"""

from dataclasses import MISSING, Field, fields
from typing import Any

from runner.schema import (
    AccumulationCell,
    AttentionCell,
    Cell,
    MemoryCell,
    NumericsCell,
    ProfileCell,
    StepCell,
    SweepCell,
)
from runner.schema.columns import columns_of
from runner.schema.sizes import shape_name

_SHAPE = ("d_model", "d_ff", "layers", "heads", "vocabulary")
#: What a title begins with, by kind of cell; whatever else differs from its default follows by name.
_LEAD: dict[type[Cell], tuple[str, ...]] = {
    StepCell: ("context", "mode", "precision", "backend"),
    MemoryCell: ("context", "mode", "precision"),
    AttentionCell: ("implementation", "seq_len", "d_head", "precision", "backend"),
    ProfileCell: ("context", "mode", "precision", "backend"),
    NumericsCell: ("context", "precision"),
    AccumulationCell: ("accumulator", "addend"),
}
_LEADING = {"seq_len": "S {}", "d_head": "d {}", "accumulator": "sum in {}", "addend": "of {}"}
_LIMITS = ("min_steps", "max_steps", "max_seconds")
#: Kinds of cells without a Transformer's shape.
_SHAPELESS = (AttentionCell, AccumulationCell)


def kind(cell: SweepCell) -> type[Cell]:
    """What was asked for, also of a row."""
    return next(found for found in _LEAD if isinstance(cell, found))


def title(cell: SweepCell) -> str:
    """A cell in a few words, and what of it is not the default."""
    asked = kind(cell)
    parts = [] if asked in _SHAPELESS else [shape_of(cell)]
    for name in _LEAD[asked]:
        value = str(getattr(cell, name))
        parts.append(_LEADING.get(name, "{}").format(value))
    if isinstance(cell, StepCell) and cell.min_steps == cell.max_steps:
        parts.append(f"exactly {cell.min_steps} steps")
    known = {*_SHAPE, *_LEAD[asked], *_LIMITS}
    labels = {column.name: column.label.lower() for column in columns_of(asked)}
    parts += [
        _named(labels[item.name], getattr(cell, item.name))
        for item in fields(asked)
        if item.name not in known and _says(item, cell)
    ]
    return " · ".join(part for part in parts if part)


def _says(item: Field[Any], cell: SweepCell) -> bool:
    return item.default is not MISSING and getattr(cell, item.name) not in (None, item.default)


def _named(label: str, value: object) -> str:
    return label if value is True else f"not {label}" if value is False else f"{label} {value}"


def shape_of(cell: SweepCell) -> str:
    """The name of a Transformer cell's shape."""
    return shape_name(**{name: getattr(cell, name) for name in _SHAPE})
