"""Does Compare call equal cells different, and does it find a real difference? A/A tests and power on this machine.

    python -m tests.bench noise --seconds 300
    python -m tests.bench noise --seconds 300 --db noise.duckdb      # run again, it continues where it stopped
    python -m tests.bench noise --seconds 0 --db noise.duckdb        # measures nothing, evaluates the existing rows

A real sweep measures several kinds of cells, each in PROCESSES fresh processes, interleaved, and keeps every row in a
results file. For each kind, all disjoint pairs of sides are then compared as Compare does it, with the noise of the
other kinds: with one process a side, with three, and with as many as `--rounds auto` would take. In a file of several
machines, such as one into which others were imported, each machine is evaluated by itself.

Power is estimated on a train step compared with the same step with a wider feed-forward layer, chosen to have 5 % more
work. Limits: the pairs of one kind share processes, so they are not independent.
"""

import itertools
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
from runner.cli.progress import PlainLines
from runner.cli.terminal import Terminal
from runner.engines.local import LocalEngine
from runner.formats import format_number
from runner.plan.planning import Request
from runner.plan.repeats import ROUNDS
from runner.results.times import Clock, Noise, RoundTime, find_bound, pool_bounds
from runner.schema import Attention, AttentionCell, Bound, Cell, StepCell
from runner.schema.sizes import size_named
from runner.store.database import open_reader
from runner.sweep.loop import sweep
from runner.sweep.prepare import Settings
from runner.sweep.rounds import ENOUGH, MAX_ROUNDS, TimedCell, half_width, measure_noise
from tests.bench.result import Result

PROCESSES = 8
SECONDS = 240.0
#: How much more work the wider step has, and how often the two steps are compared.
MORE, REPETITIONS = 0.05, 200
MAX_FALSE, MIN_FOUND = 0.01, 0.90
BOTH = ("fp32", "bf16")
#: On CUDA: size, mode, backend, precisions. Large training steps are not compiled, because that takes minutes.
CUDA_KINDS = (
    ("small", "train", "eager", BOTH),
    ("small", "train", "compiled", BOTH),
    ("small", "train", "cuda-graphs", BOTH),
    ("large", "train", "eager", BOTH),
    ("large", "train", "cuda-graphs", BOTH),
    ("small", "inference", "eager", BOTH),
    ("small", "inference", "compiled", ("bf16",)),
    ("large", "inference", "compiled", ("bf16",)),
)
#: The small steps that are bound by the GPU, for which power is estimated.
POWER = (("train", "fp32", "eager"), ("train", "bf16", "cuda-graphs"))
#: The settings with which one would train on CUDA.
FAST = {"attention": "sdpa", "optimizer": "fused"}
CLOCKS: Mapping[Clock, str] = {"step": "waited for", "loop": "in a loop", "device": "device time"}


def make_cells(device: str) -> tuple[list[Cell], list[tuple[StepCell, StepCell]]]:
    """Returns the kinds of cells for a device, and pairs of one of these steps and a wider one."""
    if device != "cuda":
        toys = [
            _step(size, 64, mode=mode, precision="fp32", max_seconds=1.0)
            for size in ("toy-64", "toy-128")
            for mode in ("train", "inference")
        ]
        short = [_attention(name, 256, precision="fp32", max_seconds=1.0) for name in ("naive", "sdpa")]
        return [*toys, *short], [(toys[2], widen(toys[2]))]
    steps = [
        _step(size, 512, mode=mode, precision=precision, backend=backend, max_seconds=1.0, **FAST)
        for size, mode, backend, precisions in CUDA_KINDS
        for precision in precisions
    ]
    attention = [
        _attention("naive", 1024, precision="fp32", max_seconds=1.0),
        _attention("sdpa-flash", 4096, precision="bf16", max_seconds=1.0),
    ]
    device_bound = [
        cell
        for cell in steps
        if size_named("small").numbers.items() <= asdict(cell).items()
        and (cell.mode, cell.precision, cell.backend) in POWER
    ]
    return [*steps, *attention], [(cell, widen(cell)) for cell in device_bound]


def _step(size: str, context: int, **how: Any) -> StepCell:
    shape: dict[str, Any] = size_named(size).numbers
    return StepCell(**shape, context=context, **how)


