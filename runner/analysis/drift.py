"""Did a cell that a sweep measured again and again drift, by more than processes differ?

    drift = find_drift([cell's time in each process, in their order], noise)
    drift.change, drift.expected, drift.exceeds

Standard library only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.analysis.statistics import estimate, next_process_interval
from runner.results import Noise, RoundTime


@dataclass(frozen=True, kw_only=True)
class CanaryDrift:
    """From the first process to the last: the times in ms, and where the others let the last be expected with 95%
    confidence (ms), None where nothing is known of the noise."""

    first_ms: float
    last_ms: float
    expected: tuple[float, float] | None

    @property
    def change(self) -> float:
        """The last time over the first, less 1."""
        return self.last_ms / self.first_ms - 1

    @property
    def exceeds(self) -> bool | None:
        """Whether the last time lies outside of what was expected."""
        return None if self.expected is None else not self.expected[0] <= self.last_ms <= self.expected[1]


def find_drift(rounds: Sequence[RoundTime], noise: Noise | None = None) -> CanaryDrift:
    """Returns the drift over at least two processes. The last one is judged by those before it and by the noise."""
    *before, last = rounds
    expected = next_process_interval(estimate(before, noise))
    return CanaryDrift(first_ms=before[0].median_ms, last_ms=last.median_ms, expected=expected)
