"""Can this row be trusted, and why not? Rows in, findings out; a row's grade follows from its findings.

    findings = audit(row, step_ms=[12.9, 12.1, 12.2, ...], telemetry=[...]);  grade(findings)  ->  "B"

Each rule is one function that says one sentence, with the numbers it rests on. A rule without its numbers (a published
table keeps no samples) says nothing: no finding does not mean no fault. The thresholds are stated beside the rules.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.schema import StepRow, TelemetryRow

Severity = Literal["note", "doubt", "fault"]
Grade = Literal["A", "B", "C", "D"]

LEAST_STEPS = 10
#: A first step this many times the median of the others was cold.
COLD = 1.5
#: Steps whose last third is this much slower or faster than the first have drifted.
DRIFT = 0.10
#: A median known no better than this (width of its interval over itself) decides little.
WIDE = 0.10
#: Phases that miss the step by more than this share leave time unexplained.
UNEXPLAINED = 0.02
#: Other processes that take more of the CPU than this share were measured too.
BUSY = 0.10


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing about a row that its reader should know. `evidence` are the numbers the sentence rests on."""

    code: str
    severity: Severity
    sentence: str
    evidence: Mapping[str, float | int | str]


def audit(row: StepRow, *, step_ms: Sequence[float] = (), telemetry: Sequence[TelemetryRow] = ()) -> list[Finding]:
    """What is to be said of a row. `step_ms` are its measured steps in order, warm-up left out (ms); `telemetry` is
    what the GPU was seen doing meanwhile."""
    if row.status != "ok":
        return []
    of_row = (finding for rule in ROW_RULES if (finding := rule(row)))
    return [*of_row, *_of_samples(step_ms), *_of_telemetry(telemetry)]


def grade(findings: Sequence[Finding]) -> Grade:
    """A: nothing to say. B: notes only. C: in doubt. D: the row does not mean what it says."""
    severities = {finding.severity for finding in findings}
    if "fault" in severities:
        return "D"
    return "C" if "doubt" in severities else "B" if severities else "A"


def too_few_samples(row: StepRow) -> Finding | None:
    if row.steps is None or row.steps >= LEAST_STEPS:
        return None
    sentence = f"Only {row.steps} steps were measured; {LEAST_STEPS} are the least for an interval worth having."
    return Finding(code="too_few_samples", severity="doubt", sentence=sentence, evidence={"steps": row.steps})


def wide_interval(row: StepRow) -> Finding | None:
    if row.interval_share is None or row.interval_share <= WIDE:
        return None
    sentence = (
        f"The median step is known only to ±{row.interval_share * 50:.0f} %: measure longer or on a quieter machine."
    )
    return Finding(
        code="wide_interval", severity="doubt", sentence=sentence, evidence={"interval_share": row.interval_share}
    )


def phases_do_not_add(row: StepRow) -> Finding | None:
    if row.phase_sum_share is None or abs(1 - row.phase_sum_share) <= UNEXPLAINED:
        return None
    sentence = f"The phases make up {row.phase_sum_share:.1%} of the step; the rest is time between them."
    return Finding(
        code="phases_do_not_add", severity="note", sentence=sentence, evidence={"phase_sum_share": row.phase_sum_share}
    )


def busy_machine(row: StepRow) -> Finding | None:
    if row.other_cpu_share is None or row.other_cpu_share <= BUSY:
        return None
    sentence = f"Other processes took {row.other_cpu_share:.0%} of the CPU while this cell was measured."
    return Finding(
        code="busy_machine", severity="doubt", sentence=sentence, evidence={"other_cpu_share": row.other_cpu_share}
    )


def recompiled(row: StepRow) -> Finding | None:
    if not row.recompiles:
        return None
    sentence = f"The compiler compiled {row.recompiles} more graphs after the warm-up, inside the measured steps."
    return Finding(code="recompiled", severity="fault", sentence=sentence, evidence={"recompiles": row.recompiles})


def compiler_fallback(row: StepRow) -> Finding | None:
    if not row.compiler_fallback:
        return None
    sentence = "The compiler gave up on a frame and ran it eagerly: this is not the compiled model."
    return Finding(code="compiler_fallback", severity="fault", sentence=sentence, evidence={"backend": row.backend})


def above_peak(row: StepRow) -> Finding | None:
    if row.mfu is None or row.mfu <= 1:
        return None
    sentence = f"The rate is {row.mfu:.2f} times what the device can do in {row.precision}: it was another precision."
    return Finding(code="above_peak", severity="fault", sentence=sentence, evidence={"mfu": row.mfu})


def no_effect(row: StepRow) -> Finding | None:
    """Autocast that was asked for and never entered gives float32 logits."""
    expected = {"bf16": "bfloat16", "fp16": "float16"}.get(row.precision)
    if expected is None or row.logits_dtype in (None, expected):
        return None
    sentence = f"{row.precision} was asked for and the logits are {row.logits_dtype}: it had no effect."
    return Finding(
        code="no_effect", severity="fault", sentence=sentence, evidence={"logits_dtype": str(row.logits_dtype)}
    )


def tf32_as_fp32(row: StepRow) -> Finding | None:
    if row.precision != "fp32" or row.matmul_precision != "tf32":
        return None
    sentence = "Asked for as fp32 and computed in TF32: its inputs were rounded to 10 bits."
    return Finding(code="tf32_as_fp32", severity="fault", sentence=sentence, evidence={"matmul_precision": "tf32"})


ROW_RULES: tuple[Callable[[StepRow], Finding | None], ...] = (
    too_few_samples,
    wide_interval,
    phases_do_not_add,
    busy_machine,
    recompiled,
    compiler_fallback,
    above_peak,
    no_effect,
    tf32_as_fp32,
)


def _of_samples(step_ms: Sequence[float]) -> Iterator[Finding]:
    """What the order of the steps says: a cold first one, a drift over the rest."""
    if len(step_ms) < LEAST_STEPS:
        return
    first, rest = step_ms[0], step_ms[1:]
    usual = statistics.median(rest)
    if first > COLD * usual:
        sentence = f"The first measured step took {first:,.1f} ms and the others {usual:,.1f} ms: warm up longer."
        yield Finding(
            code="cold_step", severity="doubt", sentence=sentence, evidence={"first_ms": first, "median_ms": usual}
        )
    third = len(rest) // 3
    early, late = statistics.median(rest[:third]), statistics.median(rest[-third:])
    if abs(late / early - 1) > DRIFT:
        sentence = (
            f"The steps went from {early:,.1f} to {late:,.1f} ms while they were measured: clocks or neighbors changed."
        )
        yield Finding(
            code="drifting", severity="doubt", sentence=sentence, evidence={"early_ms": early, "late_ms": late}
        )


def _of_telemetry(telemetry: Sequence[TelemetryRow]) -> Iterator[Finding]:
    """What the driver says: clocks held down, somebody else on the GPU."""
    reasons = sorted({reason for row in telemetry for reason in (row.throttle_reasons or "").split(",") if reason})
    if reasons:
        sentence = f"The driver held the clocks down while this cell was measured: {', '.join(reasons)}."
        yield Finding(code="throttled", severity="doubt", sentence=sentence, evidence={"reasons": ", ".join(reasons)})
    others = max((row.foreign_processes or 0 for row in telemetry), default=0)
    if others:
        sentence = f"{others} other processes were on the GPU while this cell was measured."
        yield Finding(code="shared_gpu", severity="doubt", sentence=sentence, evidence={"foreign_processes": others})
