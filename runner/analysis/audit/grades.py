"""Audits a row: finds the reasons not to trust it, from which its grade follows.

    findings = audit(row, step_ms=[12.9, 12.1, 12.2, ...], telemetry=[...]);  grade(findings)  ->  "B"

Each rule is one function that says one sentence, with the numbers it rests on. A rule without its numbers (a published
table keeps no samples) says nothing: no finding does not mean no fault. The thresholds are beside the rules:
`time_rules`, `step_rules`, `attention_rules`, `memory_rules`. Rules over several rows are in `pair_rules`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner.analysis.audit.attention_rules import ATTENTION_RULES
from runner.analysis.audit.findings import Audited, RowContext
from runner.analysis.audit.findings import Finding as Finding
from runner.analysis.audit.findings import Grade as Grade
from runner.analysis.audit.findings import grade as grade
from runner.analysis.audit.memory_rules import BYTE_RULES, LOST_RULES, MEMORY_RULES
from runner.analysis.audit.step_rules import STEP_RULES
from runner.analysis.audit.time_rules import TIME_RULES, shared_gpu
from runner.schema import AttentionRow, MemoryRow, Phase, RunRow, StepRow, TelemetryRow, TimingRow

#: The rules for rows that are ok.
RULES: Mapping[type[Audited], Sequence[Callable[[Any, RowContext], Finding | None]]] = {
    StepRow: (*STEP_RULES, *TIME_RULES, *BYTE_RULES),
    AttentionRow: (*ATTENTION_RULES, *TIME_RULES, *BYTE_RULES),
    MemoryRow: (*MEMORY_RULES, shared_gpu, *BYTE_RULES),
}
#: Beside the row and its run, all that a fault rests on: what samples and telemetry show is no more than a doubt.
FAULT_PHASES: tuple[Phase, ...] = ("forward", "backward")


def audit(
    row: Audited,
    *,
    step_ms: Sequence[float] = (),
    telemetry: Sequence[TelemetryRow] = (),
    timings: Sequence[TimingRow] = (),
    run: RunRow | None = None,
) -> list[Finding]:
    """Returns the findings of a row. `step_ms` are its measured steps in order, without warm-up (ms); `telemetry` is
    that of the GPU during the cell; `timings` are its summaries by phase; `run` names the machine."""
    by_phase = {timing.phase: timing for timing in timings}
    return judge(row, RowContext(step_ms=step_ms, telemetry=telemetry, timings=by_phase, run=run))


def judge(row: Audited, seen: RowContext) -> list[Finding]:
    """Returns the findings of a row whose context has been loaded."""
    rules = {"ok": RULES[type(row)], "oom": LOST_RULES}.get(row.status, ())
    return [finding for rule in rules if (finding := rule(row, seen))]
