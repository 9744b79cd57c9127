"""How long will a cell take? A rough figure before anything is measured, for `--dry-run`, progress and time left.

    predict(cell, device="cuda", flops_per_s=rate(machine, "bf16", measured={})).seconds

The rate is what this device reached in earlier rows of the file, by precision; without any, a share of the datasheet's
peak or, on a CPU, a figure per core. Limits: nothing here knows about launch overhead, so small cells take longer.
"""

from collections.abc import Mapping
from typing import Any

from runner.analysis.costs import hardware
from runner.analysis.costs.activations import Device
from runner.experiments import kind_of
from runner.experiments.experiment import On, Prediction
from runner.schema import Cell

#: Share of the datasheet's dense peak that an eager step reaches, and what one CPU core reaches in fp32 (FLOP/s). Both
#: are assumptions, replaced by the file's own rows as soon as there are any.
ASSUMED_SHARE_OF_PEAK = 0.3
ASSUMED_CORE_FLOPS = 40e9


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


def predict(cell: Cell, *, device: Device, flops_per_s: float, gpu: str = "") -> Prediction:
    """What to expect of a cell on a device that reaches `flops_per_s` in its precision; `gpu` is the device's name."""
    return kind_of(cell).predict(cell, On(device=device, flops_per_s=flops_per_s, gpu=gpu))
