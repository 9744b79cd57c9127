"""How much faster one way of running is than another, over cells that differ in nothing else.

    compared = compare(cells, samples, axis="precision", baseline="fp32", variant="bf16")
    for speedup in compared.speedups:
        print(speedup.base.cell.context, speedup.phase, speedup.ratio, speedup.low, speedup.high)

A pair is compared only when everything else that was asked for and how it was measured (`pairs`), the machine and the
torch version agree. Give it the cells of every effort. What found no partner, or whose partner failed, is in `left_out`
with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.analysis.compare.pairs import closest, measured_unlike, preference, unusual
from runner.analysis.statistics import ratio_interval
from runner.results import Measured, Rounds
from runner.schema import TABLES, Phase, StepCell

Axis = Literal["precision", "backend"]
#: The phases whose ratios are worked out.
COMPARED: tuple[Phase, ...] = ("forward", "backward", "step")


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Time of `base` over time of `other` in one phase: above 1, `other` is faster. The interval is 95%."""

    base: Measured
    other: Measured
    phase: Phase
    ratio: float
    low: float | None
    high: float | None

    @property
    def named(self) -> StepCell:
        """The cell by which the pair is named: the base, unless only the other says how it was measured."""
        return self.other.cell if unusual(self.other.cell) and not unusual(self.base.cell) else self.base.cell


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A cell that could not be compared, and why: it has no partner (`alone`), both were measured, but not alike
    (`unlike`), or one side `failed`."""

    cell: Measured
    kind: Literal["alone", "unlike", "failed"]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All pairs of a baseline and one variant."""

    speedups: list[Speedup]
    left_out: list[LeftOut]


Samples = Mapping[tuple[str, str], Mapping[Phase, Rounds]]


def compare(cells: Sequence[Measured], samples: Samples, *, axis: Axis, baseline: str, variant: str) -> Comparison:
    """Every cell of `variant` against the cell of `baseline` that differs in `axis` alone."""
    questions: dict[tuple[object, ...], dict[str, list[Measured]]] = {}
    for cell in cells:
        sides = questions.setdefault(_rest(cell, axis), {baseline: [], variant: []})
        if (value := getattr(cell.cell, axis)) in sides:
            sides[value].append(cell)
    held = {(question[2:], value) for question, sides in questions.items() for value in sides if sides[value]}
    compared = Comparison(speedups=[], left_out=[])
    for question, sides in questions.items():
        bases, others = sides[baseline], sides[variant]
        if bases and others:
            _add(compared, closest(bases, others), axis=axis, samples=samples)
        elif bases or others:
            missing = variant if bases else baseline
            elsewhere = (question[2:], missing) in held
            reason = f"not measured in {missing}" + (" on the same machine with the same torch" if elsewhere else "")
            alone = max(bases or others, key=preference)
            compared.left_out.append(LeftOut(cell=alone, kind="alone", reason=reason))
    return compared


def _add(compared: Comparison, pair: tuple[Measured, Measured], *, axis: Axis, samples: Samples) -> None:
    """The ratios of two cells of one question, or why there are none."""
    base, other = pair
    if unlike := measured_unlike(base.cell, other.cell):
        names = [getattr(cell.cell, axis) for cell in pair]
        reason = f"measured with {unlike} ({names[0]} against {names[1]})"
        compared.left_out.append(LeftOut(cell=other, kind="unlike", reason=reason))
    elif base.status != "ok" or other.status != "ok":
        reason = ", ".join(_failure(cell, axis) for cell in pair if cell.status != "ok")
        compared.left_out.append(LeftOut(cell=other, kind="failed", reason=reason))
    else:
        compared.speedups.extend(_speedups(base, other, samples=samples))


def _rest(measured: Measured, axis: Axis) -> tuple[object, ...]:
    """What of a question partners share."""
    rest = (getattr(measured.cell, name) for name in TABLES["steps"].question if name != axis)
    return (measured.machine, measured.torch, *rest)


def _failure(measured: Measured, axis: Axis) -> str:
    return f"{getattr(measured.cell, axis)} {measured.status}"


def _speedups(base: Measured, other: Measured, *, samples: Samples) -> list[Speedup]:
    return [found for phase in COMPARED if (found := _speedup(base, other, phase=phase, samples=samples))]


def _speedup(base: Measured, other: Measured, *, phase: Phase, samples: Samples) -> Speedup | None:
    """The ratio of the two medians over pooled rounds; None where either side has no such phase."""
    sides = [samples.get((cell.machine or "", cell.cell_key), {}).get(phase) for cell in (base, other)]
    if sides[0] and sides[1]:
        found = ratio_interval(sides[0], sides[1])
        return Speedup(base=base, other=other, phase=phase, ratio=found.ratio, low=found.low, high=found.high)
    if phase not in base.times or phase not in other.times:
        return None
    ratio = base.times[phase].median_ms / other.times[phase].median_ms
    return Speedup(base=base, other=other, phase=phase, ratio=ratio, low=None, high=None)
