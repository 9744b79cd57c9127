"""Runs a query and makes its rows dataclasses; loads rows of a table, and the samples and rounds of cells, as they are.

rows = fetch(reader, "SELECT name, ms FROM …", kind=Example)
samples = load_samples(path, "steps", cell_id)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

import duckdb

from runner.results import PhaseSample
from runner.schema import Row, table_of
from runner.store.contract import is_stated
from runner.store.database import open_reader

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any] | None
Values = tuple[Any, ...]


def fetch(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = None, *, kind: type[T], cell: type | None = None
) -> list[T]:
    """Returns the query's rows in its order. `cell` is the type of the field `cell` where `kind` leaves it open."""
    answer = con.execute(sql, parameters)
    made: type = kind
    build = _make_builder(made, _list_names(answer), cell)
    return [build(row) for row in answer.fetchall()]


def fetch_by(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = None, *, kind: type[T], by: tuple[str, ...]
) -> dict[Any, list[T]]:
    """Returns the query's rows by the values of the columns `by`: the value of one column, a tuple of several."""
    answer = con.execute(sql, parameters)
    names = _list_names(answer)
    key = itemgetter(*map(names.index, by))
    rest = [place for place, name in enumerate(names) if name not in by]
    made: type = kind
    build = _make_builder(made, tuple(names[place] for place in rest), None)
    values = _make_getter(rest)
    found: dict[Any, list[T]] = {}
    for row in answer.fetchall():
        found.setdefault(key(row), []).append(build(values(row)))
    return found


def select(kind: type, prefix: str = "") -> str:
    """Returns the columns of a dataclass, as a query lists them."""
    return ", ".join(f"{prefix}{item.name}" for item in fields(kind))


def _list_names(answer: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    return tuple(column[0] for column in answer.description or ())


@lru_cache(maxsize=512)
def _make_builder(kind: type, names: tuple[str, ...], cell: type | None) -> Callable[[Values], Any]:
    """Returns a function that builds an object from a row of these columns."""
    hints = get_type_hints(kind)
    own = [item.name for item in fields(kind) if item.name in names]
    used, parts = {*own}, []
    for name, hint in hints.items():
        part = cell if name == "cell" and cell else _find_dataclass(hint)
        inner = [item.name for item in fields(part) if item.name in names] if part and name not in names else []
        if part and inner:
            used |= {*inner}
            pick = _make_getter([names.index(column) for column in inner])
            parts.append((name, _make_builder(part, tuple(inner), None), pick, type(None) in get_args(hint)))
    assert used >= {*names}, f"{kind.__name__} has no place for {sorted({*names} - used)}"
    values = _make_getter([names.index(name) for name in own])
    listed = [name for name in own if get_origin(hints[name]) is tuple]

    built = {*own, *(name for name, *_ in parts)}
    rest = [item for item in fields(kind) if item.name not in built]
    defaults = {item.name: item.default for item in rest if item.default is not MISSING}
    factories = {item.name: item.default_factory for item in rest if item.default_factory is not MISSING}
    assert len(defaults) + len(factories) == len(rest), f"{kind.__name__} needs more than {sorted(built)}"
    assert not {"__slots__", "__post_init__"} & {*dir(kind)}, f"{kind.__name__} is not built by its fields alone"

    def build(row: Values) -> Any:
        # What kind(**given) does in twice the time: a frozen dataclass sets its fields one by one.
        made: Any = object.__new__(kind)
        given: dict[str, Any] = made.__dict__
        given.update(defaults)
        given.update(zip(own, values(row), strict=True))
        for name, factory in factories.items():
            given[name] = factory()
        for name in listed:
            given[name] = tuple(given[name])
        for name, make, pick, optional in parts:
            chosen = pick(row)
            given[name] = None if optional and all(value is None for value in chosen) else make(chosen)
        return made

    return build


def _find_dataclass(hint: Any) -> type | None:
    """Returns the type of a field that holds a dataclass, or a dataclass or None; None for other fields."""
    kinds = [part for part in (hint, *get_args(hint)) if isinstance(part, type) and is_dataclass(part)]
    return kinds[0] if len(kinds) == 1 and (hint is kinds[0] or type(None) in get_args(hint)) else None


def _make_getter(places: Sequence[int]) -> Callable[[Values], Values]:
    """Returns a function that picks the values at these places of a row, always as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple(row[place] for place in places)


R = TypeVar("R", bound=Row)


def fetch_rows(reader: duckdb.DuckDBPyConnection, kind: type[T], source: str, parameters: Parameters = None) -> list[T]:
    """Returns rows of a table as dataclasses of the schema. `source` names the table and may narrow and order it."""
    return fetch(reader, f"SELECT {select(kind)} FROM {source}", parameters, kind=kind)


def load_run_rows(path: Path, run_id: UUID, kind: type[R]) -> list[tuple[R, dict[str, float]]]:
    """Returns every row of a run in one table, each round and each try, in the order of measuring, with the medians of
    its phases (ms)."""
    table = table_of(kind)
    medians = "SELECT cell_id, map_from_entries(list((phase, median_ms))) FROM timings WHERE run_id = ? GROUP BY 1"
    with open_reader(path) as reader:
        source = f"{table.name} WHERE run_id = ? AND {is_stated(table)} ORDER BY cell_id"
        rows = fetch_rows(reader, kind, source, [run_id])
        known = dict(reader.execute(medians, [run_id]).fetchall())
    return [(row, known.get(row.cell_id, {})) for row in rows]


_ROUNDS = """
    SELECT asked.cell_id, list(s.cell_id ORDER BY s.round, s.cell_id) AS rounds
    FROM {table} asked JOIN {table} s ON s.run_id = asked.run_id AND s.cell_key = asked.cell_key
    WHERE list_contains(?, asked.cell_id) AND s.status IN ('ok', 'oom') GROUP BY asked.cell_id"""


def load_rounds(path: Path, table: str, cells: Sequence[UUID]) -> dict[UUID, tuple[UUID, ...]]:
    """Returns the ids of all rounds that have a result, of each of these cells of one table."""
    with open_reader(path) as reader:
        found = reader.execute(_ROUNDS.format(table=table), [list(cells)]).fetchall()
    return {cell_id: tuple(rounds) for cell_id, rounds in found}


_SAMPLES = """
    SELECT s.round, m.phase, m.step, m.is_warmup, m.duration_ms
    FROM {table} asked JOIN {table} s ON s.run_id = asked.run_id AND s.cell_key = asked.cell_key
    JOIN samples m ON m.cell_id = s.cell_id WHERE asked.cell_id = ?
        AND ('{table}' = 'steps' OR m.phase IN ('forward', 'backward'))
    ORDER BY s.round, m.phase, m.step"""


def load_samples(path: Path, table: Literal["steps", "attention"], cell_id: UUID) -> list[PhaseSample]:
    """Returns every phase of every step of the cell and of its other rounds; of attention, without the stored sums of
    phases."""
    with open_reader(path) as reader:
        return fetch(reader, _SAMPLES.format(table=table), [cell_id], kind=PhaseSample)
