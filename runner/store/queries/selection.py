"""Which cells are meant, and which of their rows count: the one definition, as a value and as SQL.

    Selection(machine="NVIDIA H100 80GB HBM3 · node1", mode="train", precisions=("fp32", "bf16"))

Everything unset means "all". Of a cell measured by several runs on one machine the latest run counts, unless a run is
chosen; of a round that was tried again, the last try. Cells that differ only in effort (how they were measured) count
as one question, and the preferred effort answers it: of steps the longest warm-up, then the most steps, then the
compiler's shared cache (`settled=False` keeps them all, for what puts two cells beside each other: see
`analysis.pairs`). Rounds stay rows of their own, but for tables of which one round says it all (`Table.first`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

from runner.schema import TABLES, Cell
from runner.schema import Shape as Shape
from runner.schema.axes import SHAPE
from runner.store.contract import is_stated

#: How a machine is named: its device and, since two machines may hold the same device, its host.
MACHINE = "coalesce(r.device_name, r.device, 'unknown device') || coalesce(' · ' || r.host, '')"
#: A column and the values that it may have; for the size, `d_model` and the shapes.
Asked = tuple[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The cells that a page is about. Hashable, so that it can be part of a cache's key. All tables know machine, run
    and `settled`, only `steps` the rest: the filters, which hold values of the column of that name or, as `size`,
    whole shapes. A filter that is added here is drawn in the sidebar, in a page's address and known to every query."""

    machine: str | None = None
    run: UUID | None = None
    settled: bool = True
    mode: str | None = None
    size: tuple[Shape, ...] = ()
    context: tuple[int, ...] = ()
    precision: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()

    def without(self, *names: str) -> "Selection":
        """The same with some filters open."""
        open_filters: dict[str, Any] = dict.fromkeys(names, ())
        return replace(self, **open_filters)

    def broad(self) -> "Selection":
        """The same machine, run and mode, the rest open: what is asked of the file, once, for all filters."""
        return self.without(*REPEATABLE)

    def holds(self, cell: Cell) -> bool:
        """Whether a cell of `broad()` passes the filters. What it has no field for, it passes."""
        return all(_value(cell, name) in (None, *wanted) for name in REPEATABLE if (wanted := getattr(self, name)))

    def asked(self) -> list[Asked]:
        """The filters, by column."""
        found = [(column_of(name), getattr(self, name)) for name in REPEATABLE]
        mode: list[Asked] = [("mode", (self.mode,))] if self.mode is not None else []
        return [*mode, *((column, values) for column, values in found if values)]

    def of_runs(self) -> tuple[list[str], list[Any]]:
        """The conditions on a table `s` joined to `runs r` that machine and run make, and their parameters."""
        found = [(f"{MACHINE} = ?", self.machine), ("s.run_id = ?", self.run)]
        known = [(text, value) for text, value in found if value is not None]
        return [text for text, _ in known], [value for _, value in known]


#: The filters, in the order of the sidebar, and those that may name several values.
FILTERS = tuple(item.name for item in fields(Selection) if item.name not in ("machine", "run", "settled"))
REPEATABLE = tuple(name for name in FILTERS if name != "mode")


def column_of(name: str) -> str:
    """The column that a filter is about; for the size, the first of a shape."""
    return SHAPE[0] if name == "size" else name


def _value(cell: Cell, name: str) -> Any:
    if name == "size":
        return Shape.of(cell) if isinstance(cell, Shape) else None
    return getattr(cell, name, None)


def conditions(asked: Iterable[Asked], *, prefix: str = "") -> tuple[list[str], list[Any]]:
    """The conditions that columns hold one of their values, and the parameters."""
    found, parameters = list[str](), list[Any]()
    for column, values in asked:
        if column == SHAPE[0]:
            one = "(" + " AND ".join(f"{prefix}{name} = ?" for name in SHAPE) + ")"
            found.append("(" + " OR ".join([one] * len(values)) + ")")
            parameters += [getattr(shape, name) for shape in values for name in SHAPE]
        else:
            found.append(f"list_contains(?, {prefix}{column})")
            parameters.append(list(values))
    return found, parameters


def chosen(table: str, of: Selection, names: Sequence[str] = ()) -> tuple[str, list[Any]]:
    """A query for the rows of a table that count, and its parameters: the key, ids, `round`, `status`, `names`,
    `machine` and `torch`."""
    of_runs, parameters = of.of_runs()
    filters, values = conditions(of.asked(), prefix="s.") if table == "steps" else ([], [])
    where = " AND ".join([is_stated(TABLES[table], prefix="s."), *(of_runs + filters or ["true"])])
    columns = dict.fromkeys((*TABLES[table].key, *_IDS, *names))
    query = latest(table, columns, where=where)
    question, key = (", ".join(("machine", *names)) for names in (TABLES[table].question, TABLES[table].key))
    effort = ", ".join(column.name for column in TABLES[table].effort)
    if of.settled and effort:
        query += f""", settled AS (
            SELECT machine, cell_key FROM (SELECT DISTINCT cell_key, {question}, {effort} FROM latest)
            QUALIFY dense_rank() OVER (PARTITION BY {question} ORDER BY {", ".join(_by_effort(table))}) = 1)
            FROM latest SEMI JOIN settled USING (machine, cell_key)"""
    else:
        query += " FROM latest"
    if first := TABLES[table].first:
        query += f"""
            QUALIFY row_number() OVER (PARTITION BY {question if of.settled else key}
                ORDER BY status = 'ok' DESC, {first}) = 1"""
    return query, [*parameters, *values]


_IDS = ("run_id", "cell_id", "cell_key", "round", "status")


def latest(table: str, columns: Iterable[str], *, where: str, same: Sequence[str] = ("machine",)) -> str:
    """The beginning of a query, which ends in `latest`: of rows with one `cell_key`, and the same of what else is
    named, those of the latest run; of a round that was tried again the last try."""
    names = (*same, "cell_key", "run_id")
    joined = f"USING ({', '.join(names)})"
    if "torch" in same:  # the one that may be unknown
        joined = "l ON " + " AND ".join(f"asked.{name} IS NOT DISTINCT FROM l.{name}" for name in names)
    # Groups and semi-joins, because windows over every row take four times as long on 60,000 rows.
    return f"""
            WITH asked AS MATERIALIZED (
                SELECT {", ".join(f"s.{name}" for name in columns)}, {MACHINE} AS machine, r.torch AS torch
                FROM {table} s LEFT JOIN runs r USING (run_id) WHERE {where}),
            last_tries AS (SELECT max(cell_id) AS cell_id FROM asked GROUP BY run_id, cell_key, round),
            last_runs AS (SELECT {", ".join((*same, "cell_key"))}, max(run_id) AS run_id FROM asked GROUP BY ALL),
            latest AS MATERIALIZED (
                FROM asked SEMI JOIN last_tries USING (cell_id)
                SEMI JOIN last_runs {joined})"""


def _by_effort(table: str) -> list[str]:
    """The terms of an ORDER BY that put the preferred effort first."""
    return [
        f"list_position({list(column.choices)}, {column.name})"
        if column.effort == "first"
        else f"{column.name} {'DESC' if column.effort == 'most' else 'ASC'}"
        for column in TABLES[table].effort
    ]
