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
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runner.analysis.costs.steps import step_flops
from runner.cli.progress import SweepLines
from runner.cli.terminal import Terminal
from runner.engines.local import LocalEngine
from runner.formats import format_number
from runner.plan.planning import ROUNDS, Request
from runner.results.times import Clock
from runner.schema import Attention, AttentionCell, Cell, StepCell
from runner.schema.sizes import size_named
from runner.sweep.request import Settings
from runner.sweep.start import sweep
from tests.bench.power import MAX_FALSE, REPETITIONS, judge_power, judge_twins
from tests.bench.processes import (
    CLOCKS,
    Kind,
    Process,
    Sides,
    bound_of,
    is_decided,
    load_kinds,
    noise_beside,
    take_default,
    times_of,
)
from tests.bench.result import Result

#: How many processes measure a cell: on a CPU enough to draw the rounds of `--rounds auto` from them.
PROCESSES = {"cuda": 8, "cpu": 36, "mps": 8}
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

    @property
    def measured(self) -> tuple[Cell, ...]:
        """Every cell, those of the pairs included."""
        return (*self.cells, *(other for _, other in (*self.wider, *self.equal)))


def plan_cells(device: str) -> Planned:
    """Returns what is measured on a device."""
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


def widen(cell: StepCell, more: float, *, multiple: int = 64) -> StepCell:
    """Returns the step with the feed-forward width whose FLOPs are closest to `more` more (0.05 is 5 %): a multiple of
    64, which kernels prefer, or for a toy any even width."""
    multiple = multiple if cell.shape.d_ff >= 16 * multiple else 2
    wider = (replace(cell, d_ff=cell.shape.d_ff + multiple * count) for count in range(1, 65))
    return min(wider, key=lambda one: abs(step_flops(one) / step_flops(cell) - 1 - more))


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


def run(seconds: float = SECONDS, db: Path | None = None) -> list[Result]:
    console = Terminal(stderr=True)
    path = db or Path(tempfile.mkdtemp(prefix="stepscope-noise-"), "noise.duckdb")
    if seconds > 0:
        device = LocalEngine().describe("auto")["device"]
        request = Request(cells=plan_cells(device).measured, rounds=PROCESSES[device])
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
