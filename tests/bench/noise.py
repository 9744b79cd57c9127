"""Does Compare call equal cells different, and does it find a real difference? A/A tests and power on this machine.

    python -m tests.bench noise --seconds 300
    python -m tests.bench noise --seconds 300 --db noise.duckdb      # run again, it continues where it stopped
    python -m tests.bench noise --seconds 0 --db noise.duckdb        # measures nothing, evaluates the existing rows

A real sweep measures several kinds of cells, each in PROCESSES fresh processes, interleaved, and keeps every row in a
results file. For each kind, all disjoint pairs of sides are then compared as Compare does it, with the noise of the
other kinds: with one process a side, with three, and with as many as `--rounds auto` would take. In a file of several
machines, such as one into which others were imported, each machine is evaluated by itself.

Power is estimated on a train step compared with the same step with a wider feed-forward layer, chosen to take about 5 %
more time. Both are measured in the same rounds, as cells of one sweep are, and compared round by round; and, for
comparison, as if two sweeps had measured them. On a CPU the first is done with equal steps, too: two that differ in
nothing but a hundredth of their time limit, so that they are two cells. Limits: the pairs of one kind share processes,
so they are not independent.
"""

import itertools
import math
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runner.analysis.costs.steps import step_flops
from runner.analysis.statistics import estimate, ratio
from runner.cli.progress import SweepLines
from runner.cli.terminal import Terminal
from runner.engines.local import LocalEngine
from runner.formats import format_number
from runner.plan.planning import ROUNDS, Request
from runner.results.times import Clock, Noise, RoundId, RoundTime, find_bound, pool_bounds
from runner.schema import Attention, AttentionCell, Bound, Cell, StepCell
from runner.schema.sizes import size_named
from runner.store.database import open_reader
from runner.sweep.request import Settings
from runner.sweep.rounds import TimedCell, goal_on, half_width, measure_noise
from runner.sweep.start import sweep
from tests.bench.result import Result
from tests.rounds import estimate_within_rounds

