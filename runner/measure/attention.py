"""Measures single-head attention, forward and backward.

Timing comes first, and the traced step is the last of it; memory, saved bytes and errors are passes of their own. An
iteration is the implementation's forward pass, then the backward pass from a fixed random gradient. Gradients are
dropped between iterations, outside the clock.

What is saved for backward is seen by autograd's hooks, and the operations that need it by an `Observer`. Limits:
compiled code is one operation, called `compiled`.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from runner.analysis.costs import attention as accounting
from runner.errors import Skipped
from runner.job import Job, Measurement, RanOut
from runner.measure import limits as memory
from runner.measure import precision
from runner.measure.compilation import compile_values
from runner.measure.correctness import MAX_CHECKED, TOLERANCE, Inputs, check_attention, compute_errors, require_right
from runner.measure.device import Device
from runner.measure.device_time import measure_unwaited
from runner.measure.limits import LiveTensors, is_out_of_memory, parse_refusal, storage_bytes
from runner.measure.model_step import require_compiler
from runner.measure.observer import Observer, Saved, address, saved_rows
from runner.measure.timeline import CpuRecorder
from runner.measure.timing import Clocks, StepEnd, StepLimits, Steps, measure
from runner.models.attention import implementation, require_available
from runner.schema import AttentionCell, SavedTensorRow
from runner.schema.own import is_own_part

SEED = 0


class AttentionStep:
    """The tensors of one cell; calling it runs one iteration and marks the end of each phase. `phase` is the running
    phase, for the row of a cell that fails. `run` is the implementation as the cell's backend runs it."""

    def __init__(self, cell: AttentionCell, device: Device) -> None:
        torch.manual_seed(SEED)
        self.cell, self.phase = cell, "build"
        attend: Callable[..., Tensor] = implementation(cell.implementation)
        if is_compiled(cell):
            require_compiler()
        if cell.backend == "compiled" and cell.implementation != "flex":  # compilation happens in the first iteration
            attend = torch.compile(attend)
        self.run = functools.partial(attend, causal=cell.causal)
        shape, dtype = (cell.batch, 1, cell.seq_len, cell.d_head), precision.product_dtype(cell.precision)
        q, k, v = (torch.randn(shape, dtype=dtype, device=device.torch, requires_grad=True) for _ in range(3))
        self.inputs = (q, k, v)
        self.grad = torch.randn(shape, dtype=dtype, device=device.torch)

    def __call__(self, mark: Callable[[], None]) -> None:
        self.phase = "forward"
        output = self.run(*self.inputs)
        mark()
        self.phase = "backward"
        output.backward(self.grad)  # type: ignore[no-untyped-call]
        mark()

    def drop_gradients(self) -> None:
        for tensor in self.inputs:
            tensor.grad = None

    @property
    def held_bytes(self) -> int:
        """Bytes of the inputs and of the output's gradient."""
        return storage_bytes([*self.inputs, self.grad])


def is_compiled(cell: AttentionCell) -> bool:
    """Returns whether torch.compile makes the cell's kernels; it always does for FlexAttention."""
    return cell.backend == "compiled" or cell.implementation == "flex"


def require_runnable(cell: AttentionCell, device: Device) -> None:
    """Raises Skipped where this device cannot run the cell, or where another cell measures the same."""
    require_available(cell.implementation, device.type, dtype=precision.product_dtype(cell.precision))
    if cell.implementation == "flex" and cell.backend == "compiled":
        raise Skipped("flex is always compiled; backend eager measures it.")
    if cell.cache == "cold" and device.type != "cuda":
        raise Skipped(f"Only on CUDA is the cache emptied between iterations; on {device.type} cells are measured hot.")


#: The longest sequence that is compared with float64 on a CPU, where comparing would take longer than measuring.
MAX_COMPARED_ON_CPU = 2048
#: The size of the buffer that empties the L2 cache, in multiples of the cache.
L2_SIZES = 4
#: The measured iterations after which the time limit may end a cell.
MIN_SLOW_STEPS = 3


