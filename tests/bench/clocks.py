"""Is the device time true? Compares it with replays of the same step as CUDA graphs, and with Triton's `do_bench`.

    python -m tests.bench.clocks                # on CUDA, in about four minutes
    python -m tests.bench.clocks --inside 3     # one cell in this very process; prints its times as JSON

Of each cell, in a fresh process: the device time as the runner gives it for an eager step; the median of replays that
follow each other without waiting, by CUDA events, of the step captured as the backend `cuda-graphs` does (attention as
one graph); what `triton.testing.do_bench` says of the replay and of the eager step; and of one traced step the sum of
its kernels and the time in which any of them ran, without the gap that the device time adds for each. The column of
gaps is what the replay takes beyond that time, for each kernel. AdamW is fused, because only then has an eager step the
same kernels as one that can be captured.
Limits: `do_bench` empties the L2 cache before each call, which makes short steps longer, and its eager step takes the
host's time where that is longer; many replays heat the GPU more than the one step that is traced. A cell that cannot be
captured or traced does not count, and its row says why.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from runner.engines.environment import ENVIRONMENT
from runner.formats import format_number
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.machine.device_work import DeviceWork, device_work, union_ns
from runner.measure.steps.attention import AttentionStep
from runner.measure.steps.cuda_graphs import CapturedStep
from runner.measure.steps.model import ModelStep
from runner.measure.steps.step import Step
from runner.measure.timing.device_time import COPIES
from runner.measure.timing.timing import StepLimits, measure
from runner.measure.timing.unwaited import measure_unwaited
from runner.schema import PHASES, Attention, AttentionCell, Mode, Phase, Precision, StepCell
from runner.schema.sizes import size_named
from tests.bench.result import Result

#: How far the device time may be from the replay, as a share of it.
WITHIN = 0.03
#: Replays that are timed, those before them, and the longest that a cell's process may take (s).
REPLAYS, SETTLING, TIMEOUT = 20, 3, 120.0
#: What `do_bench` is given (ms).
BENCH_WARMUP, BENCH_REP = 50, 300
LIMITS = StepLimits(warmup=5, min_steps=5, max_steps=20, seconds=0.5)


#: Size, mode and precisions of the eager steps; implementation, precision and length of attention.
STEPS: tuple[tuple[str, Mode, tuple[Precision, ...]], ...] = (
    ("small", "inference", ("fp32", "bf16")),
    ("small", "train", ("fp32", "bf16")),
    ("medium", "inference", ("fp32", "bf16")),
    ("medium", "train", ("bf16",)),
    ("large", "inference", ("fp32",)),
    ("large", "train", ("fp32", "bf16")),
)
ATTENTION: tuple[tuple[Attention, Precision, int], ...] = (("naive", "fp32", 1024), ("sdpa-flash", "bf16", 4096))


def make_cells() -> dict[str, StepCell | AttentionCell]:
    """Returns the cells by their names in the table: steps of 512 tokens, in fp32 with naive attention and in bf16 with
    fused, and attention with heads of 64."""
    cells: dict[str, StepCell | AttentionCell] = {}
    for size, mode, precisions in STEPS:
        shape: dict[str, Any] = {**size_named(size).numbers, "context": 512, "mode": mode, "optimizer": "fused"}
        for name in precisions:
            attention: Attention = "naive" if name == "fp32" else "sdpa"
            cells[f"{size} {mode} {name}"] = StepCell(**shape, precision=name, attention=attention)
    for implementation, name, length in ATTENTION:
        cell = AttentionCell(implementation=implementation, precision=name, seq_len=length, d_head=64)
        cells[f"attention {implementation} {name} {length}"] = cell
    return cells


CELLS: Mapping[str, StepCell | AttentionCell] = make_cells()


@dataclass(frozen=True, kw_only=True)
class Times:
    """What was found of one cell (ms); what is unknown is None, and `failed` says why."""

    cell: str
    device_ms: float | None = None
    replay_ms: float | None = None
    bench_replay_ms: float | None = None
    bench_eager_ms: float | None = None
    sum_ms: float | None = None
    union_ms: float | None = None
    kernels: int | None = None
    failed: str = ""

    @property
    def ratio(self) -> float | None:
        """The device time over the replay."""
        return self.device_ms / self.replay_ms if self.device_ms and self.replay_ms else None

    @property
    def gap_us(self) -> float | None:
        """What the replay takes beyond its kernels, for each of them."""
        if not (self.replay_ms and self.union_ms and self.kernels):
            return None
        return (self.replay_ms - self.union_ms) / self.kernels * 1e3


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A cell that can be run: one iteration with marks, what comes before it, and its phases."""

    step: Step
    between: Callable[[], None]
    phases: tuple[Phase, ...]

    def run(self) -> None:
        """Runs one iteration that nobody times inside."""
        self.between()
        self.step(lambda: None)


