"""Defines the audit's result: a finding with its severity, and the grade that follows from several.

    grade([doubt("drifting", "The steps went from 10.0 to 11.2 ms.", early_ms=10.0, late_ms=11.2)])  ->  "C"

Thresholds stand beside the rules that use them. Standard library and the schema only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from runner.formats import format_ms
from runner.results.findings import Audited as Audited
from runner.results.findings import Finding as Finding
from runner.results.findings import Grade as Grade
from runner.results.findings import Severity as Severity
from runner.results.findings import grade as grade
from runner.results.times import find_bound
from runner.schema import Bound, Phase, RunRow, TelemetryRow, TimingRow

#: Moments closer together than this are written with their seconds.
_BRIEF = timedelta(minutes=2)


def note(code: str, sentence: str, **evidence: float | int | str) -> Finding:
    """Returns a finding that is good to know; the row means what it says."""
    return Finding(code=code, severity="note", sentence=sentence, evidence=evidence)


def doubt(code: str, sentence: str, **evidence: float | int | str) -> Finding:
    """Returns a finding by which the row may not mean what it says, or is known too badly to decide anything."""
    return Finding(code=code, severity="doubt", sentence=sentence, evidence=evidence)


def fault(code: str, sentence: str, **evidence: float | int | str) -> Finding:
    """Returns a finding by which the row does not mean what it says."""
    return Finding(code=code, severity="fault", sentence=sentence, evidence=evidence)


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A change of the machine between the starts of two rounds of a run's canary (UTC), whose median step went from
    `before_ms` to `after_ms`; `bound` is what sets the time of its step."""

    started_at: datetime
    ended_at: datetime
    before_ms: float
    after_ms: float
    bound: Bound | None

    @property
    def change(self) -> str:
        """The change in words: `from 12.1 ms to 15.0 ms between 10:08 and 10:14 UTC`."""
        digits = "%H:%M:%S" if self.ended_at - self.started_at < _BRIEF else "%H:%M"
        day = "" if self.started_at.date() == self.ended_at.date() else "%Y-%m-%d "
        start, end = (moment.strftime(day + digits) for moment in (self.started_at, self.ended_at))
        return f"from {format_ms(self.before_ms)} to {format_ms(self.after_ms)} between {start} and {end} UTC"


@dataclass(frozen=True, kw_only=True)
class RowContext:
    """The facts about a row beside itself: its measured steps in order (ms), without warm-up; the summary of each
    phase; the GPU's telemetry; the run with its machine; the changes of that machine during the run. Missing facts are
    unknown."""

    step_ms: Sequence[float] = ()
    timings: Mapping[Phase, TimingRow] = field(default_factory=dict)
    telemetry: Sequence[TelemetryRow] = ()
    run: RunRow | None = None
    drifts: Sequence[Drift] = ()

    def typical_ms(self, phase: Phase) -> float | None:
        """Returns the median of a phase or, where a published table has no median, its mean."""
        timing = self.timings.get(phase)
        if timing is None:
            return None
        return timing.mean_ms if timing.median_ms is None else timing.median_ms

    @property
    def step_bound(self) -> Bound | None:
        """The bound of the whole step on the host's clock."""
        step = self.timings.get("step")
        return find_bound(step.median_ms, step.device_ms) if step else None

    @property
    def device_bytes(self) -> int | None:
        return self.run.device_memory_bytes if self.run else None
