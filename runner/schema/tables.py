"""A table of the file: its rows as a dataclass, and what is said of them together.

    Table(name="steps", row=StepRow, unique=("cell_id",), doc="One end-to-end Transformer cell.", timed=True)

Every file of this folder that defines `TABLES` adds its own. Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from runner.schema.cells import Cell, Row
from runner.schema.columns import Column, Flag, columns_of


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the file. `unique` are the columns that name a row; `stored` is False for what lives in the spool.

    Of tables of cells: `words` are what Explore calls the rows, if it shows them; `numbers` the names of the columns
    that answers rest on, all numbers if there are none; `timed` says that the cells have rows in `timings`; `first` is
    the order, in SQL, of rows that ask the same question, where one of them counts and not each round; `named` are the
    cells that a flag sets by name."""

    name: str
    row: type
    unique: tuple[str, ...]
    doc: str
    stored: bool = True
    words: str = ""
    numbers: str = ""
    timed: bool = False
    first: str = ""
    named: tuple[Flag, Mapping[str, Cell]] | None = field(default=None, compare=False)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.row)

    @property
    def cell(self) -> type[Cell]:
        """What its rows were asked, of a table of cells."""
        assert issubclass(self.row, Cell)
        return self.row.asked()

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns of what was asked for; empty for a table whose rows are not cells."""
        return self.row.names() if issubclass(self.row, Cell) else ()

    @cached_property
    def effort(self) -> tuple[Column, ...]:
        """The columns of the key that say how a cell was measured, and not what."""
        return tuple(column for column in self.columns if column.effort)

    @cached_property
    def question(self) -> tuple[str, ...]:
        """The columns of the key that say what was measured."""
        return tuple(name for name in self.key if not self.column(name).effort)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its columns."""
        return frozenset(column.name for column in self.columns)

    @cached_property
    def told(self) -> tuple[str, ...]:
        """The columns that answers rest on, in the order in which they are shown."""
        rest = {column.name for column in columns_of(Row)} | {*self.key}
        own = [column.name for column in self.columns if column.type in (int, float) and column.name not in rest]
        return tuple(self.numbers.split() or own)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)
