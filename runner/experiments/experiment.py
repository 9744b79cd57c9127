"""The declarations of an experiment and of a kind of cell.

    EXPERIMENT = Experiment(name="memory", question="…", kinds=(MEMORY,), grids={"laptop": (GRID,)})

A file of this folder that defines `EXPERIMENT` is an experiment; nothing else lists it. `measure` names the module and
the function that measures, so that torch stays out of here.

A `Grid` has axes whose product is a set of cells. Their names are those of the flags and of `sweep.toml`.

    >>> len(list(Grid.of(StepCell, sizes=("small",), contexts=(128, 256), precisions=("fp32", "bf16")).cells()))
    4

Standard library only.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from runner.analysis.costs.steps import Device
from runner.errors import UsageError
from runner.schema import Cell, Column, Model, Table, TimingRow, table_of
from runner.schema.columns import columns_of
from runner.schema.own import OwnModel, is_own_part
from runner.schema.sizes import parse_shape, size_named


@dataclass(frozen=True)
class Grid:
    """A product of axes over one kind of cell. `values` holds the axes and limits by the names of their flags. An axis
    that is not set has the column's default."""

    cell: type[Cell]
    values: Mapping[str, Any]

    @classmethod
    def of(cls, cell: type[Cell], **values: Any) -> Self:
        return cls(cell, {}).change(**values)

    def change(self, **values: Any) -> Self:
        assert values.keys() <= self.settable, values.keys() - self.settable
        return replace(self, values={**self.values, **values})

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that flags set, by the flags' names. The column that varies slowest in a plan comes first."""
        first = self.cell.AXES
        columns = sorted(
            columns_of(self.cell), key=lambda column: first.index(column.name) if column.name in first else len(first)
        )
        return {column.flag.name: column for column in columns if column.flag}

    @property
    def settable(self) -> frozenset[str]:
        """The names by which a user sets the grid's axes and limits."""
        named = table_of(self.cell).named
        shapes = ("sizes", "shape", "model") if issubclass(self.cell, Model) else ()
        return frozenset((*self.columns, *shapes, *([named[0].name] if named else [])))

    def value(self, name: str) -> Any:
        """Returns the values of an axis, or the number of a limit."""
        if name in self.values:
            return self.values[name]
        column = self.columns[name]
        if column.sets == "limit":
            return column.absent
        return () if column.absent is None else (column.absent,)

    def cells(self) -> Iterator[Cell]:
        """Yields every cell of the product, in the order of the axes."""
        axes = {name: column.name for name, column in self.columns.items() if column.sets != "limit"}
        limits = {column.name: self.value(name) for name, column in self.columns.items() if column.sets == "limit"}
        if {"min_steps", "max_steps"} <= limits.keys():  # the most steps are never fewer than the least
            limits["max_steps"] = max(limits["min_steps"], limits["max_steps"])
        for start in self._list_starts():
            for values in itertools.product(*map(self.value, axes)):
                yield self.cell(**{**dict(zip(axes.values(), values, strict=True)), **start}, **limits).normalized()

    def over(self, axes: Mapping[str, Any]) -> Self:
        """Returns the same grid with a user's axes. Axes that the grid lacks and values that its cells do not know are
        left out. Where a user set only the most steps, the least steps are at most as many. Raises UsageError where the
        two contradict each other."""
        own = {name: self._keep_known(name, value) for name, value in axes.items() if name in self.settable}
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

    def _keep_known(self, name: str, value: Any) -> Any:
        column = self.columns.get(name)
        if column is None or not column.choices:
            return value
        is_open = bool(column.flag and column.flag.open)
        return tuple(item for item in value if item in column.choices or (is_open and is_own_part(item)))

    def _list_starts(self) -> list[dict[str, Any]]:
        """Returns the fields that no axis sets: the numbers of each shape, what is fixed of each own model, or the
        fields of each named cell."""
        named = table_of(self.cell).named
        if named:
            flag, cells = named
            return [asdict(cells[name]) for name in self.values.get(flag.name, cells)]
        if not issubclass(self.cell, Model):
            return [{}]
        sizes = [size_named(name) for name in self.values.get("sizes", ())]
        shapes = [size.numbers for size in (*sizes, *map(parse_shape, self.values.get("shape", ())))]
        own: tuple[OwnModel, ...] = self.values.get("model", ())
        names = self.cell.names()
        return [*shapes, *({k: v for k, v in model.fixed.items() if k in names} for model in own)]


@dataclass(frozen=True)
class Variants:
    """Grids that belong together, such as a step with one setting changed at a time. A user's axes apply to each of
    them. Cells for which `holds` is False are left out."""

    grids: tuple[Grid, ...]
    holds: Callable[[Any], bool]

    @property
    def cell(self) -> type[Cell]:
        return self.grids[0].cell

    @property
    def settable(self) -> frozenset[str]:
        return self.grids[0].settable

    def cells(self) -> Iterator[Cell]:
        return (cell for grid in self.grids for cell in grid.cells() if self.holds(cell))

    def over(self, axes: Mapping[str, Any]) -> Self:
        return replace(self, grids=tuple(grid.over(axes) for grid in self.grids))


#: The time to start a process, start CUDA and build a model in it, by device (s).
START_SECONDS: Mapping[Device, float] = {"cuda": 2.0, "mps": 3.0, "cpu": 0.15}


@dataclass(frozen=True, kw_only=True)
class On:
    """The device on which a cell will run: its name, the FLOP/s that it reaches in the cell's precision, and what is
    known of own models, by key."""

    device: Device
    flops_per_s: float
    gpu: str = ""
    own: Mapping[str, OwnModel] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The expected cost of a cell: operations of one step, bytes at its peak (None for an own model), and seconds from
    the start of its process to its row."""

    step_flops: int
    peak_bytes: int | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of cell. `measure` names the module and the function that measures one. The function takes a job and a
    function that it tells each phase, and returns a Measurement. It raises Skipped where this machine cannot measure a
    cell; errors of torch go through.

    `check` raises UsageError for a cell that makes no sense on any machine. `summarize` describes a row that is ok in a
    few words, from its timings by phase; `explain` describes what a failed row still knows. `fits` says whether the
    shape of a cell fits into the bytes of a device; presets leave out cells that do not fit. Of each `repeat_group` a
    sweep measures the cheapest cell in several processes, to learn the machine's noise."""

    cell: type[Cell]
    measure: str
    predict: Callable[[Any, On], Prediction]
    summarize: Callable[[Any, Mapping[str, TimingRow]], str]
    check: Callable[[Any], None] = lambda cell: None
    explain: Callable[[Any], str] = lambda row: ""
    fits: Callable[[Any, int], bool] = lambda cell, memory_bytes: True
    repeat_group: Callable[[Any], str] = lambda cell: ""

    @property
    def table(self) -> Table:
        return table_of(self.cell)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, the kinds of cells that answer it, and the grids of each preset. A preset that is not named leaves
    the experiment out. Once a user sets an axis, only the first grid of each kind is measured."""

    name: str
    question: str
    kinds: tuple[Kind, ...]
    grids: Mapping[str, tuple[Grid | Variants, ...]]
