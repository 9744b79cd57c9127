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

from runner.experiments import experiment_of
from runner.experiments.grid import Grid
from runner.plan.presets import PRESETS
from runner.schema import Cell, Shape, StepCell, table_of
from runner.schema.axes import SHAPE
from runner.schema.columns import columns_of
from runner.schema.sizes import SIZES
from runner.schema.titles import shape_of


def sweep_commands(cells: Iterable[Cell], *, fresh: bool = True) -> list[str]:
    """Sweeps that together measure exactly these cells, each once; those of most cells first. Rows count as their
    cells. Without `fresh`, cells that are done are not measured again."""
    found = dict.fromkeys(cell for item in cells if (cell := _asked(item)) is not None)
    kinds: dict[type[Cell], list[Cell]] = {}
    for cell in found:
        kinds.setdefault(type(cell), []).append(cell)
    products = [group for of_kind in kinds.values() for group in _products(of_kind)]
    return [_command(group, fresh=fresh) for group in sorted(products, key=len, reverse=True)]


def _asked(item: Cell) -> Cell | None:
    """The cell of a row; None of one that cannot be asked for."""
    asked = item.asked()
    values = {name: getattr(item, name) for name in asked.names()}
    cell, named = asked(**values), table_of(asked).named
    return None if None in values.values() or (named and cell not in named[1].values()) else cell


def _products(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells in groups that are products of their axes. Groups that differ in one axis alone are one. Limits and
    switches are the same for all cells of a command."""
    asked = type(cells[0])
    columns = {column.name: column for column in columns_of(asked)}
    together = asked.names() if table_of(asked).named else SHAPE if issubclass(asked, Shape) else ()
    alone = [(name,) for name in asked.names() if name not in together]
    axes: list[tuple[str, ...]] = [together, *alone] if together else [*alone]
    groups = [[cell] for cell in _with_one_cache(cells)]
    for axis in [axis for axis in axes if columns[axis[0]].sets not in ("limit", "switch")]:
        merged: dict[tuple[frozenset[Any], ...], list[Cell]] = {}
        for group in groups:
            key = tuple(frozenset(_values(cell, other) for cell in group) for other in axes if other != axis)
            merged.setdefault(key, []).extend(group)
        groups = list(merged.values())
    return groups


def _with_one_cache(cells: Sequence[Cell]) -> list[Cell]:
    """Cells that are not compiled have no compiler's cache, and are said beside compiled ones with theirs."""
    steps = [cell for cell in cells if isinstance(cell, StepCell)]
    caches = {cell.compile_cache for cell in steps if cell.backend.startswith("compiled")}
    return [replace(cell, compile_cache=cache) for cell in steps for cache in caches] if len(caches) == 1 else [*cells]


def _values(cell: Cell, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(cell, name, None) for name in names)


def _command(cells: Sequence[Cell], *, fresh: bool) -> str:
    """The command for the product that these cells are."""
    asked, grid = type(cells[0]), Grid.of(type(cells[0]))
    experiment = experiment_of(asked).name
    words = ["python", "-m", "runner", "sweep", "--experiment", experiment, *(["--fresh"] if fresh else [])]
    if named := table_of(asked).named:
        known = [name for name, cell in named[1].items() if cell in cells]
        return shlex.join([*words, f"--{named[0].name}", ",".join(known)])
    if issubclass(asked, Shape):
        words += _shape_flags(cells)
    # Limits stand behind the axes.
    for name, column in sorted(grid.columns.items(), key=lambda item: item[1].sets == "limit"):
        values = sorted({getattr(cell, column.name) for cell in cells})
        if _goes_without_saying(asked, column.name, name, values):
            continue
        flag = name.replace("_", "-")
        if column.sets == "switch":
            words += [f"--{flag}" if values[0] else f"--no-{flag}"]
        else:
            words += [f"--{flag}", ",".join(map(_text, values))]
    return shlex.join(words)


def _goes_without_saying(asked: type[Cell], field: str, axis: str, values: Sequence[Any]) -> bool:
    """Whether the value is the one that the field has by default and that every preset gives it."""
    default = next(item.default for item in fields(asked) if item.name == field)
    if values != [default]:
        return False
    first = [
        next((grid for grid in preset.grids[experiment_of(asked).name] if grid.cell is asked), None)
        for preset in PRESETS.values()
    ]
    return all(grid.value(axis) in ((default,), default) for grid in first if isinstance(grid, Grid))


def _text(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value).lower()


def _shape_flags(cells: Sequence[Cell]) -> list[str]:
    """Shapes by name, and those without one by their numbers."""
    names = sorted({name for cell in cells if (name := shape_of(cell)) in SIZES})
    numbers = sorted({_numbers(cell) for cell in cells if shape_of(cell) not in SIZES})
    sizes = ["--sizes", ",".join(names)] if names else []
    return [*sizes, *(word for text in numbers for word in ("--shape", text))]


def _numbers(cell: Cell) -> str:
    return ",".join(f"{name}={getattr(cell, name)}" for name in SHAPE)
