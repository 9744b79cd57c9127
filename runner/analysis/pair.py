"""Which two cells may be compared, by what ratio, and what does that decide? The one pairing behind every speedup.

    pairs = pair_cells(fp32_cells, bf16_cells, key=lambda one: partner_key(one, "precision"))
    pairs[0].ratio(phase="step", clock="loop"), pairs[0].verdict(phase="step")

Two cells are a pair when they agree in every field of their key but the compared one: in their config fields and in
their effort fields. Where cells were measured with several efforts, the preferred effort that both sides have counts.

A ratio is the time of the first side over that of the second, by each of three clocks: above 1 the second is faster.
The verdict names its clock. GPU time decides where both sides have it, because it repeats from process to process
within 0.1 to 0.4% (of attention in three of ten beyond 0.5%). Throughput and latency decide where the host does not set
them, and where both sides were measured interleaved, in the same rounds of one sweep. Between two sweeps a time that
the host sets says nothing about the code (on one H200, equal cells of two sweeps differed by 1.23×): such a ratio has
no interval. Standard library, `results` and `schema` only.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from runner.analysis.statistics import Outcome, Ratio, ratio
from runner.results.cells import Result, TimedResult
from runner.results.times import DEVICE_ACCURACY, Clock
from runner.schema import TABLES, AttentionCell, Cell, Column, Phase, table_of
from runner.schema.own import part_title

#: The standard deviation of ln(GPU time) of equal work from one GPU to another of one kind: of eager steps and CUDA
#: graphs, of compiled steps, for which each machine chooses its own kernels, and of attention. Measured by one commit
#: on two of six H200s: 69, 15 and 241 pairs of cells.
EAGER_DEVICE_STD, COMPILED_DEVICE_STD, ATTENTION_DEVICE_STD = 0.003, 0.025, 0.010
#: The clocks by the names of practitioners: steps in a loop, one step that is waited for, kernels alone.
CLOCKS: Mapping[str, Clock] = {"throughput": "loop", "latency": "step", "GPU time": "device"}

S = TypeVar("S", bound=Result)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a pair decides in one phase, by which clock. Without a ratio nothing can be said: `why` has the reason."""

    outcome: Outcome
    clock: Clock | None = None
    ratio: Ratio | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Pair(Generic[S]):
    """Two cells that differ in what is compared alone, or why they cannot be compared (`objection`)."""

    base: S
    other: S
    objection: str = ""

    @property
    def sides(self) -> tuple[S, S]:
        return self.base, self.other

    def ratio(self, *, phase: Phase = "step", clock: Clock = "step") -> Ratio | None:
        """Returns the time of the base over that of the other; None where either has no such time."""
        return None if self.objection else compute_ratio(self.base, self.other, phase=phase, clock=clock)

    def verdict(self, *, phase: Phase = "step", clock: Clock | None = None) -> Verdict:
        """Returns what the pair decides by this clock or, without one, by the clock that can decide: GPU time and,
        where it finds no difference between sides that were measured interleaved, throughput and latency."""
        if self.objection:
            return Verdict(outcome="undecided", why=self.objection)
        ratios = {name: found for name in CLOCKS.values() if (found := self.ratio(phase=phase, clock=name))}
        order: Sequence[Clock] = [clock] if clock else [name for name in ("device", "loop", "step") if name in ratios]
        by = next((name for name in order if name in ratios and ratios[name].low is not None), next(iter(order), None))
        if clock is None and by == "device" and is_interleaved(self.base, self.other, phase):
            by = next((name for name in order if ratios[name].outcome in ("faster", "slower")), by)
        if by is None or by not in ratios:
            return Verdict(outcome="undecided", clock=clock, why="no such time")
        why = "set by the host" if is_host_noise(self.base, self.other, phase=phase, clock=by) else ""
        return Verdict(outcome=ratios[by].outcome, clock=by, ratio=ratios[by], why=why)


def compute_ratio(base: Any, other: Any, *, phase: Phase = "step", clock: Clock = "step") -> Ratio | None:
    """Returns one cell's time over another's, in one phase by one clock; None where either has no such time. It has no
    interval where the host sets a time of two sweeps."""
    a, b = (one.time(phase, clock) for one in (base, other))
    if not a or not b:
        return None
    if isinstance(base.cell, AttentionCell):
        device_std = ATTENTION_DEVICE_STD
    else:
        is_compiled = any(one.cell.backend.startswith("compiled") for one in (base, other))
        device_std = COMPILED_DEVICE_STD if is_compiled else EAGER_DEVICE_STD
    found = ratio(a, b, device_std=device_std)
    return replace(found, low=None, high=None) if is_host_noise(base, other, phase=phase, clock=clock) else found


def is_host_noise(base: Any, other: Any, *, phase: Phase, clock: Clock) -> bool:
    """Returns whether the host sets either time and they are of two sweeps: their ratio says nothing of the code."""
    return any(_is_set_by_host(one, phase, clock) for one in (base, other)) and not is_interleaved(base, other, phase)


