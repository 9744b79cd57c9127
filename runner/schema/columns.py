"""The columns of tables, as fields of a dataclass: label, unit, meaning and roles.

    class StepCell(Cell):
        context: int = field(metadata=describe("Context", "tokens", "Tokens of each sequence.", flag=CONTEXTS))
        loss: float | None = column("Loss", "nats", "Cross-entropy of the last measured step.")

Standard library only.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

#: The preferred value of an effort field: the greatest, the least, or the earliest of its choices.
Preferred = Literal["most", "least", "first"]

SQL_TYPES: Mapping[type, str] = {
    UUID: "UUID",
    int: "BIGINT",
    float: "DOUBLE",
    str: "VARCHAR",
    bool: "BOOLEAN",
    datetime: "TIMESTAMP",
}

#: The largest whole number, number with a unit, and number without one. Sums and products of a few larger ones would
#: not fit into 64 bits.
MAX_WHOLE, MAX_MEASURED, MAX_NUMBER = 2**60, 1e30, 1e100
#: The longest text (bytes) where a column does not say otherwise.
MAX_TEXT = 100_000
#: Units whose values are never negative, except where a column says otherwise with `least`, as a difference does.
_NEVER_NEGATIVE = "ms s µs bytes bytes/s FLOP FLOP/s tokens tokens/s sequences steps blocks MHz W J"


@dataclass(frozen=True)
class Flag:
    """A flag of `sweep` (`Flag("lengths", …)` is `--lengths`), which is also a name in its config file and an axis of a
    grid. It sets a column of one or of several kinds of cells. `{choices}` in `help` stands for the column's choices.
    An `axis` takes several values, a `limit` takes one number of at least `least`, a `switch` is on or off. One with an
    `effort` says how long or how carefully a cell is measured. One that is `open` takes a function of the user's own
    (`runner.schema.own`) beside its column's choices. Flags are listed in the order of their making."""

    name: str
    help: str
    kind: Literal["axis", "limit", "switch"] = "axis"
    least: int = 0
    effort: Preferred | None = None
    open: bool = False
    order: int = field(default_factory=itertools.count().__next__, compare=False, repr=False)


@dataclass(frozen=True)
class Column:
    """One column of a table, held by the metadata of the field of its dataclass. `unit` is empty for names, plain
    counts and times of day. `effort` is set for an effort field of a key, by its flag or without one. `flag` sets the
    column in a plan. `least` is the smallest allowed number where type and unit do not say it, `longest` the bytes of
    the longest text.

    `columns_of` takes the rest from the field: name, type, choices; `absent`, the default, which rows older than the
    column hold; `asked`, whether the column is part of a cell's key; `nullable`, whether it may be unknown."""

    label: str
    unit: str
    doc: str
    effort: Preferred | None = field(default=None, kw_only=True)
    flag: Flag | None = field(default=None, kw_only=True)
    least: float | None = field(default=None, kw_only=True)
    longest: int = field(default=MAX_TEXT, kw_only=True)
    name: str = field(default="", kw_only=True)
    type: type = field(default=str, kw_only=True)
    choices: tuple[str, ...] = field(default=(), kw_only=True)
    absent: str | float | None = field(default=None, kw_only=True)
    asked: bool = field(default=False, kw_only=True)
    nullable: bool = field(default=True, kw_only=True)

    @property
    def sets(self) -> Literal["axis", "limit", "switch"] | None:
        """The kind of the flag that sets the column, None without a flag."""
        return self.flag.kind if self.flag else None

    @property
    def sql_type(self) -> str:
        return SQL_TYPES[self.type]

    def preference(self, value: Any) -> float:
        """Returns a number for a value of an effort field. A larger number means a more preferred value."""
        if value is None:
            return -math.inf
        return -self.choices.index(value) if self.effort == "first" else -value if self.effort == "least" else value

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The smallest and the largest number that the column may hold, None for other types. Sizes in a key are at
        least 1, counts and most numbers with a unit at least 0."""
        if self.type not in (int, float):
            return None
        most = MAX_WHOLE if self.type is int else MAX_MEASURED if self.unit else MAX_NUMBER
        if self.least is not None:
            return max(self.least, -most), most
        if self.type is int:
            return int(self.asked), most
        return 0.0 if self.unit in _NEVER_NEGATIVE.split() else -most, most

    @property
    def title(self) -> str:
        """The label with its unit, for an axis or a table heading."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def describe(label: str, unit: str, doc: str, **roles: Any) -> Mapping[str, Column]:
    """Returns the metadata of a dataclass field for a column. `roles` are `effort`, `flag`, `least` and
    `longest` of `Column`."""
    return {"column": Column(label, unit, doc, **roles)}


def column(label: str, unit: str, doc: str, *, default: Any = None, **roles: Any) -> Any:
    """Returns the field of a column with a default. One without is a `field(metadata=describe(…))`, so that a type
    checker refuses a row that lacks it."""
    return field(default=default, metadata=describe(label, unit, doc, **roles))


def _read_columns(row: type) -> tuple[Column, ...]:
    """Returns the columns of a cell or a row, in the order of its fields."""
    hints, columns = get_type_hints(row), []
    key: tuple[str, ...] = getattr(row, "names", tuple)()
    for item in fields(row):
        bare: Column = item.metadata["column"]
        kind, choices = _parse_type(hints[item.name])
        made = replace(
            bare,
            name=item.name,
            effort=bare.effort or (bare.flag.effort if bare.flag else None),
            type=kind,
            choices=choices,
            asked=item.name in key,
            nullable=type(None) in get_args(hints[item.name]),
            absent=None if item.default is MISSING else item.default,
        )
        columns.append(made)
    return tuple(columns)


columns_of: Callable[[type], tuple[Column, ...]] = cache(_read_columns)


def _parse_type(hint: Any) -> tuple[type, tuple[str, ...]]:
    """Returns the plain type and the choices of an annotation: `Literal[...]` is a str, `X | None` is an X."""
    if get_origin(hint) is Literal:
        return str, get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return _parse_type(next(part for part in get_args(hint) if part is not type(None)))
    assert isinstance(hint, type), hint
    return hint, ()