def _attention(implementation: Attention, seq_len: int, **how: Any) -> AttentionCell:
    return AttentionCell(implementation=implementation, seq_len=seq_len, d_head=64, **how)


def widen(cell: StepCell, *, multiple: int = 64) -> StepCell:
    """Returns the step with the feed-forward width whose FLOPs are closest to MORE more: a multiple of 64, which
    kernels prefer, or for a toy any even width."""
    multiple = multiple if cell.shape.d_ff >= 16 * multiple else 2
    wider = (replace(cell, d_ff=cell.shape.d_ff + multiple * more) for more in range(1, 65))
    return min(wider, key=lambda one: abs(step_flops(one) / step_flops(cell) - 1 - MORE))


@dataclass(frozen=True, kw_only=True)
class Process:
    """One cell in one process: the times of its whole steps by each clock."""

    times: Mapping[Clock, RoundTime]

    def bound(self, clock: Clock) -> Bound | None:
        """Returns what bounds the time by this clock."""
        ms, device_ms = (self.times[name].median_ms if name in self.times else None for name in (clock, "device"))
        return find_bound(ms, device_ms)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One cell of one run; its processes are in the order of their rounds."""

    run: str
    table: str
    key: str
    processes: tuple[Process, ...]


def bound_of(processes: Sequence[Process], clock: Clock) -> Bound | None:
    """Returns what bounds a cell's time by this clock: the host, if it does so in any process."""
    return pool_bounds(one.bound(clock) for one in processes)


def load_kinds(db: Path) -> list[Kind]:
    """Returns every timed cell of the file with status ok in at least two processes."""
    found: dict[tuple[str, str, str], list[Process]] = {}
    with open_reader(db) as reader:
        for table in ("steps", "attention"):
            rows = reader.execute(
                f"SELECT c.run_id, c.cell_key, t.n, t.low_ms, t.high_ms, t.median_ms, t.loop_ms, t.device_ms "
                f"FROM {table} c JOIN timings t USING (cell_id) WHERE c.status = 'ok' AND t.phase = 'step' "
                "ORDER BY c.run_id, c.round, c.cell_id"
            ).fetchall()
            for run, key, n, low, high, *values in rows:
                known = [(clock, ms) for clock, ms in zip(CLOCKS, values, strict=True) if ms]
                times = {clock: RoundTime(median_ms=ms, n=n) for clock, ms in known}
                if "step" in times:
                    times["step"] = replace(times["step"], low_ms=low, high_ms=high)
                found.setdefault((str(run), table, key), []).append(Process(times=times))
    return [
        Kind(run=run, table=table, key=key, processes=tuple(processes))
        for (run, table, key), processes in found.items()
        if len(processes) > 1
    ]


def noise_beside(kind: Kind, kinds: Sequence[Kind], sides: Sequence[Sequence[Process]], clock: Clock) -> "Noises":
    """Returns the noise, by what bounds a cell, that a file with default settings would show: that of the other kinds
    of the run and table, each in ROUNDS rounds, and of the sides themselves."""
    beside = [one.processes[:ROUNDS] for one in kinds if (one.run, one.table) == (kind.run, kind.table) and one != kind]
    cells = [
        TimedCell(key="", table=kind.table, bound=bound_of(found, clock), times=_times(found, clock), seconds=0.0)
        for found in (*beside, *sides)
    ]
    return {bound: noise for (_, bound), noise in measure_noise(cells).items()}


Noises = Mapping[Bound | None, Noise]
Sides = tuple[Sequence[Process], Sequence[Process]]


def _times(processes: Sequence[Process], clock: Clock) -> tuple[RoundTime, ...]:
    return tuple(one.times[clock] for one in processes if clock in one.times)


def is_decided(sides: Sides, noises: Noises, clock: Clock) -> bool | None:
    """Returns whether Compare calls the sides different; None if one of them has no time by the clock."""
    times = [_times(side, clock) for side in sides]
    if not all(times):
        return None
    a, b = (estimate(found, noises.get(bound_of(side, clock))) for found, side in zip(times, sides, strict=True))
    return ratio(a, b).outcome != "same"


def split_evenly(processes: Sequence[Process], size: int) -> Iterator[Sides]:
    """Yields all disjoint pairs of sides with `size` processes each, every pair once."""
    for chosen in itertools.combinations(range(len(processes)), 2 * size):
        for first in itertools.combinations(chosen[1:], size - 1):
            a = {chosen[0], *first}
            yield [processes[i] for i in chosen if i in a], [processes[i] for i in chosen if i not in a]


