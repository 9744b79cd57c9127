"""Corrected values of published figures, compared with sums done by hand; and the measured cells shown with them."""

import math
from pathlib import Path

import pytest

from runner.analysis.audit.published.audit import audit_published
from runner.analysis.audit.published.corrections import Correction, correct
from runner.analysis.audit.published.readings import read_tables
from runner.analysis.compare.published import stand_beside, wanted_cell
from runner.results import StepResult
from runner.schema import AttentionCell, StepCell
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from tests.runner.analysis.audit.test_expected import reference_tables
from tests.synthetic import rows
from tests.synthetic.published import write_report


def corrections(file: str) -> dict[tuple[int, str], Correction]:
    findings = [one for one in audit_published(reference_tables()) if one.table.file == file]
    return {(one.line, one.figure): one for one in correct(findings)}


def test_a_cold_mean_of_the_population_and_of_the_sample() -> None:
    """34.1996 - 34.4231 / 3 with the population's std, and 35.3005 - 79.0442 / √10 with the sample's."""
    first = corrections("000_benchmarking_script.csv")[2, "backward"]
    assert (first.published, first.instead) == ("34.2 ms", "22.7 ms")
    assert pytest.approx(22.7, abs=0.05) == 34.1995732 - 34.42309040537658 / 3
    second = corrections("001_e2e_rtxpro6000_warmup0.csv")[2, "forward"]
    assert (second.published, second.instead) == ("35.3 ms", "10.3 ms")
    assert 35.3005 - 79.0442 / math.sqrt(10) == pytest.approx(10.3, abs=0.05)


def test_backward_without_forward() -> None:
    """35.8352 ms for both, minus a steady forward of 35.6223 - 79.2748 / √10 = 10.5534 ms."""
    found = corrections("001_e2e_rtxpro6000_compiled.csv")[3, "backward"]
    assert (found.published, found.instead) == ("0.213 ms", "25.3 ms")


def test_ranges_peaks_precisions_and_axes() -> None:
    ranges = corrections("003_nsys_attention_ranges.csv")
    assert ranges[2, "range"].instead == "0.816 ms", "715.426 µs are 87.7% of its kernels"
    peaks = corrections("002_attention_benchmarking.csv")
    assert peaks[7, "peak memory"].instead.startswith("at most 15.0 MiB"), "6 squares of 2 MiB and 12 vectors"
    assert corrections("001_e2e_rtxpro6000_compiled.csv")[6, "precision"].instead == "tf32"
    axes = corrections("001_attention_rtxpro6000.csv")[2, "axes of 20 rows"]
    assert axes.instead == "16 to 128 wide, 256 to 16,384 tokens: not measured"


def test_cells_are_matched_on_their_numbers(tmp_path: Path) -> None:
    """Small at 256 tokens, where forward is 30 of 88 parts of the step; nothing was measured at 512 tokens."""
    run = rows.run()
    cell = rows.asked(d_model=768, d_ff=3072, layers=12, heads=12, vocabulary=10_000, context=256, mode="backward")
    other = rows.asked(d_model=768, d_ff=3072, layers=12, heads=12, vocabulary=10_000, context=256, precision="bf16")
    db = rows.store(tmp_path / "results.duckdb", run, [rows.ok(run, cell), rows.ok(run, other)])
    tables = write_report(tmp_path, {"t": "model_size,context_length,forward_mean_ms\nsmall,256,500\nsmall,512,900"})
    (readings,) = read_tables(tables).values()
    measured: list[StepResult] = load_steps(db, Selection())
    (pair,) = stand_beside(readings, steps=measured, attention=[])
    assert pair.reading.row.line == 2
    assert pair.ratio == pytest.approx(500 / (rows.step_ms(cell) * 30 / 88), rel=1e-4)
    assert (pair.low, pair.high) == (None, None), "one process does not predict the next"


def test_the_cell_that_belongs_to_a_published_row() -> None:
    """An attention cell from an attention table, the row's own precision and backend, and no cell without a context."""
    readings = {one.table.file: one for found in read_tables(reference_tables()).values() for one in found[:1]}
    attention = wanted_cell(readings["002_attention_benchmarking.csv"])
    assert isinstance(attention, AttentionCell)
    assert (attention.batch, attention.seq_len, attention.d_head, attention.precision) == (8, 256, 16, "fp32")
    step = wanted_cell(readings["001_e2e_rtxpro6000_bf16_compiled.csv"])
    assert isinstance(step, StepCell)
    assert (step.d_model, step.context, step.precision, step.backend, step.mode) == (
        768,
        256,
        "bf16",
        "compiled",
        "backward",
    )
    assert wanted_cell(readings["004_e2e.csv"]) is None
