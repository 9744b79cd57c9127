"""Rows as typed objects, by the names of a query's columns: the one place where a row of DuckDB becomes a dataclass.

    kept = fetch(reader, "SELECT operation, count(*) AS tensors FROM saved_tensors GROUP BY ALL", kind=SavedOperation)
    cells = fetch(reader, f"SELECT machine, {select(StepCell)} FROM chosen", kind=Costs)       # Costs.cell: StepCell

A field gets the column of its name; a field that is itself a dataclass, and of whose name there is no column, is made
of the columns of its own fields, or is None where it may be and none of them has a value. A list becomes a
tuple where the field says so. A field without a column keeps its default. Every column has to find its place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import duckdb

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any] | None
Values = tuple[Any, ...]


def fetch(con: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = None, *, kind: type[T],
          cell: type | None = None) -> list[T]:  # fmt: skip
    """The rows that the query brings back, in its order. `cell` is the type of the field of that name where `kind`
    leaves it open."""
    answer = con.execute(sql, parameters)
    made: type = kind
    build = _builder(made, _names(answer), cell)
    return [build(row) for row in answer.fetchall()]


def fetch_by(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = None, *, kind: type[T], by: tuple[str, ...]
) -> dict[Any, list[T]]:
    """The same by the values of other columns: those of one name itself, of several a tuple."""
    answer = con.execute(sql, parameters)
    names = _names(answer)
    key = itemgetter(*map(names.index, by))
    rest = [place for place, name in enumerate(names) if name not in by]
    made: type = kind
    build = _builder(made, tuple(names[place] for place in rest), None)
    values = _getter(rest)
    found: dict[Any, list[T]] = {}
    for row in answer.fetchall():
        found.setdefault(key(row), []).append(build(values(row)))
    return found


def select(kind: type, prefix: str = "") -> str:
    """The columns of a dataclass, as a query lists them."""
    return ", ".join(f"{prefix}{item.name}" for item in fields(kind))


def _names(answer: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    return tuple(column[0] for column in answer.description or ())


@lru_cache(maxsize=512)
def _builder(kind: type, names: tuple[str, ...], cell: type | None) -> Callable[[Values], Any]:
    """What makes an object of one row of these columns."""
    own = [item.name for item in fields(kind) if item.name in names]
    hints = get_type_hints(kind)
    inner = {name: cell if name == "cell" and cell else _dataclass_in(hint) for name, hint in hints.items()}
    parts = [
        (name, _builder(part, tuple(found), None), _getter([names.index(column) for column in found]),
         type(None) in get_args(hints[name]))
        for name, part in inner.items()
        if part and name not in names and (found := [item.name for item in fields(part) if item.name in names])
    ]  # fmt: skip
    used = {*own, *(item.name for name, *_ in parts for item in fields(inner[name] or kind))}
    assert used >= set(names), f"{kind.__name__} has no place for {sorted(set(names) - used)}"
    values = _getter([names.index(name) for name in own])
    listed = [name for name in own if get_origin(hints[name]) is tuple]

    def build(row: Values) -> Any:
        given = dict(zip(own, values(row), strict=True))
        for name in listed:
            given[name] = tuple(given[name])
        for name, make, choose, optional in parts:
            chosen = choose(row)
            given[name] = None if optional and all(value is None for value in chosen) else make(chosen)
        return kind(**given)

    return build


def _dataclass_in(hint: Any) -> type | None:
    """The dataclass that a field holds, where it holds one or None."""
    kinds = [part for part in (hint, *get_args(hint)) if isinstance(part, type) and is_dataclass(part)]
    return kinds[0] if len(kinds) == 1 and (hint is kinds[0] or type(None) in get_args(hint)) else None


def _getter(places: Sequence[int]) -> Callable[[Values], Values]:
    """The values at these places of a row, as a tuple also where there is one place or none."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple(row[place] for place in places)