def prepare_eager(cell: StepCell | AttentionCell, device: Device) -> Prepared:
    """Builds a cell as the runner does."""
    if isinstance(cell, AttentionCell):
        attention = AttentionStep(cell, device)
        return Prepared(step=attention, between=attention.drop_gradients, phases=("forward", "backward"))
    step = ModelStep(cell, device)
    return Prepared(step=step, between=step.between, phases=PHASES[cell.mode])


def capture(cell: StepCell | AttentionCell, device: Device) -> Callable[[], None]:
    """Returns the replay of a cell captured as CUDA graphs, which keeps alive what the graphs read and write. Raises
    Skipped where CUDA cannot capture it."""
    if isinstance(cell, StepCell):
        return partial(ModelStep(replace(cell, backend="cuda-graphs"), device), lambda: None)
    attention = AttentionStep(cell, device)

    def both_passes(mark: Callable[[], None]) -> None:
        attention(lambda: None)
        mark()

    drop = attention.drop_gradients
    captured = CapturedStep(both_passes, device, mode="forward", between=drop, restart=lambda: None)
    kept = (captured, attention)
    return lambda: kept[0].replay(lambda: None)


def time_captured(cell: StepCell | AttentionCell, device: Device) -> dict[str, float]:
    """Captures a cell and returns the times of its replay."""
    replay = capture(cell, device)
    return {"replay_ms": time_replays(replay, device), "bench_replay_ms": bench(replay)}


def time_replays(replay: Callable[[], None], device: Device) -> float:
    """Returns the median time (ms) from the end of one replay to that of the next, none of which is waited for."""
    for _ in range(SETTLING):
        replay()
    marks = [device.mark()]
    for _ in range(REPLAYS):
        replay()
        marks.append(device.mark())
    device.synchronize()
    return statistics.median(device.milliseconds(begin, end) for begin, end in pairwise(marks))


def bench(work: Callable[[], None]) -> float:
    """Returns what Triton says of the median call (ms)."""
    do_bench = import_module("triton.testing").do_bench
    return float(do_bench(work, warmup=BENCH_WARMUP, rep=BENCH_REP, return_mode="median"))


def find_device_time(prepared: Prepared, device: Device) -> float:
    """Returns the device time of a step (ms) as a row of the runner has it."""

    def between(number: int) -> None:
        prepared.between()

    steps = measure(prepared.step, device, phases=prepared.phases, limits=LIMITS, between=between)
    clocks = measure_unwaited(prepared.step, device, steps=steps, between=between)
    if "step" not in clocks.device_ms:
        raise RuntimeError("the runner knows no device time here: CUPTI is missing, not allowed or in use")
    return clocks.device_ms["step"]


def trace(prepared: Prepared, device: Device) -> list[DeviceWork]:
    """Returns what ran on the device in one step, traced as for the device time but without its markers."""
    prepared.between()
    device.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        prepared.step(lambda: None)
        device.synchronize()
    return device_work(profiler)


def sum_up(work: Sequence[DeviceWork]) -> dict[str, Any]:
    """Returns the sum of the traced work, the time in which any of it ran, and the number of kernels among it."""
    return {
        "sum_ms": sum(item.device_ns for item in work) / 1e6,
        "union_ms": union_ns(work) / 1e6,
        "kernels": sum(not item.kernel.startswith(COPIES) for item in work),
    }


