"""The GPU's clocks, power and temperature while a cell is measured, sampled by the sweep's own idle process.

    telemetry = Telemetry(run_id=run_id, cell_id=cell_id, handle=gpu_handle("cuda:0")); telemetry.sample()

NVIDIA only, through the driver's management library (NVML), which starts no CUDA context and takes no GPU time. A
counter that a board does not have is None. Limits: a container may hide the processes of others.
"""

import os
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runner.schema import TelemetryRow

#: The reasons of NVML for reduced clocks (nvml.h, nvmlClocksEventReasons), without idle and application clocks.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


@dataclass(kw_only=True)
class Telemetry:
    """Samples of one GPU during one cell; `rows` stays empty without the library or a card."""

    run_id: UUID
    cell_id: UUID
    handle: Any = None
    began: float = field(default_factory=time.monotonic)
    rows: list[TelemetryRow] = field(default_factory=list)

    def sample(self) -> None:
        """Adds one row of the driver's counters."""
        if self.handle is None:
            return
        import pynvml

        def query(name: str, *arguments: int) -> Any:
            try:
                return getattr(pynvml, name)(self.handle, *arguments)
            except pynvml.NVMLError:
                return None

        power = query("nvmlDeviceGetPowerUsage")
        reasons = query("nvmlDeviceGetCurrentClocksThrottleReasons")
        running = query("nvmlDeviceGetComputeRunningProcesses")
        self.rows.append(
            TelemetryRow(
                run_id=self.run_id,
                cell_id=self.cell_id,
                at_seconds=round(time.monotonic() - self.began, 3),
                sm_clock_mhz=query("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
                memory_clock_mhz=query("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
                power_watts=None if power is None else power / 1000,
                temperature_celsius=query("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
                throttle_reasons=None if reasons is None else format_throttles(reasons),
                foreign_processes=None if running is None else max(len(running) - 1, 0),
            )
        )


def format_throttles(reasons: int) -> str:
    """Returns NVML's bit mask in words: `power cap,hardware thermal`; empty where nothing reduces the clocks."""
    return ",".join(name for bit, name in _THROTTLES.items() if reasons & bit)


def gpu_handle(device: str) -> Any:
    """Returns NVML's handle of a CUDA device; None for any other device, or where the library cannot be used."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return None
    import pynvml

    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    name = visible[int(index or 0)] if visible else (index or "0")
    try:
        pynvml.nvmlInit()
        if name.isdigit():
            return pynvml.nvmlDeviceGetHandleByIndex(int(name))
        return pynvml.nvmlDeviceGetHandleByUUID(name)
    except pynvml.NVMLError:
        return None
