"""How long will a cell take? A rough figure before anything is measured, for `--dry-run`, progress and time left.

    predict(cell, device="cuda", flops_per_s=rate(machine, "bf16", measured={})).seconds

The rate is what this device reached in earlier rows of the file, by precision; without any, a share of the datasheet's
peak or, on a CPU, a figure per core. Limits: nothing here knows about launch overhead, so small cells take longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.analysis.costs import attention, hardware, steps
from runner.analysis.costs.activations import Device
from runner.schema import AccumulationCell, AttentionCell, MemoryCell, NumericsCell, ProfileCell, StepCell, SweepCell

#: Share of the datasheet's dense peak that an eager step reaches, and what one CPU core reaches in fp32 (FLOP/s). Both
#: are assumptions, replaced by the file's own rows as soon as there are any.
ASSUMED_SHARE_OF_PEAK = 0.3
ASSUMED_CORE_FLOPS = 40e9
#: Starting a process, building a model and starting CUDA in it, by device (s).
START_SECONDS: Mapping[str, float] = {"cuda": 2.0, "mps": 3.0, "cpu": 0.15}
#: Compiling anything in an own process without a cache, and each of the first blocks of a model (s).
COMPILE_SECONDS, COMPILE_SECONDS_PER_BLOCK, MOST_COMPILED_BLOCKS = 8.0, 5.0, 8
#: An attention cell also looks at what it keeps and compares with float64 (s).
ATTENTION_SECONDS = 0.3
#: A memory cell runs a few steps, and looks at what they allocated (s).
MEMORY_STEPS = 4
MEMORY_SECONDS = 0.1
#: A profiled cell runs steps without and with the profiler, and reads its events (s).
PROFILE_STEPS = 20
PROFILE_SECONDS = 1.0
#: What a pass in float64 costs beside one in the cell's precision, and what else a cell of `numerics` does (s).
REFERENCE_COST = 8
NUMERICS_SECONDS = 0.5


def rate(machine: Mapping[str, Any], precision: str, *, measured: Mapping[str, float]) -> float:
    """FLOP/s to expect of a precision on a machine as `describe` returns it; `measured` are medians of earlier rows."""
    if precision in measured:
        return measured[precision]
    if measured:
        return max(measured.values())
    peak = hardware.peak_flops(machine["device_name"] or "", precision) or hardware.peak_flops(
        machine["device_name"] or "", "fp32"
    )
    return peak * ASSUMED_SHARE_OF_PEAK if peak else ASSUMED_CORE_FLOPS * (machine["cpu_cores"] or 1)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is expected of a cell: operations of one step, bytes at its peak, seconds from its process to its row."""

    step_flops: int
    peak_bytes: int
    seconds: float


def predict(cell: SweepCell, *, device: Device, flops_per_s: float, gpu: str = "") -> Prediction:
    """What to expect of a cell on a device that reaches `flops_per_s` in its precision; `gpu` is the device's name."""
    start = START_SECONDS[device]
    if isinstance(cell, AttentionCell):
        flops = attention.forward_flops(cell) + attention.backward_flops(cell)
        compiling = COMPILE_SECONDS if cell.backend == "compiled" else 0
        seconds = start + compiling + ATTENTION_SECONDS + _measuring(cell, flops / flops_per_s)
        peak = attention.predicted_peak_bytes(cell, device=device, gpu=gpu)
        return Prediction(step_flops=flops, peak_bytes=peak, seconds=seconds)
    if isinstance(cell, AccumulationCell):
        return Prediction(step_flops=0, peak_bytes=0, seconds=start)
    if isinstance(cell, NumericsCell):
        return _numerics(cell, device=device, flops_per_s=flops_per_s)
    flops, peak = steps.step_flops(cell), steps.predicted_peak_bytes(cell, device=device, gpu=gpu)
    if isinstance(cell, MemoryCell):
        seconds = start + MEMORY_SECONDS + MEMORY_STEPS * flops / flops_per_s
    elif isinstance(cell, ProfileCell):
        seconds = start + _compiling(cell) + PROFILE_SECONDS + PROFILE_STEPS * flops / flops_per_s
    else:
        seconds = start + _compiling(cell) + _measuring(cell, flops / flops_per_s)
    return Prediction(step_flops=flops, peak_bytes=peak, seconds=seconds)


def _compiling(cell: StepCell | ProfileCell) -> float:
    compiled_blocks = {"eager": 0, "cuda-graphs": 0, "compiled-block": 1}.get(cell.backend, cell.layers)
    if not compiled_blocks:
        return 0.0
    once = COMPILE_SECONDS + COMPILE_SECONDS_PER_BLOCK * min(compiled_blocks, MOST_COMPILED_BLOCKS)
    # With an empty cache a cell compiles twice: without one, and again with what that left.
    return once * 2 if getattr(cell, "compile_cache", "shared") == "empty" else once


def _numerics(cell: NumericsCell, *, device: Device, flops_per_s: float) -> Prediction:
    """Two models in one process, the reference at twice the width of fp32."""
    flops, peak = steps.step_flops(cell.step()), steps.predicted_peak_bytes(cell.step(), device=device)
    return Prediction(
        step_flops=flops,
        peak_bytes=3 * peak,
        seconds=START_SECONDS[device] + NUMERICS_SECONDS + REFERENCE_COST * flops / flops_per_s,
    )


def _measuring(cell: StepCell | AttentionCell, step_seconds: float) -> float:
    """Warm-up and measured steps; how many of the latter the interval will need is not known, so half of the most."""
    if isinstance(cell, AttentionCell):  # its time limit comes before its least number of iterations
        return cell.warmup_steps * step_seconds + min(cell.max_seconds, cell.max_steps * step_seconds)
    measured = max(cell.min_steps * step_seconds, min(cell.max_seconds, cell.max_steps * step_seconds) / 2)
    return cell.warmup_steps * step_seconds + measured
