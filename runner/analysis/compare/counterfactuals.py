"""What would help, and by how much? One step against the same step of the same run with one thing changed, or several.

    found = counterfactuals(base, cells)               # all cells of the base's run
    for change in found:                               # the one that helps most first, failed ones last
        print(change.changed, change.speedup, change.cell.status)

Nothing here is predicted: every change is a cell that was measured. What else was asked for (shape, context, batch,
mode, ...) and how it was measured (`pairs`) is the same: give it the cells of every effort. Weights held in bf16 are
computed with in bf16, so that these two count as one change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runner.analysis.compare.pairs import alike, preference
from runner.analysis.compare.speedups import ratio_of
from runner.analysis.statistics import Ratio
from runner.results import Measured
from runner.schema import TABLES, StepCell

#: Two axes that change together count as one step.
TOGETHER = frozenset({"precision", "weights_dtype"})
#: What nothing is changed of in a plain cell.
PLAIN: Mapping[str, Any] = {
    "precision": "fp32", "weights_dtype": "fp32", "attention": "naive", "optimizer": "foreach", "backend": "eager",
    "checkpoint_blocks": 0,
}  # fmt: skip

Kind = Literal["one", "several"]

#: What may be changed about a step, its shape and mode left as they are.
AXES = ("precision", "weights_dtype", "attention", "optimizer", "backend", "checkpoint_blocks")


@dataclass(frozen=True, kw_only=True)
class Counterfactual:
    """One change: `changed` are the new values by axis. `speedup` is the base's time over the changed step's, above 1
    where the change helps; None where one side has no time."""

    cell: Measured
    changed: Mapping[str, Any]
    speedup: Ratio | None = None

    @property
    def kind(self) -> Kind:
        return "one" if len(self.changed) == 1 or set(self.changed) == TOGETHER else "several"

    @property
    def verdict(self) -> Literal["faster", "slower", "undecided", "failed"]:
        """What the interval says."""
        if self.speedup is None:
            return "failed"
        outcome = self.speedup.outcome
        return "undecided" if outcome == "same" else "faster" if outcome == "better" else "slower"


def bases(cells: Sequence[Measured]) -> list[Measured]:
    """The cells that have others to compare with, each with the effort by which it has most: plain ones before the
    rest, the most changed before the less, and of those the largest first."""
    groups: dict[tuple[object, ...], list[Measured]] = {}
    for cell in cells:
        groups.setdefault(_same(cell), []).append(cell)
    able: dict[tuple[object, ...], tuple[int, tuple[float, ...], Measured]] = {}
    for cell in filter(_has_time, cells):
        count, question = len(_changed(cell, groups[_same(cell)])), (_same(cell), _way(cell))
        if count and (question not in able or (count, preference(cell)) > able[question][:2]):
            able[question] = (count, preference(cell), cell)
    ordered = sorted(able.values(), key=lambda found: -found[2].times["step"].median_ms)
    return [cell for count, _, cell in sorted(ordered, key=lambda found: (not is_plain(found[2].cell), -found[0]))]


def is_plain(cell: StepCell) -> bool:
    """Whether nothing is switched on that might help."""
    return all(getattr(cell, axis) == value for axis, value in PLAIN.items())


def counterfactuals(base: Measured, cells: Sequence[Measured]) -> list[Counterfactual]:
    """Every cell of the base's run that differs from it in `AXES` alone; single changes before several, of each what
    helps most first and what has no result last."""
    found = [_counterfactual(base, cell) for cell in _changed(base, cells)]

    def order(change: Counterfactual) -> tuple[bool, bool, float]:
        return change.kind == "several", change.speedup is None, -change.speedup.ratio if change.speedup else 0

    return sorted(found, key=order)


def _changed(base: Measured, cells: Sequence[Measured]) -> list[Measured]:
    """Of each other way that the same step was measured in, the cell that was measured as the base was."""
    ways: dict[tuple[object, ...], list[Measured]] = {}
    for cell in cells:
        if _same(cell) == _same(base) and _way(cell) != _way(base):
            ways.setdefault(_way(cell), []).append(cell)
    pairs = (alike([base], found) for found in ways.values())
    return [pair[1] for pair in pairs if pair]


def _way(cell: Measured) -> tuple[object, ...]:
    return tuple(getattr(cell.cell, axis) for axis in AXES)


def _counterfactual(base: Measured, cell: Measured) -> Counterfactual:
    changed = {axis: getattr(cell.cell, axis) for axis in AXES if getattr(cell.cell, axis) != getattr(base.cell, axis)}
    if not (_has_time(base) and _has_time(cell)):
        return Counterfactual(cell=cell, changed=changed)
    return Counterfactual(cell=cell, changed=changed, speedup=ratio_of(base, cell))


def _has_time(cell: Measured) -> bool:
    return cell.status == "ok" and "step" in cell.times


def _same(cell: Measured) -> tuple[object, ...]:
    """What base and change have in common."""
    return (
        cell.machine,
        cell.run_id,
        *(getattr(cell.cell, name) for name in TABLES["steps"].question if name not in AXES),
    )
