"""Predicts what CUDA adds to the sizes of tensors: cuBLAS's workspaces, and the segments that the caching allocator
reserves.

    >>> workspace_bytes("NVIDIA H200")
    33554432
    >>> reserved_bytes([Lifetime(size=8 * MIB, first=0, last=1)], moments=2)
    20971520

Sources: PyTorch's aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize) and its caching allocator,
c10/cuda/CUDACachingAllocator.cpp. Limits: CUBLAS_WORKSPACE_CONFIG and PYTORCH_CUDA_ALLOC_CONF are
not read. Reserved bytes are an estimate, because the allocator starts from what earlier iterations left in its pools.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

KIB, MIB = 2**10, 2**20
#: The size of cuBLAS's workspace: `:4096:2:16:8` in its notation, KiB and count; 32 MiB on compute capability 9.0.
WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * KIB
HOPPER_WORKSPACE_BYTES = 32 * MIB
_HOPPER = ("H100", "H200", "H800", "H20", "GH200")
#: The bytes that CUDA takes outside of the allocator, for its context and loaded kernels: the driver's count less the
#: reserved bytes, in a forward pass on an H200 (torch 2.11, CUDA 13.0).
CONTEXT_BYTES = 720_175_104

# The allocator's own constants: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge.
_LEAST, _SMALL, _SMALL_SEGMENT = 512, MIB, 2 * MIB
_LARGE, _LARGE_SEGMENT, _WHOLE = 10 * MIB, 20 * MIB, 2 * MIB


def workspace_bytes(gpu: str) -> int:
    """Returns the bytes of cuBLAS's workspace for one thread, by the device's name. Hopper's is larger."""
    return HOPPER_WORKSPACE_BYTES if set(_HOPPER) & set(gpu.split()) else WORKSPACE_BYTES


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """A tensor's bytes, and the first and last moment in which it is alive."""

    size: int
    first: int
    last: int


@dataclass
class _Pool:
    """Segments of one kind. `free` lists (bytes, segment, begin) of every hole, the smallest first."""

    rest: int
    free: list[tuple[int, int, int]] = field(default_factory=list)
    segments: int = 0
    reserved: int = 0

    def take(self, size: int) -> tuple[int, int, int]:
        """Allocates a block in the smallest hole that is large enough, or in a new segment. The rest of the hole stays
        free unless it is smaller than `rest`."""
        hole = next((hole for hole in self.free if hole[0] >= size), None)
        if hole is None:
            hole = (_segment_bytes(size), self.segments, 0)
            self.segments += 1
            self.reserved += hole[0]
        else:
            self.free.remove(hole)
        left = hole[0] - size
        if left < self.rest or not left:
            return hole
        insort(self.free, (left, hole[1], hole[2] + size))
        return size, hole[1], hole[2]

    def give(self, block: tuple[int, int, int]) -> None:
        """Frees a block and joins it with adjacent holes."""
        size, segment, begin = block
        for hole in [hole for hole in self.free if hole[1] == segment]:
            if hole[2] + hole[0] == begin or begin + size == hole[2]:
                self.free.remove(hole)
                begin, size = min(begin, hole[2]), size + hole[0]
        insort(self.free, (size, segment, begin))


def reserved_bytes(tensors: Sequence[Lifetime], *, moments: int) -> int:
    """Returns the bytes that the caching allocator takes from the driver for these tensors. Within a moment they are
    allocated in the given order, and freed at its end. The allocator takes the best fit, splits and joins holes, and
    returns nothing to the driver."""
    pools = {True: _Pool(_LEAST), False: _Pool(_SMALL + 1)}
    held: list[tuple[Lifetime, _Pool, tuple[int, int, int]]] = []
    for moment in range(moments):
        for tensor in (tensor for tensor in tensors if tensor.first == moment and tensor.size):
            size = -(-tensor.size // _LEAST) * _LEAST
            pool = pools[size <= _SMALL]
            held.append((tensor, pool, pool.take(size)))
        for tensor, pool, block in held:
            if tensor.last == moment:
                pool.give(block)
    return sum(pool.reserved for pool in pools.values())


def _segment_bytes(size: int) -> int:
    if size <= _SMALL:
        return _SMALL_SEGMENT
    return _LARGE_SEGMENT if size < _LARGE else -(-size // _WHOLE) * _WHOLE
