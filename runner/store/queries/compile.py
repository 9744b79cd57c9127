"""What compiling cost, and what the compiler made of each chosen cell.

    for cost in compile_costs(path, Selection(mode="train")):
        print(cost.cell.backend, cost.cold_seconds, cost.warm_seconds, cost.graph_breaks)

Cells that differ only in how they were measured are one question here too: the cold and the warm time come from those
compiled with an empty cache, the time with whatever earlier cells had left from the others. Over rounds, medians of
seconds and the most of what was counted.
"""

from dataclasses import replace
from pathlib import Path

from runner.results import CompileCost
from runner.schema import TABLES, StepCell
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.selection import Selection
from runner.store.queries.steps import choose

CONFIG_FIELDS = TABLES["steps"].question
_ASKED = ", ".join(f"c.{name}" for name in CONFIG_FIELDS)
_COUNTED = ", ".join(f"max(s.{name}) AS {name}"
                     for name in ("graphs", "graph_breaks", "recompiles", "compiled_gradient_error"))  # fmt: skip
_COSTS = f"""
    SELECT c.machine, c.torch, median(s.compile_cold_seconds) AS cold_seconds,
        median(s.compile_warm_seconds) AS warm_seconds,
        median(s.compile_seconds) FILTER (s.compile_cache = 'shared') AS shared_seconds, {_COUNTED},
        bool_or(s.compiler_fallback) AS fallback, {_ASKED}
    FROM chosen c JOIN steps s USING (cell_id)
    WHERE s.status = 'ok' AND s.compile_seconds IS NOT NULL GROUP BY c.machine, c.torch, {_ASKED}"""


def question(machine: str, torch: str | None, cell: StepCell) -> tuple[object, ...]:
    """What tells one compiled cell from another, however it was measured."""
    return (machine, torch, *(getattr(cell, name) for name in CONFIG_FIELDS))


def compile_costs(path: Path, selection: Selection) -> list[CompileCost]:
    """The cost of every chosen cell that was compiled and ended well."""
    with open_reader(path) as reader:
        choose(reader, "steps", replace(selection, settled=False))
        return fetch(reader, _COSTS, kind=CompileCost)
