"""The `sweep` commands that measure given cells again, and no others.

    >>> sweep_commands(cells)
    ['python -m runner sweep --experiment benchmark --fresh --sizes small --contexts 128,512 --modes train …']

A sweep measures a product of axes, so cells that form no product take several commands. Values that every preset has
anyway are left out. Limits: a cell with unknown key fields, as published rows may have, gets no command. Standard
library only.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from runner.experiments import KINDS, experiment_of
from runner.experiments.experiment import Grid
from runner.plan.planning import PRESETS
from runner.schema import Cell, Model, StepCell, table_of
from runner.schema.axes import MODEL, SHAPE
from runner.schema.columns import Column, columns_of
from runner.schema.own import is_unread
from runner.schema.sizes import SIZES, model_name


def sweep_commands(cells: Iterable[Cell], *, fresh: bool = True) -> list[str]:
    """Returns sweeps that together measure exactly these cells, each once; those of most cells come first.

    Rows count as their cells. Without `fresh`, cells that are done are not measured again."""
    known = dict.fromkeys(cell for item in cells if (cell := cell_of(item)) is not None)
    kinds = dict.fromkeys(type(cell) for cell in known)
    products = [group for kind in kinds for group in _products([cell for cell in known if type(cell) is kind])]
    return [_command(group, fresh=fresh) for group in sorted(products, key=len, reverse=True)]


def cell_of(item: Cell) -> Cell | None:
    """Returns the cell of a row; None if a sweep cannot measure it."""
    kind = item.asked()
    if all(kind is not one.cell for one in KINDS):
        return None
    values = {name: getattr(item, name) for name in kind.names()}
    known = {column.name for column in columns_of(kind) if not column.nullable}
    if issubclass(kind, Model) and values["model_key"] is None:
        known |= {*SHAPE}
    cell, named = kind(**values), table_of(kind).named
    is_whole = all(values[name] is not None for name in known)
    return cell if is_whole and (not named or cell in named[1].values()) else None


def _products(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Groups cells of one kind into products of their axes, by merging groups that differ in one axis only.

    All cells of a group have the same limits and switches, because a command takes one value of each."""
    kind = type(cells[0])
    columns = {column.name: column for column in columns_of(kind)}
    joint = kind.names() if table_of(kind).named else MODEL if issubclass(kind, Model) else ()
    axes = [joint] * bool(joint) + [(name,) for name in kind.names() if name not in joint]
    groups = [[cell] for cell in _with_one_cache(cells)]
    for axis in [axis for axis in axes if columns[axis[0]].sets not in ("limit", "switch")]:
        merged: dict[tuple[frozenset[Any], ...], list[Cell]] = {}
        for group in groups:
            key = tuple(frozenset(map(attrgetter(*other), group)) for other in axes if other != axis)
            merged.setdefault(key, []).extend(group)
        groups = list(merged.values())
    return groups


def _with_one_cache(cells: Sequence[Cell]) -> list[Cell]:
    """Gives uncompiled cells, which use no compile cache, the cache of the compiled ones, to share commands."""
    steps = [cell for cell in cells if isinstance(cell, StepCell)]
    caches = {cell.compile_cache for cell in steps if cell.backend.startswith("compiled")}
    return [replace(cell, compile_cache=cache) for cell in steps for cache in caches] if len(caches) == 1 else [*cells]


def _command(cells: Sequence[Cell], *, fresh: bool) -> str:
    kind = type(cells[0])
    words = ["python", "-m", "runner", "sweep", "--experiment", experiment_of(kind).name, *["--fresh"] * fresh]
    if named := table_of(kind).named:
        names = [name for name, cell in named[1].items() if cell in cells]
        return shlex.join([*words, f"--{named[0].name}", ",".join(names)])
    if issubclass(kind, Model):
        words += _model_flags([cell for cell in cells if isinstance(cell, Model)])
    # Limits stand behind the axes.
    for name, column in sorted(Grid.of(kind).columns.items(), key=lambda item: item[1].sets == "limit"):
        values = sorted({getattr(cell, column.name) for cell in cells})
        if all(is_unread(column.name, value) for value in values) or _is_default(kind, name, column, values):
            continue
        flag = name.replace("_", "-")
        if column.sets == "switch":
            words += [f"--{flag}" if values[0] else f"--no-{flag}"]
        else:
            words += [f"--{flag}", ",".join(map(_format_value, values))]
    return shlex.join(words)


def _is_default(kind: type[Cell], axis: str, column: Column, values: Sequence[Any]) -> bool:
    """Returns whether the only value is the column's default, and every preset's first grid has it too."""
    of_presets = [preset.grids[experiment_of(kind).name] for preset in PRESETS.values()]
    first = (next((grid for grid in grids if grid.cell is kind), None) for grids in of_presets)
    is_usual = all(grid.value(axis) in ((column.absent,), column.absent) for grid in first if isinstance(grid, Grid))
    return values == [column.absent] and is_usual


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _model_flags(cells: Sequence[Model]) -> list[str]:
    """Returns the flags of the cells' models: of a shape its name, or its numbers where it has none; of an own model
    where it comes from."""
    own = dict.fromkeys(cell.model or "" for cell in cells if cell.model_key is not None)
    cells = [cell for cell in cells if cell.model_key is None]
    names = sorted({name for cell in cells if (name := model_name(cell)) in SIZES})
    shapes = {
        ",".join(f"{name}={getattr(cell, name)}" for name in SHAPE) for cell in cells if model_name(cell) not in SIZES
    }
    sizes = ["--sizes", ",".join(names)] if names else []
    return [
        *sizes,
        *(word for shape in sorted(shapes) for word in ("--shape", shape)),
        *(word for spec in own for word in ("--model", spec)),
    ]
