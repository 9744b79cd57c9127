"""The kernels of a profiled step: sums equal the step, FLOPs the formula, operators are in their ranges."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from runner.analysis.costs.steps import forward_flops, step_flops
from runner.analysis.kernels import kernel_class
from runner.job import Measurement
from runner.measure.device import Device
from runner.measure.kernels import STEPS, Key, Sum, Trace, events_of, kernel_sums, measure_kernels
from runner.measure.model_step import ModelStep
from runner.measure.timing import time_step
from runner.models.ranges import listen_to_ranges
from runner.models.transformer import Transformer
from runner.schema import PHASES, KernelRow, ProfileCell
from tests.command import TINY, make_job, rows, run, tiny


def profiled_cell(**asked: Any) -> ProfileCell:
    step = tiny(**{"context": 64, **asked})
    return ProfileCell(**{name: getattr(step, name) for name in ProfileCell.names()})


def profiled(**asked: Any) -> Measurement:
    return measure_kernels(make_job(profiled_cell(**asked)), report=lambda phase: None)


def kernels(measurement: Measurement) -> list[KernelRow]:
    return [row for row in measurement.details["kernels"] if isinstance(row, KernelRow)]


def calls(measurement: Measurement, kernel: str) -> dict[tuple[str, str], float]:
    return {(row.phase, row.scope): row.calls for row in kernels(measurement) if row.kernel == kernel}


def matmul_flops(found: Sequence[KernelRow], *phases: str) -> int:
    return sum(row.flops or 0 for row in found if row.kernel_class == "matmul" and row.phase in phases)


@pytest.fixture(scope="module")
def training() -> Measurement:
    """Returns a training step of two layers, eager, with naive attention and the optimizer as one kernel."""
    return profiled(optimizer="fused")


def test_sums_agree_with_the_profiled_step(training: Measurement) -> None:
    values, found = training.values, kernels(training)
    assert values["kernel_ms"] == pytest.approx(sum(row.device_ms for row in found))
    assert values["kernel_calls"] == sum(row.calls for row in found)
    assert values["attributed_share"] == 1.0
    assert {row.phase for row in found} == {"forward", "loss", "backward", "optimizer"}
    # Operators of one thread do not overlap; the rest of the step is Python between them, and other processes.
    assert 0 < values["kernel_ms"] <= values["busy_ms"] <= values["profiled_step_ms"]
    assert values["busy_share"] == pytest.approx(values["busy_ms"] / values["profiled_step_ms"])
    assert values["overhead_share"] == pytest.approx(values["profiled_step_ms"] / values["unprofiled_step_ms"] - 1)
    assert (values["steps"], values["host_bound_share"]) == (STEPS, None)


def test_flops_of_a_step_are_those_of_the_formula(training: Measurement) -> None:
    cell, found = profiled_cell(), kernels(training)
    assert matmul_flops(found, "forward", "backward") == step_flops(cell)
    assert matmul_flops(found, "forward") == forward_flops(cell).total
    assert matmul_flops(found, "backward") == 2 * forward_flops(cell).total


def test_operators_and_their_backward_are_in_the_range_that_called_them(training: Measurement) -> None:
    assert calls(training, "aten::_softmax") == {("forward", "attention softmax"): 2}
    assert calls(training, "aten::_softmax_backward_data") == {("backward", "attention softmax"): 2}
    assert calls(training, "aten::masked_fill") == {("forward", "attention mask"): 2, ("backward", "attention mask"): 2}
    assert calls(training, "aten::_log_softmax_backward_data") == {("backward", "loss"): 1}
    assert calls(training, "aten::_fused_adamw_") == {("optimizer", ""): 1}
    # Each layer has two products in attention, three projections in and one out, and three in the feed-forward network;
    # then there is the head's. Backward has two for each.
    assert calls(training, "aten::bmm") == {
        ("forward", "attention scores"): 2,
        ("forward", "attention product"): 2,
        ("backward", "attention scores"): 4,
        ("backward", "attention product"): 4,
    }
    assert calls(training, "aten::mm") == {
        ("forward", "attention projections"): 8,
        ("forward", "feed-forward"): 6,
        ("forward", "output head"): 1,
        ("backward", "attention projections"): 16,
        ("backward", "feed-forward"): 12,
        ("backward", "output head"): 2,
    }


def test_bytes_of_the_optimizer_are_those_of_adamw(training: Measurement) -> None:
    """Parameters, gradients and two moments are read, and all but the gradients are written: 28 bytes a parameter."""
    (step,) = (row for row in kernels(training) if row.kernel == "aten::_fused_adamw_")
    parameters = sum(parameter.numel() for parameter in Transformer(tiny()).parameters())
    assert step.moved_bytes == 28 * parameters


def sums_of(step: ModelStep) -> Mapping[Key, Sum]:
    """Returns the sums of the kernels in the second step of a process."""
    step(lambda: None)
    step.between()
    with listen_to_ranges(record_function), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        time_step(step, Device("cpu"), phases=len(PHASES[step.cell.mode]))
    trace = Trace(events_of(profiler, step=0))
    return kernel_sums(trace, list(trace.work()), list_bytes=4)


def product_flops(sums: Mapping[Key, Sum]) -> int:
    return sum(found.total(0) or 0 for (_, _, kernel), found in sums.items() if kernel_class(kernel) == "matmul")


def test_a_checkpointed_step_counts_its_recomputation() -> None:
    cell = tiny(mode="backward", checkpoint_blocks=1)
    sums = sums_of(ModelStep(cell, Device("cpu")))
    # The last product of a block begins and is broken off, as its result is not needed. It is still seen once a block.
    broken_off = cell.shape.layers * 2 * cell.batch * cell.context * cell.shape.d_model * cell.shape.d_ff
    assert product_flops(sums) == step_flops(cell) + broken_off
    # Each layer's softmax runs once in the forward pass and again in the backward pass, in a range of the same name.
    for phase in ("forward", "backward"):
        assert sums[phase, "attention softmax", "aten::_softmax"].calls == cell.layers


@pytest.mark.soak
def test_compiled_operators_have_a_phase_but_no_range() -> None:
    """The model is traced for backward as torch.compile does it, without C++ kernels, which compile for a minute."""
    cell = tiny(mode="backward", layers=1)
    step = ModelStep(cell, Device("cpu"))
    step.run = torch.compile(step.model, backend="aot_eager")
    sums = sums_of(step)
    assert product_flops(sums) == step_flops(cell)
    assert {phase for phase, _, kernel in sums if kernel == "aten::mm"} == {"forward", "backward"}
    assert {scope for _, scope, _ in sums} == {"", "loss"}


def test_flops_of_products_equal_torchs_count() -> None:
    cell = tiny(context=32, attention="sdpa")
    with FlopCounterMode(display=False) as counter:
        ModelStep(cell, Device("cpu"))(lambda: None)
    sums = sums_of(ModelStep(cell, Device("cpu")))
    counted = {str(operator): number for operator, number in counter.get_flop_counts()["Global"].items()}
    assert product_flops(sums) == counted["aten.mm"]
    # FlashAttention's convention halves masked work, which torch's counter does not.
    attention = {kernel: found.total(0) for (_, _, kernel), found in sums.items() if "scaled_dot" in kernel}
    forward = 4 * cell.batch * cell.context**2 * cell.shape.d_model // 2 * cell.shape.layers
    assert attention["aten::_scaled_dot_product_flash_attention_for_cpu"] == forward
    assert attention["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] == forward * 5 // 2


@pytest.mark.soak
def test_range_names_neither_break_a_graph_nor_recompile_it() -> None:
    torch._dynamo.reset()
    counters.clear()
    model, tokens = Transformer(tiny(layers=1)), torch.zeros((1, 16), dtype=torch.int64)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(tokens)
    with listen_to_ranges(record_function):
        compiled(tokens)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_a_sweep_leaves_the_rows_of_all_three_tables(db: Path) -> None:
    run("sweep", *TINY[2:-8], "--experiment", "kernels", "--modes", "inference", "--device", "cpu", db=db, code=0)
    (profile_row,) = rows(db, "FROM profiles")
    (trace,) = rows(db, "FROM traces")
    found = rows(db, "FROM kernels")
    assert (profile_row["status"], profile_row["mode"]) == ("ok", "inference")
    assert (trace["origin"], trace["title"]) == ("torch-profiler", "toy-64 · 16 · inference · fp32 · eager · batch 1")
    assert (trace["kernels"], trace["steps"]) == (len(found), 1)
    assert {row["cell_id"] for row in [trace, *found]} == {profile_row["cell_id"]}
    assert sum(row["device_ms"] for row in found) == pytest.approx(profile_row["kernel_ms"])
    assert f"{profile_row['kernel_ms']:,.2f}" in run("show", db=db).stdout
    assert {row["phase"] for row in found} == {"forward"}
    assert sum(row["flops"] or 0 for row in found if row["kernel_class"] == "matmul") == step_flops(
        profiled_cell(mode="inference", context=16)
    )
