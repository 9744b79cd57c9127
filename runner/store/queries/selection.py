"""Which end-to-end cells are meant: the filters of the sidebar as a value, and as SQL.

    Selection(machine="NVIDIA H100 80GB HBM3 · node1", mode="train", precisions=("fp32", "bf16"))

Everything unset means "all". Of a cell measured by several runs on one machine the latest run counts, unless a run is
chosen; of a round that was tried again, the last try. Cells that differ only in effort (how they were measured) count
as one question, and the preferred effort answers it: the longest warm-up, then the most steps, then the compiler's
shared cache (`settled=False` keeps them all, for what puts two cells beside each other: see `analysis.pairs`).
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runner.schema import TABLES, StepCell
from runner.schema import Shape as Shape
from runner.schema.axes import SHAPE
from runner.store.contract import is_stated

#: How a machine is named: its device and, since two machines may hold the same device, its host.
MACHINE = "coalesce(r.device_name, r.device, 'unknown device') || coalesce(' · ' || r.host, '')"


def by_effort(table: str) -> list[str]:
    """The terms of an ORDER BY that put the preferred effort first."""
    return [
        f"list_position({list(column.choices)}, {column.name})"
        if column.effort == "first"
        else f"{column.name} {'DESC' if column.effort == 'most' else 'ASC'}"
        for column in TABLES[table].effort
    ]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The cells that a page is about. Hashable, so that it can be part of a cache's key."""

    machine: str | None = None
    run: UUID | None = None
    shapes: tuple[Shape, ...] = ()
    contexts: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    mode: str | None = None
    settled: bool = True

    def broad(self) -> "Selection":
        """The same machine, run and mode, the rest open: what is asked of the file, once, for all filters."""
        return Selection(machine=self.machine, run=self.run, mode=self.mode, settled=self.settled)

    def holds(self, cell: StepCell) -> bool:
        """Whether a cell of `broad()` passes the other filters."""
        return (
            (not self.shapes or Shape.of(cell) in self.shapes)
            and (not self.contexts or cell.context in self.contexts)
            and (not self.precisions or cell.precision in self.precisions)
            and (not self.backends or cell.backend in self.backends)
        )

    def where(self) -> tuple[str, list[Any]]:
        """The condition on `steps s` joined to `runs r`, and its parameters."""
        asked: list[tuple[str, Any]] = []
        if self.machine is not None:
            asked.append((f"{MACHINE} = ?", self.machine))
        if self.run is not None:
            asked.append(("s.run_id = ?", self.run))
        if self.mode is not None:
            asked.append(("s.mode = ?", self.mode))
        for column, values in (("context", self.contexts), ("precision", self.precisions), ("backend", self.backends)):
            if values:
                asked.append((f"list_contains(?, s.{column})", list(values)))
        conditions, parameters = [text for text, _ in asked], [value for _, value in asked]
        if self.shapes:
            one = "(" + " AND ".join(f"s.{name} = ?" for name in SHAPE) + ")"
            conditions.append("(" + " OR ".join([one] * len(self.shapes)) + ")")
            parameters += [getattr(shape, name) for shape in self.shapes for name in SHAPE]
        return " AND ".join(conditions) or "true", parameters

    def chosen(self) -> tuple[str, list[Any]]:
        """A query for the rows of `steps` that count, with `CARRIED`, `machine` and `torch`; its parameters."""
        condition, parameters = self.where()
        carried = ", ".join(f"s.{name}" for name in CARRIED)
        # Groups and semi-joins, because windows over every row take four times as long on 60,000 rows.
        query = f"""
            WITH asked AS MATERIALIZED (
                SELECT {carried}, {MACHINE} AS machine, r.torch AS torch
                FROM steps s LEFT JOIN runs r USING (run_id) WHERE {_STATED} AND {condition}),
            last_tries AS (SELECT max(cell_id) AS cell_id FROM asked GROUP BY run_id, cell_key, round),
            last_runs AS (SELECT machine, cell_key, max(run_id) AS run_id FROM asked GROUP BY ALL),
            latest AS MATERIALIZED (
                FROM asked SEMI JOIN last_tries USING (cell_id)
                SEMI JOIN last_runs USING (machine, cell_key, run_id))"""
        return query + (_SETTLED if self.settled else " FROM latest"), parameters


#: What else of a row is carried along, beside its key.
CARRIED = (
    *TABLES["steps"].key,
    "run_id",
    "cell_id",
    "cell_key",
    "round",
    "status",
    "failed_phase",
    "message",
    "parameters",
    "tokens_per_s",
    "mfu",
    "compile_seconds",
)

_QUESTION = ", ".join(("machine", *TABLES["steps"].question))
_EFFORT = ", ".join(column.name for column in TABLES["steps"].effort)
_STATED = is_stated(TABLES["steps"], prefix="s.")
_SETTLED = f""", settled AS (
    SELECT machine, cell_key FROM (SELECT DISTINCT cell_key, {_QUESTION}, {_EFFORT} FROM latest)
    QUALIFY dense_rank() OVER (PARTITION BY {_QUESTION} ORDER BY {", ".join(by_effort("steps"))}) = 1)
    FROM latest SEMI JOIN settled USING (machine, cell_key)"""
