"""Which cells of a sweep get one more round: those whose time is not known well enough yet.

    further = FurtherRounds(prepared)
    further.record(item, measured)              # every cell that was measured
    while items := further.next_round(): ...    # the cells to measure next, each in a fresh process

Enough is a 95% interval of the mean over processes of ±2%, on a CPU ±1% (`Goal`). The noise between processes is
that of the sweep's own repeated cells of the same kind. Steps and attention are separate kinds; on CUDA so
are host-bound and device-bound cells. Where a kind's noise is not known well yet, only its PROBES cheapest undecided
cells are measured again at first, since what they show may decide the others.

All further rounds together take no longer than MAX_SHARE of what the timed cells took in the first round, or than
SHORT_SECONDS, which a small sweep may take to be decided. What compiled cells took does not count, because it is mostly
the compiler's; they are measured again, too. So the cells decide how long a sweep takes, and not how noisy the machine
is; `--rounds 5` measures more.
"""

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.analysis.noise import MAX_NOISE_DOF, MIN_CELLS, estimate_noise
from runner.analysis.statistics import estimate
from runner.plan.planning import (
    CANARY_SECONDS,
    MAX_CANARY,
    MAX_CELL_SECONDS,
    ON_CPU,
    USUAL,
    Goal,
    repeatable_keys,
    shuffle,
    spread,
    starts_cold,
)
from runner.results.times import Noise, RoundTime, pool_bounds
from runner.schema import Bound, table_of
from runner.store.history import CellRound, MeasuredRound
from runner.sweep.prepare import Expected, Prepared

#: The time that all further rounds may take together, as a share of what timed cells took in the first.
MAX_SHARE = 0.5
#: The time (s) that they may take even if that is a larger share.
SHORT_SECONDS = 120.0
#: How many cells of a kind are measured again while little is known of its noise.
PROBES = 4

#: The cells whose times are taken to be equally noisy: those of one table that are bound by the same.
Kind = tuple[str, Bound | None]


@dataclass(frozen=True, kw_only=True)
class TimedCell:
    """A timed cell: its table, what bounds it, its time in each round so far, and how long one more round takes (s)."""

    key: str
    table: str
    bound: Bound | None
    times: tuple[RoundTime, ...]
    seconds: float

    @property
    def kind(self) -> Kind:
        return self.table, self.bound


def measure_noise(cells: Sequence[TimedCell]) -> dict[Kind, Noise]:
    """Returns the noise between processes of each kind of which a cell has several rounds."""
    repeated: dict[Kind, list[tuple[int, float]]] = {}
    for cell in cells:
        if len(cell.times) > 1:
            variance = statistics.variance(math.log(time.median_ms) for time in cell.times)
            repeated.setdefault(cell.kind, []).append((len(cell.times), variance))
    found = {kind: estimate_noise(variances) for kind, variances in repeated.items()}
    return {kind: noise for kind, noise in found.items() if noise is not None}


def half_width(cell: TimedCell, noise: Noise | None) -> float:
    """Returns how far the cell's 95% interval reaches above its time, as a share of that; infinite if unknown. The time
    is the one by which the cell is compared."""
    found = estimate(cell.times, noise)
    time = found.undisturbed or found
    return math.inf if time.high_ms is None else time.high_ms / time.ms - 1


def goal_on(device: str) -> Goal:
    """Returns when a cell has enough rounds on `cuda`, `cpu` or `mps`."""
    return ON_CPU if device == "cpu" else USUAL


def choose_cells(cells: Sequence[TimedCell], *, seconds_left: float, goal: Goal = USUAL) -> list[TimedCell]:
    """Returns the cells short of the goal that get another round, which together take no longer than `seconds_left`:
    those of the widest intervals where there is not time for all."""
    noise = measure_noise(cells)
    widths = {cell.key: half_width(cell, noise.get(cell.kind)) for cell in cells if len(cell.times) < goal.rounds}
    undecided = [cell for cell in cells if widths.get(cell.key, 0.0) > goal.width]
    kinds = {kind: [cell for cell in undecided if cell.kind == kind] for kind in {cell.kind for cell in undecided}}
    chosen = [cell for kind, of_kind in kinds.items() for cell in _probe(of_kind, noise.get(kind))]
    left, fitting = seconds_left, []
    for cell in sorted(chosen, key=lambda cell: (-widths[cell.key], cell.seconds, cell.key)):
        if cell.seconds <= left:
            fitting.append(cell)
            left -= cell.seconds
    return fitting


def _probe(undecided: Sequence[TimedCell], noise: Noise | None) -> Sequence[TimedCell]:
    """Returns the undecided cells of a kind, of which only the cheapest while little is known of its noise."""
    if noise and (noise.dof >= MAX_NOISE_DOF or noise.cells >= MIN_CELLS):
        return undecided
    return sorted(undecided, key=lambda cell: (cell.seconds, cell.key))[:PROBES]


