"""The memory of a step compared with figures computed by hand, closed formulas, and a step without instrumentation."""

import functools
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.analysis.costs import steps
from runner.analysis.timeline.allocations import MemoryEvent
from runner.engines.local import LocalEngine
from runner.job import Outcome
from runner.measure.memory import RecordedStep, peak_values, phase_peaks
from runner.measure.observer import CategoryNote, Observer
from runner.measure.timeline import PhaseMark, Recorded, step_timeline
from runner.schema import MemoryCell, PhasePeakRow, SavedTensorRow, step_of
from tests.command import make_job, rows, run
from tests.runner.analysis.test_costs import SMALL, WIDE, measured_peak_bytes
from tests.some import some

PARTS = ("parameters", "gradients", "optimizer_state", "activations", "autocast_copies", "inputs", "temporaries",
         "workspace")  # fmt: skip


def make_cell(**changes: Any) -> MemoryCell:
    return MemoryCell(**{**SMALL, "mode": "train", "precision": "fp32", **changes})


def outcome(engine: LocalEngine, cell: MemoryCell) -> Outcome:
    """Returns the outcome of a cell in a fresh process, as in a sweep."""
    return engine.measure(make_job(cell), timeout_s=120)


@functools.cache
def measured(engine: LocalEngine, cell: MemoryCell) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the values and the detail rows of a cell that ended well. The counts are the same every time, so a cell
    is measured once for all tests."""
    found = outcome(engine, cell)
    assert found.status == "ok", found.message
    return found.measurement.values, found.measurement.details


def test_one_block_computed_by_hand(engine: LocalEngine) -> None:
    """2 sequences of 8 tokens, 16 wide: a tensor of the stream has 1,024 bytes, one of the 32 wide feed-forward 2,048.

    Two norms save their input, the normalized input and 16 roots. Attention saves its input, queries, keys, values, the
    weights (2 x 2 x 8 x 8), the mask (8 x 8 bytes) and the output's input; SwiGLU its input and four inner tensors.
    """
    cell = make_cell(d_model=16, d_ff=32, layers=1, heads=2, vocabulary=50, batch=2, context=8, mode="forward")
    values, details = measured(engine, cell)
    assert values["residual_stream_bytes"] == 1024
    norms = 2 * (2 * 1024 + 16 * 4)
    attention = 5 * 1024 + 2 * 2 * 8 * 8 * 4 + 8 * 8
    feed_forward = 1024 + 4 * 2048
    assert values["block_saved_bytes"] == norms + attention + feed_forward == 19_648
    # Outside the block there are 16 tokens, the rotary tables (2 x 8 x 8), the final norm and the head's input.
    assert values["saved_bytes"] == 19_648 + 16 * 8 + 2 * 8 * 8 * 4 + (2 * 1024 + 64) + 1024

    saved = details["saved_tensors"]
    assert all(isinstance(row, SavedTensorRow) for row in saved)
    assert [row.position for row in saved] == list(range(len(saved)))
    assert sum(row.storage_bytes for row in saved) == 19_648
    largest = sorted(saved, key=lambda row: -row.storage_bytes)[:5]
    assert [row.storage_bytes for row in largest] == [2048, 2048, 2048, 2048, 1024]
    assert {row.module for row in largest[:4]} == {"blocks.0.feed_forward", "blocks.0.feed_forward.down"}
    softmax = next(row for row in saved if row.operation == "aten::_softmax")
    assert (softmax.module, softmax.shape, softmax.dtype) == ("blocks.0.attention", "2×2×8×8", "float32")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", ["inference", "forward", "train"])
def test_the_parts_are_the_peak(engine: LocalEngine, mode: str, precision: str) -> None:
    cell = make_cell(mode=mode, precision=precision)
    values, _ = measured(engine, cell)
    assert values["parameters_bytes"] == steps.parameter_bytes(cell)
    assert values["optimizer_state_bytes"] == steps.optimizer_state_bytes(cell)
    assert values["inputs_bytes"] == 2 * 3 * 48 * 8 + 2 * 48 * 16 * 4  # tokens and targets, and the rotary tables
    # The allocator's own count, compared with the sum of individual counts.
    assert values["peak_allocated_bytes"] == sum(values[f"{name}_bytes"] for name in PARTS)
    assert values["residual_bytes"] == 0
    assert values["peak_phase"] == ("backward" if mode == "train" else "forward")
    saved = steps.saved_bytes(cell, device="cpu")
    assert values["saved_bytes"] == (0 if mode == "inference" else saved.total)
    assert values["block_saved_bytes"] == (0 if mode == "inference" else saved.block)
    for unknown in ("fragmentation", "rounding", "peak_reserved", "peak_driver"):
        assert values[f"{unknown}_bytes"] is None
    predicted = steps.predict_peak(cell, device="cpu")
    for part, size in predicted.parts.items():
        # oneDNN's; scales of scores, the loss
        scratch = 100_000 if (part, precision) == ("temporaries", "bf16") else 64
        assert 0 <= values[f"{part}_bytes"] - size <= scratch, part


def test_a_step_that_ends_at_its_peak(engine: LocalEngine) -> None:
    """It has all gradients, both moments, and AdamW's denominator of all parameters, together with the logits."""
    cell = make_cell(**WIDE)
    values, _ = measured(engine, cell)
    assert values["peak_phase"] == "optimizer"
    assert values["gradients_bytes"] == values["parameters_bytes"] == steps.parameter_bytes(cell)
    assert values["optimizer_state_bytes"] == 2 * values["parameters_bytes"]
    assert values["activations_bytes"] == 0
    temporaries = steps.logits_bytes(cell) + steps.optimizer_temporary_bytes(cell)
    assert values["temporaries_bytes"] == pytest.approx(temporaries, rel=0.001)


