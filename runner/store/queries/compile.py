"""What compiling cost, and what the compiler made of each chosen cell.

    for cost in compile_costs(path, Selection(mode="train")):
        print(cost.cell.backend, cost.cold_seconds, cost.warm_seconds, cost.graph_breaks)

Cells that differ only in how they were measured are one question here too: the cold and the warm time come from those
compiled with an empty cache, the time with whatever earlier cells had left from the others. Over rounds, medians of
seconds and the most of what was counted.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from runner.schema import TABLES, StepCell
from runner.store.database import open_reader
from runner.store.queries.selection import Selection

QUESTION = TABLES["steps"].question
_COUNTED = ("graphs", "graph_breaks", "recompiles", "compiled_gradient_error")


@dataclass(frozen=True, kw_only=True)
class CompileCost:
    """One compiled question on one machine. None is not measured; `fallback` is whether the compiler gave up."""

    machine: str | None
    torch: str | None
    cell: StepCell
    cold_seconds: float | None
    warm_seconds: float | None
    shared_seconds: float | None
    graphs: int | None
    graph_breaks: int | None
    recompiles: int | None
    compiled_gradient_error: float | None
    fallback: bool | None

    @property
    def question(self) -> tuple[object, ...]:
        return question(self.machine, self.torch, self.cell)


def question(machine: str | None, torch: str | None, cell: StepCell) -> tuple[object, ...]:
    """What tells one compiled cell from another, however it was measured."""
    return (machine, torch, *(getattr(cell, name) for name in QUESTION))


def compile_costs(path: Path, selection: Selection) -> list[CompileCost]:
    """The cost of every chosen cell that was compiled and ended well."""
    chosen, parameters = replace(selection, settled=False).chosen()
    asked = ", ".join(f"c.{name}" for name in QUESTION)
    counted = ", ".join(f"max(s.{name})" for name in _COUNTED)
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {chosen}", parameters)
        rows = reader.execute(
            f"""SELECT c.machine, c.torch, median(s.compile_cold_seconds), median(s.compile_warm_seconds),
                median(s.compile_seconds) FILTER (s.compile_cache = 'shared'), {counted},
                bool_or(s.compiler_fallback), {asked}
            FROM chosen c JOIN steps s USING (cell_id)
            WHERE s.status = 'ok' AND s.compile_seconds IS NOT NULL GROUP BY c.machine, c.torch, {asked}"""
        ).fetchall()
    names = ("machine", "torch", "cold_seconds", "warm_seconds", "shared_seconds", *_COUNTED, "fallback")
    return [
        CompileCost(
            **dict(zip(names, row, strict=False)),
            cell=StepCell(**dict(zip(QUESTION, row[len(names) :], strict=True))),
        )
        for row in rows
    ]
