"""Times of kernels summed by class and by name, and the share of matrix products.

sum_by_class(parts, phase="forward")      # {"matmul": 12.1, "softmax": 1.3}
sum_by_kernel(kernels, ("forward",))      # {"ampere_sgemm_128x64_tn": (11.0, 96)}: ms and calls, the longest first
"""

from collections.abc import Iterable, Sequence

from runner.results import Kernel, KernelPart
from runner.schema import KernelClass


def sum_by_class(parts: Iterable[KernelPart], *, phase: str | None = None) -> dict[KernelClass, float]:
    """Returns milliseconds by class, in one phase or in all."""
    found: dict[KernelClass, float] = {}
    for part in parts:
        if phase in (None, part.phase):
            found[part.kernel_class] = found.get(part.kernel_class, 0.0) + part.device_ms
    return found


def matmul_share(parts: Iterable[KernelPart]) -> float | None:
    """Returns the share of matrix products; None where nothing ran."""
    classes = sum_by_class(parts)
    whole = sum(classes.values())
    return classes.get("matmul", 0.0) / whole if whole else None


def sum_by_kernel(listed: Iterable[Kernel], phases: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
    """Returns (ms, calls) of each kernel over these phases (None: all), the one with the most time first."""
    sums: dict[str, tuple[float, float]] = {}
    for kernel in listed:
        if phases is None or kernel.phase in phases:
            took, count = sums.get(kernel.kernel, (0.0, 0.0))
            sums[kernel.kernel] = took + kernel.device_ms, count + kernel.calls
    return dict(sorted(sums.items(), key=lambda item: -item[1][0]))
