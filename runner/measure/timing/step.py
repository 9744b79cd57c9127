"""Measures one real step of a Transformer, phase by phase.

    measurement = measure_step(job, report=print)

The step is that of a training loop: forward in the cell's precision, loss, backward, optimizer and zero_grad. Warm-up
steps are the same as timed ones.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runner.errors import BadModel
from runner.job import Job, Measurement
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.machine.usage import GROWTH_STEPS, OtherProcesses, cpu_values, growth_per_step, read_memory
from runner.measure.memory import limits
from runner.measure.timing.compilation import (
    GRAPHED,
    CompilerLog,
    cache_in,
    cold_and_warm,
    compile_model,
    compiled_ahead,
    compiler_cache,
    count_hits,
    gradient_error,
    is_compiled,
)
from runner.measure.timing.cuda_graphs import CapturedStep, require_capture
from runner.measure.timing.rates import find_step_flops, rate_values
from runner.measure.timing.timing import StepLimits, Steps, measure
from runner.measure.timing.unwaited import measure_unwaited
from runner.models.attention import require_available
from runner.models.own import own_workload
from runner.models.ranges import listen_to_ranges, named_range, nsys_listener
from runner.models.workload import Workload, first_tensor, transformer_workload
from runner.schema import PHASES, ModelCell, NumericsCell, StepCell


def make_workload(cell: StepCell, device: Device) -> Workload:
    """Returns the model and data of a cell. Raises BadModel for an own model that cannot be built."""
    if cell.model_key is None:
        return transformer_workload(cell, device=device.torch)
    differentiated = cell.mode in ("backward", "train")
    keep = cell.backend == "cuda-graphs" or (differentiated and is_compiled(cell.backend))
    return own_workload(cell, device=device.torch, keep_weights=keep)


class ModelStep:
    """The model, optimizer and data of one cell; calling it runs one step and marks the end of each phase.

    `phase` is the running phase, for the row of a cell that fails; `loss` and `logits_dtype` are of the last step."""

    def __init__(self, cell: StepCell, device: Device) -> None:
        self.cell, self.device, self.phase = cell, device, ""
        if cell.backend == "cuda-graphs":
            require_capture(cell, device)
        self.workload = make_workload(cell, device)
        self.model = self.workload.model
        self.model.train(cell.mode != "inference")
        self.run = compile_model(self.workload, cell.backend, device, precision=cell.precision)
        self.autocast = precision.autocast(cell, device)
        self.optimizer = _adamw(self.model, cell) if cell.mode == "train" else None
        scaled = cell.precision == "fp16" and cell.mode in ("backward", "train")
        self.scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self.loss: Tensor | None = None
        self.output_shape: tuple[int, ...] | None = None
        self.logits_dtype = ""
        self.captured: CapturedStep | None = None
        if cell.backend == "cuda-graphs":
            self.captured = CapturedStep(self, device, mode=cell.mode, between=self.between, restart=self.restart)

    def __call__(self, mark: Callable[[], None]) -> None:
        if self.captured is not None:
            self.captured.replay(mark)
            return
        self.phase = "forward"
        if self.cell.mode == "inference":
            with named_range("forward"), torch.no_grad():
                output = self.forward()
            mark()
        else:
            with named_range("forward"):
                output = self.forward()
            mark()
            if self.cell.mode != "forward":
                self.backward(output, mark)
                self.update(mark)
        self._note_output(output)

    def _note_output(self, output: Any) -> None:
        """Notes the logits' dtype. Raises BadModel where their shape is not that of the steps before."""
        logits = first_tensor(output)
        if logits is None:
            return
        self.logits_dtype = precision.dtype_name(logits)
        shape = tuple(logits.shape)
        if self.output_shape not in (None, shape):
            raise BadModel(
                f"The model returned a tensor of {format_shape(shape)} after {format_shape(self.output_shape or ())}.",
                expected="the same work in every step, so that steps can be compared",
            )
        self.output_shape = shape

    def forward(self) -> Any:
        """Returns the model's output; of the Transformer, logits of shape (batch, context, vocabulary)."""
        with self.autocast:
            return self.workload.run(self.run)

    def backward(self, output: Any, mark: Callable[[], None]) -> None:
        """Computes the loss and its gradients."""
        self.phase = "loss"
        with named_range("loss"), self.autocast:
            self.loss = self.workload.loss(output)
            if not self.loss.requires_grad:
                raise BadModel("The loss depends on no parameter: there is nothing to differentiate.")
        mark()
        self.phase = "backward"
        with named_range("backward"):
            self.scaler.scale(self.loss).backward()  # type: ignore[no-untyped-call]
        mark()

    def update(self, mark: Callable[[], None]) -> None:
        """Runs the optimizer's step and zero_grad, in training."""
        if self.optimizer is not None:
            self.phase = "optimizer"
            with named_range("optimizer"):
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
            mark()

    def between(self) -> None:
        """Prepares a step without being part of it: drops the gradients of a mode without an optimizer."""
        if self.optimizer is None:
            self.model.zero_grad()
        if self.cell.backend in GRAPHED:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]

    def gradients(self) -> dict[str, Tensor]:
        """Returns the gradients of one pass by parameter, with fp16 scaled as in training; the model has none
        afterwards."""
        self.between()
        self.backward(self.forward(), lambda: None)
        return take_gradients(self.model)

    def restart(self) -> None:
        """Resets weights and optimizer, in the same memory, to what they were before the first step."""
        self.loss = None
        assert self.workload.restart is not None
        self.workload.restart()
        for state in self.optimizer.state.values() if self.optimizer is not None else ():
            for tensor in state.values():
                tensor.zero_()