def _is_set_by_host(one: Any, phase: Phase, clock: Clock) -> bool:
    """Returns whether the GPU waits for work in a phase; where it has no GPU time there, in the whole step. Of two
    sweeps a GPU that waits for 3% may wait for 40% in the other: on an H200, of 14 cells whose processes disagreed on
    what sets their time the GPU worked for at most 97.8% of it."""
    time = one.time(phase, clock)
    if clock == "device" or not time:
        return False
    device = one.times[phase].by("device")
    return bool(device.ms < (1 - DEVICE_ACCURACY) * time.ms if device else one.bound == "host")


def is_interleaved(base: Any, other: Any, phase: Phase) -> bool:
    """Returns whether both sides were measured in the same rounds of one sweep."""
    rounds = [one.times[phase].step.medians.keys() if phase in one.times else frozenset() for one in (base, other)]
    return bool(rounds[0] & rounds[1])


def pair_cells(bases: Sequence[S], others: Sequence[S], *, key: Callable[[S], Hashable]) -> list[Pair[S]]:
    """Returns a pair for each key that both sides have, in the order of the bases."""
    sides: dict[Hashable, tuple[list[S], list[S]]] = {}
    for place, cells in enumerate((bases, others)):
        for one in cells:
            sides.setdefault(key(one), ([], []))[place].append(one)
    pairs = []
    for a, b in ((a, b) for a, b in sides.values() if a and b):
        # Of each side one, measured with the same effort: preferably two that have a result, then the preferred effort.
        alike = [(one, other) for one in a for other in b if not _list_differing(one.cell, other.cell)]
        base, other = max(
            alike or [(max(a, key=rank_effort), max(b, key=rank_effort))],
            key=lambda pair: (pair[0].status == pair[1].status == "ok", *map(rank_effort, pair)),
        )
        pairs.append(Pair(base=base, other=other, objection=_object(base, other)))
    return pairs


def partner_key(measured: TimedResult, *differing: str) -> tuple[object, ...]:
    """Returns what partners share: the machine, torch, and every config field but those in which they differ."""
    names = (name for name in table_of(measured.cell).question if name not in differing)
    return (measured.machine, measured.torch, *(getattr(measured.cell, name) for name in names))


def name_attention(cell: AttentionCell) -> str:
    """Returns how attention is computed: its implementation, and its backend unless that is eager."""
    name = part_title(cell.implementation)
    return name if cell.backend == "eager" else f"{name} · {cell.backend}"


def _object(a: Result, b: Result) -> str:
    """Returns why two cells cannot be compared; empty where they can."""
    if unlike := describe_effort_difference(a.cell, b.cell):
        return f"measured with {unlike}"
    if failed := [one.status for one in (a, b) if one.status != "ok"]:
        return f"{failed[0]} in both" if len(failed) == 2 and failed[0] == failed[1] else " and ".join(failed)
    return ""


#: The effort fields that only limit the measurement.
_LIMITS = ("min_steps", "max_steps", "max_seconds")
_EFFORT: Mapping[type, tuple[Column, ...]] = {
    kind: table.effort
    for table in TABLES.values()
    for kind in table.row.__mro__
    if issubclass(kind, Cell) and kind is not Cell
}


def rank_effort(side: Result) -> tuple[float, ...]:
    """Returns the rank of a cell's effort; a higher rank is preferred."""
    return tuple(column.preference(getattr(side.cell, column.name)) for column in _EFFORT[type(side.cell)])


def describe_effort_difference(a: Cell, b: Cell) -> str:
    """Returns the effort fields in which two cells differ, as text; empty for a pair."""
    parts = []
    for column in _list_differing(a, b):
        name = (column.label.partition(", ")[2] or column.label).lower()  # "at most" of "Steps, at most"
        other = _format_with_unit(column, getattr(b, column.name))
        parts.append(f"{name} {getattr(a, column.name)} against {other}")
    return ", ".join(parts)


def describe_unusual_effort(cell: Cell) -> str:
    """Returns which effort fields set a cell's numbers apart, as text: less warm-up than the default, an empty compiler
    cache, a recorded timeline. Empty for a cell measured as usual."""
    parts = []
    for column in _EFFORT[type(cell)]:
        value, label = getattr(cell, column.name), column.label.lower()
        if column.name in _LIMITS or value is None or not _applies(cell, column):
            continue
        if column.preference(value) < column.preference(column.absent):
            parts.append(f"with a {label}" if value is True else f"{label} {_format_with_unit(column, value)}")
    return ", ".join(parts)


def _list_differing(a: Cell, b: Cell) -> list[Column]:
    return [
        column
        for column in _EFFORT[type(a)]
        if getattr(a, column.name) != getattr(b, column.name) and _applies(a, column) and _applies(b, column)
    ]


def _applies(cell: Cell, column: Column) -> bool:
    """Returns whether the field applies to this cell: what the compiler's cache held only where it compiles."""
    return column.name != "compile_cache" or str(getattr(cell, "backend", "")).startswith("compiled")


def _format_with_unit(column: Column, value: object) -> str:
    return f"{value} {column.unit}" if column.unit else str(value)
