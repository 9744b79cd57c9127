"""The errors of five published reports, found by the audit from their own figures in data/reference.

Times are in ms. `std` of reports 000 and 002 is the population's and is converted to the sample's (√(n / (n − 1))).
"""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.analysis.audit.judge import judge_together
from runner.analysis.costs import attention
from runner.results.findings import Audited, Finding
from runner.schema import AttentionCell, AttentionRow, Phase, RunRow, StepRow, TimingRow, new_id
from runner.schema.sizes import size_named
from tests.runner.analysis.test_audit import audit, context

REFERENCE = Path(__file__).parents[3] / "data/reference"
RUN = new_id()
MIB = 2**20


def lines(table: str) -> dict[int, dict[str, str]]:
    """Returns the rows of a published table by their line in the report."""
    with (REFERENCE / f"{table}.csv").open() as file:
        return {int(row["source_line"]): row for row in csv.DictReader(file)}


def times(row: Mapping[str, str], unit: str = "ms", **std: float) -> list[TimingRow]:
    """Returns a row's published means as timings; `std` is given by phase, in ms."""
    scale = {"ms": 1.0, "s": 1e3}[unit]
    phases: tuple[Phase, ...] = ("forward", "backward")
    return [
        TimingRow(run_id=RUN, cell_id=new_id(), phase=phase, mean_ms=float(row[f"{phase}_mean_{unit}"]) * scale,
                  std_ms=std.get(phase), n=10)
        for phase in phases
    ]  # fmt: skip


def step(size: str = "small", **values: Any) -> StepRow:
    asked = {"context": 256, "mode": "backward", "precision": "fp32", **size_named(size).numbers, **values}
    return StepRow(**asked, run_id=RUN, cell_id=new_id(), cell_key="", status="ok")


def attended(seq_len: int, d_head: int, **values: Any) -> AttentionRow:
    asked = {"implementation": "naive", "precision": "fp32", **values}
    return AttentionRow(**asked, seq_len=seq_len, d_head=d_head, run_id=RUN, cell_id=new_id(), cell_key="", status="ok")


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def codes_together(known: list[tuple[Audited, list[TimingRow]]]) -> list[list[str]]:
    """Returns the codes of the findings for the rows together, row by row."""
    seen = [(row, context(timings)) for row, timings in known]
    found = judge_together(seen)
    return [codes(found.get(row.cell_id, [])) for row, _ in known]


@pytest.mark.parametrize(("table", "line"), [("001_e2e_rtxpro6000_warmup0", 33), ("001_e2e_rtxpro6000_compiled", 64)])
def test_backward_by_subtraction(table: str, line: int) -> None:
    """The results are −2.7 ms and 0.2 ms."""
    assert codes(audit(step(), timings=times(lines(table)[line], "s"))) == ["impossible_ratio"]
    assert audit(step(), timings=times(lines("001_e2e_rtxpro6000")[23], "s")) == []


def test_a_cold_first_backward() -> None:
    """34.2 ± 34.4 ms over ten steps: steady ≈ mean − std / 3 = 22.7 ms. The forward pass was warm and has no
    finding."""
    row = lines("000_benchmarking_script")[5]
    std: dict[str, Any] = {
        phase: float(row[f"{phase}_std_ms"]) * math.sqrt(10 / 9) for phase in ("forward", "backward")
    }
    (found,) = audit(step(), timings=times(row, **std))
    assert found.code == "cold_step"
    assert found.evidence["steady_ms"] == pytest.approx(34.1995732 - 34.42309040537658 / 3)


def test_peaks_of_an_earlier_configuration() -> None:
    """The row has 24,958 MiB for a problem of 45 MiB; the peaks of the rows around it are their own."""
    found = {}
    for row in lines("002_attention_benchmarking").values():
        cell = AttentionCell(implementation="naive", seq_len=int(row["seq_len"]), d_head=int(row["d_head"]),
                             precision="fp32")  # fmt: skip
        peak = round(float(row["max_memory_mib"]) * MIB)
        known = {"peak_allocated_bytes": peak, "predicted_peak_bytes": attention.predicted_peak_bytes(cell)}
        found[cell.seq_len, cell.d_head] = codes(audit(attended(cell.seq_len, cell.d_head, **known)))
    assert {place for place, said in found.items() if "peak_carried_over" in said} == {(256, 32), (256, 64), (256, 128)}