#: How many processes measure a cell: on a CPU enough to draw the rounds of `--rounds auto` from them.
PROCESSES = {"cuda": 8, "cpu": 36, "mps": 8}
#: How often two cells are compared for power.
REPETITIONS = 200
MAX_FALSE, MIN_FOUND = 0.01, 0.90
CLOCKS: Mapping[Clock, str] = {"step": "waited for", "loop": "in a loop", "device": "device time"}
SECONDS = 400.0
#: Of so many processes every pair of sides is compared.
MOST = 8
#: How much more work the wider step has on a CPU, where 5 % more took 2 to 7 % more time, 3.5 % on a quiet one. With 15
#: threads 7 % more took no more time that could be told (0.6 %): evaluate power on a CPU with few.
MORE_ON_CPU = 0.07
BOTH = ("fp32", "bf16")
#: On CUDA: size, mode, backend, precisions. Large training steps are not compiled, because that takes minutes, and not
#: in fp32, where the GPU is the limit and equal steps are within 0.2 %.
CUDA_KINDS = (
    ("small", "train", "eager", BOTH),
    ("small", "train", "compiled", BOTH),
    ("small", "train", "cuda-graphs", BOTH),
    ("large", "train", "eager", ("bf16",)),
    ("large", "train", "cuda-graphs", ("bf16",)),
    ("small", "inference", "eager", ("bf16",)),
    ("small", "inference", "compiled", ("bf16",)),
    ("large", "inference", "compiled", ("bf16",)),
)
#: The small training steps that are bound by the GPU, for which power is estimated, and how much more work the wider
#: step has: on an H200 5.4 % more took 4.2 % more time in fp32, and 2.5 % in bf16.
POWER = {("fp32", "eager"): 0.065, ("bf16", "cuda-graphs"): 0.11}
#: The settings with which one would train on CUDA.
FAST = {"attention": "sdpa", "optimizer": "fused"}


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The kinds of cells for a device, pairs of one of these steps and a wider one, and pairs of equal steps."""

    cells: Sequence[Cell]
    wider: Sequence[tuple[StepCell, StepCell]]
    equal: Sequence[tuple[StepCell, StepCell]] = ()


def plan_cells(device: str) -> Planned:
    if device != "cuda":
        toys = [
            _step(size, 64, mode=mode, precision="fp32", max_seconds=1.0)
            for size in ("toy-64", "toy-128")
            for mode in ("train", "inference")
        ]
        short = [_attention(name, 256, precision="fp32", max_seconds=1.0) for name in ("naive", "sdpa")]
        base = _step("toy-256", 128, mode="train", precision="fp32", max_seconds=1.0)
        equal = tuple((cell, replace(cell, max_seconds=1.01)) for cell in (toys[0], toys[2], base))
        return Planned(cells=[*toys, base, *short], wider=[(base, widen(base, MORE_ON_CPU))], equal=equal)
    steps = [
        _step(size, 512, mode=mode, precision=precision, backend=backend, max_seconds=1.0, **FAST)
        for size, mode, backend, precisions in CUDA_KINDS
        for precision in precisions
    ]
    attention = [
        _attention("naive", 1024, precision="fp32", max_seconds=1.0),
        _attention("sdpa-flash", 4096, precision="bf16", max_seconds=1.0),
    ]
    wider = [
        (cell, widen(cell, POWER[cell.precision, cell.backend]))
        for cell in steps
        if size_named("small").numbers.items() <= asdict(cell).items()
        and cell.mode == "train"
        and (cell.precision, cell.backend) in POWER
    ]
    return Planned(cells=[*steps, *attention], wider=wider)


def _step(size: str, context: int, **how: Any) -> StepCell:
    shape: dict[str, Any] = size_named(size).numbers
    return StepCell(**shape, context=context, **how)


def _attention(implementation: Attention, seq_len: int, **how: Any) -> AttentionCell:
    return AttentionCell(implementation=implementation, seq_len=seq_len, d_head=64, **how)


def widen(cell: StepCell, more: float) -> StepCell:
    """Returns the step with the feed-forward width whose FLOPs are closest to `more` more (0.05 is 5 %): a multiple of
    64, which kernels prefer, or for a toy any even width."""
    multiple = 64 if cell.shape.d_ff >= 16 * 64 else 2
    wider = (replace(cell, d_ff=cell.shape.d_ff + multiple * count) for count in range(1, 65))
    return min(wider, key=lambda one: abs(step_flops(one) / step_flops(cell) - 1 - more))


@dataclass(frozen=True, kw_only=True)
class Process:
    """One cell in one process: its round, and the times of its whole steps by each clock."""

    id: RoundId
    times: Mapping[Clock, RoundTime]

    def bound(self, clock: Clock) -> Bound | None:
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


Noises = Mapping[Bound | None, Noise]
Sides = tuple[Sequence[Process], Sequence[Process]]


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


def noise_beside(kind: Kind, kinds: Sequence[Kind], sides: Sequence[Sequence[Process]], clock: Clock) -> Noises:
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


def split_evenly(processes: Sequence[Process], size: int) -> Iterator[Sides]:
    """Yields all disjoint pairs of sides with `size` processes each, every pair once; of more than MOST processes pairs
    that are drawn at random, as many as there are of MOST."""
    if len(processes) > MOST:
        order, count = random.Random(size), math.comb(MOST, 2 * size) * math.comb(2 * size, size) // 2
        for _ in range(count):
            drawn = order.sample(processes, 2 * size)
            yield drawn[:size], drawn[size:]
        return
    for chosen in itertools.combinations(range(len(processes)), 2 * size):
        for first in itertools.combinations(chosen[1:], size - 1):
            a = {chosen[0], *first}
            yield [processes[i] for i in chosen if i in a], [processes[i] for i in chosen if i not in a]


def split_by_default(kind: Kind, kinds: Sequence[Kind]) -> Iterator[Sides]:
    """Yields pairs of sides, each with the rounds that `--rounds auto` would take from a random half of the
    processes, and no pair twice."""
    noises, order, known = noise_beside(kind, kinds, (), "step"), random.Random(kind.key), set[frozenset[object]]()
    half = len(kind.processes) // 2
    for _ in range(REPETITIONS // 4):
        drawn = order.sample(kind.processes, len(kind.processes))
        a, b = (take_default(side, noises, device=kind.device) for side in (drawn[:half], drawn[half:]))
        pair = frozenset(frozenset(process.id for process in side) for side in (a, b))
        if pair not in known:
            known.add(pair)
            yield a, b


def judge_equal(kinds: Sequence[Kind], clock: Clock) -> Iterator[Result]:
    """Yields the share of false verdicts among pairs of equal cells, for each number of rounds."""
    ways: Mapping[str, Callable[[Kind], Iterator[Sides]]] = {
        "one process each": lambda kind: split_evenly(kind.processes, 1),
        "three rounds each": lambda kind: split_evenly(kind.processes, ROUNDS),
        "default rounds": lambda kind: split_by_default(kind, kinds),
    }
    for words, split in ways.items():
        pairs, wrong = Counter[str](), Counter[str]()
        for kind in kinds:
            for sides in split(kind):
                decided = is_decided(sides, noise_beside(kind, kinds, sides, clock), clock)
                if decided is not None:
                    bound = bound_of(kind.processes, clock) or "all"
                    pairs[bound] += 1
                    wrong[bound] += decided
        if total := pairs.total():
            share = wrong.total() / total
            parts = ", ".join(f"{name} {wrong[name]} of {pairs[name]}" for name in sorted(pairs))
            yield Result(
                name=f"equal cells called different, {CLOCKS[clock]}, {words}",
                figure=f"{share:.1%} of {total} pairs ({parts})",
                goal=f"at most {MAX_FALSE:.0%}",
                met=share <= MAX_FALSE,
            )


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
        if not one or not other or not times_of(one.processes, clock) or not times_of(other.processes, clock):
            continue
        rest = [kind for kind in kinds if kind not in (one, other)]
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
        before, after = (statistics.median(time.median_ms for time in times_of(kind.processes, clock))
                         for kind in (one, other))  # fmt: skip
        bound = bound_of(one.processes, clock)
        yield Compared(found=found, times=after / before, bound=bound, rounds=statistics.fmean(used))


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


def run(seconds: float = SECONDS, db: Path | None = None) -> list[Result]:
    console = Terminal(stderr=True)
    path = db or Path(tempfile.mkdtemp(prefix="stepscope-noise-"), "noise.duckdb")
    if seconds > 0:
        device = LocalEngine().describe("auto")["device"]
        planned = plan_cells(device)
        cells = (*planned.cells, *(other for _, other in (*planned.wider, *planned.equal)))
        request = Request(cells=cells, rounds=PROCESSES[device])
        command = f"python -m tests.bench noise --seconds {seconds:g}"
        settings = Settings(db=path, label="noise", budget_s=seconds, ceilings=False, command=command)
        sweep(request, settings, watcher=SweepLines(console, db=path))
    print(f"rows: {path}", file=sys.stderr)
    kinds = load_kinds(path)
    for kind in kinds:
        for clock in CLOCKS:
            if times := times_of(kind.processes, clock):
                medians = " ".join(format_number(time.median_ms) for time in times)
                bound = bound_of(kind.processes, clock) or ""
                print(f"{kind.table} {kind.key} {bound} {clock}: {medians}", file=sys.stderr)
    plans = [plan_cells(device) for device in ("cpu", "cuda")]  # the file's rows may be of another machine
    wider = [pair for planned in plans for pair in planned.wider]
    return [
        *(result for clock in CLOCKS for result in judge_equal(kinds, clock)),
        *(result for planned in plans for result in judge_twins(kinds, planned.equal)),
        *(result for pair in wider for clock in CLOCKS for result in judge_power(kinds, pair, clock)),
    ]
