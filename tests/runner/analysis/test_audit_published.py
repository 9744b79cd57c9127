"""Errors of published reports that only rows together show, by the rules of measured rows. Times are in ms."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.analysis.audit.judge import judge_together
from runner.results.findings import Audited, Finding
from runner.schema import AttentionRow, Phase, StepRow, TimingRow, new_id
from runner.schema.sizes import size_named
from tests.runner.analysis.test_audit import audit, context

REFERENCE = Path(__file__).parents[3] / "data/reference"
RUN = new_id()
MIB = 2**20


def lines(table: str) -> dict[int, dict[str, str]]:
    """Returns the rows of a published table by their line in the report."""
    with (REFERENCE / f"{table}.csv").open() as file:
        return {int(row["source_line"]): row for row in csv.DictReader(file)}


def times(row: Mapping[str, str], unit: str = "ms") -> list[TimingRow]:
    """Returns a row's published means as timings."""
    scale = {"ms": 1.0, "s": 1e3}[unit]
    phases: tuple[Phase, ...] = ("forward", "backward")
    return [
        TimingRow(run_id=RUN, cell_id=new_id(), phase=phase, mean_ms=float(row[f"{phase}_mean_{unit}"]) * scale,
                  n=10)
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
