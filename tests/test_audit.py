"""Each rule of the audit speaks on numbers that break it and is silent on numbers that do not."""

from dataclasses import replace
from typing import Any

import pytest

from runner.analysis.audit import ROW_RULES, Finding, audit, grade
from runner.engines.telemetry import throttles
from runner.schema import StepRow, TelemetryRow, new_id

SOUND = StepRow(
    d_model=64,
    d_ff=192,
    layers=2,
    heads=2,
    context=64,
    mode="train",
    precision="bf16",
    run_id=new_id(),
    cell_id=new_id(),
    cell_key="0" * 16,
    status="ok",
    steps=10,
    interval_share=0.02,
    phase_sum_share=0.999,
    other_cpu_share=0.01,
    recompiles=0,
    compiler_fallback=False,
    mfu=0.4,
    logits_dtype="bfloat16",
    matmul_precision="ieee",
)
STEADY = [10.0] * 10


def codes(row: StepRow, step_ms: list[float] = STEADY) -> set[str]:
    return {finding.code for finding in audit(row, step_ms=step_ms)}


def test_a_sound_row_has_no_finding_and_the_best_grade() -> None:
    assert audit(SOUND, step_ms=STEADY) == []
    assert grade([]) == "A"


@pytest.mark.parametrize(
    ("code", "changed", "expected_grade"),
    [
        ("too_few_samples", {"steps": 9}, "C"),
        ("wide_interval", {"interval_share": 0.101}, "C"),
        ("phases_do_not_add", {"phase_sum_share": 0.97}, "B"),
        ("phases_do_not_add", {"phase_sum_share": 1.03}, "B"),
        ("busy_machine", {"other_cpu_share": 0.11}, "C"),
        ("recompiled", {"recompiles": 1}, "D"),
        ("compiler_fallback", {"compiler_fallback": True}, "D"),
        ("above_peak", {"mfu": 1.01}, "D"),
        ("no_effect", {"logits_dtype": "float32"}, "D"),
        ("tf32_as_fp32", {"precision": "fp32", "logits_dtype": "float32", "matmul_precision": "tf32"}, "D"),
    ],
)
def test_one_broken_number_gives_one_finding(code: str, changed: dict[str, Any], expected_grade: str) -> None:
    findings = audit(replace(SOUND, **changed), step_ms=STEADY)
    assert [finding.code for finding in findings] == [code]
    assert grade(findings) == expected_grade
    assert findings[0].sentence.endswith(".")


def test_every_rule_is_broken_by_one_of_the_cases_above() -> None:
    cases = test_one_broken_number_gives_one_finding.pytestmark[0].args[1]
    assert {rule.__name__ for rule in ROW_RULES} == {code for code, _, _ in cases}


def test_a_cold_first_step_is_named_with_its_time() -> None:
    finding = audit(SOUND, step_ms=[31.0, *STEADY])[0]
    assert (finding.code, finding.evidence["first_ms"], finding.evidence["median_ms"]) == ("cold_step", 31.0, 10.0)
    assert codes(SOUND, [14.9, *STEADY]) == set()


def test_drift_is_seen_between_the_first_and_the_last_third_without_the_first_step() -> None:
    assert codes(SOUND, [10.0, 10.0, 10.0, 10.0, 10.5, 10.5, 10.5, 11.2, 11.2, 11.2]) == {"drifting"}
    assert codes(SOUND, [10.0, 10.0, 10.0, 10.0, 10.5, 10.5, 10.5, 10.9, 10.9, 10.9]) == set()


def test_unknown_numbers_and_failed_cells_give_no_finding() -> None:
    unknown = dict.fromkeys(("steps", "interval_share", "phase_sum_share", "other_cpu_share", "recompiles", "mfu"))
    assert audit(replace(SOUND, **unknown, compiler_fallback=None, logits_dtype=None), step_ms=()) == []  # type: ignore[arg-type]
    assert audit(replace(SOUND, status="oom", steps=1), step_ms=[1.0]) == []


def test_the_worst_finding_decides_the_grade() -> None:
    def finding(severity: Any) -> Finding:
        return Finding(code="x", severity=severity, sentence="x.", evidence={})

    assert grade([finding("note"), finding("doubt")]) == "C"
    assert grade([finding("fault"), finding("note")]) == "D"
    assert grade([finding("note")]) == "B"


def test_telemetry_tells_of_held_clocks_and_of_company() -> None:
    quiet = TelemetryRow(run_id=new_id(), cell_id=new_id(), at_seconds=1.0, throttle_reasons="", foreign_processes=0)
    held = replace(quiet, throttle_reasons="power cap,hardware thermal")
    shared = replace(quiet, foreign_processes=2)
    assert audit(SOUND, telemetry=[quiet]) == []
    findings = audit(SOUND, telemetry=[quiet, held, shared])
    assert [finding.code for finding in findings] == ["throttled", "shared_gpu"]
    assert findings[0].evidence == {"reasons": "hardware thermal, power cap"}


def test_nvmls_bits_in_words() -> None:
    assert throttles(0x1) == ""  # idle clocks hold nothing down
    assert throttles(0x4 | 0x40) == "power cap,hardware thermal"
