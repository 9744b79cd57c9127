"""A model with its data and its loss, as one training step uses them, whoever wrote the model.

    workload = transformer_workload(cell, device="cuda")
    output = workload.run(); loss = workload.loss(output); loss.backward()

`runner.models.own` makes the same of a user's model. Weights, data and blocks are what the experiments look at.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runner.models.transformer import Transformer
from runner.schema import ModelCell

SEED = 0


@dataclass(kw_only=True)
class Workload:
    """One step's model and data. `loss` takes what the model returned and gives a number to differentiate. `inputs` are
    the tensors that belong to the data, `blocks` the paths of the repeated blocks in order. `restart` sets the weights
    back to what they were at first; it is None where nobody kept them."""

    model: nn.Module
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Tensor]
    inputs: Sequence[Tensor]
    blocks: tuple[str, ...]
    restart: Callable[[], None] | None = None

    def cast_inputs(self, dtype: torch.dtype) -> None:
        """Casts the floating tensors among the model's arguments."""
        self.arguments = tuple(_cast(value, dtype) for value in self.arguments)
        self.keywords = {name: _cast(value, dtype) for name, value in self.keywords.items()}

    def run(self, model: Callable[..., Any] | None = None) -> Any:
        """Returns the output of the model, or of `model` in its place, for the data."""
        return (self.model if model is None else model)(*self.arguments, **self.keywords)


def transformer_workload(cell: ModelCell, *, device: torch.device) -> Workload:
    """Returns Stepscope's Transformer with random tokens; the loss is the cross-entropy of the next token."""
    torch.manual_seed(SEED)
    model = Transformer(cell, device=device)
    tokens = torch.randint(cell.shape.vocabulary, (cell.batch, cell.context + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), targets)

    def restart() -> None:
        torch.manual_seed(SEED)
        model.initialize()

    blocks = tuple(f"blocks.{number}" for number in range(len(model.blocks)))
    return Workload(
        model=model, arguments=(inputs,), loss=loss, inputs=[inputs, targets], blocks=blocks, restart=restart
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def first_tensor(output: Any) -> Tensor | None:
    """Returns the first floating tensor with at least one axis in what a model returned: its logits. None for none."""
    if isinstance(output, Tensor):
        return output if output.ndim and output.is_floating_point() else None
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    return next((found for value in values if (found := first_tensor(value)) is not None), None)