def test_tf32_reported_as_float32() -> None:
    """16,384 wide over 128 tokens with four projections: 8 B S d² + 4 B S² d operations in 12.9 ms are 171 TFLOP/s, and
    the device's datasheet says 126."""
    row = lines("001_attention_rtxpro6000")[176]
    flops = 8 * 8 * 128 * 16384**2 + 4 * 8 * 128**2 * 16384
    rate = flops / float(row["forward_mean_s"])
    assert rate == pytest.approx(171e12, rel=0.01)
    run = RunRow(run_id=RUN, sweep_key="", device_name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition")
    found = audit(attended(int(row["context_length"]), int(row["d_model"]), forward_flops_per_s=rate), run=run)
    assert codes(found) == ["above_peak", "swapped_axes"]
    assert found[0].evidence["peak_flops_per_s"] == 126e12


def test_autocast_that_was_never_entered() -> None:
    """Each cell has the same bytes in bf16 as in fp32."""
    tables = [lines(f"001_attention_rtxpro6000_{name}compiled").values() for name in ("", "bf16_")]
    for wide, narrow in zip(*tables, strict=True):
        pair = [
            attended(int(row["context_length"]), int(row["d_model"]), precision=precision, backend="compiled",
                     peak_allocated_bytes=round(float(row["model_plus_fwd_plus_back_mem_mib"]) * MIB))
            for precision, row in (("fp32", wide), ("bf16", narrow))
        ]  # fmt: skip
        assert codes_together([(row, []) for row in pair]) == [[], ["no_effect"]]


def test_swapped_axes() -> None:
    """The report has contexts of 16 to 128 and widths of 256 to 16,384, and meant them the other way round."""
    published = lines("001_attention_rtxpro6000").values()
    swapped = [audit(attended(int(row["context_length"]), int(row["d_model"]))) for row in published]
    assert all(codes(found) == ["swapped_axes"] for found in swapped)
    assert not any(audit(attended(int(row["seq_len"]), int(row["d_head"])))
                   for row in lines("002_attention_benchmarking").values())  # fmt: skip


def test_a_step_that_spilled() -> None:
    """Backward takes 186 times as long as forward; the next smaller size has no finding."""
    tables = lines("004_e2e")
    (found,) = audit(step("xl@2025"), timings=times(tables[9]))
    assert found.code == "spilled"
    assert "186 times" in found.sentence
    assert audit(step("large"), timings=times(tables[8])) == []


def test_a_first_backward_of_a_cell_that_fits() -> None:
    """2.53 ms after 0.119 ms is 21 times as long, in a problem of 25 MiB: there was enough memory."""
    row = lines("003_attention")[429]
    card = RunRow(run_id=RUN, sweep_key="", device_memory_bytes=24 * 2**30)
    known = attended(256, 16, predicted_peak_bytes=25 * MIB)
    assert codes(audit(known, timings=times(row), run=card)) == ["impossible_ratio"]


def test_a_context_that_seems_to_cost_nothing() -> None:
    """Small takes 80.0, 80.2, 80.9 and 137.9 ms at 128 to 1,024 tokens; large takes 238, 242, 396 and 852."""
    rows = list(lines("000_nsys_benchmark_summary").values())
    for size, flat in (("small", 3), ("large", 2)):
        chosen = [row for row in rows if row["model_size"] == size]
        known = [(step(size, context=int(row["context_length"])), times(row)) for row in chosen]
        assert codes_together(list(known)) == [["launch_bound"]] * flat + [[]] * (4 - flat)


def test_eager_reported_as_compiled() -> None:
    """Medium on an M4 takes 497 and 1,056 ms eager, and 494 and 1,054 compiled. On the CPU, backward differs by 3%."""
    rows = [row for row in lines("001_e2e_mbair").values() if row["model_size"] in ("S", "M")]
    for device, size, said in (("mps", "M", ["no_effect"]), ("cpu", "S", [])):
        pair = [row for row in rows if (row["device"], row["model_size"]) == (device, size)]
        known = [(step("medium", backend=backend), times(row, "s"))
                 for backend, row in zip(("eager", "compiled"), pair, strict=True)]  # fmt: skip
        assert codes_together(list(known)) == [[], said]


def test_a_host_bound_step_of_an_h200() -> None:
    """Measured on an NVIDIA H200, small at 512 tokens, eager: the host bounds the time in bf16 but not in compiled
    fp32, though the report calls both fast."""
    measured: dict[str, list[tuple[Phase, float, float]]] = {
        "bf16": [("forward", 15.474832, 15.476443), ("loss", 0.707024, 0.706767), ("backward", 30.27512, 30.278123)],
        "fp32": [("forward", 15.499712, 6.411107), ("loss", 0.077616, 0.167874), ("backward", 27.572912, 8.196568)],
    }
    said = {
        precision: codes(audit(step(context=512), timings=[
            TimingRow(run_id=RUN, cell_id=new_id(), phase=phase, median_ms=device, host_median_ms=host,
                      clock="cuda-event") for phase, device, host in phases]))
        for precision, phases in measured.items()
    }  # fmt: skip
    assert said == {"bf16": ["launch_bound"], "fp32": []}
