"""Times of cells over their rounds, and the noise of the machines that measured them: where every interval begins.

    cells = with_times(reader, "steps", cells)          # cells[0].times["step"].low_ms
    noise = load_noise(reader, "steps", machines)       # {NoiseKind(machine="H200 · node1", bound="host", …): Noise(…)}

The noise of a kind of cell is what its cells showed that were measured in several rounds of one run. On CUDA the times
that the host sets are one kind and those that the device sets another, because the first vary many times as much;
elsewhere all cells of a machine are one kind. Each phase and each clock is a kind of its own: a step may wait for the
host where the loop does not.

What is left of the noise within rounds is that of the same cells, without what all cells of a round share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, get_args
from uuid import UUID

import duckdb

from runner.analysis.noise import MIN_STD, Repeats, pool_changes, pool_noise
from runner.analysis.statistics import estimate
from runner.results import Clock, Estimate, Noise, PhaseTime, RoundTime, TimedResult
from runner.results.times import COLUMNS, DEVICE_BOUND, RoundId, find_bound, pool_bounds
from runner.schema import Bound, Phase
from runner.store.queries.fetch import fetch
from runner.store.queries.selection import MACHINE
from runner.store.remembered import remember


@dataclass(frozen=True, kw_only=True)
class NoiseKind:
    """The times that are taken to be equally noisy: those of one machine, with one bound, in one phase, by one
    clock."""

    machine: str
    bound: Bound | None
    phase: Phase
    clock: Clock = "step"


@dataclass(frozen=True, kw_only=True)
class _Repeated:
    """The repeated cells of one kind with the same number of rounds; and, of all of the kind, sums over pairs of
    successive rounds: of cells - 1, and of that times the variance of the cells' changes."""

    kind: NoiseKind
    repeats: Repeats
    change_squares: float
    change_dof: int


_PHASES = ", ".join(f"'{phase}'" for phase in get_args(Phase))
#: Cells have a number and phases are an enum, because ids, keys and names of a million times took 430 MB.
_REPEATED = f"""
    WITH repeated AS (
        SELECT row_number() OVER () AS cell, run_id, cell_key FROM (
            SELECT run_id, cell_key FROM {{table}} SEMI JOIN (FROM runs r WHERE {MACHINE} = $machine) USING (run_id)
            WHERE status = 'ok' GROUP BY run_id, cell_key HAVING count(*) > 1)),
    measured AS (
        SELECT cell, cell_id, round FROM {{table}} JOIN repeated USING (run_id, cell_key) WHERE status = 'ok'),
    by_clock AS NOT MATERIALIZED (
        SELECT m.cell, m.cell_id, m.round, CAST(t.phase AS ENUM ({_PHASES})) AS phase, t.device_ms,
            unnest($clocks) AS clock, unnest([{", ".join(f"t.{column}" for column in COLUMNS.values())}]) AS ms
        FROM measured m JOIN timings t USING (cell_id)),
    cells AS (
        SELECT phase, clock, cell, count(*) AS rounds, greatest(var_samp(ln(ms)), $least) AS variance,
            max(if(device_ms < $bound * ms, 'host', 'device')) FILTER (device_ms IS NOT NULL) AS bound
        FROM by_clock WHERE ms > 0 GROUP BY phase, clock, cell HAVING count(*) > 1),
    repeats AS (
        SELECT phase, clock, bound, rounds, count(*) AS cells, sum(variance) AS variances, sum(ln(variance)) AS logs,
            sum(ln(variance) * ln(variance)) AS log_squares
        FROM cells GROUP BY ALL),
    changes AS (
        SELECT cell, phase, clock, lag(round) OVER rounds AS before, round AS after,
            ln(ms) - lag(ln(ms)) OVER rounds AS change
        FROM by_clock WHERE ms > 0 WINDOW rounds AS (PARTITION BY phase, clock, cell ORDER BY round, cell_id)),
    shared AS (
        SELECT phase, clock, bound, count(*) - 1 AS dof, var_samp(change) AS variance
        FROM changes JOIN cells USING (phase, clock, cell) JOIN repeated USING (cell)
        WHERE change IS NOT NULL GROUP BY phase, clock, bound, run_id, before, after HAVING count(*) > 1),
    left_over AS (
        SELECT phase, clock, bound, sum(dof * variance) AS change_squares, CAST(sum(dof) AS BIGINT) AS change_dof
        FROM shared GROUP BY ALL)
    SELECT $machine AS machine, t.*, coalesce(l.change_squares, 0) AS change_squares,
        coalesce(l.change_dof, 0) AS change_dof
    FROM repeats t LEFT JOIN left_over l
        ON (t.phase, t.clock) = (l.phase, l.clock) AND t.bound IS NOT DISTINCT FROM l.bound
    ORDER BY t.phase, t.clock, t.bound, t.rounds"""


def load_noise(reader: duckdb.DuckDBPyConnection, table: str, machines: Iterable[str]) -> Mapping[NoiseKind, Noise]:
    """Returns the noise of each kind that the repeated cells of a table show on these machines."""
    found: dict[NoiseKind, Noise] = {}
    for machine in sorted(machines):
        found |= remember(reader, f"noise of {table} on {machine}", partial(_compute_noise, reader, table, machine))
    return found