def measure_attention(job: Job, report: Callable[[str], None]) -> Measurement:
    """Builds, warms up and measures one cell. Raises RanOut with the row's bytes where memory runs out."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AttentionCell)
    require_runnable(cell, device)
    precision.apply(cell.precision, device)
    report("build")
    began = time.perf_counter()
    step = AttentionStep(cell, device)
    device.synchronize()
    checked: Mapping[str, float] = {}
    if is_own_part(cell.implementation):
        report("check")
        size = (cell.batch, 1, min(cell.seq_len, MAX_CHECKED), cell.d_head)
        checked = check_attention(cell.implementation, size, cell.precision, device=device, causal=cell.causal)
    build_seconds, kind = time.perf_counter() - began, cast(Any, device.type)
    predicted = {"forward_flops": accounting.forward_flops(cell), "tensor_bytes": accounting.square_bytes(cell)}
    if not is_own_part(cell.implementation):  # what that saves does not follow from the cell
        predicted["predicted_saved_bytes"] = accounting.saved_bytes(cell, device=kind)
    try:
        steps, clocks = _time(step, device, report)
    except Exception as error:
        report(step.phase)
        if not is_out_of_memory(error):
            raise
        message = f"{type(error).__name__}: {error}"
    else:
        report("memory")
        memory_values = _measure_memory(step, device)
        saved = saved_tensors(step.run, step.inputs, job=job)
        report("errors")
        forward, backward = (steps.medians()[phase] / 1e3 for phase in steps.phases)
        values = {
            **steps.values(clocks),
            "forward_flops_per_s": accounting.forward_flops(cell) / forward,
            "backward_flops_per_s": accounting.backward_flops(cell) / backward,
            "forward_bytes_per_s": accounting.forward_bytes(cell) / forward,
            **(compile_values(steps) if is_compiled(cell) else {}),
            **predicted,
            "build_seconds": build_seconds,
            **memory_values,
            "saved_bytes": sum(row.storage_bytes for row in saved),
            **checked,
            **_errors(step, device),
        }
        details: dict[str, Sequence[object]] = {
            "timings": steps.timings(job.run_id, job.cell_id, clocks=clocks),
            "samples": steps.rows(job.run_id, job.cell_id),
            "saved_tensors": saved,
        }
        return Measurement(values=values, details=details)
    # Here the error is gone, and with it the tensors that its traceback kept alive.
    raise RanOut(message, values=predicted | _out_of_memory_values(step, message, job=job))


def _out_of_memory_values(step: AttentionStep, message: str, *, job: Job) -> dict[str, int]:
    """Returns the bytes requested, in use and on the device when an iteration ran out of memory. A CPU's allocator
    names only the first, so the iteration runs once more there, to count what is alive when it fails again."""
    values = parse_refusal(message)
    if job.device == "cpu":
        step.drop_gradients()
        live = LiveTensors(step.held_bytes)
        try:
            with live:
                step(lambda: None)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        values["in_use_bytes"] = live.in_use_bytes
        if job.limit_bytes is not None:
            values["device_bytes"] = job.limit_bytes
    return values


def _time(step: AttentionStep, device: Device, report: Callable[[str], None]) -> tuple[Steps, Clocks]:
    """Times the iterations that are waited for, and those that are not. The buffer that empties the cache lives no
    longer than this, so that no peak holds it."""
    cell, flush = step.cell, None
    if cell.cache == "cold":  # overwriting a buffer several times the size of the L2 cache empties the cache
        size = torch.cuda.get_device_properties(device.torch).L2_cache_size * L2_SIZES
        flush = torch.empty(size, dtype=torch.uint8, device=device.torch)

    def between(number: int) -> None:
        step.drop_gradients()
        if flush is not None:
            flush.zero_()

    limits = StepLimits.of(cell, min_slow_steps=min(MIN_SLOW_STEPS, cell.min_steps))
    steps = measure(step, device, phases=("forward", "backward"), limits=limits, between=between, report=report)
    ends: StepEnd = "next step" if flush is None else "last phase"
    return steps, measure_unwaited(step, device, steps=steps, between=between, ends=ends)


def _measure_memory(step: AttentionStep, device: Device) -> dict[str, int | None]:
    """Returns the live bytes between the passes, and the peaks, of one more iteration."""
    step.drop_gradients()
    if device.type == "cuda":
        between: list[int] = []
        memory.reset_peaks(device)
        step(lambda: between.append(torch.cuda.memory_allocated(device.torch)))
        peaks = memory.peaks(device)
        names = ("peak_allocated_bytes", "peak_reserved_bytes")
        return {"before_backward_bytes": between[0], **{name: peaks[name] for name in names}}
    if device.type != "cpu":
        return {}
    marks: list[int] = []
    with CpuRecorder() as recorder:
        step(lambda: marks.append(recorder.mark().at_ns))
    recorded, held = recorder.recorded(), step.held_bytes
    before = sum(event.change for event in recorded.events if event.at_ns <= marks[0])
    return {"before_backward_bytes": held + before, "peak_allocated_bytes": held + max([0, *recorded.totals])}


def _errors(step: AttentionStep, device: Device) -> dict[str, float]:
    """Returns the errors against float64; nothing where comparing would take too long, or more memory than what is
    compared. Raises Wrong where those of an own implementation are too large."""
    cell = step.cell
    if device.type != "cuda" and (device.type != "cpu" or cell.seq_len > MAX_COMPARED_ON_CPU):
        return {}
    if device.type == "cuda":
        torch.cuda.empty_cache()  # blocks that earlier passes split: 64 GiB of them beside 64 GiB of scores
    try:
        errors = compute_errors(step.run, step.inputs, step.grad, causal=cell.causal)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return {}
    if is_own_part(cell.implementation):
        require_right(cell.implementation, errors, TOLERANCE[cell.precision])
    return {**errors, "tolerance": TOLERANCE[cell.precision]}


def saved_tensors(run: Callable[..., Tensor], inputs: Inputs, *, job: Job) -> list[SavedTensorRow]:
    """Returns one row for each tensor that `run(*inputs)` saves, in order; 0 bytes where an earlier row has the same
    storage. `inputs` are queries, keys and values. The output is held meanwhile, and with it what is saved."""
    assert isinstance(job.cell, AttentionCell)
    saved: list[tuple[str, Saved]] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(("compiled", Saved.of(tensor, module=None)))
        return tensor

    # Compiled code does not run under an observer of operators.
    if is_compiled(job.cell):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = run(*inputs)
    else:
        with Observer(nn.Module()) as observer:
            output = run(*inputs)
        saved = [(observer.operation_of(item), item) for item in observer.saved]
    assert output.requires_grad
    given = zip(("queries", "keys", "values"), inputs, strict=True)
    names = {address(output): "output", **{address(tensor): name for name, tensor in given}}
    first = {item.address: place for place, (_, item) in reversed([*enumerate(saved)])}
    sizes = [item.bytes if first[item.address] == place else 0 for place, (_, item) in enumerate(saved)]
    return saved_rows(job, [(*one, size) for one, size in zip(saved, sizes, strict=True)], names)
