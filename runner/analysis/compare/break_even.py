"""After how many steps does compiling pay off?

    >>> compute_break_even(compile_seconds=30.0, baseline_ms=50.0, ratio=2.5)
    1000.0

Compiling costs seconds once and saves milliseconds in each step. It pays off after n steps where n (b - b / r) is the
time spent compiling, with b the baseline's step and r the speedup. The extra time of the first eager step is not
counted.
"""

import math
from dataclasses import dataclass

from runner.analysis.compare.pairs import Pair
from runner.results import StepResult


@dataclass(frozen=True, kw_only=True)
class PaidAfter:
    """The number of steps after which compiling pays off, with the ends of its 95% interval; infinite is
    never, None is unknown."""

    compile_seconds: float
    steps: float
    low: float | None
    high: float | None

    @property
    def is_never(self) -> bool:
        """Whether compiling saves no time: decided by the interval or, without one, by the ratio."""
        return math.isinf(self.steps) and (self.low is None or math.isinf(self.low))

    @property
    def is_undecided(self) -> bool:
        """Whether the interval allows for both: that it pays off, and that it never does."""
        return not self.is_never and math.inf in (self.steps, self.high)


def compute_break_even(*, compile_seconds: float, baseline_ms: float, ratio: float) -> float:
    """Returns after how many steps the time saved equals the time spent compiling; infinite if no time is saved."""
    saved_ms = baseline_ms * (1 - 1 / ratio)
    return compile_seconds * 1e3 / saved_ms if saved_ms > 0 else math.inf


def break_even(found: Pair[StepResult], *, compile_seconds: float | None) -> PaidAfter | None:
    """Returns the steps after which a measured pair pays off, None where the compile time is unknown."""
    if compile_seconds is None:
        return None
    baseline = found.base.times[found.phase].median_ms

    def steps(ratio: float | None) -> float | None:
        if ratio is None:
            return None
        return compute_break_even(compile_seconds=compile_seconds, baseline_ms=baseline, ratio=ratio)

    return PaidAfter(
        compile_seconds=compile_seconds,
        steps=compute_break_even(compile_seconds=compile_seconds, baseline_ms=baseline, ratio=found.ratio),
        low=steps(found.high),
        high=steps(found.low),
    )
