"""What the contract is made of: columns, cells and tables as dataclasses carry them.

    class StepCell(Cell):
        context: Annotated[int, Column("Context", "tokens", "Tokens of each sequence.")]

The files beside this one are where they are put to use. Standard library only.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

#: Which value of a field that says how a cell was measured, and not what, is preferred: the greatest, the least, or the
#: earliest of its choices.
Preferred = Literal["most", "least", "first"]

SQL_TYPES: Mapping[type, str] = {
    UUID: "UUID",
    int: "BIGINT",
    float: "DOUBLE",
    str: "VARCHAR",
    bool: "BOOLEAN",
    datetime: "TIMESTAMP",
}


#: The largest whole number, the largest number with a unit, the largest without one: beyond them sums and products
#: of a few rows no longer fit into 64 bits.
MAX_WHOLE, MAX_MEASURED, MAX_NUMBER = 2**60, 1e30, 1e100
#: Units of which there cannot be less than none, as there is of a difference (a column says so with `least`).
_NEVER_NEGATIVE = {"ms", "s", "µs", "bytes", "bytes/s", "FLOP", "FLOP/s", "tokens", "tokens/s", "sequences", "steps",
                   "blocks", "MHz", "W"}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One column of a table, as the annotation of its field says it. `unit` is empty for names, counts of nothing in
    particular and times of day. `effort` is None unless the column is a field of a key that says how a cell was
    measured, and not what; `least` is the smallest number it may hold, where its type and unit do not say so.

    What the field itself says is filled in by `columns_of`: its name, type and choices, `absent`, which is what rows
    hold that are older than the column (its default; of an axis, what they were measured with), whether it is `asked`
    for, which is part of a cell's key, and whether it is `nullable`, which is that it may be unknown."""

    label: str
    unit: str
    doc: str
    effort: Preferred | None = field(default=None, kw_only=True)
    least: float | None = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    type: type = field(default=str, kw_only=True)
    choices: tuple[str, ...] = field(default=(), kw_only=True)
    absent: str | float | None = field(default=None, kw_only=True)
    asked: bool = field(default=False, kw_only=True)
    nullable: bool = field(default=True, kw_only=True)

    @property
    def sql_type(self) -> str:
        return SQL_TYPES[self.type]

    def preference(self, value: Any) -> float:
        """A number for each value of a column of effort: the larger, the more preferred."""
        if value is None:
            return -math.inf
        return -self.choices.index(value) if self.effort == "first" else -value if self.effort == "least" else value

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the largest value of a number, None for other types: sizes that are asked for are at least 1,
        counts and whatever has a unit are at least 0."""
        if self.type not in (int, float):
            return None
        most = MAX_WHOLE if self.type is int else MAX_MEASURED if self.unit else MAX_NUMBER
        if self.least is not None:
            return max(self.least, -most), most
        if self.type is int:
            return int(self.asked), most
        return 0.0 if self.unit in _NEVER_NEGATIVE else -most, most

    @property
    def title(self) -> str:
        """The label with its unit, as an axis or a table heading shows it."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def utc_now() -> datetime:
    """The time of day as every table stores it: UTC, without a zone attached."""
    return datetime.now(UTC).replace(tzinfo=None)


def new_id() -> UUID:
    """A UUIDv7: sorts by the millisecond it was made in (RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    version, variant = 0x7 << 76, 0b10 << 62
    return UUID(
        int=(milliseconds << 80) | version | ((random >> 62 & 0xFFF) << 64) | variant | (random & (1 << 62) - 1)
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is asked for. Keyed on numbers, never on a name: sizes of one name differ between editions."""

    @cached_property
    def key(self) -> str:
        """16 hex digits that name this question. Only fields that differ from their default count, so that an axis
        added later leaves every older key as it was."""
        asked = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name in self.names() and (item.default is MISSING or getattr(self, item.name) != item.default)
        }
        text = json.dumps([_cell_type(type(self)).__name__, asked], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the key's fields, also when asked of a row."""
        return tuple(item.name for item in fields(_cell_type(cls)))


def _cell_type(kind: type[Cell]) -> type[Cell]:
    """The cell class that `kind` is or, for a row, was made from."""
    return next(base for base in kind.__mro__ if Cell in base.__bases__)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the file. `unique` are the columns that name a row; `stored` is False for what lives in the spool."""

    name: str
    row: type
    unique: tuple[str, ...]
    doc: str
    stored: bool = True

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.row)

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

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


def columns_of(row: type) -> tuple[Column, ...]:
    """The columns of a cell or a row, in the order of its fields."""
    return _columns(row)


@cache
def _columns(row: type) -> tuple[Column, ...]:
    hints = get_type_hints(row, include_extras=True)
    key = row.names() if issubclass(row, Cell) else ()
    return tuple(_column(item, hints[item.name], asked=item.name in key) for item in fields(row))


def _column(item: Field[Any], hint: Any, *, asked: bool) -> Column:
    said: Column
    held, said = get_args(hint)
    kind, choices = _plain(held)
    return replace(
        said,
        name=item.name,
        type=kind,
        choices=choices,
        asked=asked,
        nullable=type(None) in get_args(held),
        absent=None if item.default is MISSING else item.default,
    )


def _plain(hint: Any) -> tuple[type, tuple[str, ...]]:
    """The plain type and the choices of an annotation: `Literal[...]` is a str, `X | None` is an X."""
    if get_origin(hint) is Literal:
        return str, get_args(hint)
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        return _plain(next(part for part in get_args(hint) if part is not type(None)))
    assert isinstance(hint, type), hint
    return hint, ()
