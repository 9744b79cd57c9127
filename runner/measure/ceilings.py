"""Measures the ceilings of this machine: its rates of multiplying and of copying, to compare its steps with.

`matmul bf16` and the like multiply two n×n matrices of normal random numbers, at growing n until the time is up; the
fastest n counts. `copy` copies a buffer within the device's memory; its bytes are those read and those written, as in
STREAM (McCalpin 1995, "Memory Bandwidth and Machine Balance"). Limits: a GPU is faster here than in a long step that
heats it; a CPU whose caches hold the buffer copies faster than its memory.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import get_args

import torch

from runner.analysis import statistics
from runner.analysis.costs import hardware
from runner.errors import Skipped
from runner.job import CeilingJob, Ceilings
from runner.measure import precision
from runner.measure.device import Device
from runner.measure.timing import interval_share, time_step
from runner.schema import CeilingRow, Precision

#: By device: the sizes n, the bytes to copy, and the time for one ceiling (s).
SIZES: Mapping[str, tuple[int, ...]] = {
    "cuda": (1024, 2048, 4096, 8192, 16384),
    "mps": (512, 1024, 2048, 4096),
    "cpu": (128, 256, 512, 1024, 2048, 4096),
}
COPIED_BYTES: Mapping[str, int] = {"cuda": 2**30, "mps": 2**28, "cpu": 2**28}
SECONDS: Mapping[str, float] = {"cuda": 0.5, "mps": 0.3, "cpu": 0.2}
#: Repetitions; a median of at least six has an interval.
WARMUP, MIN_SAMPLES, MAX_SAMPLES = 2, 6, 20


def measure_ceilings(job: CeilingJob) -> Ceilings:
    """Measures every ceiling of this device. One that fails is missing, with the reason. A precision that the device
    lacks is left out."""
    device, rows, missing = Device(job.device), [], {}
    for name in get_args(Precision):
        try:
            precision.apply(name, device)
            rows.append(_row(job, *_measure_product(precision.product_dtype(name), device), precision=name))
        except Skipped:
            continue
        except RuntimeError as error:
            missing[f"matmul {name}"] = _reason(error)
    try:
        size = COPIED_BYTES[device.type]
        source = torch.ones(size // 4, device=device.torch)
        target = torch.zeros_like(source)
        samples = _timed(lambda: target.copy_(source), device, ends=time.perf_counter() + SECONDS[device.type])
        rows.append(_row(job, size, samples))
    except RuntimeError as error:
        missing["copy"] = _reason(error)
    return Ceilings(rows=tuple(rows), missing=missing)


def _measure_product(dtype: torch.dtype, device: Device) -> tuple[int, Sequence[float]]:
    """Returns the size and the times (ms) of the fastest product of growing matrices. Stops before a size that would
    exceed the time."""
    found: list[tuple[int, Sequence[float]]] = []
    ends = 0.0
    for n in SIZES[device.type]:
        a, b = (torch.randn(n, n, device=device.torch, dtype=dtype) for _ in range(2))
        multiply = functools.partial(torch.mm, a, b, out=torch.empty_like(a))
        if not found:
            multiply()  # the first one of a process loads libraries and kernels
            device.synchronize()
            ends = time.perf_counter() + SECONDS[device.type]
        samples = _timed(multiply, device, ends=ends)
        found.append((n, samples))
        next_seconds = 8 * (WARMUP + MIN_SAMPLES) * min(samples) / 1e3
        if time.perf_counter() + next_seconds > ends:
            break
    return max(found, key=lambda one: one[0] ** 3 / median(one[1]))


def _timed(work: Callable[[], object], device: Device, *, ends: float) -> list[float]:
    """Returns the times of the repetitions by the device's clock (ms), without warm-up: at least MIN_SAMPLES, and until
    `ends` (of `time.perf_counter`) at most MAX_SAMPLES."""

    def step(mark: Callable[[], None]) -> None:
        work()
        mark()

    samples: list[float] = []
    while len(samples) < WARMUP + MIN_SAMPLES or (len(samples) < WARMUP + MAX_SAMPLES and time.perf_counter() < ends):
        samples.append(time_step(step, device, phases=1).device_ms[0])
    return samples[WARMUP:]


def _row(job: CeilingJob, size: int, samples: Sequence[float], *, precision: Precision | None = None) -> CeilingRow:
    """Returns the row of a product in `precision`, of 2 n³ operations, or of the copy without one, by the median of
    these times (ms)."""
    name, summary = job.device_name, statistics.summarize(samples)
    per_s = 2 * (size**3 if precision else size) / summary.median * 1e3
    peak = hardware.peak_flops(name, precision) if precision else hardware.peak_bandwidth(name)
    sheet = hardware.datasheet(name) if peak else None
    return CeilingRow(
        run_id=job.run_id,
        moment=job.moment,
        name=f"matmul {precision}" if precision else "copy",
        ceiling="matmul" if precision else "copy",
        precision=precision,
        size=size,
        flops_per_s=per_s if precision else None,
        bytes_per_s=None if precision else per_s,
        interval_share=interval_share(summary),
        datasheet_flops_per_s=peak if precision else None,
        datasheet_bytes_per_s=None if precision else peak,
        datasheet=sheet.source if sheet else None,
    )


def _reason(error: RuntimeError) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
