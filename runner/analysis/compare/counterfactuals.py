"""Which change makes a step faster, and by how much? A step against itself with one or more options changed.

    found = find_counterfactuals(base, cells)               # all cells of the run
    for change in found:                               # the one that helps most first, failed ones last
        print(change.changed, change.speedup, change.cell.status)

Nothing is predicted: each change is a measured cell. Its shape, context, batch and mode are those of the base, and so
is its effort (`pairs`), so pass the cells of every effort. Weights held in bf16 imply bf16 arithmetic; the two count
as one change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runner.analysis.compare.pairs import match_pair, rank_effort
from runner.analysis.compare.speedups import compute_ratio
from runner.analysis.statistics import Ratio
from runner.results import StepResult
from runner.schema import TABLES, StepCell

#: Pairs of axes that change together and count as one change.
TOGETHER = frozenset({"precision", "weights_dtype"})
#: The options of a plain cell.
PLAIN: Mapping[str, Any] = {
    "precision": "fp32", "weights_dtype": "fp32", "attention": "naive", "optimizer": "foreach", "backend": "eager",
    "checkpoint_blocks": 0,
}  # fmt: skip

Kind = Literal["one", "several"]

#: The axes that may change, for the same shape and mode.
AXES = ("precision", "weights_dtype", "attention", "optimizer", "backend", "checkpoint_blocks")
#: Cells by their settings of the axes.
Ways = dict[tuple[object, ...], list[StepResult]]


@dataclass(frozen=True, kw_only=True)
class Counterfactual:
    """One change: `changed` are the new values by axis. `speedup` is the base's time over the changed step's, above 1
    where the change helps; None where one side has no time."""

    cell: StepResult
    changed: Mapping[str, Any]
    speedup: Ratio | None = None

    @property
    def kind(self) -> Kind:
        return "one" if len(self.changed) == 1 or set(self.changed) == TOGETHER else "several"

    @property
    def verdict(self) -> Literal["faster", "slower", "undecided", "failed"]:
        """Whether the change is faster, slower or neither, by its interval."""
        if self.speedup is None:
            return "failed"
        outcome = self.speedup.outcome
        return "undecided" if outcome == "same" else "faster" if outcome == "better" else "slower"


def select_bases(cells: Sequence[StepResult]) -> list[StepResult]:
    """Returns the cells that others can be compared with, each with the effort that has most of them. Plain cells come
    first, then those with the most changes, then the largest."""
    groups = _group_cells(cells)
    able: dict[tuple[object, ...], tuple[int, tuple[float, ...], StepResult]] = {}
    for cell in filter(_has_time, cells):
        count, question = len(_find_changed(cell, groups[_shared_key(cell)])), (_shared_key(cell), _list_options(cell))
        if count and (question not in able or (count, rank_effort(cell)) > able[question][:2]):
            able[question] = (count, rank_effort(cell), cell)
    ordered = sorted(able.values(), key=lambda found: -found[2].times["step"].median_ms)
    return [cell for count, _, cell in sorted(ordered, key=lambda found: (not is_plain(found[2].cell), -found[0]))]


def is_plain(cell: StepCell) -> bool:
    """Returns whether no option that may save time is on."""
    return all(getattr(cell, axis) == value for axis, value in PLAIN.items())


def find_counterfactuals(base: StepResult, cells: Sequence[StepResult]) -> list[Counterfactual]:
    """Returns every cell of the base's run that differs from it in `AXES` alone. Single changes come first; within each
    group the fastest comes first and failed cells last."""
    changed = _find_changed(base, _group_cells(cells).get(_shared_key(base), {}))
    found = [_make_counterfactual(base, cell) for cell in changed]

    def order(change: Counterfactual) -> tuple[bool, bool, float]:
        return change.kind == "several", change.speedup is None, -change.speedup.ratio if change.speedup else 0

    return sorted(found, key=order)


def _group_cells(cells: Sequence[StepResult]) -> dict[tuple[object, ...], Ways]:
    """Returns the cells by what a base and its changes share, and by their settings of the axes."""
    groups: dict[tuple[object, ...], Ways] = {}
    for cell in cells:
        groups.setdefault(_shared_key(cell), {}).setdefault(_list_options(cell), []).append(cell)
    return groups


def _find_changed(base: StepResult, ways: Ways) -> list[StepResult]:
    """Returns one cell for each other setting of the axes, measured with the same effort as the base."""
    own = _list_options(base)
    pairs = (match_pair([base], found) for way, found in ways.items() if way != own)
    return [pair[1] for pair in pairs if pair]


def _list_options(cell: StepResult) -> tuple[object, ...]:
    return tuple(getattr(cell.cell, axis) for axis in AXES)


def _make_counterfactual(base: StepResult, cell: StepResult) -> Counterfactual:
    changed = {axis: getattr(cell.cell, axis) for axis in AXES if getattr(cell.cell, axis) != getattr(base.cell, axis)}
    if not (_has_time(base) and _has_time(cell)):
        return Counterfactual(cell=cell, changed=changed)
    return Counterfactual(cell=cell, changed=changed, speedup=compute_ratio(base, cell))


def _has_time(cell: StepResult) -> bool:
    return cell.status == "ok" and "step" in cell.times


def _shared_key(cell: StepResult) -> tuple[object, ...]:
    """Returns the fields that the base and the change share."""
    return (
        cell.machine,
        cell.run_id,
        *(getattr(cell.cell, name) for name in TABLES["steps"].question if name not in AXES),
    )
