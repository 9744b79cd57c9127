"""Checks whether a cell, measured again, lands inside the interval that the file claims for the next process.

    replayed = Replayed(phase="step", time=estimate(rounds, noise), again_ms=12.3)
    print(describe(replayed))

Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runner.analysis.statistics import next_process_interval
from runner.formats import format_ms, format_number
from runner.results.times import Estimate, PhaseTime
from runner.schema import Phase

#: The phases that may stand for a whole cell, the widest first.
_WHOLE: tuple[Phase, ...] = ("step", "forward_backward", "forward")
_TAKES: Mapping[Phase, str] = {
    "step": "The whole step takes",
    "forward_backward": "Forward and backward take",
    "forward": "Forward takes",
}


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One phase of a cell that was measured again: its time over the rounds in the file, with the noise between
    processes that is known there, and the median of the new process (ms)."""

    phase: Phase
    time: Estimate
    again_ms: float

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        """The interval that the file claims for the next process; None if it claims none."""
        return next_process_interval(self.time)

    @property
    def is_inside(self) -> bool | None:
        """Whether the new median lies in the interval; None without an interval."""
        interval = self.interval_ms
        return None if interval is None else interval[0] <= self.again_ms <= interval[1]


def pair_up(
    times: Mapping[Phase, PhaseTime], again: Mapping[Phase, float], *, whole: Phase = "step"
) -> Replayed | None:
    """Returns the phase `whole` or, where the file or the new process has no time of it, the widest phase that both
    have; None if there is none."""
    for phase in dict.fromkeys((whole, *_WHOLE)):
        if again.get(phase) and phase in times:
            return Replayed(phase=phase, time=times[phase].step, again_ms=again[phase])
    return None


def describe(replayed: Replayed) -> str:
    """Returns both times, the interval that the file claims for the next process, and whether the new one is inside."""
    time = replayed.time
    change = replayed.again_ms / time.ms - 1
    whole = "one process" if time.rounds == 1 else f"the mean of {time.rounds} processes"
    longer = "longer" if change >= 0 else "shorter"
    start = (
        f"{_TAKES[replayed.phase]} {format_ms(replayed.again_ms)} now and {format_ms(time.ms)} in the file "
        f"({whole}): {abs(change):.1%} {longer}."
    )
    if replayed.interval_ms is None:
        return f"{start} {_explain_unknown(time)}"
    low, high = replayed.interval_ms
    source = ""
    if time.noise and time.rounds == 1:
        repeated = "1 cell" if time.noise.cells == 1 else f"{time.noise.cells} cells"
        source = f", from the noise that {repeated} repeated on that machine showed"
    claimed = (
        f"the 95% interval that the file claims for the next process{source}, {format_number(low)}–{format_ms(high)}"
    )
    if replayed.is_inside:
        return f"{start} It lands inside {claimed}."
    side = "above" if replayed.again_ms > high else "below"
    return f"{start} It lands outside, {side} {claimed}. By chance that happens once in 20 times."


def _explain_unknown(time: Estimate) -> str:
    """Returns why the file claims no interval, and what would provide one."""
    if time.rounds == 1:
        why = (
            "the cell was measured in one process, with fewer than 6 samples or on a machine without repeated cells "
            "of its kind"
        )
    else:
        why = "its rounds hold fewer than 6 samples together"
    return (
        f"Whether that is a difference is unknown, because {why}: the file claims no interval for the next one. "
        "`--rounds 3` of a sweep gives it one."
    )