def test_autocast_copies_every_matrix_once_in_half_precision(engine: LocalEngine) -> None:
    """It keeps all copies until the forward pass ends, saved for backward or not, so the peak is at the logits."""
    for mode in ("inference", "forward"):
        cell = make_cell(mode=mode, precision="bf16", vocabulary=2000)
        values, _ = measured(engine, cell)
        assert values["autocast_copies_bytes"] == 2 * steps.matrix_parameters(cell)
    assert measured(engine, make_cell(mode="forward"))[0]["autocast_copies_bytes"] == 0


@pytest.mark.soak
@pytest.mark.parametrize(
    "changes", some([WIDE, {}, {"precision": "bf16"}, {"checkpoint_blocks": 1}, {"mode": "inference"}])
)
def test_instrumentation_takes_no_memory(engine: LocalEngine, changes: dict[str, Any]) -> None:
    """The same step runs in this process without hooks or modes, measured by the sum of the profiler's events, which
    omits the tables' memory. A few numbers of 8 bytes come and go with every operator."""
    cell = make_cell(**changes)
    values, _ = measured(engine, cell)
    assert values["peak_allocated_bytes"] == pytest.approx(measured_peak_bytes(step_of(cell)), abs=64)


def test_checkpointing_keeps_the_stream_and_little_else(engine: LocalEngine) -> None:
    (kept, found), (values, again) = (measured(engine, make_cell(checkpoint_blocks=blocks)) for blocks in (0, 1))
    kept_tensors, details = found["saved_tensors"], again["saved_tensors"]
    stream = 3 * 48 * 64 * 4
    # One tensor of the stream for each of three blocks, and outside the tokens, the final norm and the head's input.
    assert values["saved_bytes"] == 3 * stream + 3 * 48 * 8 + (2 * stream + 3 * 48 * 4) + stream
    # When run again, the first block saves as much as without checkpointing, and the same tensors.
    assert values["block_saved_bytes"] == kept["block_saved_bytes"] == sum(row.storage_bytes for row in details)
    assert [(row.operation, row.module, row.storage_bytes) for row in details] == [
        (row.operation, row.module, row.storage_bytes) for row in kept_tensors
    ]
    assert values["residual_bytes"] == 0
    # At the peak the activations of one block exist again, and count as such.
    assert kept["block_saved_bytes"] / 2 < values["activations_bytes"] < kept["activations_bytes"] / 2


