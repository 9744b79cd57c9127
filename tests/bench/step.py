"""Does the runner's step cost more than the step itself? Compares it with a bare loop, as anyone would write it.

    python -m tests.bench step

The same model and cell are built twice in one process with a worker's settings and measured in ABBA order: the runner's
step, the bare one, the bare one, the runner's. Then the instrumentation alone is measured, around a step that does
nothing. Limits: runs on a CPU; on CUDA a mark is an event, which costs some microseconds more.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from runner.analysis.statistics import summarize
from runner.engines.engine import ENVIRONMENT
from runner.measure import timing
from runner.measure.device import Device
from runner.measure.model_step import ModelStep
from runner.models.transformer import Transformer
from runner.schema import PHASES, StepCell
from runner.schema.sizes import SIZES
from tests.bench.result import Result

PAIRS, WARMUP, EMPTY = 200, 10, 2_000
#: The largest upper end of the ratio's interval, and the largest share of a step that the instrumentation may take.
GOAL_RATIO, GOAL_SHARE = 1.05, 0.01


def cell() -> StepCell:
    shape: dict[str, Any] = SIZES["toy-128"].numbers
    return StepCell(**shape, context=64, mode="train", precision="fp32")


def bare_step(asked: StepCell) -> Callable[[], float]:
    """Returns the body of a training loop between two clock readings (s), which uses only the model of the runner."""
    torch.manual_seed(0)
    model = Transformer(asked, device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, foreach=True)
    tokens = torch.randint(asked.shape.vocabulary, (asked.batch, asked.context + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)

    def step() -> float:
        began = time.perf_counter()
        loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    return step


def runner_step(asked: StepCell) -> Callable[[], float]:
    """Returns the step as a worker measures it, with its marks and the work between steps. Its result is in seconds."""
    device = Device("cpu")
    step = ModelStep(asked, device)

    def timed() -> float:
        step.between()
        return timing.time_step(step, device, phases=len(PHASES[asked.mode])).step_ms / 1e3

    return timed


def instrumentation() -> float:
    """Returns the seconds of a step with four phases that does nothing but mark them."""
    device = Device("cpu")

    def empty(mark: Callable[[], None]) -> None:
        for _ in range(4):
            mark()

    return statistics.median(elapsed(lambda: timing.time_step(empty, device, phases=4)) for _ in range(EMPTY))


def elapsed(action: Callable[[], object]) -> float:
    """Returns the seconds of an action by an outer clock, so that work after its own last reading counts too."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measured() -> list[list[float]]:
    """Returns the seconds of the runner's steps, of the bare ones, and of the instrumentation alone."""
    ours, bare = runner_step(cell()), bare_step(cell())
    for _ in range(WARMUP):
        ours()
        bare()
    times: dict[Callable[[], float], list[float]] = {ours: [], bare: []}
    for _ in range(PAIRS // 2):
        for step in (ours, bare, bare, ours):
            times[step].append(elapsed(step))
    return [times[ours], times[bare], [instrumentation()]]


def run() -> list[Result]:
    """Runs the measurement in a process with a worker's environment, which must be set before torch is imported."""
    command = [sys.executable, "-m", "tests.bench.step"]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, text=True, check=True)
    ours, bare, (alone,) = json.loads(done.stdout)
    a, b = summarize(ours), summarize(bare)
    assert a.low
    assert a.high
    assert b.low
    assert b.high
    ratio, low, high = a.median / b.median, a.low / b.high, a.high / b.low
    share = alone / statistics.median(bare)
    return [
        Result(
            name="runner's step / bare loop",
            figure=f"{ratio:.3f} [{low:.3f}, {high:.3f}], {PAIRS} pairs",
            goal=f"upper end at most {GOAL_RATIO}",
            met=high <= GOAL_RATIO,
        ),
        Result(
            name="instrumentation alone",
            figure=f"{share:.2%} of a step ({alone * 1e6:.0f} µs of {statistics.median(bare) * 1e3:.1f} ms)",
            goal=f"under {GOAL_SHARE:.0%}",
            met=share < GOAL_SHARE,
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(measured()))
