"""The bytes of live tensors, counted one by one where no allocator counts them.

    with CountedAllocations(held_bytes) as counted: step(counted.mark)
    counted.peak_bytes, counted.at_marks

A CPU's allocator keeps no count, but PyTorch's profiler reports each of its allocations, scratch of kernels included
(scratch that a library allocates itself stays unseen). `LiveTensors` counts tensors as operators return them: less
exact, but it knows what was alive when an operator failed. Both slow steps, so nothing is timed meanwhile.
"""

import re
from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor
from torch._C._profiler import _EventType, _ProfilerEvent
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MARK = "stepscope mark"
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r"([\d.]+) (bytes|[KMGT]iB)"
#: The messages of CUDA's allocator (`c10/cuda/CUDACachingAllocator.cpp`) and the CPU's
#: (`c10/core/impl/alloc_cpu.cpp`) when memory runs out, by column of the row.
_REFUSALS = {
    "asked_bytes": rf"[Tt]ried to allocate {_SIZE}",
    "in_use_bytes": rf"{_SIZE} is allocated by PyTorch",
    "device_bytes": rf"total capacity of {_SIZE}",
}


class CountedAllocations:
    """Counts every allocation on a CPU while it is entered. `held` bytes were allocated before."""

    def __init__(self, held: int) -> None:
        self.held = held
        self.peak_bytes = held
        self.at_marks: list[int] = []
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def mark(self) -> None:
        """Marks a moment whose live bytes will be in `at_marks`."""
        with record_function(_MARK):
            pass

    def __enter__(self) -> Self:
        self._profile.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._profile.__exit__(kind, *error)  # type: ignore[no-untyped-call]
        if kind is not None:
            return
        results: Any = self._profile.profiler.kineto_results  # type: ignore[union-attr]
        live = self.held
        for _, size in sorted(_events(results.experimental_event_tree()), key=lambda event: event[0]):
            if size is None:
                self.at_marks.append(live)
            else:
                live += size
                self.peak_bytes = max(self.peak_bytes, live)


def _events(roots: Iterable[_ProfilerEvent]) -> Iterable[tuple[int, int | None]]:
    """Yields time (ns) and bytes of every allocation, negative for what is freed and None for marks."""
    for event in roots:
        if event.tag == _EventType.Allocation:
            yield event.start_time_ns, event.extra_fields.alloc_size  # type: ignore[union-attr]
        elif event.name == _MARK:
            yield event.start_time_ns, None
        yield from _events(event.children)


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is alive when an operator starts, so also when one fails. `held` bytes were allocated before."""

    def __init__(self, held: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.in_use_bytes = held
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(tensor).cdata for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
        self._storages = {key: item for key, item in self._storages.items() if not item[0].expired()}  # type: ignore[no-untyped-call]
        self.in_use_bytes = self.held + sum(size for _, size in self._storages.values())
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and (ref := _storage(tensor)).cdata not in given:
                self._storages[ref.cdata] = (ref, tensor.untyped_storage().nbytes())
        return result


def _storage(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Returns the bytes of the tensors' storages, each counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether the error, or its cause, means that memory ran out. On a CPU torch raises a plain
    RuntimeError."""
    words = ("can't allocate memory", "out of memory", "bad_alloc", "Cannot allocate memory")
    own = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(word in str(error) for word in words)
    return own or (error.__cause__ is not None and is_out_of_memory(error.__cause__))


def parse_refusal(message: str) -> dict[str, int]:
    """Returns the bytes that an allocator's message names, by column of the row: requested, in use, on the device. CUDA
    rounds them to two decimals of a unit."""
    matches = {name: re.search(pattern, message) for name, pattern in _REFUSALS.items()}
    return {name: round(float(match[1]) * _UNITS[match[2]]) for name, match in matches.items() if match}
