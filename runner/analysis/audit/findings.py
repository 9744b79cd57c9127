"""What the rules of the audit work with and make: facts about a row, findings with their remedies, and their summary.

Findings and grades themselves are in `runner.results.findings`. Thresholds stand beside the rules that use them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from runner.formats import format_ms
from runner.results.findings import SEVERITIES, AuditedRow, Finding, Grade, Severity
from runner.schema import Bound, Phase, RunRow, TelemetryRow, TimingRow

T = TypeVar("T")
#: Moments closer together than this are written with their seconds.
_BRIEF = timedelta(minutes=2)


def _find(severity: Severity, code: str, sentence: str, /, **evidence: float | int | str) -> Finding:
    return Finding(code=code, severity=severity, sentence=sentence, evidence=evidence)


#: Make a finding that is good to know, where the row means what it says; one by which it may not, or is known too badly
#: to decide anything; and one by which it does not mean what it says.
note, doubt, fault = partial(_find, "note"), partial(_find, "doubt"), partial(_find, "fault")


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
    """What is known beside a row: its measured steps in order (ms), without warm-up; the summary of each phase; the
    GPU's telemetry; the run with its machine; the changes of that machine during the run. Missing facts are unknown."""

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
    def device_bytes(self) -> int | None:
        return self.run.device_memory_bytes if self.run else None


#: A rule about one row: it yields what it finds.
Found = Iterator[Finding]
Rule = Callable[[Any, RowContext], Found]

#: What to do about a finding, by its code.
REMEDIES: Mapping[str, str] = {
    "above_peak": "Do not use this rate. Check the precision and the device that were used, and whether the timing "
    "ended before the device did.",
    "busy_machine": "Close what else is running, or wait for it, and measure again with `--fresh`.",
    "cold_step": "Warm up longer, such as `--warmup 10`, and measure again with `--fresh`.",
    "compiler_fallback": "Look at the compiler's own messages with `TORCH_LOGS=graph_breaks,recompiles`, repair the "
    "frame that it gave up on, and measure again. Until then, this is an eager time.",
    "drifting": "Let the machine come to a steady temperature and load, lock the clocks where that is allowed, and "
    "measure again with `--rounds 3 --fresh`, which shows whether the drift comes back.",
    "impossible_ratio": "Do not use these times. Time forward and backward inside one warm step, and measure again.",
    "launch_bound": "Nothing is wrong with the row. To make the step faster, start fewer operations: a compiled "
    "backend, `cuda-graphs`, or a larger batch.",
    "machine_drift": "Let the machine come to a steady temperature and load, and measure these cells again with "
    "`--fresh`; do not compare them with cells from before or after the change.",
    "no_effect": "Check that the option reaches the computation: the autocast region, the compiled module, the "
    "implementation that was chosen. Do not read this pair as a speedup.",
    "not_by_formula": "Do not use these parts. Check that the model has the shape that the row names, and that a whole "
    "step, with its optimizer, came before the measurement.",
    "leaks_memory": "Look for what the model or the loss keeps of each step: a list of outputs, a buffer that grows, a "
    "tensor with its graph. `runner sweep --experiment memory --timeline` shows what is never freed.",
    "loss_is_no_number": "Make the loss finite from the first step to the last: look at the loss function, the range "
    "of the batch, the learning rate and the precision. Then measure again with `--fresh`.",
    "other_speed": "Nothing is wrong with the row; its interval reaches up to the slower speed. Compare such cells by "
    "their device time, or measure all of them in several rounds: `--rounds 5`.",
    "page_faults": "Nothing is wrong with the row. Tensors of more than 32 MiB come from the system in each step; "
    "smaller ones do not, unless the environment sets `MALLOC_MMAP_THRESHOLD_` or `MALLOC_TRIM_THRESHOLD_`: unset both "
    "and measure again with `--fresh`.",
    "peak_carried_over": "Do not use this peak. Measure the cell in a process of its own, or reset the peak before it.",
    "phases_do_not_add": "Use the time of the whole step; look for work between the phases, such as logging or copies.",
    "prediction_off": "The measurement stands. Do not plan with the predicted bytes of this kind of cell.",
    "recompiled": "Make shapes and flags constant across steps, or warm up until every graph is compiled, and measure "
    "again; `TORCH_LOGS=recompiles` names the guard that failed.",
    "shared_gpu": "Wait until the other process has left the GPU (`nvidia-smi` names it), and measure again with "
    "`--fresh`.",
    "spilled": "Do not use these times. Make the cell smaller, or switch off the driver's fallback to system memory, "
    "so that it runs out of memory instead.",
    "swapped_axes": "Check the order of the axes: attention takes (…, sequence, head width).",
    "tf32_as_fp32": "Do not use this as fp32. Ask for `tf32`, or set the float32 matmul precision to `highest`, and "
    "measure again.",
    "throttled": "Give the GPU more cooling or power, or lock its clocks below the limit, and measure again with "
    "`--fresh`.",
    "too_few_samples": "Measure more steps, such as `--steps 10 --max-seconds 10`.",
    "unexpected_out_of_memory": "Free the device of other processes, and measure again with `--fresh`.",
    "unexplained": "Use the peak, not its parts; a recorded timeline (`--timeline`) shows what the rest is.",
    "wide_interval": "Measure longer, such as `--max-steps 1000 --max-seconds 10`, or on a quieter machine.",
    "wrong_result": "Do not use this time: it is that of another computation. Report the shape with the versions of "
    "torch and driver, and choose another implementation or backend.",
}


def count_grades(rows: Sequence[AuditedRow]) -> dict[str, Counter[Grade | None]]:
    """Returns how many rows of each table have each grade, None counting those without one."""
    counts: dict[str, Counter[Grade | None]] = defaultdict(Counter)
    for row in rows:
        counts[row.table][row.grade] += 1
    return dict(counts)


def list_findings(rows: Sequence[AuditedRow]) -> list[tuple[AuditedRow, Finding]]:
    """Returns each finding with its row, by table and title."""
    tables = list(dict.fromkeys(row.table for row in rows))
    ordered = sorted(rows, key=lambda row: (tables.index(row.table), row.title))
    return [(row, finding) for row in ordered for finding in row.findings]


def group_findings(found: Iterable[tuple[T, Finding]]) -> dict[tuple[Severity, str], list[tuple[T, Finding]]]:
    """Returns the findings, each with what it is about, by severity and code: the most severe first, of those the most
    frequent."""
    groups: dict[tuple[Severity, str], list[tuple[T, Finding]]] = defaultdict(list)
    for about, finding in found:
        groups[finding.severity, finding.code].append((about, finding))
    order = sorted(groups, key=lambda key: ([*SEVERITIES].index(key[0]), -len(groups[key]), key[1]))
    return {key: groups[key] for key in order}


def shorten_ids(ids: Sequence[UUID]) -> dict[UUID, str]:
    """Returns the beginning of each id that tells it from the others: the part that is its time, or more."""
    length = 13  # a UUIDv7 begins with its milliseconds: 12 digits and a dash
    while length < 36 and len({str(cell_id)[:length] for cell_id in ids}) < len(set(ids)):
        length += 1
    return {cell_id: str(cell_id)[:length] for cell_id in ids}
