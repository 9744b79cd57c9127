"""Each rule of the audit has a finding for numbers that break it and none for numbers that do not."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from runner.analysis.audit.findings import REMEDIES, Drift, RowContext, doubt, fault, note
from runner.analysis.audit.judge import PAIR_RULES, RULES, judge, judge_together
from runner.analysis.audit.row_rules import ATTENTION_RULES, BYTE_RULES, LOST_RULES, MEMORY_RULES, STEP_RULES
from runner.analysis.audit.time_rules import TIME_RULES
from runner.analysis.costs import steps
from runner.engines.local import format_throttles
from runner.results.findings import Audited, Finding, Severity, grade
from runner.schema import AttentionRow, Bound, MemoryRow, Phase, RunRow, StepRow, TelemetryRow, TimingRow, new_id
from runner.store.read.findings import load_findings
from tests.synthetic import memory_rows, rows

GIB = 2**30
IDS: dict[str, Any] = {"run_id": new_id(), "cell_id": new_id()}
SHAPE: dict[str, Any] = {"d_model": 64, "d_ff": 192, "layers": 2, "heads": 2}
STEP = StepRow(
    **SHAPE, **IDS, context=64, mode="train", precision="bf16", cell_key="0" * 16, status="ok", steps=10,
    interval_share=0.02, phase_sum_share=0.999, other_cpu_share=0.01, recompiles=0, compiler_fallback=False, mfu=0.4,
    logits_dtype="bfloat16", loss=9.5, matmul_precision="ieee", peak_allocated_bytes=GIB, predicted_peak_bytes=GIB,
)  # fmt: skip
ATTENTION = AttentionRow(
    **IDS, implementation="naive", seq_len=1024, d_head=64, precision="bf16", cache="cold", cell_key="0" * 16,
    status="ok", steps=100, forward_flops_per_s=5e12, backward_flops_per_s=6e12, forward_bytes_per_s=1e11,
    output_error=2e-3, gradient_error=2e-3, tolerance=0.02, saved_bytes=100, predicted_saved_bytes=100,
    peak_allocated_bytes=GIB, predicted_peak_bytes=GIB,
)  # fmt: skip
MEMORY = MemoryRow(**SHAPE, **IDS, context=64, mode="train", precision="fp32", cell_key="0" * 16, status="ok")
HELD = steps.parameter_bytes(MEMORY)
MEMORY = replace(
    MEMORY, peak_phase="optimizer", parameters_bytes=HELD, gradients_bytes=HELD, optimizer_state_bytes=2 * HELD,
    residual_bytes=0, peak_allocated_bytes=GIB, predicted_peak_bytes=GIB,
)  # fmt: skip
H200 = RunRow(run_id=IDS["run_id"], sweep_key="0", device="cuda", device_name="NVIDIA H200",
              device_memory_bytes=140 * GIB)  # fmt: skip
LAPTOP = RunRow(run_id=IDS["run_id"], sweep_key="0", device="cpu", device_memory_bytes=16 * GIB)
FOUR_CORES = replace(LAPTOP, cpu_cores=4)
STEADY = [10.0] * 10
NOON = datetime(2026, 3, 1, 12)
DRIFT = Drift(started_at=NOON, ended_at=NOON + timedelta(minutes=12), before_ms=12.1, after_ms=15.0, bound=None)


def timed(phase: Phase = "forward_backward", **values: Any) -> TimingRow:
    return TimingRow(**IDS, phase=phase, **values)


def both(forward: float, backward: float, **values: Any) -> list[TimingRow]:
    return [timed("forward", median_ms=forward, **values), timed("backward", median_ms=backward, **values)]


def seen_by(reasons: str = "", *, others: int = 0, at_s: float = 1.0) -> TelemetryRow:
    return TelemetryRow(**IDS, at_seconds=at_s, throttle_reasons=reasons, foreign_processes=others)


def context(timings: Sequence[TimingRow] = (), **known: Any) -> RowContext:
    return RowContext(timings={timing.phase: timing for timing in timings}, **known)


def audit(row: Audited, **known: Any) -> list[Finding]:
    return judge(row, context(**known))


@pytest.mark.parametrize("row", [STEP, ATTENTION, MEMORY], ids=["step", "attention", "memory"])
def test_a_good_row_has_no_finding_and_the_best_grade(row: Audited) -> None:
    timings = [*both(1.0, 2.0), timed(median_ms=3.0, low_ms=2.9, high_ms=3.1)]
    assert audit(row, step_ms=STEADY, timings=timings, telemetry=[seen_by()], run=H200) == []
    assert grade([]) == "A"


Case = tuple[str, Audited, dict[str, Any], dict[str, Any], str]
SPREAD = [timed("forward", mean_ms=30.0, std_ms=31.62, n=10)]
CASES: list[Case] = [
    ("too_few_samples", STEP, {"steps": 9}, {}, "C"),
    ("too_few_samples", ATTENTION, {"steps": 3}, {}, "C"),
    ("wide_interval", STEP, {}, {"timings": [timed("step", median_ms=10.0, low_ms=9.4, high_ms=10.5)]}, "C"),
    ("wide_interval", ATTENTION, {}, {"timings": [timed("step", median_ms=10.0, low_ms=9.4, high_ms=10.5)]}, "C"),
    ("cold_step", STEP, {}, {"step_ms": [15.1, *STEADY]}, "C"),
    ("cold_step", ATTENTION, {}, {"step_ms": [15.1, *STEADY]}, "C"),
    ("cold_step", STEP, {}, {"step_ms": [], "timings": SPREAD}, "C"),
    ("drifting", ATTENTION, {}, {"step_ms": [*STEADY, *[10.5] * 3, *[11.2] * 9]}, "C"),
    ("machine_drift", STEP, {"started_at": NOON}, {"drifts": [DRIFT]}, "C"),
    ("machine_drift", ATTENTION, {"started_at": NOON + timedelta(minutes=12)}, {"drifts": [DRIFT]}, "C"),
    # 1,001 faults of half a microsecond are 5% of 10 ms
    ("page_faults", STEP, {"page_faults": 1001.0}, {"timings": [timed("step", median_ms=10.0)]}, "B"),
    ("page_faults", ATTENTION, {"page_faults": 1001.0}, {"timings": [timed("step", median_ms=10.0)]}, "B"),
    ("throttled", ATTENTION, {}, {"telemetry": [seen_by(), seen_by("power cap")]}, "C"),
    ("other_speed", STEP, {}, {"timings": [timed("step", median_ms=11.3, loop_ms=10.6, device_ms=11.2)]}, "B"),
    ("other_speed", ATTENTION, {}, {"timings": [timed("step", median_ms=9.7, loop_ms=9.9, device_ms=10.0)]}, "B"),
    ("shared_gpu", STEP, {}, {"telemetry": [seen_by(others=2)]}, "C"),
    ("shared_gpu", MEMORY, {}, {"telemetry": [seen_by("power cap", others=1)]}, "C"),
    ("shared_gpu", STEP, {}, {"telemetry": [seen_by("power cap", at_s=0.2), seen_by(others=1)]}, "C"),
    ("impossible_ratio", STEP, {}, {"timings": both(10.0, 4.9)}, "D"),
    ("impossible_ratio", ATTENTION, {}, {"timings": both(1.0, 20.0)}, "D"),
    ("spilled", STEP, {"predicted_peak_bytes": 120 * GIB}, {"timings": both(1.0, 20.0)}, "D"),
    ("launch_bound", STEP, {}, {"timings": both(10.0, 20.0, host_median_ms=15.0, clock="cuda-event")}, "B"),
    ("launch_bound", ATTENTION, {"bound": "host"}, {"timings": [timed("step", loop_ms=36.0, device_ms=11.2)]}, "B"),
    ("phases_do_not_add", STEP, {"phase_sum_share": 0.97}, {}, "B"),
    ("phases_do_not_add", STEP, {"phase_sum_share": 1.03}, {}, "B"),
    ("busy_machine", STEP, {"other_cpu_share": 0.11}, {}, "C"),
    ("busy_machine", STEP, {"other_cpu_share": 0.36, "threads": 3}, {"run": FOUR_CORES}, "C"),  # over one core and 10%
    ("busy_machine", STEP, {"other_cpu_share": 0.11, "threads": 4}, {"run": FOUR_CORES}, "C"),
    ("recompiled", STEP, {"recompiles": 1}, {}, "D"),
    ("compiler_fallback", STEP, {"compiler_fallback": True}, {}, "D"),
    ("wrong_result", STEP, {"compiled_gradient_error": 1.0}, {}, "D"),  # eager's gradient has no error
    ("above_peak", STEP, {"mfu": 1.06}, {}, "D"),  # a card may clock 5% higher than its datasheet
    ("above_peak", ATTENTION, {"backward_flops_per_s": 1040e12}, {}, "D"),  # the H200's datasheet says 989.5
    ("above_peak", ATTENTION, {"forward_bytes_per_s": 5.1e12}, {}, "D"),  # the datasheet says 4.8 TB/s
    ("tf32_as_fp32", ATTENTION, {"precision": "fp32", "forward_flops_per_s": 400e12}, {}, "D"),  # fp32 does 67
    ("leaks_memory", STEP, {"memory_growth_bytes": 2**20, "steps": 60, "peak_allocated_bytes": GIB}, {}, "C"),  # 5.9%
    ("loss_is_no_number", STEP, {"loss": None}, {}, "C"),  # as the file keeps NaN and infinity
    ("no_effect", STEP, {"logits_dtype": "float32"}, {}, "D"),
    ("tf32_as_fp32", STEP, {"precision": "fp32", "logits_dtype": "float32", "matmul_precision": "tf32"}, {}, "D"),
    ("wrong_result", ATTENTION, {"gradient_error": 0.021}, {}, "D"),
    ("swapped_axes", ATTENTION, {"seq_len": 32}, {}, "C"),
    ("prediction_off", ATTENTION, {"saved_bytes": 103}, {}, "B"),
    ("peak_carried_over", ATTENTION, {"peak_allocated_bytes": 6 * GIB}, {}, "D"),
    ("peak_carried_over", STEP, {"peak_allocated_bytes": 6 * GIB}, {}, "D"),
    ("peak_carried_over", MEMORY, {"peak_allocated_bytes": 6 * GIB}, {}, "D"),
    ("unexplained", MEMORY, {"residual_bytes": GIB // 40}, {}, "C"),
    ("unexplained", MEMORY, {"residual_bytes": -GIB // 19}, {"run": LAPTOP}, "C"),
    ("not_by_formula", MEMORY, {"parameters_bytes": HELD + 4}, {}, "D"),
    ("not_by_formula", MEMORY, {"gradients_bytes": HELD - 4}, {}, "D"),
    ("not_by_formula", MEMORY, {"optimizer_state_bytes": 0}, {}, "D"),
    ("prediction_off", MEMORY, {"predicted_peak_bytes": GIB * 8 // 9}, {}, "B"),
    ("unexpected_out_of_memory", ATTENTION, {"status": "oom", "device_bytes": 3 * GIB}, {}, "C"),
    ("unexpected_out_of_memory", MEMORY, {"status": "oom"}, {}, "C"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{type(case[1]).__name__}" for case in CASES])
def test_one_broken_number_gives_one_finding(case: Case) -> None:
    code, row, changed, beside, expected_grade = case
    known = {"step_ms": STEADY, "run": H200, **beside}
    findings = judge(replace(row, **changed), context(**known))
    if code == "launch_bound" and row is STEP:  # 15 of 10 ms twice, for forward and backward: the host is slower
        assert findings[0].evidence == {"host_ms": 30.0, "device_ms": 30.0}
    elif code == "launch_bound":
        assert findings[0].evidence == {"device_ms": 11.2, "loop_ms": 36.0}
        assert "needs 11.2 ms for what takes 36.0 ms in a loop: the host sets this time" in findings[0].sentence
        assert "at once" not in findings[0].sentence
        (beside_another,) = judge(replace(row, **changed), context(**{**known, "run": replace(H200, places=2)}))
        assert "2 GPUs of this host were measured at once" in beside_another.sentence
    assert [finding.code for finding in findings] == [code]
    assert grade(findings) == expected_grade
    assert findings[0].sentence.endswith(".")


def test_every_rule_is_broken_by_one_of_the_cases_above_and_has_a_remedy() -> None:
    rules: Sequence[Any] = (*STEP_RULES, *TIME_RULES, *ATTENTION_RULES, *BYTE_RULES, *MEMORY_RULES, *LOST_RULES)
    assert {rule.__name__.removesuffix("_of_attention") for rule in rules} == {case[0] for case in CASES}
    rules = (*(rule for of_kind in RULES.values() for rule in of_kind), *LOST_RULES, *PAIR_RULES)
    assert {rule.__name__.removesuffix("_of_attention") for rule in rules} == set(REMEDIES)
    assert all(text.endswith(".") for text in REMEDIES.values())


@pytest.mark.parametrize(
    ("row", "changed", "beside"),
    [
        (STEP, {}, {"step_ms": [14.9, *STEADY]}),
        (STEP, {}, {"step_ms": [*STEADY, *[10.5] * 3, *[10.9] * 9]}),
        (STEP, {}, {"timings": both(10.0, 5.1)}),
        (STEP, {}, {"timings": both(10.0, 20.0, host_median_ms=14.8, clock="cuda-event")}),
        (STEP, {}, {"timings": both(10.0, 20.0, host_median_ms=15.0, clock="host")}),
        # Waited for, the host sets the time; in a loop it does not, and `bound` is about the loop.
        (STEP, {"bound": "device"}, {"timings": both(10.0, 20.0, host_median_ms=15.0, clock="cuda-event")}),
        (STEP, {"bound": "device"}, {"timings": [timed("step", loop_ms=11.5, device_ms=11.2)]}),
        (STEP, {"started_at": NOON - timedelta(minutes=1)}, {"drifts": [DRIFT]}),
        # The canary's time is bound by something else than this one's.
        (STEP, {"started_at": NOON}, {"drifts": [DRIFT], "timings": [timed("step", median_ms=10.0, device_ms=9.9)]}),
        (STEP, {}, {"drifts": [DRIFT]}),
        (STEP, {"page_faults": 999.0}, {"timings": [timed("step", median_ms=10.0)]}),  # 5.0%
        (STEP, {"page_faults": 99.0}, {"timings": [timed("step", median_ms=0.5)]}),  # 10%, but of few faults
        (STEP, {"page_faults": 501.0}, {}),
        (STEP, {"status": "oom", "steps": 1, "predicted_peak_bytes": 80 * GIB}, {}),
        (STEP, {"compiled_gradient_error": 0.4}, {}),  # normal for bfloat16 in a deep model
        (STEP, {"mfu": 1.04}, {}),
        (ATTENTION, {"forward_bytes_per_s": 5.1e12, "cache": "hot"}, {}),  # read from the L2 cache
        (ATTENTION, {"implementation": "sdpa-flash", "saved_bytes": 110}, {}),  # only an estimate for fused attention
        (ATTENTION, {"seq_len": 64}, {}),
        (MEMORY, {"residual_bytes": GIB // 51}, {}),
        (STEP, {"other_cpu_share": 0.35, "threads": 3}, {"run": FOUR_CORES}),
        (MEMORY, {"residual_bytes": GIB // 21}, {"run": LAPTOP}),
        (MEMORY, {"gradients_bytes": 0, "peak_phase": "backward"}, {}),
        (MEMORY, {"peak_allocated_bytes": GIB + GIB // 11}, {}),
        # libraries keep 250 MiB for themselves, however small the problem is
        (ATTENTION, {"peak_allocated_bytes": 250 * 2**20, "predicted_peak_bytes": 2**20}, {}),
    ],
)
def test_values_within_bounds_give_no_finding(row: Audited, changed: dict[str, Any], beside: dict[str, Any]) -> None:
    known = {"step_ms": STEADY, "run": H200, **beside}
    assert judge(replace(row, **changed), context(**known)) == []


def test_unknown_numbers_and_failed_cells_give_no_finding() -> None:
    unknown = dict.fromkeys(("steps", "interval_share", "phase_sum_share", "other_cpu_share", "recompiles", "mfu"))
    assert audit(replace(STEP, **unknown, compiler_fallback=None, logits_dtype=None), step_ms=()) == []  # type: ignore[arg-type]
    assert audit(replace(STEP, status="timeout", steps=1), step_ms=[1.0]) == []
    row = AttentionRow(**IDS, implementation="naive", seq_len=64, d_head=16, precision="fp32", cell_key="", status="ok")
    assert audit(row) == []
    assert audit(MemoryRow(**SHAPE, **IDS, context=64, mode="train", precision="fp32", cell_key="", status="ok")) == []


@pytest.mark.parametrize(("bound", "said"), [(None, 2), ("host", 2), ("device", 0)])
def test_equal_times_of_unequal_work_are_the_hosts_unless_the_device_binds(bound: Bound | None, said: int) -> None:
    seen = RowContext(timings={"step": timed("step", median_ms=10.0)})
    both_sizes = [replace(STEP, cell_id=new_id(), context=context, bound=bound) for context in (64, 128)]
    found = judge_together([(row, seen) for row in both_sizes])
    assert [item.code for items in found.values() for item in items] == ["launch_bound"] * said


def test_eager_reported_as_compiled() -> None:
    """Medium on an M4, in a published report; small on its CPU, where backward differs by 3 %."""
    medium, small = ((497.226, 1056.38), (493.877, 1053.95)), ((292.967, 690.617), (295.624, 671.863))
    for (eager, compiled), said in ((medium, ["no_effect"]), (small, [])):
        known = [
            (replace(STEP, cell_id=new_id()), context(both(*eager))),
            (replace(STEP, cell_id=new_id(), backend="compiled"), context(both(*compiled))),
        ]
        assert [item.code for items in judge_together(known).values() for item in items] == said


def test_the_worst_finding_decides_the_grade() -> None:
    assert grade([note("x", "x."), doubt("y", "y.")]) == "C"
    assert grade([fault("x", "x."), note("y", "y.")]) == "D"
    assert grade([note("x", "x.")]) == "B"
    assert note("x", "x.", n=1).evidence == {"n": 1}
    assert set(Severity.__args__) == {"note", "doubt", "fault"}  # type: ignore[attr-defined]


def test_findings_contain_the_numbers_they_rest_on() -> None:
    (cold,) = audit(STEP, step_ms=[31.0, *STEADY])
    assert (cold.evidence["first_ms"], cold.evidence["median_ms"]) == (31.0, 10.0)
    (held,) = audit(STEP, telemetry=[seen_by(), seen_by("power cap,hardware thermal")])
    assert held.evidence == {"reasons": "hardware thermal, power cap"}
    (spread,) = audit(STEP, timings=SPREAD)  # one step of 120 ms among nine of 20: mean 30, std 31.62
    assert spread.evidence["steady_ms"] == pytest.approx(20.0, abs=0.01)


def test_nvmls_bits_in_words() -> None:
    assert format_throttles(0x1) == ""  # idle clocks are not throttled
    assert format_throttles(0x4 | 0x40) == "power cap,hardware thermal"


def test_cells_of_a_file_are_judged_together_with_their_run(tmp_path: Path) -> None:
    """The audit of one cell finds its partner in fp32 in the same run, and the machine, which sets the residual."""
    of = rows.run(device="cpu")
    parts = {"activations": 2**20, "temporaries": 2**20}
    same = {"saved_bytes": 2**20, "residual_bytes": 2**16}
    cells = [memory_rows.memory(of, parts, precision=precision, values=same) for precision in ("fp32", "bf16")]
    cells += [memory_rows.attention(of, seq_len=length, values={"steps": 11}) for length in (512, 1024)]
    path = rows.store_tables(tmp_path / "results.duckdb", cells)
    ids: list[UUID] = [row.cell_id for cell in cells for row in (*cell.get("memory", ()), *cell.get("attention", ()))]  # type: ignore[attr-defined]
    assert [finding.code for finding in load_findings(path, (ids[1],), "memory")[ids[1]]] == ["no_effect"]
    assert load_findings(path, (ids[0],), "memory") == {ids[0]: []}
    assert load_findings(path, tuple(ids[2:]), "attention") == {ids[2]: [], ids[3]: []}
    assert load_findings(path, (ids[0],), "attention") == {}
