"""The selection of cells, and the one definition of which of their rows count, as a value and as SQL; and what runs
such a query and makes its rows dataclasses.

    Selection(machine="NVIDIA H100 80GB HBM3 · node1", mode="train", precision=("fp32", "bf16"))
    rows = fetch(reader, "SELECT name, ms FROM …", kind=Example)

A filter that is not set selects everything. Where several runs on one machine measured a cell, the latest run counts,
with the rounds that it goes on with, unless a run is selected; where a round was tried again, the last try counts. Of
cells that differ only in effort fields, the one with the preferred effort counts: for steps the longest warm-up, then
the most steps, then the compiler's shared cache. `settled=False` keeps them all, for comparisons of two cells
(`analysis.pairs`). Rounds stay separate rows, except in tables where one round suffices (`Table.first`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

import duckdb

from runner.results.cells import PhaseSample
from runner.schema import DONE, TABLES, Cell, Model, Row, TimingRow, config_of, table_of
from runner.schema.axes import MODEL, SHAPE
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
    con: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters = None,
    *,
    kind: type[T],
    by: tuple[str, ...],
    cell: type | None = None,
) -> dict[Any, list[T]]:
    """Returns the query's rows by the values of the columns `by`: the value of one column, a tuple of several."""
    answer = con.execute(sql, parameters)
    names = _list_names(answer)
    key = itemgetter(*map(names.index, by))
    made: type = kind
    own = {item.name for item in fields(made)}
    rest = [place for place, name in enumerate(names) if name in own or name not in by]
    build = _make_builder(made, tuple(names[place] for place in rest), cell)
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
        held = [part for part in (hint, *get_args(hint)) if isinstance(part, type) and is_dataclass(part)]
        is_held = len(held) == 1 and (hint is held[0] or type(None) in get_args(hint))  # a dataclass, or one or None
        part = cell if name == "cell" and cell else held[0] if is_held else None
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


