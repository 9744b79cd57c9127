"""Which rows of `attention`, `memory` and `frontier` count: the latest answer to each question, on each machine.

    query, parameters = latest("memory", ("status",), of=Rows(machine="Example GPU · node1"))

Limits: for `steps` see `selection`, which knows more filters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runner.schema import TABLES
from runner.store.contract import is_stated
from runner.store.queries.selection import MACHINE, by_effort


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of one machine or one run; all if none is named."""

    machine: str | None = None
    run: UUID | None = None


def latest(table: str, names: Sequence[str], *, of: Rows, settled: bool = True) -> tuple[str, list[Any]]:
    """A query for the rows that count, and its parameters: `machine`, `torch`, the key, the ids, `names`.

    Cells that differ only in effort ask the same question. The preferred effort answers it (`settled=False` keeps them
    all); among equals the latest run; of a round that was tried again, the last try. Rounds stay rows of their own.
    """
    key, question = TABLES[table].key, TABLES[table].question
    columns = dict.fromkeys((*key, "run_id", "cell_id", "cell_key", "round", *names))
    conditions = [(f"{MACHINE} = ?", of.machine), ("s.run_id = ?", of.run)]
    asked = [(text, value) for text, value in conditions if value is not None]
    condition = " AND ".join([is_stated(TABLES[table], prefix="s."), *(text for text, _ in asked)])
    order = ", ".join([*(by_effort(table) if settled else ()), "run_id DESC"])
    query = f"""
        WITH asked AS MATERIALIZED (
            SELECT {", ".join(f"s.{name}" for name in columns)}, {MACHINE} AS machine, r.torch AS torch,
                r.device_memory_bytes AS machine_bytes
            FROM {table} s LEFT JOIN runs r USING (run_id) WHERE {condition}),
        last_tries AS (SELECT max(cell_id) AS cell_id FROM asked GROUP BY run_id, cell_key, round)
        FROM (FROM asked SEMI JOIN last_tries USING (cell_id))
        QUALIFY dense_rank() OVER (PARTITION BY {", ".join(("machine", *(question if settled else key)))}
            ORDER BY {order}) = 1"""
    return query, [value for _, value in asked]
