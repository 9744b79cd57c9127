"""Single-head attention: its cost by hand, measured bytes, the correctness of its results, and out of memory."""

import math
from collections import Counter
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runner.analysis.costs import attention as accounting
from runner.analysis.costs.steps import UNFUSED
from runner.job import Measurement
from runner.measure import precision
from runner.measure.attention import AttentionStep, measure_attention
from runner.measure.correctness import TOLERANCE, compute_errors, reference, relative_error
from runner.measure.device import Device
from runner.models.attention import ATTENTION, naive
from runner.schema import AttentionCell, SavedTensorRow
from tests.command import make_job
from tests.runner.models.test_model import HERE
from tests.some import some

CPU = Device("cpu")
#: Precisions whose products oneDNN computes on this CPU, with scratch memory of its own.
ONEDNN_PRECISIONS = {"bf16", *(["fp16"] if torch.ops.mkldnn._is_mkldnn_fp16_supported() else [])}


def cell(**asked: Any) -> AttentionCell:
    """Returns a cell of two problems of eight tokens, four wide, with these values changed."""
    tiny = {"implementation": "naive", "precision": "fp32", "batch": 2, "seq_len": 8, "d_head": 4}
    return AttentionCell(**{**tiny, "warmup_steps": 1, "min_steps": 3, "max_steps": 3, **asked})


def measured(asked: AttentionCell) -> dict[str, Any]:
    return dict(measurement(asked).values)


def bytes_between(asked: AttentionCell, **on: Any) -> int:
    """Returns the bytes that are predicted to be alive between the passes."""
    at = accounting.moments(asked).index("between")
    return sum(held.size for held in accounting.tensors(asked, **on) if held.first <= at <= held.last)


def measurement(asked: AttentionCell) -> Measurement:
    return measure_attention(make_job(asked, limit_bytes=1), lambda doing: None)


class NoFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What MPS cannot do, for tensors without data that say they are there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        found = [one for one in tree_leaves(out) if isinstance(one, Tensor) and one.dtype == torch.float64]
        assert all(one.device.type != "mps" for one in found), f"{func} makes float64"
        return out


def test_errors_need_no_float64_of_mps() -> None:
    with FakeTensorMode(), NoFloat64():  # type: ignore[no-untyped-call]
        q, k, v, grad = (torch.randn(2, 1, 200, 8, device="mps") for _ in range(4))
        found = reference(q, k, v, grad, causal=True)
        with pytest.raises(AssertionError, match="float64"):
            q.double()
    assert {(one.device.type, one.dtype) for one in found} == {("cpu", torch.float64)}


def test_flops_by_hand() -> None:
    # Both problems have two products of 2 S S d operations: 2 * 2 * (2*8*8*4) = 2048. A causal mask shows half of it.
    assert accounting.forward_flops(cell(causal=False)) == 2048
    assert accounting.forward_flops(cell(causal=True)) == 1024
    assert accounting.backward_flops(cell(causal=False)) == 5120
    assert accounting.forward_bytes(cell()) == 4 * 256
    # The largest of the grid: 8 problems of 16384 tokens, 128 wide, counted as in FlashAttention's benchmark.
    large = cell(batch=8, seq_len=16384, d_head=128, causal=False)
    assert accounting.forward_flops(large) == 4 * 8 * 16384**2 * 128 == 1_099_511_627_776


def test_saved_bytes_by_hand() -> None:
    """In float32: a vector has 2*8*4*4 = 256 bytes, a square 2*8*8*4 = 512, the mask 64."""
    assert accounting.square_bytes(cell()) == 512
    # Queries, keys, values, probabilities, and the mask of hidden scores.
    assert accounting.saved_bytes(cell()) == 3 * 256 + 512 + 64
    assert accounting.saved_bytes(cell(causal=False)) == 3 * 256 + 512
    # Fused attention saves queries, keys, values, the output, and one float32 a row.
    assert accounting.saved_bytes(cell(implementation="sdpa-flash")) == 4 * 256 + 2 * 8 * 4
    # sdpa-math computes bf16 in float32, so its copies have float32 size, though a bf16 vector has 128 bytes.
    assert accounting.saved_bytes(cell(implementation="sdpa-math", precision="bf16")) == 3 * 256 + 512


