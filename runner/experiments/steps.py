"""Declares the kind of cell that several experiments share: an end-to-end step, timed."""

from collections.abc import Mapping
from dataclasses import replace

from runner.experiments.experiment import Grid, Kind, On, Prediction
from runner.experiments.models import (
    EDITIONS,
    SIZES,
    TOYS,
    check_limits,
    check_model,
    compile_seconds,
    fits_trained,
    predict_model,
)
from runner.schema import StepCell, StepRow, TimingRow

_PHASES = ("forward", "loss", "backward", "optimizer", "step")

GRID = Grid.of(StepCell, modes=("train",), precisions=("fp32",))
TOY_STEPS = GRID.change(sizes=TOYS, contexts=(32, 64, 128), max_seconds=1.2)
TOY_STEP = TOY_STEPS.change(sizes=("toy-256",), contexts=(64,))
FITTING = GRID.change(sizes=SIZES, contexts=(128, 512, 1024), max_seconds=3.0)
#: The steps of each edition of the assignment, by preset, and those of its smallest size at its shortest context.
EDITION_STEPS = {name: GRID.change(**axes["steps"], max_steps=0) for name, axes in EDITIONS.items()}
EDITION_STEP = {
    name: grid.change(sizes=("small",), contexts=grid.value("contexts")[:1]) for name, grid in EDITION_STEPS.items()
}


def _check(cell: StepCell) -> None:
    check_model(cell)
    check_limits(cell)


def _predict(cell: StepCell, on: On) -> Prediction:
    """Predicts the cost of warm-up and measured steps. Half of the most count, as the interval's need is not known."""
    # With an empty cache a cell compiles twice: without a cache, and again with the one that this left.
    times = 2 if cell.compile_cache == "empty" else 1
    compiling = times * compile_seconds(cell.backend, cell.layers, device=on.device)
    found = predict_model(cell, on, steps_run=0, more_seconds=compiling)
    step = found.step_flops / on.flops_per_s
    measured = max(cell.min_steps * step, min(cell.max_seconds, cell.max_steps * step) / 2)
    return replace(found, seconds=found.seconds + (cell.warmup_steps * step + measured))


def _repeat_group(cell: StepCell) -> str:
    if cell.backend != "eager":
        return ""
    train = f"train {cell.precision}" if cell.mode == "train" and cell.precision in ("fp32", "bf16") else ""
    return "inference" if cell.mode == "inference" else train


def _summarize(row: StepRow, timings: Mapping[str, TimingRow]) -> str:
    step, share = timings.get("step"), row.interval_share
    if step is None:
        return "no times"
    return f"{step.median_ms:,.2f} ms{f' ±{share * 50:.1f}%' if share is not None else ''}, n {step.n}"


STEPS = Kind(
    cell=StepCell,
    measure="runner.measure.step:measure_step",
    check=_check,
    predict=_predict,
    summarize=_summarize,
    fits=fits_trained,
    repeat_group=_repeat_group,
)
