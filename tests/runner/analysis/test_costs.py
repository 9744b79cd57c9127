"""The cost formulas compared with PyTorch's counts: parameters, FLOPs, saved tensors, peak memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from runner.analysis.costs import steps
from runner.models.transformer import Transformer
from runner.schema import StepCell
from tests.runner.models.test_model import random_tokens
from tests.some import some

SMALL = {"d_model": 64, "d_ff": 96, "layers": 3, "heads": 4, "vocabulary": 100, "batch": 3, "context": 48}


def make_cell(**changes: Any) -> StepCell:
    return StepCell(**{**SMALL, "mode": "train", "precision": "fp32", **changes})


def small(**changes: Any) -> StepCell:
    """Returns `small`, which is the same in both editions, at its default context."""
    return make_cell(
        **{"d_model": 768, "d_ff": 3072, "layers": 12, "heads": 12, "vocabulary": 10_000, "batch": 4, "context": 512}
        | changes
    )


def autocast(cell: StepCell) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=cell.precision == "bf16")


def test_parameters() -> None:
    assert steps.parameter_count(small()) == 128_625_408
    cell = make_cell()
    assert steps.parameter_count(cell) == sum(parameter.numel() for parameter in Transformer(cell).parameters())


def test_flops_of_small_computed_by_hand() -> None:
    """2,048 tokens. A layer has 4 projections of 768 x 768, SwiGLU of 3 x 768 x 3,072, and 12 heads 64 wide."""
    flops = steps.forward_flops(small())
    assert flops.projections == 12 * 2 * 2048 * 4 * 768 * 768 == 115_964_116_992
    assert flops.feed_forward == 12 * 2 * 2048 * 3 * 768 * 3072 == 347_892_350_976
    assert flops.attention == 12 * 2 * 2 * (4 * 12 * 512 * 512 * 64) == 38_654_705_664
    assert flops.head == 2 * 2048 * 768 * 10_000 == 31_457_280_000
    assert flops.total == 533_968_453_632
    assert steps.step_flops(small(mode="inference")) == steps.step_flops(small(mode="forward")) == flops.total
    assert steps.step_flops(small(mode="backward")) == steps.step_flops(small(mode="train")) == 3 * flops.total


@pytest.mark.parametrize(
    ("checkpoint_blocks", "attention"),
    some(product((0, 1, 2, 3, 5), ("naive", "sdpa-math")), [(0, "sdpa-math"), (2, "naive")]),
)
def test_flops_equal_pytorch_counter(checkpoint_blocks: int, attention: str) -> None:
    """Fused attention is left out: the counter cannot count the CPU's flash kernel, and it counts CUDA's backward as
    five products where the formula counts the four of the derivative."""
    cell = make_cell(attention=attention, checkpoint_blocks=checkpoint_blocks)
    model, tokens = Transformer(cell), random_tokens(cell)
    with FlopCounterMode(display=False) as forward:
        logits = model(tokens)
    assert steps.forward_flops(cell).total == forward.get_total_flops()
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    assert steps.step_flops(cell) == forward.get_total_flops() + backward.get_total_flops()


def test_stream_and_state_of_small_computed_by_hand() -> None:
    assert steps.residual_stream_bytes(small(context=128)) == 4 * 128 * 768 * 4 == 1_572_864
    assert steps.residual_stream_bytes(small(precision="bf16")) == 4 * 512 * 768 * 4
    assert steps.residual_stream_bytes(small(weights_dtype="bf16")) == 4 * 512 * 768 * 2
    assert steps.parameter_bytes(small()) == 514_501_632
    assert steps.optimizer_state_bytes(small()) == 2 * 514_501_632
    assert steps.optimizer_state_bytes(small(mode="backward")) == 0
    assert steps.parameter_bytes(small(weights_dtype="bf16")) == 257_250_816


def bytes_saved_by_autograd(cell: StepCell) -> int:
    """Returns the bytes of every storage that the hooks see, counted once, without the model's own parameters."""
    model, tokens = Transformer(cell), random_tokens(cell)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    seen: dict[int, torch.UntypedStorage] = {}  # keeps the storages alive, so that no address is used twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast(cell):
        logits = model(tokens)
    assert logits.requires_grad
    return sum(storage.nbytes() for storage in seen.values())


