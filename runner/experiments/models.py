"""The common part of experiments on a Transformer: the shapes of the presets, checks of a cell, predicted costs, and
the kind of cell that several share: an end-to-end step, timed.

Standard library only.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.analysis.costs import steps
from runner.analysis.costs.steps import Device
from runner.errors import UsageError
from runner.experiments.experiment import START_SECONDS, Grid, Kind, On, Prediction
from runner.schema import AttentionCell, ModelCell, StepCell, StepRow, TimingRow
from runner.schema.own import is_own_part
from runner.schema.sizes import check_shape, model_name

TOYS = ("toy-64", "toy-128", "toy-256")
SIZES = ("small", "medium", "large", "xl@2025", "xl@2026")
#: The sizes and contexts of which an edition of the assignment asks for times, for profiles and for memory, by preset.
#: The profiles of 2026 are of two sizes of one's choice, up to the longest context that fits: large's on an H200.
_STEPS_2025 = {"sizes": ("small", "medium", "large", "xl@2025", "2.7B"), "contexts": (128, 256, 512, 1024)}
EDITIONS: Mapping[str, Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "cs336-2025": {
        "steps": _STEPS_2025,
        "profiles": _STEPS_2025,
        "memory": {"sizes": ("2.7B",), "contexts": (128, 256, 512)},
    },
    "cs336-2026": {
        "steps": {"sizes": ("small", "medium", "large", "xl@2026", "10B"), "contexts": (512,)},
        "profiles": {"sizes": ("small", "large"), "contexts": (512, 1024, 2048)},
        "memory": {"sizes": ("xl@2026",), "contexts": (128, 2048)},
    },
}
#: The time to compile anything in a fresh process without a cache, and to compile each block of a model (s), and the
#: blocks after which more take no longer, by device. A CPU needs a C++ compiler. CUDA's are those of an H200: training
#: steps of 12, 24, 36 and 48 blocks took 45, 63, 79 and 96 s, one block 12 to 17 s.
COMPILE_SECONDS: Mapping[Device, tuple[float, float, float]] = {
    "cuda": (16.0, 1.7, math.inf),
    "mps": (8.0, 5.0, 8),
    "cpu": (18.0, 12.0, 8),
}
#: The time to import and build an own model (s), and the blocks that it is taken to have where none repeats.
OWN_SECONDS, OWN_BLOCKS = 3.0, 8


def check_model(cell: ModelCell) -> None:
    """Raises UsageError for a step that no model can make."""
    check_shape(cell)
    if cell.model_key is not None and cell.checkpoint_blocks > 1:
        raise UsageError("The blocks of an own model are recomputed one at a time.", expected="--checkpoint 0 or 1")
    if cell.model_key is None and cell.checkpoint_blocks > cell.shape.layers:
        raise UsageError(
            f"--checkpoint got {cell.checkpoint_blocks}, but {model_name(cell)} has {cell.shape.layers} blocks.",
            expected=f"0 to {cell.shape.layers}",
            do="Recompute fewer blocks together, or all of them.",
        )
    if cell.weights_dtype == "bf16" and cell.precision != "bf16":
        raise UsageError(
            f"Weights held in bf16 with precision {cell.precision}.",
            expected="precision bf16",
            do="Or hold them in fp32.",
        )
    if cell.batch < 1:
        raise UsageError(f"--batch got {cell.batch}.", expected="at least 1")
    if cell.attention == "own" and cell.model_key is None:
        raise UsageError("Attention `own` is that of an own model.", do="Name one with --model, or another attention.")
    if cell.model_key is not None and (is_own_part(cell.attention) or is_own_part(cell.loss_function)):
        raise UsageError(
            "An own attention or loss came with --model.",
            expected="one of the two: they are parts of Stepscope's Transformer",
            do="Call them in your own model instead.",
        )


def has_formula(cell: ModelCell) -> bool:
    """Returns whether formulas know the cell's memory: nothing of it is the user's own."""
    return cell.model_key is None and not any(map(is_own_part, (cell.attention, cell.loss_function, cell.optimizer)))


def check_limits(cell: StepCell | AttentionCell) -> None:
    """Raises UsageError for limits that no measurement can keep."""
    if cell.min_steps < 1 or cell.warmup_steps < 0 or not 0 <= cell.max_seconds < math.inf:
        raise UsageError("Steps must be at least 1, warm-up and seconds at least 0.")


def fits_trained(cell: ModelCell, memory_bytes: int) -> bool:
    """Returns whether the cell's shape can be trained in that memory. All modes of a size follow this one rule. An own
    model is not known before it is tried."""
    return cell.model_key is not None or steps.predicted_peak_bytes(replace(cell, mode="train")) < memory_bytes


def predict_model(cell: ModelCell, on: On, *, steps_run: float, more_seconds: float) -> Prediction:
    """Predicts the cost of a cell that runs `steps_run` steps and something else for `more_seconds`. Operations are
    those of our formula, or of an own model as counted; 0 where they are not known."""
    start, flops = START_SECONDS[on.device], 0
    if cell.model_key is None:
        flops = steps.step_flops(cell)
    else:
        start += OWN_SECONDS
        if own := on.own.get(cell.model_key):
            counted = own.flops.get((cell.batch, cell.context))
            passes = 2 if cell.mode in ("inference", "forward") else 6
            rough = passes * own.parameters * cell.batch * max(cell.context, 1)
            flops = counted.of_mode(cell.mode) if counted else rough
    return Prediction(
        step_flops=flops,
        peak_bytes=steps.predicted_peak_bytes(cell, device=on.device, gpu=on.gpu) if has_formula(cell) else None,
        seconds=start + more_seconds + steps_run * flops / on.flops_per_s,
    )


def compile_seconds(backend: str, layers: int | None, *, device: Device) -> float:
    """Predicts the time to compile a model of so many blocks; 0 where nothing is compiled."""
    layers = OWN_BLOCKS if layers is None else layers
    blocks = {"eager": 0, "cuda-graphs": 0, "compiled-block": 1}.get(backend, layers)
    once, per_block, most = COMPILE_SECONDS[device]
    return once + per_block * min(blocks, most) if blocks else 0.0


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
