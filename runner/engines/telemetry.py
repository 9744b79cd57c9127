"""What was the GPU doing while a cell was measured? Sampled from outside the worker, by the sweep's own idle process.

    telemetry = Telemetry(run_id=run_id, cell_id=cell_id, handle=gpu_handle("cuda:0")); telemetry.sample()

NVIDIA only, through the driver's management library (NVML), which starts no CUDA context and costs the GPU nothing. A
counter that a board does not have is None. Limits: a container may hide what other containers run.
"""

import os
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runner.schema import TelemetryRow

#: NVML's names for why clocks are held down (nvml.h, nvmlClocksEventReasons); idle and application clocks are no fault.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


@dataclass(kw_only=True)
class Telemetry:
    """Samples of one GPU during one cell; `rows` is empty where there is no such library or card."""

    run_id: UUID
    cell_id: UUID
    handle: Any = None
    began: float = field(default_factory=time.monotonic)
    rows: list[TelemetryRow] = field(default_factory=list)

    def sample(self) -> None:
        """One row of what the driver says now."""
        if self.handle is None:
            return
        import pynvml

        def ask(name: str, *arguments: Any) -> Any:
            try:
                return getattr(pynvml, name)(*arguments)
            except pynvml.NVMLError:
                return None

        power = ask("nvmlDeviceGetPowerUsage", self.handle)
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", self.handle)
        running = ask("nvmlDeviceGetComputeRunningProcesses", self.handle)
        self.rows.append(
            TelemetryRow(
                run_id=self.run_id,
                cell_id=self.cell_id,
                at_seconds=round(time.monotonic() - self.began, 3),
                sm_clock_mhz=ask("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_SM),
                memory_clock_mhz=ask("nvmlDeviceGetClockInfo", self.handle, pynvml.NVML_CLOCK_MEM),
                power_watts=None if power is None else power / 1000,
                temperature_celsius=ask("nvmlDeviceGetTemperature", self.handle, pynvml.NVML_TEMPERATURE_GPU),
                throttle_reasons=None if reasons is None else throttles(reasons),
                foreign_processes=None if running is None else max(len(running) - 1, 0),
            )
        )


def throttles(reasons: int) -> str:
    """NVML's bit mask in words: `power cap,hardware thermal`; empty where nothing holds the clocks down."""
    return ",".join(name for bit, name in _THROTTLES.items() if reasons & bit)


def gpu_handle(device: str) -> Any:
    """NVML's handle of a CUDA device; None for any other device, or where the library cannot be used."""
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
