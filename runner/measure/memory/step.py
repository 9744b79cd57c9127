"""The memory of one steady step: its peaks phase by phase, what the largest is made of, and what backward needs.

    measurement = measure_memory(job, report=print)

Everything from the building of the model on is recorded, a whole real step first; the second one is looked at, so that
the optimizer's state exists. What becomes of it is in `runner.measure.memory.rows`. Limits: the recording of a cell
takes a few times as long as its step, so nothing here is timed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.memory import limits
from runner.measure.memory.observer import Observer
from runner.measure.memory.rows import (
    FIRST_BLOCK,
    RecordedStep,
    peak_values,
    phase_peaks,
    saved_tensors,
    saved_values,
    timeline_details,
)
from runner.measure.memory.timeline import PhaseMark, recorder_for, step_timeline
from runner.measure.timing.step import ModelStep
from runner.models.attention import unavailable
from runner.schema import MemoryCell, StepCell

#: A scaler begins at 2^16 and halves at every overflow.
MAX_FIRST_STEPS = 20
_MOMENTS = ("exp_avg", "exp_avg_sq")


def step_cell(cell: MemoryCell) -> StepCell:
    """The eager step whose memory the cell asks for."""
    return StepCell(**{name: getattr(cell, name) for name in MemoryCell.names() if name != "timeline"})


def measure_memory(job: Job, report: Callable[[str], None]) -> Measurement:
    """Records one cell. `report` is told what is being done.

    Raises Skipped where this machine cannot run the cell; whatever torch raises goes through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, MemoryCell)
    asked = step_cell(cell)
    reason = unavailable(cell.attention, device.type, dtype=precision.product_dtype(asked.precision))
    if reason:
        raise Skipped(reason)
    precision.apply(asked.precision, device)
    limits.reset_peaks(device)
    found = record(asked, device, report=report)
    peaks = phase_peaks(found, job)
    rows: dict[str, Sequence[object]] = {"phase_peaks": peaks, "saved_tensors": saved_tensors(found, job)}
    values = {
        **peak_values(found, peaks),
        **saved_values(found),
        "residual_stream_bytes": found.residual_stream_bytes,
        "build_seconds": found.build_seconds,
        "measure_seconds": found.measure_seconds,
    }
    if cell.timeline:
        rows |= timeline_details(found, job, device=device)
    return Measurement(values=values, details=rows)


def record(cell: StepCell, device: Device, *, report: Callable[[str], None]) -> RecordedStep:
    """Builds the model, runs a first step, and records the second."""
    report("build")
    began, recorder, marks = time.perf_counter(), recorder_for(device), list[PhaseMark]()
    with recorder:
        step = ModelStep(cell, device)
        build_seconds, began = time.perf_counter() - began, time.perf_counter()
        observer = Observer(step.model)
        widths = list[int]()
        try:
            report("first step")
            _settle(step)
            device.synchronize()
            report("recorded step")
            watched = step.model.get_submodule(FIRST_BLOCK).register_forward_hook(_width(widths))
            with observer:
                _note_held(step, observer)
                _run(step, observer, mark=lambda: marks.append(recorder.mark()))
            watched.remove()
        except BaseException:
            report(step.phase or "build")
            raise
        device.synchronize()
    recorded = recorder.recorded()
    return RecordedStep(
        observer=observer,
        recorded=recorded,
        timeline=step_timeline(recorded, marks=marks, observer=observer),
        marks=marks,
        residual_stream_bytes=widths[0],
        build_seconds=build_seconds,
        measure_seconds=time.perf_counter() - began,
    )


def _settle(step: ModelStep) -> None:
    """Runs a real step, and leaves nothing of it but the optimizer's state. A gradient scaler that begins too high
    leaves steps out until it has come down."""
    for _ in range(MAX_FIRST_STEPS):
        step(_nothing)
        step.loss = None  # which would keep the step's loss alive
        step.between()
        if step.optimizer is None or step.optimizer.state:
            return
    raise Skipped(f"{MAX_FIRST_STEPS} steps in {step.cell.precision} overflowed, so the optimizer never took one.")


def _run(step: ModelStep, observer: Observer, *, mark: Callable[[], None]) -> None:
    """One step. At the end of backward the gradients say where they are."""

    def ended() -> None:
        if step.phase == "backward":
            gradients = [parameter.grad for parameter in step.model.parameters() if parameter.grad is not None]
            observer.note(gradients, "gradient")
        mark()

    mark()
    step(ended)


def _note_held(step: ModelStep, observer: Observer) -> None:
    """What is there before the step. The optimizer's step counters are not AdamW's moments, and count as workspace."""
    observer.note(step.model.parameters(), "parameter")
    observer.note([step.inputs, step.targets, *step.model.buffers()], "input")
    states = step.optimizer.state.values() if step.optimizer else ()
    observer.note([state[name] for state in states for name in _MOMENTS], "optimizer state")


def _nothing() -> None:
    """In place of marking a phase."""


def _width(widths: list[int]) -> Callable[[nn.Module, Any, Tensor], None]:
    """A hook that notes the bytes of a module's output."""

    def hook(module: nn.Module, args: Any, output: Tensor) -> None:
        widths.append(output.untyped_storage().nbytes())

    return hook
