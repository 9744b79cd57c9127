"""How much faster one way of running is than another, over cells that differ in nothing else.

    compared = compare(cells, samples, axis="precision", baseline="fp32", variant="bf16")
    for speedup in compared.speedups:
        print(speedup.base.cell.context, speedup.phase, speedup.ratio, speedup.low, speedup.high)

A pair is compared only when everything else that was asked for, the machine and the torch version agree. What found no
partner, or whose partner failed, is in `left_out` with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.analysis.statistics import ratio_interval
from runner.schema import Phase
from runner.store.queries.selection import QUESTION
from runner.store.queries.steps import Measured, Rounds

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


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A cell that could not be compared, and why: its partner was not measured (`alone`), or one side `failed`."""

    cell: Measured
    kind: Literal["alone", "failed"]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All pairs of a baseline and one variant."""

    speedups: list[Speedup]
    left_out: list[LeftOut]


Samples = Mapping[tuple[str, str], Mapping[Phase, Rounds]]


def compare(cells: Sequence[Measured], samples: Samples, *, axis: Axis, baseline: str, variant: str) -> Comparison:
    """Every cell of `variant` against the cell of `baseline` that differs in `axis` alone."""
    sides = {
        value: {_partner(cell, axis): cell for cell in cells if getattr(cell.cell, axis) == value}
        for value in (baseline, variant)
    }
    compared = Comparison(speedups=[], left_out=[])
    for key in dict.fromkeys([*sides[baseline], *sides[variant]]):
        base, other = sides[baseline].get(key), sides[variant].get(key)
        if base is None or other is None:
            reason = f"not measured in {baseline if base is None else variant}"
            compared.left_out.extend(LeftOut(cell=cell, kind="alone", reason=reason) for cell in (base, other) if cell)
        elif base.status != "ok" or other.status != "ok":
            reason = ", ".join(_failure(cell, axis) for cell in (base, other) if cell.status != "ok")
            compared.left_out.append(LeftOut(cell=other, kind="failed", reason=reason))
        else:
            compared.speedups.extend(_speedups(base, other, samples=samples))
    return compared


def _partner(measured: Measured, axis: Axis) -> tuple[object, ...]:
    rest = (getattr(measured.cell, name) for name in QUESTION if name != axis)
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
