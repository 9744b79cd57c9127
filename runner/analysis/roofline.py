"""Compares a step with the limits of its machine: its work, the roof above it, and what limits its kernels.

    roof = measured_roof(ceilings, "bf16")             # from rows of the table `ceilings`
    roof.attainable(intensity(cell, device="cuda"))    # FLOP/s under the roof
    least_ms(cell, roof, device="cuda")                # the least time of a step

A device that computes R FLOP/s and moves B bytes/s can do at most min(R, I B) FLOP/s with work of intensity I,
its operations per byte moved; I = R / B is the ridge (Williams, Waterman and Patterson 2009, "Roofline: an insightful
visual performance model"). The bytes here are the fewest, so that a cell's real intensity is lower. Limits: what caches
keep from one kernel to the next is moved for nothing, so a small model may come out above the slope of its roof.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from runner.analysis.costs import hardware, steps
from runner.analysis.costs.steps import Device, residual_stream_bytes, retained_bytes, saved_bytes, weight_bytes
from runner.results.cells import Kernel, KernelTrace
from runner.schema import PHASES, CeilingRow, KernelClass, KernelRow, ModelCell, Phase, ProfileRow

Bound = Literal["compute", "memory", "launch", "unknown"]
#: The numbers AdamW moves a parameter: it reads parameter, gradient and two moments, and writes all but the gradient.
ADAMW_MOVES = 7
#: Kernels of these classes do a few operations for every number they read: far below any ridge.
STREAMING: tuple[KernelClass, ...] = (
    "softmax", "normalisation", "elementwise", "reduction", "optimizer", "copy or cast",
)  # fmt: skip
#: A ceiling that differs by more than this between a sweep's start and its end has moved.
MOVED = 0.05


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """The FLOPs of matrix products, and the fewest bytes through the device's memory."""

    flops: int
    moved_bytes: int


def work(cell: ModelCell, *, device: Device) -> dict[Phase, StepWork]:
    """Returns the work of each phase. Bytes: whatever outlives the kernel that makes it is written once and read once.

    - forward: the weights that multiply are read; what backward needs is written (`retained_bytes`, autocast's copies
      included), without a backward pass the residual stream twice a block, written and read; logits are written;
    - loss: logits are read, their gradient is written;
    - backward: that gradient, the weights and what was kept are read; gradients are written; what the blocks keep after
      all when checkpointing computes them again is written and read;
    - optimizer: AdamW's seven numbers a parameter, in the parameter's dtype.
    """
    forward, logits = steps.forward_flops(cell).total, steps.logits_bytes(cell)
    weights = steps.matrix_parameters(cell) * weight_bytes(cell)
    kept = retained_bytes(cell, device=device)
    saved = saved_bytes(cell, device=device)
    again = saved.layers * (saved.block - saved.weight_copies) if cell.checkpoint_blocks else 0
    written = 4 * cell.shape.layers * residual_stream_bytes(cell) if cell.mode == "inference" else kept
    of_phase: dict[Phase, StepWork] = {
        "forward": StepWork(flops=forward, moved_bytes=weights + written + logits),
        "loss": StepWork(flops=0, moved_bytes=2 * logits),
        "backward": StepWork(
            flops=2 * forward + steps.recomputed_flops(cell),
            moved_bytes=logits + weights + kept + 2 * again + steps.parameter_bytes(cell),
        ),
        "optimizer": StepWork(flops=0, moved_bytes=ADAMW_MOVES * steps.parameter_bytes(cell)),
    }
    return {phase: of_phase[phase] for phase in PHASES[cell.mode]}


def intensity(cell: ModelCell, *, device: Device) -> float:
    """Returns the arithmetic intensity of one step (FLOP/byte): an upper bound, because the bytes are the fewest."""
    parts = work(cell, device=device).values()
    return sum(part.flops for part in parts) / sum(part.moved_bytes for part in parts)


@dataclass(frozen=True, kw_only=True)
class Roof:
    """The highest rates of a device in one precision."""

    flops_per_s: float
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """The intensity (FLOP/byte) above which the rate of products is the limit."""
        return self.flops_per_s / self.bytes_per_s

    def attainable(self, operations_per_byte: float) -> float:
        """Returns the highest rate (FLOP/s) at this intensity."""
        return min(self.flops_per_s, operations_per_byte * self.bytes_per_s)

    def seconds(self, part: StepWork) -> float:
        """Returns the least time, with products and moves at full rate at the same time."""
        return max(part.flops / self.flops_per_s, part.moved_bytes / self.bytes_per_s)


