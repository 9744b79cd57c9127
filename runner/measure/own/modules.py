"""The modules of an own model as named ranges, so that a profiler can tell to which of them a kernel belongs.

    with named_modules(step.workload): ...     # opens "module layers.*.mlp" around each call of such a module

Numbers in a path become a star, so that equal blocks are one range. The innermost module counts; what a module computes
between the calls of its own modules is its own.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch import nn

from runner.models.ranges import MODULE_RANGE, named_range
from runner.models.workload import Workload


@contextmanager
def named_modules(workload: Workload) -> Iterator[None]:
    """Makes every call of a module a range in here."""
    with ExitStack() as hooks:
        for path, module in workload.model.named_modules():
            if path:
                _watch(hooks, module, f"{MODULE_RANGE}{star_numbers(path)}")
        yield


def star_numbers(path: str) -> str:
    """Returns a path with a star for each number: `layers.*.mlp` for `layers.3.mlp`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)


def _watch(hooks: ExitStack, module: nn.Module, name: str) -> None:
    running: list[AbstractContextManager[object]] = []

    def enter(module: nn.Module, arguments: Any) -> None:
        running.append(named_range(name))
        running[-1].__enter__()

    def leave(module: nn.Module, arguments: Any, output: Any) -> None:
        running.pop().__exit__(None, None, None)

    hooks.callback(module.register_forward_pre_hook(enter).remove)
    hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
