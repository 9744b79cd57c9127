"""What the contract is made of: columns, cells and tables as dataclasses carry them.

    class StepCell(Cell):
        context: int = required("Context", "tokens", "Tokens of each sequence.")

The files beside this one are where they are put to use. Standard library only.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
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


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table. `unit` is empty for names, counts of nothing in particular and times of day. `absent` is
    what rows hold that are older than the column: its default, of an axis what they were measured with.
    `effort` is None unless the column is a field of a key that says how a cell was measured, and not what. `asked`
    columns are of a cell's key; `nullable` ones may be unknown; `least` overrides the lower bound."""

    name: str
    type: type
    choices: tuple[str, ...]
    label: str
    unit: str
    doc: str
    effort: Preferred | None = None
    absent: str | float | None = None
    asked: bool = False
    nullable: bool = True
    least: float | None = None

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


def column(
    label: str,
    unit: str,
    doc: str,
    default: Any = None,
    *,
    effort: Preferred | None = None,
    least: float | None = None,
) -> Any:
    """A dataclass field that carries the label, unit and meaning of its column. `default=MISSING` makes it required;
    `least` is the smallest number it may hold, where its type and unit do not say so (`Column.bounds`)."""
    metadata = {"label": label, "unit": unit, "doc": doc, "effort": effort, "least": least}
    return field(default=default, metadata=metadata)


def required(label: str, unit: str, doc: str, *, least: float | None = None) -> Any:
    return column(label, unit, doc, default=MISSING, least=least)


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
        hints = get_type_hints(self.row)
        return tuple(
            Column(
                name=item.name,
                type=_plain(hints[item.name])[0],
                choices=_plain(hints[item.name])[1],
                asked=item.name in self.key,
                nullable=type(None) in get_args(hints[item.name]),
                absent=None if item.default is MISSING else item.default,
                **item.metadata,
            )
            for item in fields(self.row)
        )

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


def _plain(hint: Any) -> tuple[type, tuple[str, ...]]:
    """The plain type and the choices of an annotation: `Literal[...]` is a str, `X | None` is an X."""
    if get_origin(hint) is Literal:
        return str, get_args(hint)
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        return _plain(next(part for part in get_args(hint) if part is not type(None)))
    assert isinstance(hint, type), hint
    return hint, ()