def measured_roof(ceilings: Iterable[CeilingRow], precision: str) -> Roof | None:
    """Returns the roof of one precision from the ceilings of a run, the higher of its start and end; None where the
    rate or the bandwidth was not measured."""
    rows = list(ceilings)
    rate = max((row.flops_per_s for row in rows if row.precision == precision and row.flops_per_s), default=None)
    width = max((row.bytes_per_s for row in rows if row.bytes_per_s), default=None)
    return Roof(flops_per_s=rate, bytes_per_s=width) if rate and width else None


def promised_roof(device_name: str, precision: str) -> Roof | None:
    """Returns the roof of one precision from the device's datasheet."""
    rate, width = hardware.peak_flops(device_name, precision), hardware.peak_bandwidth(device_name)
    return Roof(flops_per_s=rate, bytes_per_s=width) if rate and width else None


def least_ms(cell: ModelCell, roof: Roof, *, device: Device) -> float:
    """Returns the least time of a step under a roof (ms): its phases in sequence, each at its limit."""
    return sum(roof.seconds(part) for part in work(cell, device=device).values()) * 1e3


def changes(ceilings: Iterable[CeilingRow]) -> list[tuple[str, float]]:
    """Returns the ceilings of one run that changed by more than `MOVED` and by more than the uncertainty of both
    medians, by name, with (end − start) / start."""
    rows = list(ceilings)
    starts = {row.name: row for row in rows if row.moment == "start"}
    found = []
    for end in (row for row in rows if row.moment == "end" and row.name in starts):
        start = starts[end.name]
        before, after = (row.flops_per_s or row.bytes_per_s or 0.0 for row in (start, end))
        doubt = ((start.interval_share or 0.0) + (end.interval_share or 0.0)) / 2
        if before and abs(after / before - 1) > max(MOVED, doubt):
            found.append((end.name, after / before - 1))
    return sorted(found, key=lambda change: change[1])


def utilization(cell: ModelCell, *, step_ms: float, peak_flops_per_s: float) -> tuple[float, float, float]:
    """Returns the shares of a peak, measured or promised, that a step of this length uses: MFU, causal MFU and HFU.

    MFU counts the model's operations with the square of attention whole, as the column `mfu` of `steps` does (Chowdhery
    et al. 2022, "PaLM", appendix B); causal MFU counts half of that square, which is what a causal mask leaves (Dao
    2023, "FlashAttention-2", section 4.1); HFU adds to MFU what checkpointing computes again (Korthikanti et al. 2022,
    "Reducing Activation Recomputation")."""
    passes = 1 if cell.mode in ("inference", "forward") else 3
    forward, at_peak = steps.forward_flops(cell), peak_flops_per_s * step_ms / 1e3
    causal = forward.total - forward.attention / 2
    return passes * forward.total / at_peak, passes * causal / at_peak, steps.step_flops(cell) / at_peak


def bound_of(kernel: Kernel | KernelRow, *, ridge: float | None) -> Bound:
    """Returns whether a kernel is compute-bound or memory-bound: by its own intensity where operations and bytes are
    known, else by its class. Unknown without a ridge, and for other kernels whose shapes are not recorded."""
    if kernel.flops and kernel.moved_bytes and ridge is not None:
        return "compute" if kernel.flops / kernel.moved_bytes >= ridge else "memory"
    return "memory" if kernel.kernel_class in STREAMING else "unknown"


def shares(
    profile: KernelTrace | ProfileRow, kernels: Sequence[Kernel | KernelRow], *, ridge: float | None
) -> Mapping[Bound, float]:
    """Returns the shares of a step's time by what limits it, which add up to 1.

    `launch` is the time in which no kernel ran and the device waited for the host; the rest is divided among the
    kernels by their own times. On a CPU such waiting is not known, so the time between operators is unknown, and so is
    everything where no share of busy time was measured."""
    total = sum(kernel.device_ms for kernel in kernels)
    busy = None if profile.busy_share is None else min(profile.busy_share, 1.0)
    if not total or busy is None:
        return {"unknown": 1.0}
    found: dict[Bound, float] = dict.fromkeys(get_args(Bound), 0.0)
    for kernel in kernels:
        found[bound_of(kernel, ridge=ridge)] += busy * kernel.device_ms / total
    found["unknown" if profile.host_bound_share is None else "launch"] += 1 - busy
    return {bound: share for bound, share in found.items() if share}