def take_default(processes: Sequence[Process], noises: Noises) -> Sequence[Process]:
    """Returns as many of the first processes as `--rounds auto` measures: until the interval is narrow enough."""
    for count in range(1, min(MAX_ROUNDS, len(processes))):
        bound, times = bound_of(processes[:count], "step"), _times(processes[:count], "step")
        cell = TimedCell(key="", table="steps", bound=bound, times=times, seconds=0)
        if half_width(cell, noises.get(bound)) <= ENOUGH:
            return processes[:count]
    return processes[:MAX_ROUNDS]


def split_by_default(kind: Kind, kinds: Sequence[Kind]) -> Iterator[Sides]:
    """Yields pairs of sides, each with the rounds that `--rounds auto` would take from a random half of the
    processes."""
    noises, order = noise_beside(kind, kinds, (), "step"), random.Random(kind.key)
    half = len(kind.processes) // 2
    for _ in range(REPETITIONS // 4):
        drawn = order.sample(kind.processes, len(kind.processes))
        yield take_default(drawn[:half], noises), take_default(drawn[half:], noises)


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


def judge_power(kinds: Sequence[Kind], pair: tuple[StepCell, StepCell], clock: Clock) -> Iterator[Result]:
    """Yields the share of repetitions in which the wider step is found to be slower, at the default rounds."""
    base, wider = pair
    runs = {kind.run for kind in kinds}
    for run in sorted(runs):
        sides = [next((k for k in kinds if (k.run, k.key) == (run, cell.key)), None) for cell in pair]
        one, other = sides
        if one is None or other is None or not all(_times(kind.processes, clock) for kind in (one, other)):
            continue
        rest = [kind for kind in kinds if kind not in sides]
        noises, order, found, used = noise_beside(one, rest, (), "step"), random.Random(run), 0, list[int]()
        for _ in range(REPETITIONS):
            a, b = (take_default(order.sample(kind.processes, len(kind.processes)), noises) for kind in (one, other))
            found += bool(is_decided((a, b), noise_beside(one, rest, (a, b), clock), clock))
            used += [len(a), len(b)]
        share, bound = found / REPETITIONS, bound_of(one.processes, clock)
        medians = [statistics.median(t.median_ms for t in _times(kind.processes, clock)) for kind in (one, other)]
        work = step_flops(wider) / step_flops(base) - 1
        yield Result(
            name=f"{work:.1%} more work found, {CLOCKS[clock]}, {base.precision} {base.backend}",
            figure=f"{share:.0%} of {REPETITIONS} ({medians[1] / medians[0] - 1:+.1%} of time, bound by "
            f"{bound or 'the CPU'}, {statistics.fmean(used):.1f} rounds)",
            goal=f"at least {MIN_FOUND:.0%}" if bound == "device" else "",
            met=share >= MIN_FOUND if bound == "device" else None,
        )


def run(seconds: float = SECONDS, db: Path | None = None) -> list[Result]:
    console = Terminal(stderr=True)
    path = db or Path(tempfile.mkdtemp(prefix="stepscope-noise-"), "noise.duckdb")
    cells, pairs = make_cells(LocalEngine().describe("auto")["device"])
    if seconds > 0:
        request = Request(cells=(*cells, *(wider for _, wider in pairs)), rounds=PROCESSES)
        command = f"python -m tests.bench noise --seconds {seconds:g}"
        settings = Settings(db=path, label="noise", budget_s=seconds, ceilings=False, command=command)
        sweep(request, settings, watcher=PlainLines(console, db=path))
    print(f"rows: {path}", file=sys.stderr)
    kinds = load_kinds(path)
    for kind in kinds:
        for clock in CLOCKS:
            if times := _times(kind.processes, clock):
                medians = " ".join(format_number(time.median_ms) for time in times)
                bound = bound_of(kind.processes, clock) or ""
                print(f"{kind.table} {kind.key} {bound} {clock}: {medians}", file=sys.stderr)
    judged = [result for clock in CLOCKS for result in judge_equal(kinds, clock)]
    return judged + [result for pair in pairs for clock in CLOCKS for result in judge_power(kinds, pair, clock)]
