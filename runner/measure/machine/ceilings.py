"""How fast can this machine multiply, and how fast can it copy? The limits that its steps are held against, measured.

    found = measure_ceilings(CeilingJob(run_id=run_id, moment="start", device="cuda:0", device_name="NVIDIA H200"))
    found.rows, found.missing

`matmul bf16` and its like are products of two n×n matrices of normal random numbers, at growing n until the time is
spent; the fastest n counts. `copy` copies a buffer within the device's memory; its bytes are those read and those
written, as STREAM counts them (McCalpin 1995, "Memory Bandwidth and Machine Balance"). Limits: a GPU that gets hot
later is faster here than in a long step; a CPU whose caches hold the buffer copies faster than its memory.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import torch

from runner.analysis import statistics
from runner.analysis.costs import hardware
from runner.errors import Skipped
from runner.job import CeilingJob, Ceilings
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.timing.timing import interval_share, time_step
from runner.schema import CeilingRow, Precision

#: By device: the sizes n that are tried, the bytes that are copied, and the time for one ceiling (s).
SIZES: Mapping[str, tuple[int, ...]] = {
    "cuda": (1024, 2048, 4096, 8192, 16384),
    "mps": (512, 1024, 2048, 4096),
    "cpu": (128, 256, 512, 1024, 2048, 4096),
}
COPIED_BYTES: Mapping[str, int] = {"cuda": 2**30, "mps": 2**28, "cpu": 2**28}
SECONDS: Mapping[str, float] = {"cuda": 0.5, "mps": 0.3, "cpu": 0.2}
#: Repetitions; from six on a median has an interval.
WARMUP, MIN_SAMPLES, MAX_SAMPLES = 2, 6, 20


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The best that was seen of one ceiling: operations or bytes per second, at which size, and how sure."""

    size: int
    per_s: float
    interval_share: float | None


def measure_ceilings(job: CeilingJob) -> Ceilings:
    """Every ceiling that this device has. One that fails is missing, with the reason; the others are measured all the
    same. A precision that the device lacks is no failure."""
    device, rows, missing = Device(job.device), [], {}
    for name in get_args(Precision):
        try:
            precision.apply(name, device)
            rows.append(_matmul_row(job, name, fastest_product(precision.product_dtype(name), device)))
        except Skipped:
            continue
        except RuntimeError as error:
            missing[f"matmul {name}"] = _reason(error)
    try:
        rows.append(_copy_row(job, copy_rate(COPIED_BYTES[device.type], device)))
    except RuntimeError as error:
        missing["copy"] = _reason(error)
    return Ceilings(rows=tuple(rows), missing=missing)


def fastest_product(dtype: torch.dtype, device: Device) -> Rate:
    """The best rate over growing matrices: 2 n³ operations over the median time (FLOP/s). Stops before a size for which
    the time that is left would not do."""
    rates: list[Rate] = []
    ends = 0.0
    for n in SIZES[device.type]:
        multiply = _product(n, dtype=dtype, device=device)
        if not rates:
            multiply()  # the first one of a process loads libraries and kernels
            device.synchronize()
            ends = time.perf_counter() + SECONDS[device.type]
        samples = _timed(multiply, device, ends=ends)
        rates.append(_rate(2 * n**3, samples, size=n))
        next_seconds = 8 * (WARMUP + MIN_SAMPLES) * min(samples) / 1e3
        if time.perf_counter() + next_seconds > ends:
            break
    return max(rates, key=lambda rate: rate.per_s)


def _product(n: int, *, dtype: torch.dtype, device: Device) -> Callable[[], object]:
    """What multiplies two n×n matrices of normal random numbers into a third."""
    a, b = (torch.randn(n, n, device=device.torch, dtype=dtype) for _ in range(2))
    product = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=product)


def copy_rate(size: int, device: Device) -> Rate:
    """A buffer of `size` bytes copied to another on the same device: bytes read and bytes written per second."""
    source = torch.ones(size // 4, device=device.torch)
    target = torch.zeros_like(source)
    samples = _timed(lambda: target.copy_(source), device, ends=time.perf_counter() + SECONDS[device.type])
    return _rate(2 * size, samples, size=size)


def _rate(work: int, samples: Sequence[float], *, size: int) -> Rate:
    """Work, in operations or bytes, over the median of its times (ms)."""
    summary = statistics.summarize(samples)
    return Rate(size=size, per_s=work / summary.median * 1e3, interval_share=interval_share(summary))


def _timed(work: Callable[[], object], device: Device, *, ends: float) -> list[float]:
    """The repetitions by the device's clock (ms), warm-up left out; after the least, they go on until `ends` (of
    `time.perf_counter`) or the most."""

    def step(mark: Callable[[], None]) -> None:
        work()
        mark()

    samples: list[float] = []
    while len(samples) < WARMUP + MIN_SAMPLES or (len(samples) < WARMUP + MAX_SAMPLES and time.perf_counter() < ends):
        samples.append(time_step(step, device, phases=1).device_ms[0])
    return samples[WARMUP:]


def _matmul_row(job: CeilingJob, name: Precision, rate: Rate) -> CeilingRow:
    promised = hardware.peak_flops(job.device_name, name)
    return CeilingRow(
        run_id=job.run_id,
        moment=job.moment,
        name=f"matmul {name}",
        ceiling="matmul",
        precision=name,
        size=rate.size,
        flops_per_s=rate.per_s,
        interval_share=rate.interval_share,
        datasheet_flops_per_s=promised,
        datasheet=_title(job) if promised else None,
    )


def _copy_row(job: CeilingJob, rate: Rate) -> CeilingRow:
    promised = hardware.peak_bandwidth(job.device_name)
    return CeilingRow(
        run_id=job.run_id,
        moment=job.moment,
        name="copy",
        ceiling="copy",
        size=rate.size,
        bytes_per_s=rate.per_s,
        interval_share=rate.interval_share,
        datasheet_bytes_per_s=promised,
        datasheet=_title(job) if promised else None,
    )


def _title(job: CeilingJob) -> str | None:
    sheet = hardware.datasheet(job.device_name)
    return sheet.source if sheet else None


def _reason(error: RuntimeError) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
