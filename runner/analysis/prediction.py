"""How long will a cell take? A rough figure before anything is measured, for `--dry-run`, progress and time left.

    seconds = predicted_seconds(cell, flops_per_s=rate(machine, "bf16", measured={}))

The rate is what this device reached in earlier rows of the file, by precision; without any, a share of the datasheet's
peak or, on a CPU, a figure per core. Limits: nothing here knows about launch overhead, so small cells take longer.
"""

from collections.abc import Mapping
from typing import Any

from runner.analysis import costs, hardware
from runner.schema import StepCell

#: Share of the datasheet's dense peak that an eager step reaches, and what one CPU core reaches in fp32 (FLOP/s). Both
#: are assumptions, replaced by the file's own rows as soon as there are any.
ASSUMED_SHARE_OF_PEAK = 0.3
ASSUMED_CORE_FLOPS = 40e9
#: Starting a process, building a model and starting CUDA in it, by device (s).
START_SECONDS: Mapping[str, float] = {"cuda": 5.0, "mps": 3.0, "cpu": 0.3}
COMPILE_SECONDS_PER_BLOCK = 8.0


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


def predicted_seconds(cell: StepCell, *, device: str, flops_per_s: float) -> float:
    """Seconds from the start of the cell's process to its row."""
    step = costs.step_flops(cell) / flops_per_s
    measuring = max(cell.min_steps * step, min(cell.max_seconds, cell.max_steps * step) / 2)
    compiled_blocks = {"eager": 0, "compiled-block": 1}.get(cell.backend, cell.layers)
    compiling = COMPILE_SECONDS_PER_BLOCK * min(compiled_blocks, 8)
    return START_SECONDS.get(device, 1.0) + compiling + cell.warmup_steps * step + measuring
