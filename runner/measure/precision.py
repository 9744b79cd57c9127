"""The precision of a step: set before it, and read back from torch afterwards.

    with precision.autocast(cell, device): logits = model(tokens)

fp32 means IEEE matrix products. TF32 is a precision of its own here: published tables often call it float32. bf16 and
fp16 are autocast over fp32 weights; weights in bf16 need no autocast.

The dtypes of a pass are read by hooks: of parameters, outputs of modules, loss and gradients. The toy model is linear,
ReLU, layer normalization, linear. Limits: operations between two modules, such as the softmax of attention, are not
seen; of equal blocks only the first is read.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runner.errors import Skipped
from runner.job import Job
from runner.measure.device import Device
from runner.models.workload import first_tensor
from runner.schema import DtypeRow, FloatName, Precision, StepCell


def apply(precision: Precision, device: Device) -> None:
    """Sets how this process computes float32 matrix products. Raises Skipped where TF32 does not exist."""
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device.torch) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise Skipped("TF32 needs an NVIDIA GPU of compute capability 8.0 or newer.")
    torch.backends.fp32_precision = "tf32" if precision == "tf32" else "ieee"  # type: ignore[attr-defined]


def read_back(device: Device) -> str:
    """Returns how this process computes float32 matrix products now: `ieee` or `tf32`."""
    backend = torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    return "tf32" if backend.fp32_precision == "tf32" else "ieee"


def product_dtype(precision: Precision) -> torch.dtype:
    """Returns the dtype in which matrix products are computed."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)


def to_float64(tensor: Tensor) -> Tensor:
    """Returns the same numbers in float64, on the CPU where the device has no float64."""
    return (tensor.detach().cpu() if tensor.device.type == "mps" else tensor.detach()).double()


def dtype_name(tensor: torch.Tensor) -> str:
    """Returns the tensor's dtype as `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def format_shape(shape: Sequence[int]) -> str:
    """Returns a shape as `4×128×768`."""
    return "×".join(map(str, shape)) or "1"


def autocast(cell: StepCell, device: Device) -> AbstractContextManager[object]:
    """Returns the autocast context of the cell's forward pass."""
    if cell.precision in ("fp32", "tf32") or cell.weights_dtype == "bf16":
        return nullcontext()
    return torch.autocast(device.type, dtype=product_dtype(cell.precision))


DTYPES: Mapping[FloatName, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
#: What a dtype is of, the module or parameter, and the dtype, in the order of the pass.
PassDtypes = list[tuple[str, str, str]]
TOY_INPUTS, TOY_WIDTH, TOY_CLASSES, TOY_BATCH = 20, 10, 5, 8


@contextmanager
def record_outputs(model: nn.Module, *, blocks: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Records the dtype of each module's output by name, in running order; of `blocks`, the first stands for all."""
    outputs: dict[str, str] = {}

    def record(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is not None:
            outputs[name] = dtype_name(tensor)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name and _is_read(name, blocks):
                hooks.enter_context(module.register_forward_hook(partial(record, name)))
        yield outputs


def name_dtypes(
    model: nn.Module,
    outputs: Mapping[str, str],
    *,
    logits: Tensor | None,
    loss: Tensor,
    gradients: Mapping[str, Tensor],
    blocks: Sequence[str] = (),
) -> PassDtypes:
    """Returns the names of a pass's dtypes; of `blocks`, the first stands for all."""

    def name(part: str, tensors: Iterable[tuple[str, Tensor]]) -> PassDtypes:
        return [(part, module, dtype_name(tensor)) for module, tensor in tensors if _is_read(module, blocks)]

    return [
        *name("parameter", model.named_parameters()),
        *(("output", module, dtype) for module, dtype in outputs.items()),
        *name("logits", [] if logits is None else [("", logits)]),
        *name("loss", [("", loss)]),
        *name("gradient", gradients.items()),
    ]


def _is_read(name: str, blocks: Sequence[str]) -> bool:
    """Returns whether a module or parameter is outside the blocks or in the first one."""
    return not any(f"{name}.".startswith(f"{block}.") for block in blocks[1:])


def run_toy_pass(context: AbstractContextManager[object], *, device: torch.device, weights: torch.dtype) -> PassDtypes:
    """Runs one forward and backward pass of the toy in the autocast `context` and returns its dtypes."""
    first, last = (nn.Linear(*size, bias=False) for size in ((TOY_INPUTS, TOY_WIDTH), (TOY_WIDTH, TOY_CLASSES)))
    layers = OrderedDict(first=first, relu=nn.ReLU(), layer_norm=nn.LayerNorm(TOY_WIDTH), last=last)
    model = nn.Sequential(layers).to(device, weights)
    x = torch.randn(TOY_BATCH, TOY_INPUTS, device=device, dtype=weights)
    targets = torch.arange(TOY_BATCH, device=device) % TOY_CLASSES
    with record_outputs(model) as outputs, context:
        logits = model(x)
        loss = functional.cross_entropy(logits, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return name_dtypes(model, outputs, logits=logits, loss=loss, gradients=gradients)


def dtype_rows(job: Job, passes: Mapping[str, PassDtypes]) -> list[DtypeRow]:
    items = [(model, *one) for model, found in passes.items() for one in found]
    return [
        DtypeRow(**job.ids, position=position, model=model, part=part, module=module, dtype=dtype)
        for position, (model, part, module, dtype) in enumerate(items)
    ]
