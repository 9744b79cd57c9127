"""The processes that measured the cells of a results file, and what Compare would decide of them: for the noise bench.

kinds = load_kinds(Path("noise.duckdb"))
is_decided((kinds[0].processes[:3], kinds[0].processes[3:6]), noises, "step")
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.analysis.statistics import estimate, ratio
from runner.plan.planning import ROUNDS
from runner.results.times import Clock, Noise, RoundId, RoundTime, find_bound, pool_bounds
from runner.schema import Bound
from runner.store.database import open_reader
from runner.sweep.rounds import TimedCell, goal_on, half_width, measure_noise
from tests.rounds import estimate_within_rounds

CLOCKS: Mapping[Clock, str] = {"step": "waited for", "loop": "in a loop", "device": "device time"}


@dataclass(frozen=True, kw_only=True)
class Process:
    """One cell in one process: its round, and the times of its whole steps by each clock."""

    id: RoundId
    times: Mapping[Clock, RoundTime]

    def bound(self, clock: Clock) -> Bound | None:
        """Returns what bounds the time by this clock."""
        ms, device_ms = (self.times[name].median_ms if name in self.times else None for name in (clock, "device"))
        return find_bound(ms, device_ms)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One cell of one run, measured on `cuda`, `cpu` or `mps`; its processes are in the order of their rounds."""

    run: str
    device: str
    table: str
    key: str
    processes: tuple[Process, ...]


def bound_of(processes: Sequence[Process], clock: Clock) -> Bound | None:
    """Returns what bounds a cell's time by this clock: the host, if it does so in any process."""
    return pool_bounds(one.bound(clock) for one in processes)


def load_kinds(db: Path) -> list[Kind]:
    """Returns every timed cell of the file with status ok in at least two processes."""
    found: dict[tuple[str, str, str, str], list[Process]] = {}
    with open_reader(db) as reader:
        for table in ("steps", "attention"):
            rows = reader.execute(
                "SELECT c.run_id, r.device, c.cell_key, c.round, "
                "t.n, t.low_ms, t.high_ms, t.undisturbed_ms, t.median_ms, t.loop_ms, t.device_ms "
                f"FROM {table} c JOIN timings t USING (cell_id) JOIN runs r ON r.run_id = c.run_id "
                "WHERE c.status = 'ok' AND t.phase = 'step' "
                "ORDER BY c.run_id, c.round, c.cell_id"
            ).fetchall()
            for run, device, key, number, n, low, high, alone, *values in rows:
                known = [(clock, ms) for clock, ms in zip(CLOCKS, values, strict=True) if ms]
                device_ms = dict(known).get("device")
                times = {
                    clock: RoundTime(median_ms=ms, n=n, id=(run, number), device_ms=device_ms) for clock, ms in known
                }
                if "step" in times:
                    times["step"] = replace(times["step"], low_ms=low, high_ms=high, undisturbed_ms=alone)
                found.setdefault((str(run), device, table, key), []).append(Process(id=(run, number), times=times))
    return [
        Kind(run=run, device=device, table=table, key=key, processes=tuple(processes))
        for (run, device, table, key), processes in found.items()
        if len(processes) > 1
    ]


def noise_beside(kind: Kind, kinds: Sequence[Kind], sides: Sequence[Sequence[Process]], clock: Clock) -> "Noises":
    """Returns the noise, by what bounds a cell, that a file with default settings would show: that of the other kinds
    of the run and table, each in ROUNDS rounds, and of the sides themselves."""
    beside = [one.processes[:ROUNDS] for one in kinds if (one.run, one.table) == (kind.run, kind.table) and one != kind]
    cells = [
        TimedCell(key="", table=kind.table, bound=bound_of(found, clock), times=times_of(found, clock), seconds=0.0)
        for found in (*beside, *sides)
    ]
    found = {}
    for (_, bound), noise in measure_noise(cells).items():
        repeated = [cell.times for cell in cells if cell.bound == bound and len(cell.times) > 1]
        found[bound] = replace(noise, within_rounds=estimate_within_rounds(repeated))
    return found


Noises = Mapping[Bound | None, Noise]
Sides = tuple[Sequence[Process], Sequence[Process]]


def times_of(processes: Sequence[Process], clock: Clock) -> tuple[RoundTime, ...]:
    return tuple(one.times[clock] for one in processes if clock in one.times)


def is_decided(sides: Sides, noises: Noises, clock: Clock) -> bool | None:
    """Returns whether Compare calls the sides different; None if one of them has no time by the clock."""
    times = [times_of(side, clock) for side in sides]
    if not all(times):
        return None
    a, b = (estimate(found, noises.get(bound_of(side, clock))) for found, side in zip(times, sides, strict=True))
    return ratio(a, b).outcome != "same"


def take_default(processes: Sequence[Process], noises: Noises, *, device: str) -> Sequence[Process]:
    """Returns the first processes, as many as `--rounds auto` measures with time: until the interval is narrow."""
    goal = goal_on(device)
    for count in range(1, min(goal.rounds, len(processes))):
        bound, times = bound_of(processes[:count], "step"), times_of(processes[:count], "step")
        cell = TimedCell(key="", table="steps", bound=bound, times=times, seconds=0)
        if half_width(cell, noises.get(bound)) <= goal.width:
            return processes[:count]
    return processes[: goal.rounds]