def test_checkpointed_weight_copies_are_not_kept(engine: LocalEngine) -> None:
    """There are 3 streams of 144 x 64 float32 numbers, the final norm, the head's input and its weights in half
    precision, and the tokens. The first block's own copies exist while it runs again."""
    cell = make_cell(checkpoint_blocks=1, precision="bf16")
    values, details = measured(engine, cell)
    stream, half = 144 * 64 * 4, 144 * 64 * 2
    expected = 3 * stream + (2 * stream + 144 * 4) + half + 100 * 64 * 2 + 144 * 8
    assert values["saved_bytes"] == steps.retained_bytes(cell, device="cpu") == expected == 217_280
    predicted = steps.block_tensors(cell, device="cpu")
    assert seen(details) == Counter((item.module, item.size) for item in predicted)
    assert sum(item.is_weight_copy for item in predicted) == 7


def seen(details: Mapping[str, Any]) -> Counter[tuple[str, int]]:
    """Returns how many tensors of each module of the first block and of each size are kept."""
    rows = [row for row in details["saved_tensors"] if row.storage_bytes]
    return Counter((row.module.split(".", 2)[2], row.storage_bytes) for row in rows)


def test_phases(engine: LocalEngine) -> None:
    values, details = measured(engine, make_cell())
    peaks = details["phase_peaks"]
    assert all(isinstance(row, PhasePeakRow) for row in peaks)
    assert [row.phase for row in peaks] == ["forward", "loss", "backward", "optimizer"]
    assert max(row.peak_allocated_bytes for row in peaks) == values["peak_allocated_bytes"]
    assert all(row.end_allocated_bytes <= row.peak_allocated_bytes for row in peaks)
    held = sum(values[f"{name}_bytes"] for name in ("parameters", "optimizer_state", "inputs", "workspace"))
    logits = steps.logits_bytes(make_cell())
    forward, _, backward, optimizer = peaks
    # The rotary tables and the tokens are saved for backward too, and exist anyway. The divisor of the scores in each
    # of the three layers is saved as a number of 8 bytes, which hooks do not see.
    anyway = 3 * 48 * 8 + 2 * 48 * 16 * 4
    assert forward.end_allocated_bytes == held + values["saved_bytes"] - anyway + 3 * 8 + logits
    assert backward.end_allocated_bytes == held + values["parameters_bytes"] + logits + 4  # all gradients, and the loss
    assert optimizer.end_allocated_bytes == held + logits + 4


def test_other_settings_of_training(engine: LocalEngine) -> None:
    for changes in ({"precision": "fp16"}, {"weights_dtype": "bf16", "precision": "bf16"}, {"optimizer": "for-loop"},
                    {"attention": "sdpa-flash"}, {"mode": "backward"}):  # fmt: skip
        cell = make_cell(**changes)
        values, details = measured(engine, cell)
        assert values["residual_bytes"] == 0, changes
        predicted = steps.block_tensors(cell, device="cpu")
        assert seen(details) == Counter((item.module, item.size) for item in predicted), changes
        assert values["parameters_bytes"] == steps.parameter_bytes(cell)
        assert values["optimizer_state_bytes"] == steps.optimizer_state_bytes(cell)
        assert values["saved_bytes"] == steps.saved_bytes(cell, device="cpu").total, changes


def test_what_this_device_lacks_is_skipped_and_running_out_of_memory_is_a_status(engine: LocalEngine) -> None:
    """Four heads have scores of 200,000 x 200,000: 640 GB."""
    found = outcome(engine, make_cell(attention="sdpa-efficient"))
    assert (found.status, "sdpa-efficient" in (found.message or "")) == ("skipped", True)
    found = outcome(engine, make_cell(batch=1, context=200_000, mode="inference"))
    assert (found.status, found.failed_phase) == ("oom", "forward")