def _make_getter(places: Sequence[int]) -> Callable[[Values], Values]:
    """Returns a function that picks the values at these places of a row, always as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple(row[place] for place in places)


R = TypeVar("R", bound=Row)


def fetch_rows(reader: duckdb.DuckDBPyConnection, kind: type[T], source: str, parameters: Parameters = None) -> list[T]:
    """Returns rows of a table as dataclasses of the schema. `source` names the table and may narrow and order it."""
    return fetch(reader, f"SELECT {select(kind)} FROM {source}", parameters, kind=kind)


def fetch_by_cell(
    reader: duckdb.DuckDBPyConnection, kind: type[T], source: str, parameters: Parameters = None
) -> dict[UUID, list[T]]:
    """Returns what `fetch_rows` does by the ids of the cells."""
    return fetch_by(reader, f"SELECT {select(kind)} FROM {source}", parameters, kind=kind, by=("cell_id",))


def with_details(cells: Iterable[T], **details: Mapping[UUID, Sequence[Any]]) -> list[T]:
    """Returns the cells with what belongs to each by its id, in fields of these names."""
    made: list[Any] = [*cells]
    return [replace(one, **{name: tuple(of.get(one.cell_id, ())) for name, of in details.items()}) for one in made]


def load_run_rows(path: Path, run_id: UUID, kind: type[R]) -> list[tuple[R, list[TimingRow]]]:
    """Returns every row of a run in one table, each round and each try, in the order of measuring, with its times."""
    table = table_of(kind)
    with open_reader(path) as reader:
        source = f"{table.name} WHERE run_id = ? AND {is_stated(table)} ORDER BY cell_id"
        rows = fetch_rows(reader, kind, source, [run_id])
        timings = f"timings SEMI JOIN {table.name} USING (cell_id) WHERE run_id = ?"
        known = fetch_by_cell(reader, TimingRow, timings, [run_id])
    return [(row, known.get(row.cell_id, [])) for row in rows]


def load_measured(path: Path, of: "Selection", kinds: Iterable[type[Cell]]) -> list[tuple[Cell, UUID]]:
    """Returns the cells of these kinds that a machine or a run is done with, whatever their effort, each with the run
    that measured it."""
    found: list[tuple[Cell, UUID]] = []
    with open_reader(path) as reader:
        for kind in kinds:
            query, parameters = select_chosen(table_of(kind).name, replace(of.broad(), mode=None, settled=False))
            done = f"FROM ({query}) WHERE list_contains({[*DONE]}, status) ORDER BY cell_id"
            cells = fetch(reader, f"SELECT {select(kind)} {done}", parameters, kind=kind)
            runs = reader.execute(f"SELECT run_id {done}", parameters).fetchall()
            found += [(cell, run) for cell, (run,) in zip(cells, runs, strict=True)]
    return found


_SAMPLES = """
    WITH counted AS ({counted}),
    together AS (
        SELECT cell_id, round FROM counted WHERE last_run = (SELECT last_run FROM counted WHERE cell_id = ?)
        UNION SELECT s.cell_id, s.round FROM {table} s JOIN {table} asked USING (run_id, cell_key)
            WHERE asked.cell_id = ?)
    SELECT round, phase, step, is_warmup, duration_ms FROM together JOIN samples USING (cell_id)
    WHERE '{table}' = 'steps' OR phase IN ('forward', 'backward') ORDER BY round, phase, step"""


def load_samples(path: Path, table: Literal["steps", "attention"], cell_id: UUID) -> list[PhaseSample]:
    """Returns every phase of every step of the cell and its other rounds; of attention, without sums of phases."""
    with open_reader(path) as reader:
        (key,) = reader.execute(f"SELECT cell_key FROM {table} WHERE cell_id = ?", [cell_id]).fetchone() or (None,)
        counted, parameters = select_chosen(table, Selection(settled=False, cell_key=key))
        query = _SAMPLES.format(table=table, counted=counted)
        return fetch(reader, query, [*parameters, cell_id, cell_id], kind=PhaseSample)


#: The name of a machine in SQL: its device and its host, because two machines may have the same device.
MACHINE = "coalesce(r.device_name, r.device, 'unknown device') || coalesce(' · ' || r.host, '')"
#: The name of a device in SQL: a GPU by its own number, because two GPUs of one host may have the same name.
DEVICE = f"coalesce(r.device_uuid || coalesce(' · ' || r.host, ''), {MACHINE})"
#: A column and its selected values; for the size, `d_model` and the shapes.
Asked = tuple[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The selected cells. A selection is hashable, so that it can be part of a cache's key. Machine, run, `hidden` and
    `settled` apply to all tables; rows of `hidden` runs do not count, unless one is the run. The other fields are the
    filters, which apply to `steps`; a filter holds values of the column of its name, or whole shapes as `size`. A field
    that is added here becomes a filter of the sidebar, of a page's address and of every query. Where there is `only`,
    other cells than those of these configurations (`config_of`) do not count in an answer. Where there are
    `runs`, a cell counts in each of them that measured it, not in the latest alone, unless these are pooled;
    where there is a `cell_key`, no other cell counts."""

    machine: str | None = None
    run: UUID | None = None
    hidden: tuple[UUID, ...] = ()
    settled: bool = True
    runs: tuple[UUID, ...] = ()
    is_pooled: bool = False
    cell_key: str | None = None
    only: frozenset[tuple[object, ...]] = frozenset()
    mode: str | None = None
    size: tuple[Model, ...] = ()
    context: tuple[int, ...] = ()
    precision: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()

    def broad(self) -> "Selection":
        """Returns the selection with its machine, run and mode only. The file is read once for it, for all filters."""
        open_filters: dict[str, Any] = dict.fromkeys(REPEATABLE, ())
        return replace(self, **open_filters, only=frozenset())

    def holds(self, cell: Cell) -> bool:
        """Returns whether a cell of `broad()` passes the filters. A cell passes a filter for which it has no field."""
        if self.only and config_of(cell) not in self.only:
            return False
        known = {"size": Model.of(cell)} if isinstance(cell, Model) else {}
        return all(
            known.get(name, getattr(cell, name, None)) in (None, *wanted)
            for name in REPEATABLE
            if (wanted := getattr(self, name))
        )

    def asked(self) -> list[Asked]:
        """Returns the filters that are set, by column."""
        mode: list[Asked] = [("mode", (self.mode,))] if self.mode is not None else []
        return [*mode, *((column_of(name), values) for name in REPEATABLE if (values := getattr(self, name)))]

    def of_runs(self) -> tuple[list[str], list[Any]]:
        """Returns the conditions of machine, runs and cell on a table `s` joined to `runs r`, and their parameters."""
        found: list[tuple[str, Any]] = [
            (f"{MACHINE} = ?", self.machine),
            ("s.run_id = ?", self.run),
            ("s.cell_key = ?", self.cell_key),
            ("NOT list_contains(?, s.run_id)", list(self.hidden) if self.run is None else None),
            ("list_contains(?, s.run_id)", list(self.runs)),
        ]
        known = [(text, value) for text, value in found if value not in (None, [])]
        return [text for text, _ in known], [value for _, value in known]


#: The filters in the order of the sidebar, and those that may have several values.
_NO_FILTERS = ("machine", "run", "hidden", "settled", "runs", "is_pooled", "cell_key", "only")
FILTERS = tuple(item.name for item in fields(Selection) if item.name not in _NO_FILTERS)
REPEATABLE = tuple(name for name in FILTERS if name != "mode")


