"""Measures one real step of a Transformer, phase by phase.

    measurement = measure_step(job, report=print)

The step is that of a training loop: forward in the cell's precision, loss, backward, optimizer and zero_grad. Warm-up
steps are the same as timed ones.
"""

import os
import time
from collections.abc import Callable, Sequence

import psutil
import torch
from torch import Tensor
from torch.nn import functional

from runner.analysis.costs import hardware
from runner.analysis.costs import steps as costs
from runner.job import Job, Measurement
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.memory import limits
from runner.measure.timing.clocks import Clocks
from runner.measure.timing.compilation import (
    GRAPHED,
    CompilerLog,
    cold_and_warm,
    compile_model,
    compiler_cache,
    gradient_error,
    is_compiled,
)
from runner.measure.timing.cuda_graphs import CapturedStep, require_capture
from runner.measure.timing.timing import StepLimits, Steps, interval_share, measure
from runner.measure.timing.unwaited import measure_unwaited
from runner.models.attention import require_available
from runner.models.ranges import listen_to_ranges, named_range, nsys_listener
from runner.models.transformer import Transformer
from runner.schema import PHASES, StepCell

SEED = 0


class ModelStep:
    """The model, optimizer and data of one cell; calling it runs one step and marks the end of each phase.

    `phase` is the running phase, for the row of a cell that fails; `loss` and `logits_dtype` are of the last step."""

    def __init__(self, cell: StepCell, device: Device) -> None:
        torch.manual_seed(SEED)
        self.cell, self.device, self.phase = cell, device, ""
        if cell.backend == "cuda-graphs":
            require_capture(cell, device)
        self.model = Transformer(cell, device=device.torch)
        self.model.train(cell.mode != "inference")
        self.run = compile_model(self.model, cell.backend, device)
        self.autocast = precision.autocast(cell, device)
        tokens = torch.randint(cell.vocabulary, (cell.batch, cell.context + 1), device=device.torch)
        self.inputs, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
        self.optimizer = _adamw(self.model, cell) if cell.mode == "train" else None
        scaled = cell.precision == "fp16" and cell.mode in ("backward", "train")
        self.scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self.loss: Tensor | None = None
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
                logits = self.forward()
            mark()
        else:
            with named_range("forward"):
                logits = self.forward()
            mark()
            if self.cell.mode != "forward":
                self.backward(logits, mark)
                self.update(mark)
        self.logits_dtype = precision.dtype_name(logits)

    def forward(self) -> Tensor:
        """Returns logits of shape (batch, context, vocabulary)."""
        with self.autocast:
            logits: Tensor = self.run(self.inputs)
        return logits

    def backward(self, logits: Tensor, mark: Callable[[], None]) -> None:
        """Computes the loss and its gradients."""
        self.phase = "loss"
        with named_range("loss"), self.autocast:
            self.loss = functional.cross_entropy(logits.flatten(0, 1), self.targets)
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
        torch.manual_seed(SEED)
        self.model.initialize()
        for state in self.optimizer.state.values() if self.optimizer is not None else ():
            for tensor in state.values():
                tensor.zero_()


def take_gradients(model: Transformer) -> dict[str, Tensor]:
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
    require_available(cell.attention, device.type, dtype=precision.product_dtype(cell.precision))
    precision.apply(cell.precision, device)
    with compiler_cache(cell.compile_cache):
        return _measure(job, cell, device, report=report)


def _measure(job: Job, cell: StepCell, device: Device, *, report: Callable[[str], None]) -> Measurement:
    report("build")
    began = time.perf_counter()
    limits.reset_peaks(device)
    step = ModelStep(cell, device)
    device.synchronize()
    build_seconds = time.perf_counter() - began
    compiler, others = CompilerLog(), OtherProcesses()

    def between(number: int) -> None:
        step.between()
        if number in (0, cell.warmup_steps):
            compiler.warmed_up()

    try:
        with listen_to_ranges(nsys_listener(device.type)):
            phases, bounds = PHASES[cell.mode], StepLimits.of(cell)
            steps = measure(step, device, phases=phases, limits=bounds, between=between, report=report)
        values = {  # of the measured steps, before others follow
            "parameters": sum(parameter.numel() for parameter in step.model.parameters()),
            "build_seconds": build_seconds,
            "loss": None if step.loss is None else step.loss.item(),
            "logits_dtype": step.logits_dtype,
            "matmul_precision": precision.read_back(device),
            **(_cpu_values(others) if device.type == "cpu" else {}),
            **limits.peaks(device),
            **(compiler.values(steps) if is_compiled(cell.backend) else {}),
        }
        clocks = measure_unwaited(step, device, steps=steps, between=between)
    except BaseException:
        report(step.phase)
        raise
    values |= _rates(cell, steps, clocks=clocks, device_name=job.device_name)
    details: dict[str, Sequence[object]] = {
        "timings": steps.timings(job.run_id, job.cell_id, clocks=clocks),
        "samples": steps.rows(job.run_id, job.cell_id),
    }
    if is_compiled(cell.backend) and cell.mode in ("backward", "train"):
        report("compare with eager")
        step.restart()
        values["compiled_gradient_error"] = gradient_error(step.gradients)
    if cell.compile_cache == "empty" and is_compiled(cell.backend):
        report("compile again")  # which takes seconds, and CUPTI makes its launches slower by microseconds
        values |= cold_and_warm(step, device, steps=steps, between=step.between)
    return Measurement(values=values, details=details)


class OtherProcesses:
    """The share of the machine's CPU time that other processes have used since this object was made."""

    def __init__(self) -> None:
        self.began, self.busy, self.own = time.perf_counter(), _busy_seconds(), _own_seconds()

    def share(self) -> float:
        available = (time.perf_counter() - self.began) * (psutil.cpu_count() or 1)
        others = (_busy_seconds() - self.busy) - (_own_seconds() - self.own)
        return min(max(others / available, 0.0), 1.0)


def _cpu_values(others: OtherProcesses) -> dict[str, object]:
    """Returns the columns that explain differences between CPU rows of the same cell."""
    return {
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "other_cpu_share": others.share(),
    }


def _busy_seconds() -> float:
    """Returns the CPU seconds that the machine has spent on anything, including time taken by its host."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def _own_seconds() -> float:
    """Returns the CPU seconds of this process and of the children that it has waited for (the compiler's)."""
    return float(sum(psutil.Process().cpu_times()[:4]))


def _rates(cell: StepCell, steps: Steps, *, clocks: Clocks, device_name: str) -> dict[str, object]:
    """Returns what follows from the times. Rates are those of a loop, where that was timed."""
    seconds = clocks.loop_ms.get("step", steps.summary.median) / 1e3
    flops = costs.step_flops(cell)
    peak = hardware.peak_flops(device_name, cell.precision)
    return {
        "steps": len(steps.measured),
        "stopped_by": steps.stopped_by,
        "interval_share": interval_share(steps.summary),
        "tokens_per_s": cell.batch * cell.context / seconds,
        "step_flops": flops,
        "flops_per_s": flops / seconds,
        "mfu": (flops - costs.recomputed_flops(cell)) / seconds / peak if peak else None,
        "phase_sum_share": steps.phase_sum_share,
        "bound": clocks.bound,
        "device_share": clocks.device_share,
        **steps.usage,
        "warmup_seconds": steps.warmup_seconds,
        "measure_seconds": steps.measure_seconds,
    }


def _adamw(model: Transformer, cell: StepCell) -> torch.optim.AdamW:
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
