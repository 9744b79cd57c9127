"""Pairs of each backend with eager, beside their compile times.

items, left_out = load_speedups(frame, ways(frame))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from pages.torch_compile.figures import Kind
from pages.ui.comparison import comparison, variants
from pages.ui.frame import Frame
from pages.ui.marks import place_of
from runner.analysis.compare.break_even import PaidAfter, break_even
from runner.analysis.compare.pairs import LeftOut, Pair
from runner.results import CompileCost, StepResult
from runner.store.queries.compile import load_compile_costs, question

BASELINE = "eager"
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class CompileSpeedup:
    """The whole step of one cell, eager over `variant`, and its compile cost; None where nothing compiles."""

    variant: str
    step: Pair[StepResult]
    cost: CompileCost | None

    def costs(self) -> dict[Kind, tuple[float, PaidAfter]]:
        """Returns compile seconds by kind, and the steps that pay for them; as found only where cold is unknown."""
        if self.cost is None:
            return {}
        found = None if self.cost.cold_seconds is not None else self.cost.shared_seconds
        known = {"cold": self.cost.cold_seconds, "warm": self.cost.warm_seconds, "as found": found}
        paid = [(kind, known[kind], break_even(self.step, compile_seconds=known[kind])) for kind in KINDS]
        return {kind: (seconds, after) for kind, seconds, after in paid if seconds is not None and after is not None}


def ways(frame: Frame) -> list[str]:
    """Returns the backends to compare with eager, `cuda-graphs` last."""
    return sorted(variants(frame, "backend", baseline=BASELINE), key=lambda name: (name == "cuda-graphs", name))


def load_speedups(frame: Frame, names: Sequence[str]) -> tuple[list[CompileSpeedup], list[LeftOut[StepResult]]]:
    """Returns every pair with eager that the filters leave, cell by cell, and what has no pair."""
    free = frame.selection.without("backend")
    known = frame.ask(load_compile_costs, free.broad())
    costs = {question(cost.machine, cost.torch, cost.cell): cost for cost in known}
    found, left_out = [], []
    for variant in names:
        compared = comparison(frame, "backend", baseline=BASELINE, variant=variant)
        left_out += compared.left_out
        found += [
            CompileSpeedup(
                variant=variant,
                step=pair,
                cost=costs.get(question(pair.other.machine, pair.other.torch, pair.other.cell)),
            )
            for pair in compared.speedups
            if pair.phase == "step"
        ]
    order = {id(item.step.base): place for place, item in enumerate(found)}
    cells = list(dict.fromkeys(item.step.base.cell_id for item in found))
    return sorted(found, key=lambda item: (cells.index(item.step.base.cell_id), order[id(item.step.base)])), left_out


def place(frame: Frame, item: CompileSpeedup) -> str:
    return place_of(frame, item.step.named.cell, beside="backend")
