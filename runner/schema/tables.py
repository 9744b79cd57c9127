"""A table of the file: the dataclass of its rows, and what holds for all of them.

    Table(name="steps", row=StepRow, unique=("cell_id",), doc="One end-to-end Transformer cell.", timed=True)

Every file of this folder that defines `TABLES` adds its tables. Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from runner.schema.cells import Cell, Row
from runner.schema.choices import Phase
from runner.schema.columns import Column, Flag, columns_of


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the file. `unique` are the columns that identify a row; `stored` is False for a table of the spool.

    The rest is for tables of cells. `words` is what Explore calls the rows; it is empty where Explore does not show
    them. `numbers` names the columns that answers rest on, by default all numbers. `timed` tables have rows in
    `timings`, where the phase `whole` stands for a whole cell. `first` is an order in SQL where only the first of the
    rows with equal config fields counts, instead of every round. `named` are the cells that a flag sets by name. The
    rows of a `published` table were measured by others, and no filter of a page applies to them."""

    name: str
    row: type
    unique: tuple[str, ...]
    doc: str
    stored: bool = True
    words: str = ""
    numbers: str = ""
    timed: bool = False
    whole: Phase = "step"
    first: str = ""
    published: bool = False
    named: tuple[Flag, Mapping[str, Cell]] | None = field(default=None, compare=False)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.row)

    @property
    def cell(self) -> type[Cell]:
        """The class of the cells, for a table of cells."""
        assert issubclass(self.row, Cell)
        return self.row.asked()

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The names of the key's columns; empty for a table whose rows are not cells."""
        return self.row.names() if issubclass(self.row, Cell) else ()

    @cached_property
    def effort(self) -> tuple[Column, ...]:
        """The effort fields of the key: how long and how carefully a cell was measured."""
        return tuple(column for column in self.columns if column.effort)

    @cached_property
    def question(self) -> tuple[str, ...]:
        """The names of the config fields of the key: what was measured."""
        return tuple(name for name in self.key if not self.column(name).effort)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the columns."""
        return frozenset(column.name for column in self.columns)

    @cached_property
    def told(self) -> tuple[str, ...]:
        """The names of the columns that answers rest on, in the order of showing."""
        rest = {column.name for column in columns_of(Row)} | {*self.key}
        own = [column.name for column in self.columns if column.type in (int, float) and column.name not in rest]
        return tuple(self.numbers.split() or own)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)