def format_shape(shape: Sequence[int]) -> str:
    """Returns a shape as `4×128×768`."""
    return "×".join(map(str, shape)) or "1"


def require_attention(cell: ModelCell | NumericsCell, device: Device) -> None:
    """Raises Skipped where this device cannot run the cell's attention implementation, if it asks for one by name."""
    if cell.attention != "own":
        require_available(cell.attention, device.type, dtype=precision.product_dtype(cell.precision))


def take_gradients(model: nn.Module) -> dict[str, Tensor]:
    """Returns the gradients by parameter, zeros for one without; the model has none afterwards."""
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }
    model.zero_grad()
    return gradients


def measure_step(job: Job, report: Callable[[str], None]) -> Measurement:
    """Builds, warms up and measures one cell. `report` is called with each phase.

    Raises Skipped where this machine cannot run the cell; errors of torch go through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, StepCell)
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    with cache_in(job.compiled.folder) if job.compiled else compiler_cache(cell.compile_cache):
        return _measure(job, cell, device, report=report)


def _measure(job: Job, cell: StepCell, device: Device, *, report: Callable[[str], None]) -> Measurement:
    report("build")
    began = time.perf_counter()
    limits.reset_peaks(device)
    step = ModelStep(cell, device)
    device.synchronize()
    build_seconds = time.perf_counter() - began
    compiler, others = CompilerLog(), OtherProcesses()

    held = dict[int, int]()

    def between(number: int) -> None:
        step.between()
        if number in (0, cell.warmup_steps):
            compiler.warmed_up()
        if (measured := number - cell.warmup_steps) in GROWTH_STEPS:
            held[measured] = read_memory(device.torch)

    try:
        with listen_to_ranges(nsys_listener(device.type)):
            phases, bounds = PHASES[cell.mode], StepLimits.of(cell)
            steps = measure(step, device, phases=phases, limits=bounds, between=between, report=report)
        step.between()
        held[len(steps.measured)] = read_memory(device.torch)
        values = {  # of the measured steps, before others follow
            "parameters": sum(parameter.numel() for parameter in step.model.parameters()),
            "build_seconds": build_seconds,
            "loss": None if step.loss is None else step.loss.item(),
            "logits_dtype": step.logits_dtype,
            "matmul_precision": precision.read_back(device),
            "memory_growth_bytes": growth_per_step(held),
            **(cpu_values(others) if device.type == "cpu" else {}),
            **limits.peaks(device),
            **(compiler.values(steps) if is_compiled(cell.backend) else {}),
        }
        clocks = measure_unwaited(step, device, steps=steps, between=between)
    except BaseException:
        report(step.phase)
        raise
    flops = find_step_flops(job, cell, step.workload)
    values |= rate_values(steps, flops, job=job, clocks=clocks)
    details: dict[str, Sequence[object]] = {
        "timings": steps.timings(job.run_id, job.cell_id, clocks=clocks),
        "samples": steps.rows(job.run_id, job.cell_id),
    }
    if is_compiled(cell.backend):
        values |= _check_compiled(step, job, device, steps=steps, report=report)
    return Measurement(values=values, details=details)


def _check_compiled(
    step: ModelStep, job: Job, device: Device, *, steps: Steps, report: Callable[[str], None]
) -> dict[str, object]:
    """Compares the gradients with eager ones and, for a cell with an empty cache that was not compiled ahead, compiles
    once more."""
    cell, values = step.cell, dict[str, object]()
    if job.compiled and count_hits():
        values |= compiled_ahead(job.compiled, steps=steps)
    if cell.mode in ("backward", "train"):
        report("compare with eager")
        step.restart()
        values["compiled_gradient_error"] = gradient_error(step.gradients, is_random=cell.model_key is not None)
    if cell.compile_cache == "empty" and not values.get("compiled_at_once"):
        report("compile again")  # which takes seconds, and CUPTI makes its launches slower by microseconds
        values |= cold_and_warm(step, device, steps=steps, between=step.between)
    return values


def _adamw(model: nn.Module, cell: StepCell) -> torch.optim.AdamW:
    """Returns AdamW with the cell's implementation; `foreach` is PyTorch's choice on CUDA."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01,
        foreach=cell.optimizer == "foreach",
        fused=cell.optimizer == "fused",
        capturable=cell.backend == "cuda-graphs",
    )
