"""Holds times over rounds: the time of one process, the noise between processes, and the estimate for the next one;
and cells that one run measured in several processes, from which noise and drift of a machine are estimated
(`runner.analysis.statistics`).

Standard library and the schema only.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from runner.schema import Bound, Phase

#: How a step is timed: on its own with a synchronization, in a loop without any, or by the device's work alone.
Clock = Literal["step", "loop", "device"]
#: The column of `timings` for each clock.
COLUMNS: Mapping[Clock, str] = {"step": "median_ms", "loop": "loop_ms", "device": "device_ms"}

#: A device that works for this share of a time sets it.
DEVICE_BOUND = 0.95
#: How far the device time may be from that of the same work without gaps: on an H200, at one speed, twelve kinds of
#: cells had 1% less to 2% more than their CUDA graphs.
DEVICE_ACCURACY = 0.02


def find_bound(ms: float | None, device_ms: float | None) -> Bound | None:
    """Returns what sets a time: the device, where it works for 95% of it or more, else the host, for which it waits.
    None where the device time is not known."""
    if not ms or device_ms is None:
        return None
    return "device" if device_ms >= DEVICE_BOUND * ms else "host"


def pool_bounds(bounds: Iterable[Bound | None]) -> Bound | None:
    """Returns what sets the time of a cell over its rounds: the host where it does in any of them."""
    return max((bound for bound in bounds if bound), default=None)


def find_shift(ms: float | None, device_ms: float | None) -> float:
    """Returns ln(device time / time) where a time is shorter than the device's own work can be, else 0.

    Such a time was taken at another speed of the device. An H200 has two, at the same clock, between which it changes
    after some seconds of load: steps of large matrix products take 3 to 8% less at the higher one, and tracing, which
    pauses between steps, finds the lower one."""
    if not ms or not device_ms or device_ms <= (1 + DEVICE_ACCURACY) * ms:
        return 0.0
    return math.log(device_ms / ms)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A standard deviation of ln(median), or of its mean over rounds, as certain as one from `dof` + 1 rounds."""

    std: float
    dof: float


@dataclass(frozen=True, kw_only=True)
class Noise(Spread):
    """The standard deviation of ln(median) from one process to the next, for cells of one kind on one machine, from
    `cells` repeated cells. Where these differ in it, `std` is the scale of its distribution and `typical` the geometric
    mean. `within_rounds` is that between the cells of one round, which a machine that becomes slower slows
    alike: the mean over cells, which may exceed the scale; None where no run repeated two cells of the kind."""

    cells: int
    within_rounds: Spread | None = None
    typical: float | None = None


#: A round of a run. Its cells are measured one after the other, in shuffled order.
RoundId = tuple[UUID, int]


@dataclass(frozen=True, kw_only=True)
class RoundTime:
    """The time of one phase in one process, in ms: its median, the 95% interval of that within the process (None for
    fewer than 6 samples), the number of samples, and the round in which it was measured, where that is known.
    `device_ms` is the device's own work in that process, where it was traced, `device_uuid` the GPU, where it has a
    number, and `undisturbed_ms` the 10th percentile of the samples on a CPU."""

    median_ms: float
    low_ms: float | None = None
    high_ms: float | None = None
    n: int | None = None
    id: RoundId | None = None
    device_ms: float | None = None
    device_uuid: str | None = None
    undisturbed_ms: float | None = None

    @property
    def undisturbed(self) -> "RoundTime | None":
        """The undisturbed time as the time of the process; None where it is not known."""
        return RoundTime(median_ms=self.undisturbed_ms, n=self.n, id=self.id) if self.undisturbed_ms else None

    @property
    def shift(self) -> float:
        """How much longer it would have been at the speed at which the device was traced (`find_shift`)."""
        return find_shift(self.median_ms, self.device_ms)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A time over the processes that measured it: the geometric mean of their medians in ms, of many without the
    outermost, and its 95% interval.

    `std` is the standard deviation of ln(median) from one process to the next, known with `dof` degrees of freedom, and
    `error` that of its mean. They and the interval are None where they are not known: with one process on a machine
    without repeated cells of the kind, or with fewer than 6 samples. `medians` are those of the rounds, where they are
    known, and `within` is the standard deviation of ln(median) that the samples within a process account for. `shift`
    is the mean of the rounds'; the interval reaches up by so much more. `devices` are the shares of the rounds
    by GPU, None where that has no number, and `undisturbed` is the estimate from the undisturbed times of six or more
    processes on a CPU."""

    ms: float
    rounds: int
    low_ms: float | None = None
    high_ms: float | None = None
    std: float | None = None
    dof: float = 0.0
    error: Spread | None = None
    noise: Noise | None = None
    medians: Mapping[RoundId, float] = field(default_factory=dict)
    within: float = 0.0
    shift: float = 0.0
    devices: Mapping[str | None, float] = field(default_factory=dict)
    undisturbed: "Estimate | None" = None


@dataclass(frozen=True, kw_only=True)
class PhaseTime:
    """One phase of one cell over its rounds, by the step's clock. `mean_ms` is the mean of the rounds' means, `std_ms`
    the standard deviation within a process. `others` are its times by other clocks, where they were measured."""

    step: Estimate
    mean_ms: float | None = None
    std_ms: float | None = None
    n: int | None = None
    others: Mapping[Clock, Estimate] = field(default_factory=dict)

    def by(self, clock: Clock) -> Estimate | None:
        """Returns the time by this clock, or None where it was not taken."""
        return self.step if clock == "step" else self.others.get(clock)


class TimesByPhase(Mapping[Phase, PhaseTime]):
    """The times of a cell by phase. Each is estimated when it is first asked for, because a page shows few of the cells
    that it has loaded for all filters."""

    def __init__(self, estimates: Mapping[Phase, Callable[[], PhaseTime]]) -> None:
        self._estimates = estimates
        self._known: dict[Phase, PhaseTime] = {}

    def __getitem__(self, phase: Phase) -> PhaseTime:
        if phase not in self._known:
            self._known[phase] = self._estimates[phase]()
        return self._known[phase]

    def __contains__(self, phase: object) -> bool:
        return phase in self._estimates

    def __iter__(self) -> Iterator[Phase]:
        return iter(self._estimates)

    def __len__(self) -> int:
        return len(self._estimates)


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """One process that measured a cell: when it was started (UTC), and its time of a whole step."""

    cell_id: UUID
    round: int
    started_at: datetime | None
    time: RoundTime


@dataclass(frozen=True, kw_only=True)
class RepeatedCell:
    """A cell of a table that one run measured in several processes, in their order. `bound` is what sets its time: the
    host where it does in any round."""

    table: str
    machine: str
    run_id: UUID
    cell: Any
    bound: Bound | None
    rounds: tuple[Repetition, ...]

    @property
    def cell_id(self) -> UUID:
        return self.rounds[0].cell_id

    @property
    def started(self) -> list[datetime]:
        """When each of its processes was started, as far as that is known."""
        return [one.started_at for one in self.rounds if one.started_at is not None]
