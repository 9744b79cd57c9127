"""Named ranges of a step, so that a profiler can tell what a kernel belongs to.

    with named_range("attention scores"): ...                  # does nothing without a listener
    with listen_to_ranges(torch.profiler.record_function): ... # opens all ranges in here

Ranges nest, and the innermost counts. While a compiler traces, a range does nothing, so that it causes no graph break
and no recompilation; kernels of compiled code belong to the range of their phase.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

#: The ranges within the model.
MODEL_RANGES = (
    "embedding", "normalisation", "attention projections", "rope", "attention", "attention scores",
    "attention mask", "attention softmax", "attention product", "feed-forward", "output head", "loss",
)  # fmt: skip
#: The beginning of the range of an own model's module; the rest is its path, with a star for numbers.
MODULE_RANGE = "module "
#: The phases of a step are ranges too.
PHASE_RANGES = ("forward", "loss", "backward", "optimizer")

_NOTHING = nullcontext()
_listener: Callable[[str], AbstractContextManager[object]] | None = None


def named_range(name: str) -> AbstractContextManager[object]:
    """Returns a context whose work has this name."""
    if torch.compiler.is_compiling() or _listener is None:
        return _NOTHING
    return _listener(name)


@contextmanager
def listen_to_ranges(listener: Callable[[str], AbstractContextManager[object]] | None) -> Iterator[None]:
    """Makes every range of this process open `listener(name)`; with None, nothing. This holds for all threads, because
    autograd runs checkpointed blocks again in its own."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def is_under_nsys() -> bool:
    """Returns whether `nsys profile` started this process or an ancestor of it."""
    return "NSYS_PROFILING_SESSION_ID" in os.environ
