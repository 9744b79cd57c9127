"""The selection of cells, and the one definition of which of their rows count, as a value and as SQL.

    Selection(machine="NVIDIA H100 80GB HBM3 · node1", mode="train", precision=("fp32", "bf16"))

A filter that is not set selects everything. Where several runs on one machine measured a cell, the latest run counts,
unless a run is selected; where a round was tried again, the last try counts. Of cells that differ only in effort
fields, the one with the preferred effort counts: for steps the longest warm-up, then the most steps, then the
compiler's shared cache. `settled=False` keeps them all, for comparisons of two cells (`analysis.pairs`). Rounds stay
separate rows, except in tables where one round suffices (`Table.first`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

from runner.schema import TABLES, Cell
from runner.schema import Model as Model
from runner.schema.axes import MODEL, SHAPE
from runner.store.contract import is_stated

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
    that is added here becomes a filter of the sidebar, of a page's address and of every query."""

    machine: str | None = None
    run: UUID | None = None
    hidden: tuple[UUID, ...] = ()
    settled: bool = True
    mode: str | None = None
    size: tuple[Model, ...] = ()
    context: tuple[int, ...] = ()
    precision: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()

    def without(self, *names: str) -> "Selection":
        """Returns the selection without the filters of these names."""
        open_filters: dict[str, Any] = dict.fromkeys(names, ())
        return replace(self, **open_filters)

    def broad(self) -> "Selection":
        """Returns the selection with its machine, run and mode only. The file is read once for it, for all filters."""
        return self.without(*REPEATABLE)

    def holds(self, cell: Cell) -> bool:
        """Returns whether a cell of `broad()` passes the filters. A cell passes a filter for which it has no field."""
        return all(_get_value(cell, name) in (None, *wanted) for name in REPEATABLE if (wanted := getattr(self, name)))

    def asked(self) -> list[Asked]:
        """Returns the filters that are set, by column."""
        mode: list[Asked] = [("mode", (self.mode,))] if self.mode is not None else []
        return [*mode, *((column_of(name), values) for name in REPEATABLE if (values := getattr(self, name)))]

    def of_runs(self) -> tuple[list[str], list[Any]]:
        """Returns the conditions of machine and run on a table `s` joined to `runs r`, and their parameters."""
        found: list[tuple[str, Any]] = [(f"{MACHINE} = ?", self.machine), ("s.run_id = ?", self.run)]
        if self.hidden and self.run is None:
            found.append(("NOT list_contains(?, s.run_id)", list(self.hidden)))
        known = [(text, value) for text, value in found if value is not None]
        return [text for text, _ in known], [value for _, value in known]


#: The filters in the order of the sidebar, and those that may have several values.
FILTERS = tuple(item.name for item in fields(Selection) if item.name not in ("machine", "run", "hidden", "settled"))
REPEATABLE = tuple(name for name in FILTERS if name != "mode")


def column_of(name: str) -> str:
    """Returns the column of a filter; for the size, the first of a shape."""
    return SHAPE[0] if name == "size" else name


def _get_value(cell: Cell, name: str) -> Any:
    if name == "size":
        return Model.of(cell) if isinstance(cell, Model) else None
    return getattr(cell, name, None)


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
    `status`, `names`, `machine` and `torch`."""
    of_runs, parameters = of.of_runs()
    filters, values = write_conditions(of.asked(), prefix="s.") if table == "steps" else ([], [])
    where = " AND ".join([is_stated(TABLES[table], prefix="s."), *(of_runs + filters or ["true"])])
    columns = dict.fromkeys((*TABLES[table].key, *_IDS, *names))
    query = select_latest(table, columns, where=where)
    question, key = (", ".join(("machine", *names)) for names in (TABLES[table].question, TABLES[table].key))
    effort = ", ".join(column.name for column in TABLES[table].effort)
    if of.settled and effort:
        query += f""", settled AS (
            SELECT machine, cell_key FROM (SELECT DISTINCT cell_key, {question}, {effort} FROM latest)
            QUALIFY dense_rank() OVER (PARTITION BY {question} ORDER BY {", ".join(_order_by_effort(table))}) = 1)
            FROM latest SEMI JOIN settled USING (machine, cell_key)"""
    else:
        query += " FROM latest"
    if first := TABLES[table].first:
        query += f"""
            QUALIFY row_number() OVER (PARTITION BY {question if of.settled else key}
                ORDER BY status = 'ok' DESC, {first}) = 1"""
    return query, [*parameters, *values]


#: What a run has one value of, in SQL.
_OF_RUNS = {"machine": MACHINE, "torch": "r.torch"}
_IDS = ("run_id", "cell_id", "cell_key", "round", "status")


def select_latest(table: str, columns: Iterable[str], *, where: str, same: Sequence[str] = ("machine",)) -> str:
    """Returns the beginning of a query, which defines `latest`: the last try of each round in the latest run of each
    `cell_key`, separately for each value of the columns `same`."""
    # Groups and semi-joins, because windows over every row take four times as long on 60,000 rows. Other columns are
    # read of the rows that count alone: those of a million took 450 MB. A run has one value of each column of `same`.
    return f"""
            WITH tries AS MATERIALIZED (
                SELECT s.run_id, s.cell_key, max(s.cell_id) AS cell_id
                FROM {table} s LEFT JOIN runs r USING (run_id) WHERE {where} GROUP BY s.run_id, s.cell_key, s.round),
            last_runs AS (
                SELECT cell_key, max(tries.run_id) AS run_id FROM tries LEFT JOIN runs r USING (run_id)
                GROUP BY cell_key, {", ".join(_OF_RUNS[name] for name in same)}),
            counted AS (SELECT cell_id FROM tries SEMI JOIN last_runs USING (cell_key, run_id)),
            latest AS MATERIALIZED (
                SELECT {", ".join(f"s.{name}" for name in columns)}, {MACHINE} AS machine, r.torch AS torch
                FROM {table} s SEMI JOIN counted USING (cell_id) LEFT JOIN runs r USING (run_id))"""


def _order_by_effort(table: str) -> list[str]:
    """Returns the terms of an ORDER BY that put the preferred effort first."""
    return [
        f"list_position({list(column.choices)}, {column.name})"
        if column.effort == "first"
        else f"{column.name} {'DESC' if column.effort == 'most' else 'ASC'}"
        for column in TABLES[table].effort
    ]
