"""How often a difference between two cells of one sweep is found: a real one of about 5 %, and none at all.

    for result in judge_power(kinds, (base, wider), "step"): print(result)

Two cells are compared REPETITIONS times, each time in randomly drawn processes, as many as `--rounds auto` would take.
"""

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.analysis.costs.steps import step_flops
from runner.results.times import Clock
from runner.schema import Bound, StepCell
from tests.bench.processes import CLOCKS, Kind, bound_of, is_decided, noise_beside, take_default, times_of
from tests.bench.result import Result

#: How often two cells are compared.
REPETITIONS = 200
MAX_FALSE, MIN_FOUND = 0.01, 0.90


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two cells that were compared again and again: in how many repetitions a difference was found, the other's time
    over the base's, what bounds the base, and the mean number of rounds."""

    found: int
    times: float
    bound: Bound | None
    rounds: float


def compare_again(
    kinds: Sequence[Kind], pair: tuple[StepCell, StepCell], clock: Clock, *, apart: bool = False
) -> Iterator[Compared]:
    """Yields what came of comparing the pair in each run that measured it. The processes of a repetition are of the
    same rounds for both cells or, `apart`, of rounds drawn for each, as if two sweeps had measured them."""
    for run in sorted({kind.run for kind in kinds}):
        one, other = (next((k for k in kinds if (k.run, k.key) == (run, cell.key)), None) for cell in pair)
        if one and other and times_of(one.processes, clock) and times_of(other.processes, clock):
            yield _compare(one, other, [kind for kind in kinds if kind not in (one, other)], clock, apart=apart)


def _compare(one: Kind, other: Kind, rest: Sequence[Kind], clock: Clock, *, apart: bool) -> Compared:
    noises, order, found, used = noise_beside(one, rest, (), "step"), random.Random(one.run), 0, list[int]()
    by_round = [{process.id: process for process in kind.processes} for kind in (one, other)]
    shared = sorted(by_round[0].keys() & by_round[1].keys(), key=str)
    for _ in range(REPETITIONS):
        rounds = order.sample(shared, len(shared))
        others = order.sample(shared, len(shared)) if apart else rounds
        a = take_default([by_round[0][number] for number in rounds], noises, device=one.device)
        b = take_default([by_round[1][number] for number in others], noises, device=one.device)
        found += bool(is_decided((a, b), noise_beside(one, rest, (a, b), clock), clock))
        used += [len(a), len(b)]
    medians = [statistics.median(time.median_ms for time in times_of(kind.processes, clock)) for kind in (one, other)]
    bound = bound_of(one.processes, clock)
    return Compared(found=found, times=medians[1] / medians[0], bound=bound, rounds=statistics.fmean(used))


def judge_power(kinds: Sequence[Kind], pair: tuple[StepCell, StepCell], clock: Clock) -> Iterator[Result]:
    """Yields the share of repetitions in which the second step, which has more work, is found to be slower: in one
    sweep, and as if two had measured the steps. The goal holds for one sweep where the host is not the limit."""
    base, wider = pair
    work = step_flops(wider) / step_flops(base) - 1
    for apart in (False, True):
        for one in compare_again(kinds, pair, clock, apart=apart):
            share, has_goal = one.found / REPETITIONS, one.bound != "host" and not apart
            yield Result(
                name=f"{work:.1%} more work found, {CLOCKS[clock]}, {base.precision} {base.backend}, "
                f"{'two sweeps' if apart else 'one sweep'}",
                figure=f"{share:.0%} of {REPETITIONS} ({one.times - 1:+.1%} of time, bound by "
                f"{one.bound or 'the CPU'}, {one.rounds:.1f} rounds)",
                goal=f"at least {MIN_FOUND:.0%}" if has_goal else "",
                met=share >= MIN_FOUND if has_goal else None,
            )


def judge_twins(kinds: Sequence[Kind], pairs: Sequence[tuple[StepCell, StepCell]]) -> Iterator[Result]:
    """Yields the share of repetitions in which two equal steps of one sweep are called different."""
    found = [one for pair in pairs for one in compare_again(kinds, pair, "step")]
    if found:
        count = REPETITIONS * len(found)
        share = sum(one.found for one in found) / count
        yield Result(
            name="equal cells called different, waited for, same rounds of one sweep",
            figure=f"{share:.1%} of {count} pairs of {len(found)} steps",
            goal=f"at most {MAX_FALSE:.0%}",
            met=share <= MAX_FALSE,
        )