#: Measured on an NVIDIA H200 (torch 2.11, CUDA 13.0), batch 8, 64 wide, causal: implementation, precision, seq_len;
#: bytes saved, in use before backward, at the peak, and the most reserved.
ON_AN_H200 = [
    ("naive", "fp32", 1024, 40_894_464, 112_197_632, 214_958_080, 224_395_264),
    ("naive", "fp32", 16384, 8_959_033_344, 9_093_251_072, 34_896_609_280, 43_117_445_120),
    ("naive", "bf16", 1024, 20_971_520, 90_177_536, 141_557_760, 144_703_488),
    ("naive", "bf16", 16384, 4_613_734_400, 4_714_397_696, 17_616_076_800, 21_575_499_776),
    ("sdpa-math", "fp32", 1024, 39_845_888, 115_343_360, 218_103_808, 245_366_784),
    ("sdpa-math", "fp32", 16384, 8_690_597_888, 8_891_924_480, 34_695_282_688, 38_522_585_088),
    ("sdpa-math", "bf16", 16384, 8_690_597_888, 8_841_592_832, 34_611_396_608, 38_489_030_656),
    ("sdpa-flash", "bf16", 1024, 4_227_096, 5_276_672, 10_552_320, 31_457_280),
    ("sdpa-flash", "bf16", 16384, 67_633_176, 84_411_392, 168_821_760, 169_869_312),
    ("sdpa-cudnn", "bf16", 16384, 67_633_168, 84_411_392, 168_822_272, 171_966_464),
    ("sdpa-efficient", "bf16", 1024, 4_227_088, 5_275_648, 10_553_344, 31_457_280),
    ("sdpa-efficient", "bf16", 16384, 67_633_168, 84_410_368, 168_853_504, 171_966_464),
    ("sdpa-efficient", "fp32", 16384, 134_742_032, 168_296_448, 303_071_232, 339_738_624),
    ("flex", "bf16", 1024, 4_228_224, 5_279_744, 8_458_240, 10_485_760),
    ("flex", "fp32", 16384, 135_006_208, 168_560_640, 269_748_224, 270_532_608),
]