@pytest.mark.parametrize(
    ("attention", "kind"),
    some(product(("naive", "sdpa-flash", "sdpa-math"), ({}, {"precision": "bf16"}, {"weights_dtype": "bf16"}))),
)
def test_saved_bytes_equal_what_autograd_saves(attention: str, kind: dict[str, str]) -> None:
    """They are equal to the byte; the formula reads no dtype or shape from the model."""
    cell = make_cell(attention=attention, **kind)
    assert steps.saved_bytes(cell, device="cpu").total == bytes_saved_by_autograd(cell)


def test_cuda_autocast_keeps_softmax_twice() -> None:
    """Float32 weights and a half-precision copy are saved instead of half-precision weights: 4 more bytes a score."""
    naive = {device: steps.saved_bytes(small(precision="bf16"), device=device) for device in ("cpu", "cuda")}
    assert naive["cuda"].block - naive["cpu"].block == 4 * (4 * 12 * 512 * 512)
    fused = small(precision="bf16", attention="sdpa-flash")
    assert steps.saved_bytes(fused, device="cpu") == steps.saved_bytes(fused, device="cuda")


def measured_peak_bytes(cell: StepCell) -> int:
    """Returns the bytes of parameters, optimizer state, data and tables, plus the largest sum of the allocations of an
    ordinary step of a training loop, which frees the gradients at its end, according to PyTorch's profiler."""
    model, tokens, targets = Transformer(cell), random_tokens(cell), random_tokens(cell).flatten()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=cell.optimizer == "foreach")

    def step() -> None:
        with torch.set_grad_enabled(cell.mode != "inference"), autocast(cell):
            logits = model(tokens)
        if cell.mode in ("inference", "forward"):
            return
        with autocast(cell):
            loss = cross_entropy(logits.flatten(0, 1), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        if cell.mode == "train":
            optimizer.step()
        optimizer.zero_grad()

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    allocations, waiting = [], list(recorded.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == torch._C._profiler._EventType.Allocation:
            allocations.append((event.start_time_ns, event.extra_fields.alloc_size))
    held: list[int] = [0]
    for _, size in sorted(allocations):
        held.append(held[-1] + size)
    before = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers(), tokens, targets))
    state: int = sum(value.nbytes for values in optimizer.state.values() for value in values.values())
    return before + state + max(held)


#: A few numbers of 8 bytes, such as the divisor of a layer's scores, are in no formula.
EXACT = 5e-5
#: One cell for each moment that can have the peak: a long context, a large vocabulary, many parameters.
LONG = {"context": 256, "layers": 4}
WORDY = {"vocabulary": 2000}
WIDE = {"d_model": 192, "d_ff": 768, "context": 24}


#: What is in `make test`: one cell of three moments.
QUICK: list[tuple[dict[str, Any], str, float]] = [
    ({**LONG, "mode": "forward", "checkpoint_blocks": 3}, "forward", EXACT),
    ({**WORDY, "mode": "train", "precision": "bf16", "attention": "sdpa-flash"}, "loss", EXACT),
]
LEFT_TO_SOAK: list[tuple[dict[str, Any], str, float]] = [
    ({**WIDE, "mode": "train"}, "end", EXACT),
    ({**LONG, "mode": "train", "d_ff": 1024, "precision": "bf16"}, "last block", EXACT),
    ({**WIDE, "mode": "backward", "checkpoint_blocks": 2, "layers": 6, "context": 64}, "first block", EXACT),
    ({**LONG, "mode": "inference"}, "forward", EXACT),
    ({**LONG, "mode": "inference", "precision": "bf16"}, "forward", 0.02),  # scratch memory of oneDNN
    ({**LONG, "mode": "forward"}, "forward", 0.02),
    ({**LONG, "mode": "train"}, "last block", EXACT),
    ({**LONG, "mode": "train", "attention": "sdpa-math"}, "last block", EXACT),
    ({**WORDY, "mode": "inference"}, "forward", EXACT),
    ({**WORDY, "mode": "backward"}, "loss", EXACT),
    ({**WIDE, "mode": "backward"}, "first block", 0.02),
    ({**WIDE, "mode": "train", "optimizer": "for-loop"}, "end", EXACT),
    ({**LONG, "mode": "train", "checkpoint_blocks": 1}, "last block", EXACT),
    ({**LONG, "mode": "train", "checkpoint_blocks": 3}, "first block", EXACT),
    ({**LONG, "mode": "train", "checkpoint_blocks": 2, "precision": "bf16"}, "first block", EXACT),
]


