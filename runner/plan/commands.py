"""The commands that measure cells again: those cells and no others.

    >>> sweep_commands(cells)
    ['python -m runner sweep --experiment benchmark --fresh --sizes small --contexts 128,512 --modes train …']

A sweep measures a product of axes, so cells that are none take several commands. What every preset has anyway is not
said. Limits: a cell that leaves part of its key unstated, as published rows may, cannot be asked for. Standard library
only.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from runner.plan.grids import GRIDS, LIMITS, SUMS
from runner.plan.presets import PRESETS
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
from runner.schema.sizes import SIZES
from runner.schema.titles import kind, shape_of

_EXPERIMENT: dict[type[Cell], str] = {
    StepCell: "benchmark",
    MemoryCell: "memory",
    AttentionCell: "attention",
    ProfileCell: "kernels",
    NumericsCell: "numerics",
    AccumulationCell: "numerics",
}
_SHAPE = ("d_model", "d_ff", "layers", "heads", "vocabulary")
#: The limits of a grid by the fields of its cells, and what a flag can only say of all cells of a command.
_LIMITED = {"min_steps": "steps", "max_steps": "max_steps", "max_seconds": "max_seconds"}
_SAME = {*_LIMITED, "timeline"}


def sweep_commands(cells: Iterable[SweepCell], *, fresh: bool = True) -> list[str]:
    """Sweeps that together measure exactly these cells, each once; those of most cells first. Rows count as their
    cells. Without `fresh`, cells that are done are not measured again."""
    found = dict.fromkeys(cell for item in cells if (cell := _asked(item)) is not None)
    kinds: dict[type[Cell], list[SweepCell]] = {}
    for cell in found:
        kinds.setdefault(type(cell), []).append(cell)
    products = [group for of_kind in kinds.values() for group in _products(of_kind)]
    return [_command(group, fresh=fresh) for group in sorted(products, key=len, reverse=True)]


def _asked(item: SweepCell) -> SweepCell | None:
    """The cell of a row; None of one that cannot be asked for."""
    asked = kind(item)
    cell: Any = asked(**{name: getattr(item, name) for name in asked.names()})
    unstated = any(getattr(cell, name) is None for name in asked.names())
    return None if unstated or (isinstance(cell, AccumulationCell) and cell not in SUMS.values()) else cell


def _products(cells: Sequence[SweepCell]) -> list[list[SweepCell]]:
    """The cells in groups that are products of their axes. Groups that differ in one axis alone are one."""
    names = kind(cells[0]).names()
    axes = [_SHAPE, *((name,) for name in names if name not in _SHAPE)]
    if isinstance(cells[0], AccumulationCell):
        axes = [names]
    groups = [[cell] for cell in _with_one_cache(cells)]
    for axis in [axis for axis in axes if not _SAME & set(axis)]:
        merged: dict[tuple[frozenset[Any], ...], list[SweepCell]] = {}
        for group in groups:
            key = tuple(frozenset(_values(cell, other) for cell in group) for other in axes if other != axis)
            merged.setdefault(key, []).extend(group)
        groups = list(merged.values())
    return groups


def _with_one_cache(cells: Sequence[SweepCell]) -> list[SweepCell]:
    """Cells that are not compiled have no compiler's cache, and are said beside compiled ones with theirs."""
    caches = {
        cell.compile_cache for cell in cells if isinstance(cell, StepCell) and cell.backend.startswith("compiled")
    }
    if len(caches) != 1:
        return list(cells)
    (cache,) = caches
    return [replace(cell, compile_cache=cache) if isinstance(cell, StepCell) else cell for cell in cells]


def _values(cell: SweepCell, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(cell, name, None) for name in names)


def _command(cells: Sequence[SweepCell], *, fresh: bool) -> str:
    """The command for the product that these cells are."""
    asked = type(cells[0])
    words = ["python", "-m", "runner", "sweep", "--experiment", _EXPERIMENT[asked], *(["--fresh"] if fresh else [])]
    if asked is AccumulationCell:
        named = [name for name, cell in SUMS.items() if cell in cells]
        return shlex.join([*words, "--sums", ",".join(named)])
    if asked is not AttentionCell:
        words += _shape_flags(cells)
    limits = _LIMITED if GRIDS[asked].settable() >= LIMITS else {}
    for field, axis in {**GRIDS[asked].AXES, **limits}.items():
        values = sorted({getattr(cell, field) for cell in cells})
        if _goes_without_saying(asked, field, axis, values):
            continue
        if axis == "timeline":
            words += ["--timeline" if values[0] else "--no-timeline"]
        else:
            words += [f"--{axis.replace('_', '-')}", ",".join(map(_text, values))]
    return shlex.join(words)


def _goes_without_saying(asked: type[Cell], field: str, axis: str, values: Sequence[Any]) -> bool:
    """Whether the value is the one that the field has by default and that every preset gives it."""
    default = next(item.default for item in fields(asked) if item.name == field)
    if values != [default]:
        return False
    grids = [
        next(grid for grid in preset.grids[_EXPERIMENT[asked]] if grid.CELL is asked) for preset in PRESETS.values()
    ]
    return all(getattr(grid, axis) in ((default,), default) for grid in grids)


def _text(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value).lower()


def _shape_flags(cells: Sequence[SweepCell]) -> list[str]:
    """Shapes by name, and those without one by their numbers."""
    names = sorted({name for cell in cells if (name := shape_of(cell)) in SIZES})
    numbers = sorted({_numbers(cell) for cell in cells if shape_of(cell) not in SIZES})
    sizes = ["--sizes", ",".join(names)] if names else []
    return [*sizes, *(word for text in numbers for word in ("--shape", text))]


def _numbers(cell: SweepCell) -> str:
    return ",".join(f"{name}={getattr(cell, name)}" for name in _SHAPE)
