"""What a field of a dataclass says as a column of a table: label, unit, meaning and roles.

    class StepCell(Cell):
        context: Annotated[int, Column("Context", "tokens", "Tokens of each sequence.", flag=CONTEXTS)]

Standard library only.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import datetime
from functools import cache
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
class Flag:
    """What sets a column in a plan: a flag of `sweep`, a name in its config file, an axis of a grid. Cells of several
    kinds share one. In `help` stands `{choices}` for what may be chosen. An `axis` takes several values, a `limit` one
    number of at least `least`, a `switch` is on or off. Flags are listed in the order in which they were made."""

    name: str
    help: str
    kind: Literal["axis", "limit", "switch"] = "axis"
    least: int = 0
    order: int = field(default_factory=itertools.count().__next__, compare=False, repr=False)


@dataclass(frozen=True)
class Column:
    """One column of a table, as the annotation of its field says it. `unit` is empty for names, counts of nothing in
    particular and times of day. `effort` is None unless the column is a field of a key that says how a cell was
    measured, and not what; `flag` is what sets it in a plan, if anything does; `least` is the smallest number it may
    hold, where its type and unit do not say so.

    What the field itself says is filled in by `columns_of`: its name, type and choices, `absent`, which is what rows
    hold that are older than the column (its default; of an axis, what they were measured with), whether it is `asked`
    for, which is part of a cell's key, and whether it is `nullable`, which is that it may be unknown."""

    label: str
    unit: str
    doc: str
    effort: Preferred | None = field(default=None, kw_only=True)
    flag: Flag | None = field(default=None, kw_only=True)
    least: float | None = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    type: type = field(default=str, kw_only=True)
    choices: tuple[str, ...] = field(default=(), kw_only=True)
    absent: str | float | None = field(default=None, kw_only=True)
    asked: bool = field(default=False, kw_only=True)
    nullable: bool = field(default=True, kw_only=True)

    @property
    def sets(self) -> Literal["axis", "limit", "switch"] | None:
        """How a flag sets it, if one does."""
        return self.flag.kind if self.flag else None

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


def columns_of(row: type) -> tuple[Column, ...]:
    """The columns of a cell or a row, in the order of its fields."""
    return _columns(row)


@cache
def _columns(row: type) -> tuple[Column, ...]:
    hints = get_type_hints(row, include_extras=True)
    key: tuple[str, ...] = getattr(row, "names", tuple)()
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