@pytest.mark.parametrize(("changes", "moment", "tolerance"), some([*QUICK, *LEFT_TO_SOAK], QUICK))
def test_predicted_peak(changes: dict[str, Any], moment: str, tolerance: float) -> None:
    cell = make_cell(**changes)
    predicted = steps.predict_peak(cell, device="cpu")
    assert predicted.moment == moment
    assert predicted.total == steps.predicted_peak_bytes(cell, device="cpu")
    assert predicted.total == pytest.approx(measured_peak_bytes(cell), rel=tolerance)


@pytest.mark.parametrize(
    "peak_bytes",
    [partial(steps.predicted_peak_bytes, device="cpu"), pytest.param(measured_peak_bytes, marks=pytest.mark.soak)],
    ids=["predicted", "measured"],
)
def test_the_best_number_of_blocks_recomputed_is_found(peak_bytes: Callable[[StepCell], int]) -> None:
    """It is one block wherever a block keeps much more than its input, as at xl; more in deep and narrow models."""
    assert steps.best_checkpoint(small(d_model=2560, d_ff=10_240, layers=32, heads=32, context=2048)) == 1
    narrow: dict[str, Any] = {"d_model": 16, "d_ff": 2, "heads": 2, "layers": 24}
    deep = make_cell(**narrow, context=128, attention="sdpa-flash", mode="backward")
    best = steps.best_checkpoint(deep, device="cpu")
    assert best > 1
    peaks = [peak_bytes(replace(deep, checkpoint_blocks=best + more)) for more in (-1, 0, 1)]
    assert peaks[1] < 0.9 * min(peaks[0], peaks[2])


H200 = "NVIDIA H200"


def grown_bytes(cell: StepCell) -> int:
    """Returns how much the rotary tables have grown since the H200 was measured, when they were half as large."""
    return cell.context * (cell.shape.d_model // cell.shape.heads) * 4


#: Measured on an NVIDIA H200 (torch 2.11, CUDA 13.0), `small`, batch 4: context, mode, precision, the sum of the blocks
#: in use at the peak (requested bytes; the allocator rounds them up by 0.6 to 4%), and its moment.
ALIVE_ON_AN_H200 = [
    (128, "inference", "fp32", 573_262_848, "forward"),
    (128, "inference", "bf16", 804_121_600, "forward"),
    (128, "forward", "fp32", 1_102_025_728, "forward"),
    (128, "forward", "bf16", 1_173_992_448, "forward"),
    (128, "train", "fp32", 2_660_137_988, "end"),
    (128, "train", "bf16", 2_649_897_988, "end"),
]


@pytest.mark.parametrize(("context", "mode", "precision", "alive", "moment"), ALIVE_ON_AN_H200)
def test_peaks_measured_on_an_h200(context: int, mode: str, precision: str, alive: int, moment: str) -> None:
    """They are exact except for the loss, which is one number."""
    cell = small(context=context, mode=mode, precision=precision)
    predicted = steps.predict_peak(cell, device="cuda", gpu=H200)
    assert predicted.moment == moment
    assert 0 <= alive + grown_bytes(cell) - predicted.total <= 4
    assert predicted.workspace == (2 if mode == "train" else 1) * 32 * 2**20


@pytest.mark.parametrize(
    ("precision", "allocated", "rounding"), [("fp32", 4_533_282_816, 5_686_264), ("bf16", 4_317_219_328, 48_072_180)]
)
def test_training_peaks_measured_on_an_h200(precision: str, allocated: int, rounding: int) -> None:
    """At 512 tokens, in the backward of the loss: exact by the allocator's counts, but for three numbers of 4 bytes."""
    cell = small(precision=precision)
    predicted = steps.predicted_peak_bytes(cell, gpu=H200)
    assert 0 <= allocated - rounding + grown_bytes(cell) - predicted <= 12


def test_the_workspace_follows_the_device() -> None:
    cell = small(mode="inference")
    sizes = {gpu: steps.predict_peak(cell, device="cuda", gpu=gpu).workspace for gpu in (H200, "NVIDIA A100 80GB PCIe")}
    assert sizes == {H200: 33_554_432, "NVIDIA A100 80GB PCIe": 8_519_680}
    assert steps.predict_peak(cell, device="cpu", gpu="AMD EPYC").workspace == 0