def time_cell(name: str, device: Device) -> Times:
    """Finds every time of a cell in this process; whatever fails leaves its reason. Tracing is last, because launches
    are slower after it."""
    cell, found, reasons = CELLS[name], dict[str, Any](), list[str]()

    def attempt(what: str, find: Callable[[], Mapping[str, Any]]) -> None:
        try:
            found.update(find())
        except Exception as error:  # noqa: BLE001
            reasons.append(f"{what}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}")

    precision.apply(cell.precision, device)
    attempt("replay", lambda: time_captured(cell, device))
    gc.collect()
    torch.cuda.empty_cache()
    eager = prepare_eager(cell, device)
    attempt("do_bench", lambda: {"bench_eager_ms": bench(eager.run)})
    attempt("device time", lambda: {"device_ms": find_device_time(eager, device)})
    attempt("trace", lambda: sum_up(trace(eager, device)))
    return Times(cell=name, **found, failed="; ".join(reasons))


def run_inside(place: int) -> Times:
    """Times a cell in a fresh process with a worker's environment, which must be set before torch is imported."""
    name = [*CELLS][place]
    command = [sys.executable, "-m", "tests.bench.clocks", "--inside", str(place)]
    environment = {**os.environ, **ENVIRONMENT}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT)
        return Times(**json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return Times(cell=name, failed=f"took longer than {TIMEOUT:g} s")
    except (IndexError, ValueError, TypeError):
        lines = done.stderr.strip().splitlines() or ["no output"]
        return Times(cell=name, failed=f"exit code {done.returncode}: {lines[-1][:150]}")


def show_table(times: Sequence[Times], console: Console) -> None:
    """Prints a row for each cell, and below it why something is missing."""
    titles = ("device ms", "replay ms", "do_bench replay", "do_bench eager", "kernel sum", "kernel union")
    table = Table("cell", *titles, "kernels", "gap µs", "device/replay", box=None, header_style="bold", pad_edge=False)
    for one in times:
        measured = (one.device_ms, one.replay_ms, one.bench_replay_ms, one.bench_eager_ms, one.sum_ms, one.union_ms)
        texts = ["–" if number is None else format_number(number) for number in (*measured, one.kernels, one.gap_us)]
        table.add_row(one.cell, *texts, "–" if one.ratio is None else f"{one.ratio:.3f}")
    console.print(table)
    for one in times:
        if one.failed:
            console.print(f"{one.cell}: {one.failed}", markup=False, highlight=False, soft_wrap=True)


def judge(times: Sequence[Times]) -> Result:
    """Returns whether all device times that have a replay are within WITHIN of it."""
    ratios = {one.cell: one.ratio for one in times if one.ratio is not None}
    figure = f"{len(ratios)} of {len(times)} cells have both"
    if ratios:
        farthest = max(ratios, key=lambda cell: abs(ratios[cell] - 1))
        figure += f": {min(ratios.values()):.3f} to {max(ratios.values()):.3f}, farthest {farthest}"
    met = bool(ratios) and all(abs(ratio - 1) <= WITHIN for ratio in ratios.values())
    return Result(name="device time / replay", figure=figure, goal=f"1 within {WITHIN:.0%}", met=met)


def run() -> list[Result]:
    if not torch.cuda.is_available():
        return [Result(name="device time / replay", figure="not measured: only CUDA has a device time and replays")]
    times = []
    for place in range(len(CELLS)):
        times.append(run_inside(place))
        print(json.dumps(asdict(times[-1])), file=sys.stderr, flush=True)
    show_table(times, Console(width=None if sys.stdout.isatty() else 180))
    return [judge(times)]


def main() -> None:
    parser = argparse.ArgumentParser(description="The device time beside CUDA graph replays and do_bench.")
    parser.add_argument("--inside", type=int, help="time the cell with this number in this very process")
    given = parser.parse_args()
    if given.inside is not None:
        print(json.dumps(asdict(time_cell([*CELLS][given.inside], Device("cuda")))))
        return
    for result in run():
        print(result.name, result.figure, result.goal, {True: "yes", False: "NO", None: ""}[result.met], sep="  ")


if __name__ == "__main__":
    main()
