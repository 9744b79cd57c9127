"""Axes whose product is a set of cells. Their names are those of the flags and of `sweep.toml`.

    >>> len(list(Grid.of(StepCell, sizes=("small",), contexts=(128, 256), precisions=("fp32", "bf16")).cells()))
    4

Standard library only.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from runner.errors import UsageError
from runner.schema import Cell, Column, Shape, table_of
from runner.schema.columns import columns_of
from runner.schema.sizes import parse_shape, size_named


@dataclass(frozen=True)
class Grid:
    """A product of axes over one kind of cell: each value by the name of its flag. An axis that is not set has the
    column's default."""

    cell: type[Cell]
    values: Mapping[str, Any]

    @classmethod
    def of(cls, cell: type[Cell], **values: Any) -> Self:
        """The grid of such cells with these axes and limits."""
        return cls(cell, {}).change(**values)

    def change(self, **values: Any) -> Self:
        """The same grid with other values of these axes and limits."""
        assert values.keys() <= self.settable, values.keys() - self.settable
        return replace(self, values={**self.values, **values})

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that flags set, by the flags' names, in the order in which a plan goes through them."""
        first = self.cell.AXES
        found = sorted(
            (column for column in columns_of(self.cell) if column.flag),
            key=lambda column: first.index(column.name) if column.name in first else len(first),
        )
        return {column.flag.name: column for column in found if column.flag}

    @property
    def settable(self) -> frozenset[str]:
        """The names by which a user sets its axes and limits."""
        named = table_of(self.cell).named
        shapes = ("sizes", "shape") if issubclass(self.cell, Shape) else ()
        return frozenset((*self.columns, *shapes, *([named[0].name] if named else [])))

    def value(self, name: str) -> Any:
        """The values of an axis, or the number of a limit."""
        if name in self.values:
            return self.values[name]
        column = self.columns[name]
        if column.sets == "limit":
            return column.absent
        return () if column.absent is None else (column.absent,)

    def cells(self) -> Iterator[Cell]:
        """Every cell of the product, in the order of the axes."""
        axes = {name: column for name, column in self.columns.items() if column.sets != "limit"}
        for start in self._starts():
            for values in itertools.product(*(self.value(name) for name in axes)):
                asked = dict(zip((column.name for column in axes.values()), values, strict=True))
                yield self.cell(**start, **asked, **self._limits()).normalized()

    def over(self, axes: Mapping[str, Any]) -> Self:
        """The same grid with the axes that a user set, as far as it has them, and of their values those that its cells
        know. Of the least and the most steps, the one that a user set decides over the other. Raises UsageError where
        both were set and contradict each other."""
        own = {name: self._known(name, value) for name, value in axes.items() if name in self.settable}
        least, most = own.get("steps"), own.get("max_steps")
        if least is not None and most is not None and least > most:
            raise UsageError(
                f"At least {least} steps and at most {most} contradict each other.",
                expected="--max-steps of at least --steps",
                do=f"Use --max-steps {least}, or --steps {most}.",
            )
        if most is not None and least is None:
            own["steps"] = min(self.value("steps"), most)
        return self.change(**own)

    def _known(self, name: str, value: Any) -> Any:
        choices = self.columns[name].choices if name in self.columns else ()
        return tuple(item for item in value if item in choices) if choices else value

    def _starts(self) -> list[dict[str, Any]]:
        """What cells are made of before the axes: the numbers of each shape, or what goes by a name."""
        named = table_of(self.cell).named
        if named:
            flag, cells = named
            return [asdict(cells[name]) for name in self.values.get(flag.name, cells)]
        if not issubclass(self.cell, Shape):
            return [{}]
        sizes = [size_named(name) for name in self.values.get("sizes", ())]
        return [size.numbers for size in (*sizes, *map(parse_shape, self.values.get("shape", ())))]

    def _limits(self) -> dict[str, Any]:
        """What says how carefully a cell is measured; the most steps are never fewer than the least."""
        limits = {name: column for name, column in self.columns.items() if column.sets == "limit"}
        found = {column.name: self.value(name) for name, column in limits.items()}
        if {"min_steps", "max_steps"} <= found.keys():
            found["max_steps"] = max(found["min_steps"], found["max_steps"])
        return found


@dataclass(frozen=True)
class Variants:
    """Grids that ask one question together, such as a step with one thing changed at a time. Axes go over each of them;
    a cell that `holds` refuses then is left out."""

    grids: tuple[Grid, ...]
    holds: Callable[[Any], bool]

    @property
    def cell(self) -> type[Cell]:
        return self.grids[0].cell

    @property
    def settable(self) -> frozenset[str]:
        """The names by which a user sets axes and limits of its grids."""
        return self.grids[0].settable

    def cells(self) -> Iterator[Cell]:
        """The cells of each grid in turn."""
        every = itertools.chain.from_iterable(grid.cells() for grid in self.grids)
        return (cell for cell in every if self.holds(cell))

    def over(self, axes: Mapping[str, Any]) -> Self:
        """The same grids with the axes that a user set."""
        return replace(self, grids=tuple(grid.over(axes) for grid in self.grids))
