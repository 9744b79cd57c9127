"""How much do equal cells differ from process to process on this machine? Measured now, and not stored.

    repeat_cells("auto", kind="cpu", watcher=watcher)           # the watcher keeps a ProcessMedians of each
    for kind in summarize_kinds(repetitions): print(kind.bound, kind.clock, kind.noise)

On CUDA there are two cells: a small one, for which the device waits for the host, and one whose time the device sets.
Elsewhere a train step and attention together are one kind. Each is measured in fresh processes, interleaved, by a sweep
into a temporary file. Limits: the noise of an hour from now may be another.
"""

import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.analysis.noise import estimate_noise
from runner.plan.planning import Request
from runner.results.times import Clock, Noise, pool_bounds
from runner.schema import AttentionCell, Bound, Cell, Precision, Row, StepCell, TimingRow
from runner.schema.sizes import size_named
from runner.schema.titles import title
from runner.sweep.loop import Watcher
from runner.sweep.prepare import Settings
from runner.sweep.start import sweep

#: How long one cell may be measured in one process (s), and in how many processes. Nine give a kind with one cell 8
#: degrees of freedom; half of them count, and at most MAX_NOISE_DOF.
CELL_SECONDS, PROCESSES = 1.0, 9


@dataclass(frozen=True, kw_only=True)
class ProcessMedians:
    """One cell in one process: what bounds it, and the median of the whole step by each clock (ms)."""

    row: Row
    medians_ms: Mapping[Clock, float]

    @property
    def bound(self) -> Bound | None:
        return getattr(self.row, "bound", None)

    @classmethod
    def of(cls, row: Row, timings: Sequence[TimingRow]) -> "ProcessMedians":
        """Returns the repetition that a measured cell is; one without medians where it has no result."""
        step = next((timing for timing in timings if timing.phase == "step"), None)
        taken: Mapping[Clock, float | None] = (
            {"step": step.median_ms, "loop": step.loop_ms, "device": step.device_ms} if step else {}
        )
        return cls(row=row, medians_ms={clock: ms for clock, ms in taken.items() if ms})


@dataclass(frozen=True, kw_only=True)
class KindNoise:
    """The noise of one kind of cells by one clock: what bounds them, their titles, the medians of the processes of each
    (ms), and the noise that these show."""

    bound: Bound | None
    clock: Clock
    medians_ms: Mapping[str, tuple[float, ...]]
    noise: Noise


def noise_cells(kind: str) -> tuple[Cell, ...]:
    """Returns the cells that show the noise of a kind of device (`cuda`)."""
    if kind == "cuda":
        return _step("toy-256", 128, "bf16"), _step("small", 512, "fp32")
    attention = AttentionCell(
        implementation="naive", seq_len=256, d_head=64, precision="fp32", max_seconds=CELL_SECONDS
    )
    return _step("toy-64", 128, "fp32"), attention


def _step(size: str, context: int, precision: Precision) -> StepCell:
    shape: dict[str, Any] = size_named(size).numbers
    return StepCell(**shape, context=context, mode="train", precision=precision, max_seconds=CELL_SECONDS)


def repeat_cells(device: str, *, kind: str, watcher: Watcher) -> None:
    """Measures the cells of a device (`cuda:1`) of a kind (`cuda`) in PROCESSES processes each, and tells the watcher
    of every one."""
    request = Request(cells=noise_cells(kind), rounds=PROCESSES)
    with tempfile.TemporaryDirectory(prefix="stepscope-noise-") as folder:
        sweep(request, Settings(db=Path(folder, "noise.duckdb"), device=device, ceilings=False), watcher=watcher)


def summarize_kinds(repetitions: Sequence[ProcessMedians]) -> list[KindNoise]:
    """Returns the noise of each kind by each clock, the host's kind first. A cell is bound by the host where it was in
    any process; a cell in fewer than two processes says nothing."""
    cells: dict[str, list[ProcessMedians]] = {}
    for one in repetitions:
        if one.medians_ms:
            cells.setdefault(title(one.row), []).append(one)
    kinds: dict[Bound | None, dict[str, list[ProcessMedians]]] = {}
    for name, found in cells.items():
        kinds.setdefault(pool_bounds(one.bound for one in found), {})[name] = found
    clocks: tuple[Clock, ...] = ("step", "loop", "device")
    summed = [
        _summarize(bound, clock, kinds[bound]) for bound in sorted(kinds, key=str, reverse=True) for clock in clocks
    ]
    return [kind for kind in summed if kind is not None]


def _summarize(bound: Bound | None, clock: Clock, cells: Mapping[str, Sequence[ProcessMedians]]) -> KindNoise | None:
    known = {
        name: tuple(one.medians_ms[clock] for one in found if clock in one.medians_ms) for name, found in cells.items()
    }
    repeated = {name: medians for name, medians in known.items() if len(medians) > 1}
    noise = estimate_noise([(len(ms), statistics.variance(map(math.log, ms))) for ms in repeated.values()])
    return KindNoise(bound=bound, clock=clock, medians_ms=repeated, noise=noise) if noise else None
