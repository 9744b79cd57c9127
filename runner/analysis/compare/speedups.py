"""How much faster is one setting than another, over cells that differ in nothing else?

    compared = compare(cells, axis="precision", baseline="fp32", variant="bf16")
    for speedup in compared.speedups:
        print(speedup.base.cell.context, speedup.phase, speedup.ratio, speedup.low, speedup.high)

Two cells are compared only when all other config fields, the effort (`pairs`), the machine and the torch version
agree; pass the cells of every effort. Cells without a partner, or whose partner failed, are in `left_out` with the
reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from runner.analysis.compare.host_bound import HostShare
from runner.analysis.compare.pairs import LeftOut, Pair, describe_effort_difference, match_closest, rank_effort
from runner.analysis.statistics import Ratio, ratio
from runner.results import Clock, TimedResult
from runner.schema import Cell, Phase, table_of

#: The setting that differs: a field of the key or, for attention, how it is computed (`name_attention`).
Axis = Literal["precision", "backend", "way"]
#: The phases whose ratios are computed.
COMPARED: tuple[Phase, ...] = ("forward", "backward", "step")
T = TypeVar("T", bound=TimedResult)


@dataclass(frozen=True, kw_only=True)
class Speedups(Generic[T]):
    """All pairs of a baseline and one variant."""

    speedups: list[Pair[T]]
    left_out: list[LeftOut[T]]


def compare(cells: Sequence[T], *, axis: Axis, baseline: str, variant: str) -> Speedups[T]:
    """Compares each cell of `variant` with the cell of `baseline` that differs from it in `axis` alone."""
    questions: dict[tuple[object, ...], dict[str, list[T]]] = {}
    for cell in cells:
        sides = questions.setdefault(_partner_key(cell, axis), {baseline: [], variant: []})
        if (value := _get_value(cell.cell, axis)) in sides:
            sides[value].append(cell)
    held = {(question[2:], value) for question, sides in questions.items() for value in sides if sides[value]}
    compared = Speedups[T](speedups=[], left_out=[])
    for question, sides in questions.items():
        bases, others = sides[baseline], sides[variant]
        if bases and others:
            _add(compared, match_closest(bases, others), axis=axis)
        elif bases or others:
            missing = variant if bases else baseline
            elsewhere = (question[2:], missing) in held
            reason = f"not measured {'as' if axis == 'way' else 'in'} {missing}"
            reason += " on the same machine with the same torch" if elsewhere else ""
            alone = max(bases or others, key=rank_effort)
            compared.left_out.append(LeftOut(named=alone, kind="missing", reason=reason))
    return compared


def name_attention(cell: Cell) -> str:
    """Returns how attention is computed: its implementation, and its backend unless that is eager."""
    implementation, backend = (getattr(cell, name) for name in _FIELDS["way"])
    return str(implementation) if backend == "eager" else f"{implementation} · {backend}"


def compute_ratio(
    base: TimedResult, other: TimedResult, *, phase: Phase = "step", clock: Clock = "step"
) -> Ratio | None:
    """Returns one cell's time over another's, in one phase by one clock; None where either has no such time."""
    a, b = (cell.times[phase].by(clock) if phase in cell.times else None for cell in (base, other))
    return ratio(a, b) if a and b else None


def host_share(pair: Pair[T]) -> HostShare:
    """Returns the bounds of the sides of a pair, and the ratio of their device times in its phase."""
    device = compute_ratio(pair.base, pair.other, phase=pair.phase, clock="device")
    return HostShare(bounds=(pair.base.bound, pair.other.bound), device=device)


#: The fields of the key in which partners may differ.
_FIELDS: dict[Axis, tuple[str, ...]] = {
    "precision": ("precision",),
    "backend": ("backend",),
    "way": ("implementation", "backend"),
}


def _get_value(cell: Cell, axis: Axis) -> str:
    return name_attention(cell) if axis == "way" else str(getattr(cell, axis))


def _add(compared: Speedups[T], pair: tuple[T, T], *, axis: Axis) -> None:
    """Adds the ratios of two cells, or the reason why there are none."""
    base, other = pair
    if unlike := describe_effort_difference(base.cell, other.cell):
        names = [_get_value(cell.cell, axis) for cell in pair]
        reason = f"measured with {unlike} ({names[0]} against {names[1]})"
        compared.left_out.append(LeftOut(named=other, kind="unlike", reason=reason, base=base, other=other))
    elif failed := [cell for cell in pair if cell.status != "ok"]:
        reason = ", ".join(f"{_get_value(cell.cell, axis)} {cell.status}" for cell in failed)
        compared.left_out.append(LeftOut(named=other, kind="failed", reason=reason, base=base, other=other))
    else:
        for phase in COMPARED:
            if found := compute_ratio(base, other, phase=phase):
                compared.speedups.append(Pair(base=base, other=other, phase=phase, **vars(found)))


def _partner_key(measured: TimedResult, axis: Axis) -> tuple[object, ...]:
    """Returns the fields that partners share."""
    names = (name for name in table_of(measured.cell).question if name not in _FIELDS[axis])
    return (measured.machine, measured.torch, *(getattr(measured.cell, name) for name in names))