@pytest.mark.parametrize(("implementation", "name", "seq_len", "saved", "before", "peak", "reserved"), ON_AN_H200)
def test_bytes_measured_on_an_h200(
    implementation: str, name: str, seq_len: int, saved: int, before: int, peak: int, reserved: int
) -> None:
    """Saved bytes are exact, and so is the peak of naive attention. Fused kernels have other small tensors, which the
    allocator rounds up to 512 bytes, and `efficient` has 16 bytes for 64 queries. Reserved bytes are estimated."""
    asked = cell(implementation=implementation, precision=name, batch=8, seq_len=seq_len, d_head=64)
    assert accounting.saved_bytes(asked, device="cuda") == saved
    spare = 0 if asked.implementation in UNFUSED else 3072
    assert bytes_between(asked, device="cuda", gpu=H200) == pytest.approx(before, abs=spare)
    predicted = accounting.predicted_peak_bytes(asked, device="cuda", gpu=H200)
    assert 0 <= peak - predicted <= spare + (8 * seq_len // 4 if implementation == "sdpa-efficient" else 0)
    if seq_len == 16384:
        off = 0.13 if name == "fp32" and implementation.startswith("sdpa") else 0.02
        assert accounting.predicted_reserved_bytes(asked, gpu=H200) == pytest.approx(reserved, rel=off)


def test_without_a_mask_flex_keeps_one_block_of_everything() -> None:
    """Measured on an H200: 16 bytes more than queries, keys, values, output and a float32 a row."""
    asked = cell(implementation="flex", precision="bf16", batch=8, seq_len=4096, d_head=64, causal=False)
    assert accounting.saved_bytes(asked, device="cuda") == 16_908_304


#: Peaks of heads narrower than the kernels' tiles: implementation, precision, head width, and bytes at the peak.
NARROW = [
    ("sdpa-flash", "bf16", 16, 51_381_248),
    ("sdpa-flash", "bf16", 32, 84_935_680),
    ("sdpa-efficient", "bf16", 16, 68_190_208),
    ("sdpa-efficient", "bf16", 32, 101_744_640),
    ("sdpa-efficient", "fp32", 16, 101_744_640),
    ("sdpa-efficient", "fp32", 32, 168_853_504),
]


@pytest.mark.parametrize(("implementation", "name", "width", "peak"), NARROW)
def test_peaks_of_narrow_heads_measured_on_an_h200(implementation: str, name: str, width: int, peak: int) -> None:
    asked = cell(implementation=implementation, precision=name, batch=8, seq_len=16384, d_head=width)
    assert accounting.predicted_peak_bytes(asked, device="cuda", gpu=H200) == pytest.approx(peak, rel=5e-4)


H200 = "NVIDIA H200"


def test_the_explained_sum_names_what_cuda_adds() -> None:
    asked = cell(batch=8, seq_len=16384, d_head=64)
    added = {name: size for name, _, size in accounting.peak_breakdown(asked, device="cuda", gpu=H200)}
    for name, _, size in accounting.peak_breakdown(asked):
        assert added.pop(name, 0) == size or name == "root of d"  # on the CPU it is a Python number
    assert added == {"workspaces of cuBLAS": 2 * 32 * 2**20, "probabilities × their gradient": 8 * 2**30}


def test_the_squares_of_naive_attention_by_hand() -> None:
    """In the grid's largest cell, 8 problems of 16384 tokens, a square is 8 GiB, three in use in softmax's backward."""
    large = cell(batch=8, seq_len=16384, d_head=64)
    worked = accounting.peak_breakdown(large)
    squares = [tensor for tensor, formula, size in worked if size == 8 * 2**30]
    assert squares == ["probabilities", "gradient of the probabilities", "gradient of softmax's input"]
    assert {tensor: size for tensor, _, size in worked}["inverted mask"] == 16384**2
    vectors = 6 * 8 * 16384 * 64 * 4  # q, k, v, the output, its gradient, the values' gradient
    assert sum(size for _, _, size in worked) == 3 * 8 * 2**30 + 16384**2 + vectors + 8
    assert accounting.predicted_peak_bytes(large) == sum(size for _, _, size in worked)
    assert ("probabilities", "B × S² × 4 bytes", 8 * 2**30) in worked


@pytest.mark.parametrize(
    ("implementation", "shape", "name", "causal"),
    some(product(HERE, ((2, 128, 16), (1, 32, 64)), ("fp32", "bf16", "fp16"), (True, False))),
    ids=str,
)
def test_accounting_agrees_with_hooks_and_counted_allocations(
    implementation: str, shape: tuple[int, int, int], name: str, causal: bool
) -> None:
    """The second shape is wider than long, so that vectors decide which moment has the peak."""
    batch, seq, width = shape
    asked = cell(implementation=implementation, precision=name, causal=causal, batch=batch, seq_len=seq, d_head=width)
    done = measurement(asked)
    found = done.values
    assert found["saved_bytes"] == found["predicted_saved_bytes"] == accounting.saved_bytes(asked)
    kept = [row for row in done.details["saved_tensors"] if isinstance(row, SavedTensorRow) and row.storage_bytes]
    seen, named = Counter((row.tensor, row.storage_bytes) for row in kept), {row.tensor for row in kept}
    saved = [held for held in accounting.tensors(asked) if held.is_saved]
    assert seen == Counter((held.tensor if held.tensor in named else None, held.size) for held in saved)
    assert found["before_backward_bytes"] == bytes_between(asked)
    assert found["output_error"] <= TOLERANCE[asked.precision]
    assert found["gradient_error"] <= TOLERANCE[asked.precision]
    scratch = found["peak_allocated_bytes"] - accounting.predicted_peak_bytes(asked)
    if asked.implementation in UNFUSED and name not in ONEDNN_PRECISIONS:
        assert scratch == 0
    else:  # scratch memory: oneDNN's for products in half precision, the kernel's own for fused attention
        assert scratch >= 0


def test_saved_tensors_of_naive_attention_one_by_one() -> None:
    """Two problems of eight tokens, four wide. The product of scores saves queries and keys, masking saves the mask,
    softmax its result, and the second product the values; it also needs the probabilities, which are saved already."""
    kept = measurement(cell()).details["saved_tensors"]
    found = [(row.operation, row.tensor, row.storage_bytes) for row in kept if isinstance(row, SavedTensorRow)]
    assert sorted(found[:2]) == [("aten::bmm", "keys", 256), ("aten::bmm", "queries", 256)]
    assert found[2:4] == [("aten::masked_fill", None, 64), ("aten::_softmax", None, 512)]
    assert sorted(found[4:], key=str) == [("aten::bmm", "values", 256), ("aten::bmm", None, 0)]


def test_the_peak_in_bf16_is_exact_for_squares_larger_than_scratch() -> None:
    asked = cell(precision="bf16", seq_len=512, d_head=16)
    assert measured(asked)["peak_allocated_bytes"] == accounting.predicted_peak_bytes(asked)


def test_the_reference_equals_autograd_in_float64() -> None:
    q, k, v, grad = (torch.randn(2, 1, 200, 8, dtype=torch.float64, requires_grad=True) for _ in range(4))
    for causal in (True, False):
        output = naive(q, k, v, causal=causal)
        expected = [output, *torch.autograd.grad(output, (q, k, v), grad)]
        for found, wanted in zip(reference(q, k, v, grad, causal=causal), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def _unscaled(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return naive(q * math.sqrt(q.shape[-1]), k, v, causal=causal)


def _sees_one_further(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return naive(q, k.roll(-1, -2), v.roll(-1, -2), causal=causal)


def _wrong_backward(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return naive(q, k.detach(), v, causal=causal) + 0 * k


def errors_of(step: AttentionStep) -> dict[str, float]:
    return compute_errors(step.run, step.inputs, step.grad, causal=step.cell.causal)


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("wrong", [_unscaled, _sees_one_further, _wrong_backward])
def test_a_wrong_implementation_is_caught(wrong: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = cell(precision=name, seq_len=64, d_head=16)
    precision.apply(asked.precision, CPU)
    assert max(errors_of(AttentionStep(asked, CPU)).values()) <= TOLERANCE[asked.precision]
    monkeypatch.setitem(ATTENTION, "naive", wrong)
    assert max(errors_of(AttentionStep(asked, CPU)).values()) > TOLERANCE[asked.precision]


def test_an_error_is_relative() -> None:
    expected = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert relative_error(torch.tensor([3.0, 4.5]), expected) == pytest.approx(0.1)
    assert math.isnan(relative_error(torch.tensor([3.0, math.nan]), expected))


def test_a_comparison_that_runs_out_of_memory_loses_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.measure.attention.compute_errors", Mock(side_effect=torch.OutOfMemoryError("64 GiB")))
    found = measured(cell(seq_len=64))
    assert found["steps"] > 0
    assert "output_error" not in found


def test_the_time_limit_ends_a_cell_before_its_minimum_of_iterations() -> None:
    found = measured(cell(seq_len=256, min_steps=100, max_steps=100, max_seconds=0.0))
    assert (found["steps"], found["stopped_by"]) == (3, "max_seconds")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # the compiler's own
@pytest.mark.soak
def test_compiled_cells_agree_too() -> None:
    found = measured(cell(seq_len=64, d_head=16, backend="compiled"))
    assert max(found["output_error"], found["gradient_error"]) <= found["tolerance"]
    assert min(found["compile_seconds"], found["compile_threads"]) > 0
