"""What a sweep will measure: a preset and axes become cells, keyed on numbers. Nothing is measured here.

    python -m runner sweep --preset cs336-2025 --sizes small,medium --dry-run

An axis that is set by the user replaces that axis in every grid of the preset, and cells that come out equal are
measured once. Standard library only.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.analysis import costs
from runner.errors import UsageError
from runner.presets import PRESETS, QUESTIONS, preset_for
from runner.schema import AttentionCell, MemoryCell, NumericsCell, ProfileCell, StepCell, SweepCell
from runner.sizes import check_shape


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a sweep was asked for, before the machine is known. `axes` are axes of the grids set by the user; a
    shape of one's own replaces the preset's sizes, so it comes with `sizes`."""

    preset: str | None = None
    experiments: tuple[str, ...] = tuple(QUESTIONS)
    axes: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One cell of a sweep, in the order of measuring."""

    experiment: str
    cell: SweepCell
    round: int


def plan(request: Request, *, device: str, device_memory_bytes: int | None, seed: str = "") -> list[Planned]:
    """Every cell of `request` on this device, each once a round, the cells of a round shuffled (by `seed`) so that a
    machine that warms up or slows down does not favor the first ones."""
    preset = PRESETS[request.preset or preset_for(device)]
    wanted: dict[str, Planned] = {}
    for name in request.experiments:
        for grid in preset.grids[name]:
            for cell in grid.over(request.axes).cells():
                wanted.setdefault(cell.key, Planned(experiment=name, cell=cell, round=0))
    named = "sizes" in request.axes or "shape" in request.axes
    if preset.fitting and not named and device_memory_bytes:
        wanted = {key: item for key, item in wanted.items() if _fits(item.cell, device_memory_bytes)}
    order = random.Random(seed)
    rounds = (order.sample(list(wanted.values()), len(wanted)) for _ in range(request.rounds))
    return [replace(item, round=number) for number, items in enumerate(rounds) for item in items]


def _fits(cell: SweepCell, memory_bytes: int) -> bool:
    """Whether the cell's shape can be trained on a device of that memory; one rule for all of a size's modes. Attention
    is measured until it runs out."""
    if isinstance(cell, StepCell | MemoryCell | ProfileCell):
        return costs.predicted_peak_bytes(replace(cell, mode="train")) < memory_bytes
    return True


def check(cell: SweepCell) -> None:
    """Raises UsageError for a cell that makes no sense on any machine."""
    if isinstance(cell, NumericsCell):
        check(cell.step())
    if isinstance(cell, StepCell | MemoryCell | ProfileCell):
        check_shape(cell)
        if cell.weights_dtype == "bf16" and cell.precision != "bf16":
            raise UsageError(
                f"Weights held in bf16 with precision {cell.precision}.",
                expected="precision bf16",
                do="Add --precisions bf16.",
            )
        if min(cell.batch, cell.context) < 1:
            raise UsageError("Batch and context must be at least 1.")
    if isinstance(cell, AttentionCell) and min(cell.batch, cell.seq_len, cell.d_head) < 1:
        raise UsageError("Batch, sequence length and head width must be at least 1.")
    if isinstance(cell, StepCell | AttentionCell):
        too_small = cell.min_steps < 1 or cell.warmup_steps < 0
        if too_small or not 0 <= cell.max_seconds < float("inf"):
            raise UsageError("Steps must be at least 1, warm-up and seconds at least 0.")