def _compute_noise(reader: duckdb.DuckDBPyConnection, table: str, machine: str) -> Mapping[NoiseKind, Noise]:
    clocks = list(get_args(Clock))
    parameters = {"clocks": clocks, "bound": DEVICE_BOUND, "machine": machine, "least": MIN_STD**2}
    by_kind: dict[NoiseKind, list[_Repeated]] = {}
    for one in fetch(reader, _REPEATED.format(table=table), parameters, kind=_Repeated):
        by_kind.setdefault(one.kind, []).append(one)
    noise = {kind: _pool(found) for kind, found in by_kind.items()}
    return {kind: value for kind, value in noise.items() if value is not None}


def _pool(found: Sequence[_Repeated]) -> Noise | None:
    """Returns the noise of one kind."""
    within = pool_changes(found[0].change_squares, dof=found[0].change_dof)
    return pool_noise([one.repeats for one in found], within_rounds=within)


@dataclass(frozen=True, kw_only=True)
class _PhaseRounds:
    """The rounds of one phase of a cell: one value a round in each tuple."""

    machine: str
    cell_key: str
    bound: Bound | None
    phase: Phase
    runs: tuple[UUID, ...]
    rounds: tuple[int, ...]
    medians: tuple[float, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]
    counts: tuple[int | None, ...]
    loops: tuple[float | None, ...]
    devices: tuple[float | None, ...]
    undisturbed: tuple[float | None, ...]
    mean_ms: float | None
    std_ms: float | None
    n: int | None

    @property
    def ids(self) -> list[RoundId]:
        return list(zip(self.runs, self.rounds, strict=True))

    def by_step(self) -> list[RoundTime]:
        """Returns the rounds by the step's clock."""
        columns = zip(
            self.medians, self.lows, self.highs, self.counts, self.ids, self.devices, self.undisturbed, strict=True
        )
        return [
            RoundTime(median_ms=ms, low_ms=low, high_ms=high, n=n, id=id, device_ms=device_ms, undisturbed_ms=alone)
            for ms, low, high, n, id, device_ms, alone in columns
        ]

    def time(self, noise: Mapping[NoiseKind, Noise]) -> PhaseTime:
        """Returns the time over the rounds."""
        others: dict[Clock, Estimate] = {}
        taken: Mapping[Clock, tuple[float | None, ...]] = {"loop": self.loops, "device": self.devices}
        for clock, values in taken.items():
            columns = zip(values, self.counts, self.ids, self.devices, strict=True)
            known = [RoundTime(median_ms=ms, n=n, id=id, device_ms=device) for ms, n, id, device in columns if ms]
            if known:
                others[clock] = estimate(known, noise.get(self._kind(clock, values)))
        step = estimate(self.by_step(), noise.get(self._kind("step", self.medians)))
        return PhaseTime(step=step, mean_ms=self.mean_ms, std_ms=self.std_ms, n=self.n, others=others)

    def _kind(self, clock: Clock, times: Sequence[float | None]) -> NoiseKind:
        bounds = map(find_bound, times, self.devices)
        return NoiseKind(machine=self.machine, bound=pool_bounds(bounds), phase=self.phase, clock=clock)


_LISTED = {"runs": "c.run_id", "rounds": "c.round", "medians": "t.median_ms", "lows": "t.low_ms", "highs": "t.high_ms",
           "counts": "t.n", "loops": "t.loop_ms", "devices": "t.device_ms",
           "undisturbed": "t.undisturbed_ms"}  # fmt: skip
_TIMES = f"""
    WITH rounds AS (SELECT c.machine, c.cell_key, c.round, cell_id, s.run_id, s.bound FROM chosen c
        JOIN {{table}} s USING (cell_id) WHERE c.status = 'ok')
    SELECT c.machine, c.cell_key, max(bound) AS bound, t.phase,
        {", ".join(f"list({column} ORDER BY c.round, c.cell_id) AS {name}" for name, column in _LISTED.items())},
        avg(t.mean_ms) AS mean_ms, sqrt(avg(t.std_ms * t.std_ms)) AS std_ms, CAST(sum(t.n) AS BIGINT) AS n
    FROM rounds c JOIN timings t USING (cell_id) WHERE t.median_ms IS NOT NULL GROUP BY c.machine, c.cell_key, t.phase
    ORDER BY c.machine, c.cell_key,
        list_position(['forward', 'loss', 'backward', 'optimizer', 'forward_backward', 'step'], t.phase)"""


R = TypeVar("R", bound=TimedResult)


Times = dict[Phase, PhaseTime]
#: The bound of a cell and its times, by machine and cell key.
TimesByCell = dict[tuple[str, str], tuple[Bound | None, Times]]


def load_times(reader: duckdb.DuckDBPyConnection, table: str) -> TimesByCell:
    """Returns the bounds and the times of the cells of the temporary table `chosen`, by machine and cell key."""
    rows, found = fetch(reader, _TIMES.format(table=table), kind=_PhaseRounds), TimesByCell()
    noise = load_noise(reader, table, {one.machine for one in rows})
    for one in rows:
        found.setdefault((one.machine, one.cell_key), (one.bound, {}))[1][one.phase] = one.time(noise)
    return found


def with_times(reader: duckdb.DuckDBPyConnection, table: str, cells: Sequence[R]) -> list[R]:
    """Returns the cells of the temporary table `chosen` with their times and bounds."""
    found, none = load_times(reader, table), (None, Times())
    known = [(cell, *found.get((cell.machine, cell.cell_key), none)) for cell in cells]
    return [replace(cell, bound=bound, times=times) for cell, bound, times in known]
