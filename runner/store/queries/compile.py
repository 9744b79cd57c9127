"""The cost of compiling each chosen cell, and the graphs that the compiler made of it.

    for cost in load_compile_costs(path, Selection(mode="train")):
        print(cost.cell.backend, cost.cold_seconds, cost.warm_seconds, cost.graph_breaks)

Cells that differ only in effort fields count as one. The cold and the warm time come from cells that were compiled with
an empty cache, the time with a shared cache from the others. Seconds are medians over rounds, counts are maxima.
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
_COSTS = f"""
    SELECT c.machine, c.torch, median(s.compile_cold_seconds) AS cold_seconds,
        median(s.compile_warm_seconds) AS warm_seconds,
        median(s.compile_seconds) FILTER (s.compile_cache = 'shared') AS shared_seconds,
        max(s.compiled_at_once) AS compiled_at_once,
        max(s.graphs) AS graphs, max(s.graph_breaks) AS graph_breaks, max(s.recompiles) AS recompiles,
        max(s.compiled_gradient_error) AS compiled_gradient_error,
        bool_or(s.compiler_fallback) AS fallback, {_ASKED}
    FROM chosen c JOIN steps s USING (cell_id)
    WHERE s.status = 'ok' AND s.compile_seconds IS NOT NULL GROUP BY c.machine, c.torch, {_ASKED}"""


def question(machine: str, torch: str | None, cell: StepCell) -> tuple[object, ...]:
    """Returns a key that is equal for cells that differ only in effort fields."""
    return (machine, torch, *(getattr(cell, name) for name in CONFIG_FIELDS))


def load_compile_costs(path: Path, selection: Selection) -> list[CompileCost]:
    """Returns the cost of every chosen cell that was compiled and is ok."""
    with open_reader(path) as reader:
        choose(reader, "steps", replace(selection, settled=False))
        return fetch(reader, _COSTS, kind=CompileCost)
