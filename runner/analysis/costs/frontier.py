"""Predicts the largest size that fits in memory, and searches for it by trying.

    >>> predict_largest(question, DeviceMemory(device="cpu"))     # question: runner.schema.FrontierCell
    2304
    >>> search(36, lambda count: count <= 35)          # in multiples of the resolution
    (35, 36)

Limits: both assume that a size fits whenever a larger one does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from runner.analysis.costs import attention, steps
from runner.analysis.costs.activations import Device
from runner.analysis.costs.allocator import CONTEXT_BYTES
from runner.schema import AttentionCell, FrontierCell, StepCell
from runner.schema.axes import SHAPE

#: The first step of the search away from the prediction, as a share of it.
FIRST_STEP = 1 / 256
#: The bytes that CUDA's allocator reserves for a model's step, over those alive at its peak: 1.03 (bf16) and 1.055
#: (fp32) for `small` at context 512 on an H200.
RESERVED_SHARE = 1.05


def trial_cell(question: FrontierCell, size: int) -> AttentionCell | StepCell:
    """Returns the cell that tries one size of a frontier cell."""
    once = {"warmup_steps": 0, "min_steps": 1, "max_steps": 1}
    asked: dict[str, Any] = {"precision": question.precision, "batch": question.batch, question.limited: size, **once}
    if question.limited == "seq_len":
        own: dict[str, Any] = {
            "implementation": question.implementation,
            "d_head": question.d_head,
            "causal": question.causal,
        }
        return AttentionCell(**own, **asked)
    shape: dict[str, Any] = {name: getattr(question, name) for name in SHAPE}
    context: dict[str, Any] = {} if question.limited == "context" else {"context": question.context}
    return StepCell(**shape, **context, mode=question.mode, attention=question.implementation, **asked)


@singledispatch
def predict_bytes(cell: AttentionCell | StepCell, *, device: Device, gpu: str = "") -> int:
    """Returns the memory that a cell needs by the closed formulas: the peak of live bytes or, on CUDA, the bytes that
    the allocator must reserve."""
    raise TypeError(f"No formula for a {type(cell).__name__}.")


@predict_bytes.register
def _(cell: AttentionCell, *, device: Device, gpu: str = "") -> int:
    if device == "cuda":
        return attention.predicted_reserved_bytes(cell, gpu=gpu)
    return attention.predicted_peak_bytes(cell)


@predict_bytes.register
def _(cell: StepCell, *, device: Device, gpu: str = "") -> int:
    peak = steps.predicted_peak_bytes(cell, device=device, gpu=gpu)
    return round(peak * RESERVED_SHARE) if device == "cuda" else peak


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """The device that a cell must fit on: its kind, its name and, where known, the whole memory of the card."""

    device: Device
    gpu: str = ""
    card_bytes: int | None = None

    def bytes_within(self, limit_bytes: int) -> int:
        """Returns the bytes of a limit that tensors may take. CUDA's context takes its part of the card first."""
        if self.device != "cuda" or self.card_bytes is None:
            return limit_bytes
        return min(limit_bytes, self.card_bytes - CONTEXT_BYTES)


def predict_largest(question: FrontierCell, memory: DeviceMemory) -> int:
    """Returns the largest multiple of the resolution that is predicted to fit, 0 if none is. On CUDA it is an
    estimate."""
    limit = memory.bytes_within(question.limit_bytes)

    def fits(count: int) -> bool:
        cell = trial_cell(question, count * question.step)
        return predict_bytes(cell, device=memory.device, gpu=memory.gpu) <= limit

    high = 1
    while fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * question.step


def search(first: int, fits: Callable[[int], bool]) -> tuple[int, int]:
    """Returns the largest whole number that fits and the smallest that does not, which is the next one. Numbers begin
    at 1; 0 fits without a trial. The search tries `first`, then numbers away from it in doubling steps, then
    bisects."""
    low, high = 0, 0
    guess = max(first, 1)
    reach = max(round(guess * FIRST_STEP), 1)
    while not high:
        if fits(guess):
            low, guess = guess, guess + reach
        else:
            high, guess = guess, max(guess - reach, 1)
        reach *= 2
    while not low and high > 1:
        if fits(guess):
            low = guess
        else:
            high, guess = guess, max(guess - reach, 1)
        reach *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, high
