"""What a sweep will measure: a preset and axes become cells, keyed on numbers. Nothing is measured here.

    python -m runner sweep --preset cs336-2025 --sizes small,medium --dry-run

An axis that is set by the user replaces that axis in every grid of the preset, and cells that come out equal are
measured once. Standard library only.
"""

import itertools
import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from runner.analysis import costs
from runner.errors import UsageError
from runner.presets import AXES, PRESETS, QUESTIONS, preset_for
from runner.schema import StepCell
from runner.sizes import SIZES, check_shape, shape_name


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a sweep was asked for, before the machine is known. `axes` are fields of `Grid` set by the user; a shape
    of one's own replaces the preset's sizes, so it comes with `sizes`."""

    preset: str | None = None
    experiments: tuple[str, ...] = tuple(QUESTIONS)
    axes: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One cell of a sweep, in the order of measuring."""

    experiment: str
    cell: StepCell
    round: int


def plan(request: Request, *, device: str, device_memory_bytes: int | None, seed: str = "") -> list[Planned]:
    """Every cell of `request` on this device, each once a round, the cells of a round shuffled (by `seed`) so that a
    machine that warms up or slows down does not favor the first ones."""
    preset = PRESETS[request.preset or preset_for(device)]
    wanted: dict[str, Planned] = {}
    for name in request.experiments:
        for grid in preset.grids[name]:
            for cell in replace(grid, **request.axes).cells():
                wanted.setdefault(cell.key, Planned(experiment=name, cell=cell, round=0))
    named = "sizes" in request.axes or "shape" in request.axes
    if preset.fitting and not named and device_memory_bytes:
        wanted = {key: item for key, item in wanted.items() if _fits(item.cell, device_memory_bytes)}
    order = random.Random(seed)
    rounds = (order.sample(list(wanted.values()), len(wanted)) for _ in range(request.rounds))
    return [replace(item, round=number) for number, items in enumerate(rounds) for item in items]


def _fits(cell: StepCell, memory_bytes: int) -> bool:
    """Whether the cell's shape can be trained on a device of that memory; one rule for all of a size's modes."""
    return costs.predicted_peak_bytes(replace(cell, mode="train")) < memory_bytes


def check(cell: StepCell) -> None:
    """Raises UsageError for a cell that makes no sense on any machine."""
    check_shape(cell)
    if cell.weights_dtype == "bf16" and cell.precision != "bf16":
        raise UsageError(
            f"Weights held in bf16 with precision {cell.precision}.",
            expected="precision bf16",
            do="Add --precisions bf16.",
        )
    counts = min(cell.context, cell.batch, cell.min_steps)
    if counts < 1 or cell.warmup_steps < 0 or not 0 <= cell.max_seconds < float("inf"):
        raise UsageError("Batch and steps must be at least 1, warm-up and seconds at least 0.")


def title(cell: StepCell) -> str:
    """A cell in a few words: `small · 512 · train · bf16 · compiled`, and what else is not the default."""
    name = shape_name(
        d_model=cell.d_model, d_ff=cell.d_ff, layers=cell.layers, heads=cell.heads, vocabulary=cell.vocabulary
    )
    parts = [name, str(cell.context), cell.mode, cell.precision, cell.backend]
    shown = {
        "d_model",
        "d_ff",
        "layers",
        "heads",
        "vocabulary",
        "context",
        "mode",
        "precision",
        "backend",
        "max_seconds",
        "max_steps",
        "min_steps",
    }
    rest = [item for item in fields(StepCell) if item.name not in shown and getattr(cell, item.name) != item.default]
    if cell.min_steps == cell.max_steps:
        parts.append(f"exactly {cell.min_steps} steps")
    return " · ".join(parts + [f"{item.metadata['label'].lower()} {getattr(cell, item.name)}" for item in rest])


def sweep_command(cells: Sequence[StepCell]) -> str:
    """The shell command that measures these cells again, with whatever else their axes span."""
    words = ["python", "-m", "runner", "sweep", "--experiment", "benchmark", "--fresh"]
    for flag, texts in itertools.groupby(sorted({_shape_flag(cell) for cell in cells}), key=lambda pair: pair[0]):
        joined = [text for _, text in texts]
        words += [flag, ",".join(joined)] if flag == "--sizes" else [word for text in joined for word in (flag, text)]
    for name, axis in AXES.items():
        words += [f"--{axis}", ",".join(str(value) for value in sorted({getattr(cell, name) for cell in cells}))]
    for name, flag in (("min_steps", "--steps"), ("max_steps", "--max-steps"), ("max_seconds", "--max-seconds")):
        words += [flag, f"{max(getattr(cell, name) for cell in cells):.15g}"]
    return shlex.join(words)


def _shape_flag(cell: StepCell) -> tuple[str, str]:
    numbers = {name: getattr(cell, name) for name in ("d_model", "d_ff", "layers", "heads", "vocabulary")}
    name = shape_name(**numbers)
    return (
        ("--sizes", name)
        if name in SIZES
        else ("--shape", ",".join(f"{key}={value}" for key, value in numbers.items()))
    )
