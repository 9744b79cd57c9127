"""A cell in words: its title for people, and the command that measures it again.

    >>> title(cell)
    'small · 512 · train · bf16 · compiled'

Standard library only.
"""

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from runner.grids import GRIDS
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
from runner.sizes import SIZES, shape_name

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
_EXPERIMENT: dict[type[Cell], str] = {
    StepCell: "benchmark",
    MemoryCell: "memory",
    AttentionCell: "attention",
    ProfileCell: "kernels",
    NumericsCell: "numerics",
    AccumulationCell: "numerics",
}
#: Kinds of cells without a Transformer's shape, and kinds that are measured until a limit.
_SHAPELESS, _LIMITED = (AttentionCell, AccumulationCell), (StepCell, AttentionCell)


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
    parts += [
        _named(item, getattr(cell, item.name)) for item in fields(asked) if item.name not in known and _says(item, cell)
    ]
    return " · ".join(part for part in parts if part)


def _says(item: Field[Any], cell: SweepCell) -> bool:
    return item.default is not MISSING and getattr(cell, item.name) not in (None, item.default)


def _named(item: Field[Any], value: object) -> str:
    label = str(item.metadata["label"]).lower()
    return label if value is True else f"not {label}" if value is False else f"{label} {value}"


def shape_of(cell: SweepCell) -> str:
    """The name of a Transformer cell's shape."""
    return shape_name(**{name: getattr(cell, name) for name in _SHAPE})


def sweep_command(cells: Sequence[SweepCell]) -> str:
    """The shell command that measures these cells again, with whatever else their axes span. All of one kind."""
    asked = kind(cells[0])
    words = ["python", "-m", "runner", "sweep", "--experiment", _EXPERIMENT[asked], "--fresh"]
    shapes = set() if asked in _SHAPELESS else {_shape_flag(cell) for cell in cells}
    for flag, texts in itertools.groupby(sorted(shapes), key=lambda pair: pair[0]):
        joined = [text for _, text in texts]
        words += [flag, ",".join(joined)] if flag == "--sizes" else [word for text in joined for word in (flag, text)]
    for name, axis in GRIDS[asked].AXES.items():
        values = sorted({getattr(cell, name) for cell in cells})
        if axis == "timeline":
            words.append("--timeline" if any(values) else "--no-timeline")
            continue
        words += [f"--{axis.replace('_', '-')}", ",".join(str(value).lower() for value in values)]
    for name in _LIMITS if asked in _LIMITED else ():
        flag = {"min_steps": "--steps"}.get(name, f"--{name.replace('_', '-')}")
        words += [flag, f"{max(getattr(cell, name) for cell in cells):.15g}"]
    return shlex.join(words)


def _shape_flag(cell: SweepCell) -> tuple[str, str]:
    name = shape_of(cell)
    numbers = ",".join(f"{key}={getattr(cell, key)}" for key in _SHAPE)
    return ("--sizes", name) if name in SIZES else ("--shape", numbers)