def column_of(name: str) -> str:
    """Returns the column of a filter; for the size, the first of a shape."""
    return SHAPE[0] if name == "size" else name


def write_conditions(asked: Iterable[Asked], *, prefix: str = "") -> tuple[list[str], list[Any]]:
    """Returns the conditions that columns hold one of their values, and the parameters."""
    found, parameters = list[str](), list[Any]()
    for column, values in asked:
        if column == SHAPE[0]:
            one = "(" + " AND ".join(f"{prefix}{name} IS NOT DISTINCT FROM ?" for name in MODEL) + ")"
            found.append("(" + " OR ".join([one] * len(values)) + ")")
            parameters += [getattr(model, name) for model in values for name in MODEL]
        else:
            found.append(f"list_contains(?, {prefix}{column})")
            parameters.append(list(values))
    return found, parameters


def select_chosen(table: str, of: Selection, names: Sequence[str] = ()) -> tuple[str, list[Any]]:
    """Returns a query for the rows of a table that count, and its parameters. Its columns are the key, ids, `round`,
    `status`, `names`, `machine`, `torch` and `last_run`. A sweep that goes on with another one's cells measures their
    further rounds in a run of its own: they count together, on one machine, with one torch and at one commit, and
    `last_run` is the run of the last."""
    of_runs, parameters = of.of_runs()
    is_each = of.runs and not of.is_pooled
    filters, values = write_conditions(of.asked(), prefix="s.") if table == "steps" else ([], [])
    where = " AND ".join([is_stated(TABLES[table], prefix="s."), *(of_runs + filters or ["true"])])
    columns = dict.fromkeys((*TABLES[table].key, *_IDS, *names))
    # The last try of each round in the latest run of each `cell_key` on a machine, and the rounds before its first one
    # from runs that it continues. Groups and joins, because windows over every row take four times as long on 60,000
    # rows. Other columns are read of the rows that count alone: those of a million took 450 MB.
    counted = """
                SELECT max(cell_id) AS cell_id, last_run
                FROM tries JOIN last_runs USING (cell_key, machine, torch, git_commit)
                WHERE run_id = last_run OR round < first_round GROUP BY cell_key, machine, last_run, round"""
    query = f"""
            WITH tries AS MATERIALIZED (
                SELECT s.run_id, s.cell_key, s.round, max(s.cell_id) AS cell_id, {MACHINE} AS machine,
                    coalesce(r.torch, '') AS torch, coalesce(r.git_commit, '') AS git_commit
                FROM {table} s LEFT JOIN runs r USING (run_id) WHERE {where} GROUP BY ALL),
            last_runs AS (
                SELECT cell_key, machine, torch, git_commit, run_id AS last_run, min(round) AS first_round
                FROM tries SEMI JOIN (SELECT cell_key, machine, max(run_id) AS run_id FROM tries GROUP BY ALL)
                    USING (cell_key, machine, run_id)
                GROUP BY ALL),
            counted AS ({"SELECT cell_id, run_id AS last_run FROM tries" if is_each else counted}),
            latest AS MATERIALIZED (
                SELECT {", ".join(f"s.{name}" for name in columns)}, last_run, {MACHINE} AS machine, r.torch AS torch
                FROM {table} s JOIN counted USING (cell_id) LEFT JOIN runs r USING (run_id))"""
    question, key = (", ".join(("machine", *names)) for names in (TABLES[table].question, TABLES[table].key))
    effort = ", ".join(column.name for column in TABLES[table].effort)
    terms = [  # the preferred effort first
        f"list_position({list(column.choices)}, {column.name})"
        if column.effort == "first"
        else f"{column.name} {'DESC' if column.effort == 'most' else 'ASC'}"
        for column in TABLES[table].effort
    ]
    if of.settled and effort:
        query += f""", settled AS (
            SELECT machine, cell_key FROM (SELECT DISTINCT cell_key, {question}, {effort} FROM latest)
            QUALIFY dense_rank() OVER (PARTITION BY {question} ORDER BY {", ".join(terms)}) = 1)
            FROM latest SEMI JOIN settled USING (machine, cell_key)"""
    else:
        query += " FROM latest"
    if first := TABLES[table].first:
        query += f"""
            QUALIFY row_number() OVER (PARTITION BY {"last_run, " if is_each else ""}{question if of.settled else key}
                ORDER BY status = 'ok' DESC, {first}) = 1"""
    return query, [*parameters, *values]


_IDS = ("run_id", "cell_id", "cell_key", "round", "status")
