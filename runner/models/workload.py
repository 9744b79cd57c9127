"""A model with its data and its loss, as one training step uses them, whoever wrote the model.

    workload = transformer_workload(cell, device="cuda")
    output = workload.run(); loss = workload.loss(output); loss.backward()

`runner.models.given` makes the same of a user's model. Weights, data and blocks are what the experiments look at.

A user's function and a configuration are both given a `Wanted` and make a `Built`.

A block is a module with modules of its own that stands with others of its class in a `ModuleList` or `Sequential`. Of
several classes, the one with the most parameters counts: the layers of a Transformer, the bottlenecks of a ResNet.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from runner.errors import BadModel
from runner.models.source import load_part
from runner.models.transformer import Transformer
from runner.schema import ModelCell
from runner.schema.own import Option, is_own_part

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

    def run(self, model: Callable[..., Any] | None = None) -> Any:
        """Returns the output of the model, or of `model` in its place, for the data."""
        return (self.model if model is None else model)(*self.arguments, **self.keywords)


def transformer_workload(cell: ModelCell, *, device: torch.device) -> Workload:
    """Returns Stepscope's Transformer with random tokens. The loss is the cross-entropy of the next token, PyTorch's or
    the user's own; it gets logits of shape (batch × context, vocabulary) and int64 targets of shape (batch × context).
    """
    torch.manual_seed(SEED)
    model = Transformer(cell, device=device)
    tokens = torch.randint(cell.shape.vocabulary, (cell.batch, cell.context + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)

    compute = load_part(cell.loss_function) if is_own_part(cell.loss_function) else functional.cross_entropy

    def loss(logits: Tensor) -> Tensor:
        return compute(logits.flatten(0, 1), targets)

    def restart() -> None:
        torch.manual_seed(SEED)
        model.initialize()

    blocks = tuple(f"blocks.{number}" for number in range(len(model.blocks)))
    return Workload(
        model=model, arguments=(inputs,), loss=loss, inputs=[inputs, targets], blocks=blocks, restart=restart
    )


def first_tensor(output: Any) -> Tensor | None:
    """Returns the first floating tensor with at least one axis in what a model returned: its logits. None for none."""
    if isinstance(output, Tensor):
        return output if output.ndim and output.is_floating_point() else None
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    return next((found for value in values if (found := first_tensor(value)) is not None), None)


@dataclass(kw_only=True)
class Wanted:
    """What `build` is asked for. `device` and `dtype` (of the weights) are torch's, `batch` counts samples, `context`
    the tokens of each, and `attention` is the name of an implementation, as `sweep --help-all` has it. What
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


def wrong_batch(name: str, inputs: Sequence[Tensor], batch: int) -> BadModel:
    """Returns the error for inputs that do not follow the batch: samples would be counted that there are not."""
    sizes = ", ".join("×".join(map(str, tensor.shape)) or "number" for tensor in inputs)
    return BadModel(
        f"{name} returned a batch of {sizes} where want.batch is {batch}.",
        expected="tensors with a dimension of want.batch samples, or of a multiple of it",
        do="Make the batch of that size, as in torch.randint(50257, (want.batch, want.context)).",
    )


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
    shape = (
        f"a tensor of {'×'.join(map(str, logits.shape))}" if logits is not None
        else "nothing" if output is None else f"{type(output).__name__} {' '.join(repr(output).split()):.60}"
    )  # fmt: skip
    raise BadModel(
        f"The model returned {shape} and no loss.",
        expected="a loss as third value of the function, a number that the module returns, or logits of tokens",
        do="Return `model, batch, loss`, where loss is a function of what the module returns.",
    )


#: The name under which a checkpointed block holds what it computes.
BODY = "body"
_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def find_blocks(model: nn.Module) -> tuple[str, ...]:
    groups: dict[type[nn.Module], dict[str, nn.Module]] = defaultdict(dict)
    for path, module in model.named_modules():
        if isinstance(module, _CONTAINERS):
            for name, child in module.named_children():
                if not isinstance(child, _CONTAINERS) and any(True for _ in child.children()):
                    groups[type(child)][f"{path}.{name}" if path else name] = child
    repeated = [group for group in groups.values() if len(group) > 1]
    sizes = [sum(one.numel() for module in group.values() for one in module.parameters()) for group in repeated]
    largest = repeated[sizes.index(max(sizes))] if repeated else {}
    return tuple(path for path in largest if not any(path.startswith(f"{other}.") for other in largest))


def checkpoint_each(model: nn.Module, paths: tuple[str, ...]) -> None:
    """Makes each block save its input only and run again in the backward pass, with the same random numbers."""
    for path in paths:
        block = model.get_submodule(path)
        block.add_module(BODY, body := _Body(block.forward))
        # A plain attribute of the instance, which the module's call looks up before the class's.
        block.forward = partial(checkpoint, body, use_reentrant=False)


class _Body(nn.Module):
    """What a block computes, as a module, so that who watches modules sees it begin and end inside the checkpoint."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.run(*arguments, **keywords)