class FurtherRounds:
    """The rounds of a sweep beyond those of its plan. There are none where the number of rounds was given."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._goal = goal_on(prepared.machine["device"])
        self._planned = {item.id: item for item in prepared.cells}
        self._added: dict[CellRound, Expected] = {}
        self._rounds: dict[str, dict[int, MeasuredRound]] = {key: {} for key, _ in self._planned}
        for (key, number), measured in prepared.done.items():
            if key in self._rounds:
                self._rounds[key][number] = measured
        firsts = {item.cell.key: item for item in prepared.cells if item.round == 0}
        keys = repeatable_keys(item.cell for item in firsts.values())
        self._repeatable = {key: item for key, item in firsts.items() if prepared.is_auto and key in keys}

    def record(self, item: Expected, measured: MeasuredRound) -> None:
        key, number = item.id
        self._rounds[key][number] = measured

    def next_round(self) -> list[Expected]:
        """Returns the cells to measure once more, in the order of measuring; none once all are decided, have
        the most rounds, or took their share of time. The canary comes last, if not earlier too."""
        cells = {}
        for key, item in self._repeatable.items():
            rounds = list(self._rounds[key].values())
            times = tuple(one.time for one in rounds if one.status == "ok" and one.time)
            seconds = min((one.seconds for one in rounds), default=math.inf)
            if len(times) == len(rounds) and seconds <= MAX_CELL_SECONDS:
                bound = pool_bounds(one.bound for one in rounds)
                table = table_of(item.cell).name
                cells[key] = TimedCell(key=key, table=table, bound=bound, times=times, seconds=seconds)
        left = self._share_seconds() - self._spent_seconds()
        chosen = choose_cells(list(cells.values()), goal=self._goal, seconds_left=left)
        if not chosen:
            return []
        order = random.Random(f"{self._prepared.machine['host']} {sum(map(len, self._rounds.values()))}")
        canary = self._prepared.cells[0].cell.key
        items = shuffle([self._repeat(cell.key) for cell in chosen if cell.key != canary], order)
        if canary in cells:
            items = self._add_canary(items, canary)
        self._added |= {item.id: item for item in items}
        return items

    def seconds_left(self) -> float:
        """Estimates the seconds of the rounds that are not decided on yet: a quarter of those that a cell may get, for
        each that is host-bound or runs on a CPU, whose times differ between processes."""
        on_cuda = self._prepared.machine["device"] == "cuda"
        bounds = ((item, [one.bound for one in self._rounds[key].values()]) for key, item in self._repeatable.items())
        noisy = (item for item, of_item in bounds if not on_cuda or pool_bounds(of_item) == "host")
        expected = min(self._share_seconds(), (self._goal.rounds - 1) // 4 * sum(map(self._seconds, noisy)))
        owed = (item for (key, number), item in self._added.items() if number not in self._rounds[key])
        return max(0.0, expected - self._spent_seconds() - sum(map(self._seconds, owed)))

    def most_seconds(self) -> float:
        """Returns how long they can take at most (s)."""
        counts, most = Counter(key for key, _ in self._planned), self._goal.rounds
        more = sum(max(0, most - counts[key]) * self._seconds(item) for key, item in self._repeatable.items())
        return max(0.0, min(self._share_seconds(), more) - self._spent_seconds())

    def _repeat(self, key: str, *, later: int = 0) -> Expected:
        """Returns the cell in its next round, or in one that is so many `later`, with what that will take; of a cell
        that compiled, without that."""
        item = self._repeatable[key]
        item = replace(item, round=max(self._rounds[key]) + 1 + later)
        seconds = self._seconds(item) if starts_cold(item.cell) else item.predicted.seconds
        return replace(item, predicted=replace(item.predicted, seconds=seconds))

    def _add_canary(self, items: list[Expected], canary: str) -> list[Expected]:
        """Returns the items with the canary as the last, and every CANARY_SECONDS before."""
        seconds = {item.cell.key: self._seconds(item) for item in items}
        count = min(MAX_CANARY, max(1, int(sum(seconds.values()) // CANARY_SECONDS)))
        repeats = [((number + 1) / count, self._repeat(canary, later=number)) for number in range(count)]
        return spread(items, repeats, seconds)

    def _share_seconds(self) -> float:
        """Returns how long all further rounds may take (s)."""
        timed = (item for (key, _), item in self._planned.items() if key in self._repeatable)
        steady = (item for item in timed if not getattr(item.cell, "backend", "").startswith("compiled"))
        return max(SHORT_SECONDS, MAX_SHARE * sum(map(self._seconds, steady)))

    def _spent_seconds(self) -> float:
        """Returns how long they took so far (s), in earlier sweeps too."""
        rounds = ((key, number, one) for key, found in self._rounds.items() for number, one in found.items())
        return sum(one.seconds for key, number, one in rounds if (key, number) not in self._planned)

    def _seconds(self, item: Expected) -> float:
        """Returns what the cell took in that round or in any (s), or will take by the forecast."""
        key, number = item.id
        rounds = self._rounds[key]
        if rounds:
            return (rounds.get(number) or next(iter(rounds.values()))).seconds
        return self._prepared.forecast.left(item.cell, item.predicted.seconds)
