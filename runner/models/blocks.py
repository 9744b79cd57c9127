"""The repeated blocks of any model: finding them, and computing them again in the backward pass.

    paths = find_blocks(model)        # ("layers.0", "layers.1", …); empty where nothing repeats
    checkpoint_each(model, paths)

A block is a module with modules of its own that stands with others of its class in a `ModuleList` or `Sequential`. Of
several classes, the one with the most parameters counts: the layers of a Transformer, the bottlenecks of a ResNet.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

#: The name under which a checkpointed block holds what it computes.
BODY = "body"
_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def find_blocks(model: nn.Module) -> tuple[str, ...]:
    """Returns the paths of the repeated blocks, in order."""
    groups: dict[type[nn.Module], dict[str, nn.Module]] = defaultdict(dict)
    for path, module in model.named_modules():
        if isinstance(module, _CONTAINERS):
            for name, child in module.named_children():
                if not isinstance(child, _CONTAINERS) and any(True for _ in child.children()):
                    groups[type(child)][f"{path}.{name}" if path else name] = child
    repeated = [group for group in groups.values() if len(group) > 1]
    largest = max(repeated, key=_count_parameters, default={})
    return tuple(path for path in largest if not any(path.startswith(f"{other}.") for other in largest))


def _count_parameters(group: dict[str, nn.Module]) -> int:
    return sum(parameter.numel() for module in group.values() for parameter in module.parameters())


def checkpoint_each(model: nn.Module, paths: tuple[str, ...]) -> None:
    """Makes each block save its input only and run again in the backward pass, with the same random numbers."""
    for path in paths:
        block = model.get_submodule(path)
        block.add_module(BODY, body := _Body(block.forward))
        # A plain attribute of the instance, which the module's call looks up before the class's.
        block.forward = partial(checkpoint, body, use_reentrant=False)


class _Body(nn.Module):
    """What a block computes, as a module of its own, so that whoever watches modules sees it begin and end inside the
    checkpoint."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.run(*arguments, **keywords)
