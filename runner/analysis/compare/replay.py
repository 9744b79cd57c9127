"""Does a cell that is measured again land where the file says that the next process will land?

    replayed = Replayed(phase="step", medians_ms=(12.1, 12.4, 12.0), again_ms=12.3)
    print(describe(replayed))

Standard library only.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.formats import format_ms, format_number
from runner.schema import Phase

#: The phases that may stand for a whole cell, the widest first.
_WHOLE: tuple[Phase, ...] = ("step", "forward_backward", "forward")
_TAKES: Mapping[Phase, str] = {
    "step": "The whole step takes",
    "forward_backward": "Forward and backward take",
    "forward": "Forward takes",
}
#: Of the next process's medians so many land inside.
CONFIDENCE = 0.95


def next_process_interval(medians_ms: Sequence[float]) -> tuple[float, float] | None:
    """Returns where the median of the next process lies with 95% confidence (ms), from the medians of processes that
    measured the same cell; None for fewer than two, because one process says nothing of how processes differ.

    The prediction interval for one more draw of a normal distribution (Hahn and Meeker 1991, "Statistical Intervals",
    section 4.7), on the log scale: exp(mean ± t(0.975, n - 1) · std · √(1 + 1/n)). Times must be positive."""
    n = len(medians_ms)
    if n < 2:
        return None
    logs = [math.log(median) for median in medians_ms]
    middle = statistics.fmean(logs)
    reach = _t_quantile(n - 1) * statistics.stdev(logs) * math.sqrt(1 + 1 / n)
    return math.exp(middle - reach), math.exp(middle + reach)


def _t_quantile(dof: int) -> float:
    """Returns what Student's t with this many degrees of freedom exceeds in absolute value in 5% of cases."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_inside(middle, dof) < CONFIDENCE else (low, middle)
    return high


def _t_inside(t: float, dof: int) -> float:
    """Returns the probability that |T| <= t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(dof))
    odd = dof % 2
    term = math.cos(angle) if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(2 + odd, dof, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One phase of a cell that was measured again: the medians of the rounds in the file, and that of the new process
    (ms)."""

    phase: Phase
    medians_ms: tuple[float, ...]
    again_ms: float

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        """What the file claims for the next process; None if it claims nothing."""
        return next_process_interval(self.medians_ms)

    @property
    def is_inside(self) -> bool | None:
        """Whether the new median lies in the interval; None without an interval."""
        interval = self.interval_ms
        return None if interval is None else interval[0] <= self.again_ms <= interval[1]


def pair_up(
    rounds: Sequence[Mapping[Phase, float]], again: Mapping[Phase, float], *, whole: Phase = "step"
) -> Replayed | None:
    """Returns the phase `whole` or, where the file or the new process has no median of it, the widest phase that both
    have (ms); None if there is none."""
    for phase in dict.fromkeys((whole, *_WHOLE)):
        medians = tuple(medians[phase] for medians in rounds if medians.get(phase))
        if again.get(phase) and medians:
            return Replayed(phase=phase, medians_ms=medians, again_ms=again[phase])
    return None


def describe(replayed: Replayed) -> str:
    """Says both medians, the interval that the file claims for the next process, and whether the new one lies in it."""
    before = statistics.median(replayed.medians_ms)
    n, change = len(replayed.medians_ms), replayed.again_ms / before - 1
    whole = "one process" if n == 1 else f"the median of {n} processes"
    longer = "longer" if change >= 0 else "shorter"
    start = (
        f"{_TAKES[replayed.phase]} {format_ms(replayed.again_ms)} now and {format_ms(before)} in the file "
        f"({whole}): {abs(change):.1%} {longer}."
    )
    if replayed.interval_ms is None:
        return (
            f"{start} Whether that is a difference is unknown, because the cell was measured in one process: the file "
            "claims no interval for the next one. `--rounds 3` of a sweep gives it one."
        )
    low, high = replayed.interval_ms
    claimed = f"the 95% interval that the file claims for the next process, {format_number(low)}–{format_ms(high)}"
    if replayed.is_inside:
        return f"{start} It lands inside {claimed}."
    side = "above" if replayed.again_ms > high else "below"
    return f"{start} It lands outside, {side} {claimed}. By chance that happens once in 20 times."
