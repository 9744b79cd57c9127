"""The memory of one steady step: its peaks by phase, the parts of the largest, and the tensors saved for backward.

    measurement = measure_memory(job, report=print)

The recording begins before the model is built. A first real step makes the optimizer's state, and the second step is
the one that counts; `runner.measure.memory.rows` makes its rows. Limits: recording takes a few times as long as the
step, so nothing here is timed.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure.machine import limits, precision
from runner.measure.machine.device import Device
from runner.measure.memory.observer import Observer
from runner.measure.memory.rows import (
    RecordedStep,
    peak_values,
    phase_peaks,
    saved_tensors,
    saved_values,
    timeline_details,
)
from runner.measure.memory.timeline import PhaseMark, recorder_for, step_timeline
from runner.measure.steps.model import ModelStep, require_attention
from runner.models.workload import Workload, first_tensor
from runner.schema import MemoryCell, StepCell

#: The most steps until one does not overflow: a scaler begins at 2^16 and halves at every overflow.
MAX_FIRST_STEPS = 20
_MOMENTS = ("exp_avg", "exp_avg_sq")


def step_cell(cell: MemoryCell) -> StepCell:
    """Returns the eager step whose memory the cell measures."""
    return StepCell(**{name: getattr(cell, name) for name in MemoryCell.names() if name != "timeline"})


def measure_memory(job: Job, report: Callable[[str], None]) -> Measurement:
    """Records one cell. `report` is called with each phase.

    Raises Skipped where this machine cannot run the cell; errors of torch go through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, MemoryCell)
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    limits.reset_peaks(device)
    recorded = _record(step_cell(cell), device, report=report)
    peaks = phase_peaks(recorded, job)
    rows: dict[str, Sequence[object]] = {"phase_peaks": peaks, "saved_tensors": saved_tensors(recorded, job)}
    values = {
        **peak_values(recorded, peaks),
        **saved_values(recorded),
        "residual_stream_bytes": recorded.residual_stream_bytes,
        "build_seconds": recorded.build_seconds,
        "measure_seconds": recorded.measure_seconds,
    }
    if cell.timeline:
        rows |= timeline_details(recorded, job, device=device)
    return Measurement(values=values, details=rows)


def _record(cell: StepCell, device: Device, *, report: Callable[[str], None]) -> RecordedStep:
    """Builds the model, runs a first step, and records the second."""
    report("build")
    began, recorder, marks = time.perf_counter(), recorder_for(device), list[PhaseMark]()
    with recorder:
        step = ModelStep(cell, device)
        build_seconds, began = time.perf_counter() - began, time.perf_counter()
        observer = Observer(step.model)
        widths = list[int]()

        def record_width(module: nn.Module, args: Any, output: Any) -> None:
            stream = first_tensor(output)
            if stream is not None:
                widths.append(stream.untyped_storage().nbytes())

        try:
            report("first step")
            _run_first_step(step)
            device.synchronize()
            report("recorded step")
            with _watch_first_block(step.workload, record_width), observer:
                _note_state(step, observer)
                _run(step, observer, mark=lambda: marks.append(recorder.mark()))
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
        residual_stream_bytes=widths[0] if widths else None,
        block=first_block(step.workload),
        build_seconds=build_seconds,
        measure_seconds=time.perf_counter() - began,
    )


def first_block(workload: Workload) -> str | None:
    """Returns the path of the first repeated block; None where nothing repeats."""
    return workload.blocks[0] if workload.blocks else None


def _watch_first_block(workload: Workload, hook: Callable[..., None]) -> AbstractContextManager[object]:
    path = first_block(workload)
    return workload.model.get_submodule(path).register_forward_hook(hook) if path else nullcontext()


def _run_first_step(step: ModelStep) -> None:
    """Runs a real step and keeps only the optimizer's state. It is repeated while the gradient scaler skips the
    optimizer, until the scale has come down."""
    for _ in range(MAX_FIRST_STEPS):
        step(lambda: None)
        step.loss = None  # which would stay alive
        step.between()
        if step.optimizer is None or step.optimizer.state:
            return
    raise Skipped(f"{MAX_FIRST_STEPS} steps in {step.cell.precision} overflowed, so the optimizer never took one.")


def _run(step: ModelStep, observer: Observer, *, mark: Callable[[], None]) -> None:
    """Runs one step and notes the gradients at the end of backward."""

    def end_phase() -> None:
        if step.phase == "backward":
            gradients = [parameter.grad for parameter in step.model.parameters() if parameter.grad is not None]
            observer.note(gradients, "gradient")
        mark()

    mark()
    step(end_phase)


def _note_state(step: ModelStep, observer: Observer) -> None:
    """Notes the tensors that exist before the step. The optimizer's step counters count as workspace."""
    observer.note(step.model.parameters(), "parameter")
    observer.note([*step.workload.inputs, *step.model.buffers()], "input")
    states = step.optimizer.state.values() if step.optimizer else ()
    observer.note([state[name] for state in states for name in _MOMENTS if name in state], "optimizer state")