def test_cudas_counters_and_segments_computed_by_hand() -> None:
    """Uses what the caching allocator would report for a step that keeps 1,000 bytes and allocates 600 and 300 more.
    The 300 are scratch of a library; 4,096 bytes were reserved before the step and 2,048 in it, after its peak. It
    rounds 1,890 requested bytes up to 2,048, and ten bytes at the peak were not requested."""
    begin = 1_000_000
    events = [MemoryEvent(10, 64, 1000), MemoryEvent(begin + 10_000, 2000, 600), MemoryEvent(begin + 20_000, 3000, 300),
              MemoryEvent(begin + 30_000, 2000, -600), MemoryEvent(begin + 40_000, 9000, 400)]  # fmt: skip
    recorded = Recorded(events=events, reserved=[(0, 4096), (4, 2048)])
    early, late = {"reserved": 4096, "driver": 9000}, {"reserved": 6144, "driver": 11_000}
    marks = [
        PhaseMark(begin, allocated=1024, peak_allocated=5000, **early),
        PhaseMark(begin + 25_000, allocated=2048, peak_allocated=2048, peak_requested=1890, **early),
        PhaseMark(begin + 50_000, allocated=1024, peak_allocated=2048, peak_requested=1900, **late),
        PhaseMark(begin + 60_000, allocated=1024, peak_allocated=1900, peak_requested=1800, **late),
    ]
    observer = Observer(torch.nn.Module())
    observer.notes = [CategoryNote(begin, 64, "parameter"), CategoryNote(begin + 15_000, 2000, "activation")]
    timeline = step_timeline(recorded, marks=marks, observer=observer)
    found = RecordedStep(observer=observer, recorded=recorded, timeline=timeline, marks=marks, block="blocks.0",
                         residual_stream_bytes=0, build_seconds=0, measure_seconds=0)  # fmt: skip
    job = make_job(make_cell(mode="backward"), device="cuda")
    peaks = phase_peaks(found, job)
    assert [(row.phase, row.peak_allocated_bytes, row.end_allocated_bytes) for row in peaks] == [
        ("forward", 2048, 2048), ("loss", 2048, 1024), ("backward", 1900, 1024)
    ]  # fmt: skip
    values = peak_values(found, peaks)
    assert values["peak_phase"] == "forward"
    assert (values["peak_allocated_bytes"], values["peak_reserved_bytes"], values["peak_driver_bytes"]) == (
        2048, 6144, 11_000
    )  # fmt: skip
    assert (values["parameters_bytes"], values["activations_bytes"], values["temporaries_bytes"]) == (1000, 600, 300)
    assert values["fragmentation_bytes"] == 4096 - 2048
    assert values["rounding_bytes"] == 2048 - 1890
    assert values["residual_bytes"] == 2048 - (1000 + 600 + 300) - (2048 - 1890) == -10


def test_a_sweep_stores_every_row(db: Path) -> None:
    asked = "--sizes toy-64 --contexts 16 --batch 1 --modes train --precisions fp32 --timeline --device cpu"
    run("sweep", "--experiment", "memory", *shlex.split(asked), db=db, code=0)
    (row,) = rows(db, "SELECT * FROM memory")
    assert (row["status"], row["timeline"], row["residual_bytes"]) == ("ok", True, 0)
    cell = MemoryCell(**{name: row[name] for name in MemoryCell.names()})
    assert row["parameters_bytes"] == steps.parameter_bytes(cell)
    counts = "SELECT (SELECT count(*) FROM {}) AS found, (SELECT any_value(cell_id) FROM {}) AS cell_id"
    for table in ("phase_peaks", "saved_tensors", "timelines", "allocations", "stacks", "marks"):
        (found,) = rows(db, counts.format(table, table))
        assert found["found"] > 0, table
        assert found["cell_id"] == row["cell_id"]
