"""What a builder of an own model is asked for and what it makes, whether it is the user's function or a configuration.

Functions that both need: parameters put where they belong, the tensors in a batch, the loss where none is named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runner.errors import BadModel
from runner.models.workload import Workload, first_tensor
from runner.schema.own import Option


@dataclass(kw_only=True)
class Wanted:
    """What `build` is asked for. `device` and `dtype` (of the weights) are torch's, `batch` counts samples, `context`
    the tokens of each, and `attention` is the name of an implementation, as `runner list attention` has it. What
    `build` does not read is no axis of its model."""

    device: torch.device
    batch: int
    _context: int
    dtype: torch.dtype
    _attention: str
    _options: Mapping[str, Option] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    @property
    def context(self) -> int:
        """The tokens of each sequence."""
        self.read.add("context")
        return self._context

    @property
    def attention(self) -> str:
        """The attention implementation by name."""
        self.read.add("attention")
        return self._attention

    def option(self, name: str, default: Any = None) -> Any:
        """Returns the value of `--model FILE.py:build,name=value`, or the default."""
        self.read.add(f"option {name}")
        return self._options.get(name, default)


@dataclass(frozen=True, kw_only=True)
class Built:
    """A workload, what its builder read of what it was asked for, and numbers of its shape that are known."""

    workload: Workload
    reads: frozenset[str]
    numbers: Mapping[str, int | None] = field(default_factory=dict)


def place_parameters(model: nn.Module, want: Wanted) -> None:
    """Moves the model to the device, and casts its floating parameters (no buffers) to the dtype."""
    model.to(want.device)
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.dtype != want.dtype:
            parameter.data = parameter.data.to(want.dtype)


def list_tensors(values: Any) -> list[Tensor]:
    """Returns the tensors in nested tuples, lists and dictionaries."""
    if isinstance(values, Tensor):
        return [values]
    items = values.values() if isinstance(values, Mapping) else values if isinstance(values, list | tuple) else ()
    return [tensor for item in items for tensor in list_tensors(item)]


def default_loss(output: Any, tokens: Tensor | None) -> Tensor:
    """Returns the loss in what a model returned, or the cross-entropy of its logits against the next tokens."""
    own = output.get("loss") if isinstance(output, Mapping) else None
    parts = [own] if own is not None else [output] if isinstance(output, Tensor) else list_tensors(output)
    number = next((part for part in parts if part.numel() == 1 and part.is_floating_point()), None)
    if number is not None:
        return number.reshape(())
    logits = first_tensor(output)
    if logits is not None and tokens is not None and logits.ndim == 3 and logits.shape[:2] == tokens.shape:
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    shape = "nothing" if logits is None else f"a tensor of {'×'.join(map(str, logits.shape))}"
    raise BadModel(
        f"The model returned {shape} and no loss.",
        expected="a loss as third value of the function, a number that the module returns, or logits of tokens",
    )
