"""Finds the fastest way to run each step: among the cells that share shape, context, batch and mode, the one with the
shortest time, beside the plain step and the cells that may be as fast.

    for best in find_best(cells):
        print(best.cell.cell, best.speedup, len(best.rivals))

Only cells measured as usual count: one without warm-up, or with an empty compiler cache, is no way to train. Cells are
never compared across machines or versions of torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.analysis.compare.counterfactuals import AXES, is_plain
from runner.analysis.compare.pairs import describe_effort_difference, describe_unusual_effort
from runner.analysis.compare.speedups import compute_ratio
from runner.analysis.statistics import Ratio
from runner.results import StepResult
from runner.schema import TABLES


@dataclass(frozen=True, kw_only=True)
class BestWay:
    """The fastest of the `tried` cells of one step. `plain` is its cell with no option on and `speedup` the plain time
    over the fastest, both None where no plain cell was measured alike; `rivals` are cells that are not significantly
    slower."""

    cell: StepResult
    tried: int
    plain: StepResult | None = None
    speedup: Ratio | None = None
    rivals: tuple[StepResult, ...] = ()


def find_best(cells: Sequence[StepResult]) -> list[BestWay]:
    """Returns the best way of each step, in the order of the cells."""
    groups: dict[tuple[object, ...], list[StepResult]] = {}
    for cell in cells:
        if cell.status == "ok" and "step" in cell.times and not describe_unusual_effort(cell.cell):
            groups.setdefault(_step_key(cell), []).append(cell)
    return [_choose(group) for group in groups.values()]


def _step_key(cell: StepResult) -> tuple[object, ...]:
    """Returns the fields that the ways of running one step share."""
    names = (name for name in TABLES["steps"].question if name not in AXES)
    return (cell.machine, cell.torch, *(getattr(cell.cell, name) for name in names))


def _choose(group: Sequence[StepResult]) -> BestWay:
    best = min(group, key=lambda cell: cell.times["step"].median_ms)
    alike = [cell for cell in group if not describe_effort_difference(cell.cell, best.cell)]
    plain = next((cell for cell in alike if is_plain(cell.cell)), None)
    ratios = [(cell, compute_ratio(cell, best)) for cell in alike if cell is not best]
    return BestWay(
        cell=best,
        tried=len(group),
        plain=plain,
        speedup=compute_ratio(plain, best) if plain else None,
        rivals=tuple(cell for cell, found in ratios if found and found.outcome == "same"),
    )
