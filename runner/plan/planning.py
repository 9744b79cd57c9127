"""What a sweep will measure: a preset and axes become cells, keyed on numbers. Nothing is measured here.

    python -m runner sweep --preset cs336-2025 --sizes small,medium --dry-run

Where the user sets an axis, an experiment is one grid: the first that the preset has for it, with that axis. What a
preset measures beside it (a warm-up ablation, timelines, cold caches, …) is then left out: each has its own flag.
Cells that come out equal are measured once. Standard library only.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.errors import UsageError
from runner.experiments import kind_of
from runner.experiments.grid import Grid, Variants
from runner.plan.presets import PRESETS, QUESTIONS, Preset, preset_for
from runner.schema import Cell, flags

#: What says how carefully a cell is measured; whatever else a user sets is an axis.
LIMITS = frozenset(name for name, column in flags().items() if column.sets == "limit")


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
    cell: Cell
    round: int


def plan(request: Request, *, device: str, device_memory_bytes: int | None, seed: str = "") -> list[Planned]:
    """Every cell of `request` on this device, each once a round, the cells of a round shuffled (by `seed`) so that a
    machine that warms up or slows down does not favor the first ones."""
    preset = PRESETS[request.preset or preset_for(device)]
    wanted: dict[str, Planned] = {}
    _check_axes(request, preset)
    for name in request.experiments:
        for grid in _grids(preset, name, request.axes):
            for cell in grid.over(request.axes).cells():
                wanted.setdefault(cell.key, Planned(experiment=name, cell=cell, round=0))
    named = "sizes" in request.axes or "shape" in request.axes
    if preset.fitting and not named and device_memory_bytes:
        wanted = {key: item for key, item in wanted.items() if kind_of(item.cell).fits(item.cell, device_memory_bytes)}
    if not wanted:
        raise UsageError("No cell is left of what was asked for.", do="See it without some of its flags: --dry-run.")
    order = random.Random(seed)
    rounds = (order.sample(list(wanted.values()), len(wanted)) for _ in range(request.rounds))
    return [replace(item, round=number) for number, items in enumerate(rounds) for item in items]


def _grids(preset: Preset, experiment: str, axes: Mapping[str, Any]) -> tuple[Grid | Variants, ...]:
    """The grids of an experiment: all that the preset has or, where one of their axes is set, the first of each table
    that has the axis."""
    every = preset.grids[experiment]
    first = {grid.cell: grid for grid in reversed(every)}
    return tuple(grid for grid in first.values() if grid.settable & (axes.keys() - LIMITS)) or every


def _check_axes(request: Request, preset: Preset) -> None:
    """Raises UsageError for an axis that means nothing to any of the experiments asked for."""
    known = {name for asked in request.experiments for grid in preset.grids[asked] for name in grid.settable}
    unknown = sorted(f"--{name.replace('_', '-')}" for name in request.axes if name not in known)
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} means nothing to {', '.join(request.experiments)}.",
            expected=f"some of {', '.join(sorted(f'--{name}'.replace('_', '-') for name in known))}",
        )
