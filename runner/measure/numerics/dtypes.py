"""Which dtype has each part of a pass? Read from the run by hooks: parameters, outputs of modules, loss, gradients.

    with outputs_of(watched(model)) as outputs: ...      # {"embedding": "float32", "blocks.0.attention.query": …}

The toy is the model that the question is usually asked of: linear, ReLU, layer normalization, linear. Limits: what
happens between two modules, such as the softmax of attention, is not seen; of equal blocks only the first is read.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runner.job import Job
from runner.models.transformer import Transformer
from runner.schema import DtypeRow, FloatName

DTYPES: Mapping[FloatName, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
TOY_INPUTS, TOY_WIDTH, TOY_CLASSES, TOY_BATCH = 20, 10, 5, 8


class Toy(nn.Module):
    """Logits of shape (batch, TOY_CLASSES) from (batch, TOY_INPUTS)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(TOY_INPUTS, TOY_WIDTH, bias=False)
        self.relu = nn.ReLU()
        self.layer_norm = nn.LayerNorm(TOY_WIDTH)
        self.last = nn.Linear(TOY_WIDTH, TOY_CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.layer_norm(self.relu(self.first(x))))
        return logits


@dataclass(frozen=True, kw_only=True)
class PassDtypes:
    """The dtypes of one pass. `outputs` are by module, in the order in which the pass met them."""

    outputs: Mapping[str, str]
    logits: str
    loss: str
    parameters: Mapping[str, str]
    gradients: Mapping[str, str]


def modules_to_read(model: Transformer) -> dict[str, nn.Module]:
    """The modules that are read: everything outside the blocks, and the first block with all that is in it."""
    return {name: module for name, module in model.named_modules() if name and is_read(name) and name != "blocks"}


def is_read(name: str) -> bool:
    """Whether a module or parameter is outside the blocks or in the first one."""
    return not name.startswith("blocks.") or name.split(".")[1] == "0"


@contextmanager
def outputs_of(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, str]]:
    """While open, notes the dtype of each module's output, by name, in the order in which they run."""
    found: dict[str, str] = {}

    def noting(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
            found[name] = name_of(output)

        return note

    handles = [module.register_forward_hook(noting(name)) for name, module in modules.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def name_of(tensor: Tensor) -> str:
    """`float32`, as torch says."""
    return str(tensor.dtype).removeprefix("torch.")


def of_parameters(model: nn.Module) -> dict[str, str]:
    """The dtype of each parameter that is read."""
    return {name: name_of(parameter) for name, parameter in model.named_parameters() if is_read(name)}


def of_gradients(gradients: Mapping[str, Tensor]) -> dict[str, str]:
    """The dtype of each gradient that is read."""
    return {name: name_of(gradient) for name, gradient in gradients.items() if is_read(name)}


def toy_pass(context: AbstractContextManager[object], *, device: torch.device, weights: torch.dtype) -> PassDtypes:
    """One forward and backward pass of the toy in the autocast `context`."""
    model = Toy().to(device, weights)
    x = torch.randn(TOY_BATCH, TOY_INPUTS, device=device, dtype=weights)
    targets = torch.arange(TOY_BATCH, device=device) % TOY_CLASSES
    modules = {name: module for name, module in model.named_modules() if name}
    with outputs_of(modules) as outputs, context:
        logits = model(x)
        loss = functional.cross_entropy(logits, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return PassDtypes(
        outputs=outputs,
        logits=name_of(logits),
        loss=name_of(loss),
        parameters=of_parameters(model),
        gradients=of_gradients(gradients),
    )


def dtype_rows(job: Job, passes: Mapping[str, PassDtypes]) -> list[DtypeRow]:
    """The rows of each model's pass, in the order of the pass."""
    found = []
    for model, seen in passes.items():
        found += [(model, "parameter", name, dtype) for name, dtype in seen.parameters.items()]
        found += [(model, "output", name, dtype) for name, dtype in seen.outputs.items()]
        found += [(model, "logits", "", seen.logits), (model, "loss", "", seen.loss)]
        found += [(model, "gradient", name, dtype) for name, dtype in seen.gradients.items()]
    return [
        DtypeRow(run_id=job.run_id, cell_id=job.cell_id, position=position, model=model, part=part, module=module,
                 dtype=dtype)
        for position, (model, part, module, dtype) in enumerate(found)
    ]  # fmt: skip
