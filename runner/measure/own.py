"""What can be understood of an own model by building it once, on the meta device where it can be built there."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from runner.errors import BadModel
from runner.job import OwnModelJob
from runner.measure.device import Device
from runner.measure.precision import dtype_name
from runner.measure.step import count_passes, reason_of
from runner.models.given import Loaded, load
from runner.models.source import find_line
from runner.models.workload import Built, first_tensor, list_tensors, wrong_batch
from runner.schema.axes import SHAPE
from runner.schema.own import OwnModel, parse_spec

#: What a loss is.
LOSS = "a loss: a function of what the module returned alone, that gives one floating number to differentiate"


def describe_own(job: OwnModelJob) -> OwnModel:
    """Builds the model at each point and says what came of it. Raises BadModel where it cannot be built or, with
    `runs`, cannot be run."""
    spec = parse_spec(job.spec)
    loaded = load(spec)
    described: OwnModel | None = None
    for batch, context in job.points:
        found = _describe_at(loaded, batch=batch, context=context, device="meta" if described else job.device)
        described = replace(described or found, flops={**(described.flops if described else {}), **found.flops})
        if described.missing:  # without data it says nothing of the other points either
            break
    assert described is not None, "no point to build at"
    try:
        return _run_twice(described, loaded, job) if job.runs else described
    except (BadModel, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise BadModel(
            f"{spec.text} cannot be run: {type(error).__name__}: {reason_of(error).rstrip('.')}.",
            expected=f"a module that can be called with its batch, and {LOSS}",
            do=f"Look at {find_line(error, spec)}.",
        ) from error


def _describe_at(loaded: Loaded, *, batch: int, context: int, device: str) -> OwnModel:
    missing, counted, output = "", None, ""
    try:
        built = loaded.build(torch.device("meta"), batch=batch, context=context)
        workload = built.workload
        with torch.no_grad():
            logits = first_tensor(workload.run())
        output = "its loss alone" if logits is None else describe_tensor(logits)
        counted = count_passes(workload)
    except Exception as error:
        # A model that cannot be built or run without data may be all right with it, which the real device tells.
        missing = reason_of(error)
        if device == "meta":
            raise BadModel(f"{loaded.spec.text}: {missing}") from error
        built = loaded.build(Device(device).torch, batch=batch, context=context)
        workload = built.workload
    _require_batch(built, loaded, batch=batch, context=context)
    context = context if "context" in built.reads else 0
    kinds = [type(workload.model.get_submodule(path)).__name__ for path in workload.blocks[:1]]
    return OwnModel(
        spec=loaded.spec.text,
        key=loaded.key,
        reads=built.reads,
        numbers={**dict.fromkeys(SHAPE), **built.numbers, "layers": len(workload.blocks) or None},
        parameters=sum(parameter.numel() for parameter in workload.model.parameters()),
        trained=sum(parameter.numel() for parameter in workload.model.parameters() if parameter.requires_grad),
        inputs=", ".join(map(describe_tensor, workload.inputs)),
        output=output,
        blocks=f"{len(workload.blocks)} × {kinds[0]}, the first is {workload.blocks[0]}" if kinds else "",
        flops={} if counted is None else {(batch, context): counted},
        missing=missing,
    )


def _require_batch(built: Built, loaded: Loaded, *, batch: int, context: int) -> None:
    """Raises BadModel where no dimension is the batch, and none changes with one more, as packed rows would."""
    shapes = [tensor.shape for tensor in built.workload.inputs]
    if any(batch in shape for shape in shapes):
        return
    try:
        more = loaded.build(torch.device("meta"), batch=batch + 1, context=context).workload.inputs
    except Exception:  # noqa: BLE001  # a builder that takes no other batch says nothing of how it follows this one
        return
    if [tensor.shape for tensor in more] == shapes:
        raise wrong_batch(loaded.spec.text, built.workload.inputs, batch)


def describe_tensor(tensor: Tensor) -> str:
    """Returns dtype and shape, such as `int64 4×128`."""
    return f"{dtype_name(tensor)} {'×'.join(map(str, tensor.shape)) or 'number'}"


def _run_twice(described: OwnModel, loaded: Loaded, job: OwnModelJob) -> OwnModel:
    """Runs two steps on the device, as a cell would, and adds the loss and how many parameters got a gradient. Raises
    BadModel for a model that no cell could measure."""
    (batch, context), name = job.points[0], loaded.spec.text
    workload = loaded.build(Device(job.device).torch, batch=batch, context=context).workload
    shapes, losses, trained = list[Any](), list[float](), set[str]()
    for _ in range(2):
        output = workload.run()
        loss: Any = workload.loss(output)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            got = describe_tensor(loss) if isinstance(loss, Tensor) else f"{type(loss).__name__} {loss!r:.40}"
            raise BadModel(f"{name}: the loss is {got}.", expected=LOSS, do="Return the mean of floats.")
        if not loss.requires_grad:
            do = "Leave requires_grad of some parameters on, and detach nothing on the way."
            raise BadModel(f"{name}: the loss depends on no parameter that is trained.", expected=LOSS, do=do)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        shapes.append([tuple(tensor.shape) for tensor in list_tensors(output)])
        trained |= {path for path, parameter in workload.model.named_parameters() if parameter.grad is not None}
        if not trained:
            raise BadModel(f"{name}: no parameter gets a gradient.", expected="a loss that depends on the weights")
        workload.model.zero_grad()
    if shapes[0] != shapes[1]:
        raise BadModel(f"{name} returned {shapes[0]} and then {shapes[1]}.", expected="the same shapes every step")
    unusable = "" if math.isfinite(losses[0]) else ": no training starts from it"
    return replace(
        described,
        trained=sum(parameter.numel() for path, parameter in workload.model.named_parameters() if path in trained),
        loss=f"{losses[0]:.4g} before the first step{unusable}",
    )
