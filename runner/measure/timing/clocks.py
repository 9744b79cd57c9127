"""The times of a step without waiting for it, and whether the device or the host sets the pace.

    clocks = Clocks(loop_ms={"step": 36.0}, device_ms={"step": 11.2})
    clocks.bound, clocks.device_share      ->  "host", 0.311...

Both are known on CUDA only. Limits: a share close to the limit falls to either side by chance; the row keeps the share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.results.times import find_bound
from runner.schema import Bound, Phase


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The median of each phase and sum of a step in a loop, and what the device needs for it (ms). Empty where
    unknown. `seconds` is how long finding them took."""

    loop_ms: Mapping[Phase, float] = field(default_factory=dict)
    device_ms: Mapping[Phase, float] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def device_share(self) -> float | None:
        """Device time over loop time of the whole step; None where one of them is unknown."""
        if "step" not in self.loop_ms or "step" not in self.device_ms:
            return None
        return self.device_ms["step"] / self.loop_ms["step"]

    @property
    def bound(self) -> Bound | None:
        """What sets the time of a step in a loop."""
        return find_bound(self.loop_ms.get("step"), self.device_ms.get("step"))


#: The clocks of a step that was only waited for.
UNKNOWN = Clocks()
