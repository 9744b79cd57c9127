"""Names for parts of a step, so that a profiler says which of them a kernel belongs to.

    with named_range("attention scores"): ...                  # costs nothing unless somebody listens
    with listen_to_ranges(torch.profiler.record_function): ... # names everything in here

Names are opened in the order of the code, the innermost counts. A compiler never sees them: while it traces, a range is
nothing, so that there is no graph break and no recompilation; kernels of compiled code have the names of their phases.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

#: What a range says: where in the model its work stands.
MODEL_RANGES = (
    "embedding",
    "normalisation",
    "attention projections",
    "rope",
    "attention",
    "attention scores",
    "attention mask",
    "attention softmax",
    "attention product",
    "feed-forward",
    "output head",
    "loss",
)
#: The phases of a step are ranges too.
PHASE_RANGES = ("forward", "loss", "backward", "optimizer")

_NOTHING = nullcontext()
_listener: Callable[[str], AbstractContextManager[object]] | None = None


def named_range(name: str) -> AbstractContextManager[object]:
    """A context in which work has this name."""
    if torch.compiler.is_compiling() or _listener is None:
        return _NOTHING
    return _listener(name)


@contextmanager
def listen_to_ranges(listener: Callable[[str], AbstractContextManager[object]] | None) -> Iterator[None]:
    """In here every range of this process opens `listener(name)`; with None, nothing. Other threads are not spared:
    checkpointed blocks run again in autograd's."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def nsys_listener(device_type: str) -> Callable[[str], AbstractContextManager[object]] | None:
    """NVTX ranges for NVIDIA's Nsight Systems, where it watches this process (`nsys profile`); else None."""
    return torch.cuda.nvtx.range if device_type == "cuda" and is_under_nsys() else None


def is_under_nsys() -> bool:
    """Whether `nsys profile` started this process, or one that it came from."""
    return "NSYS_PROFILING_SESSION_ID" in os.environ
