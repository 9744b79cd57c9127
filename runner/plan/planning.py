"""What a sweep will measure: a preset and axes become cells. Nothing is measured here.

    python -m runner sweep --preset cs336-2025 --sizes small,medium --dry-run

Where the user sets an axis, an experiment is one grid: the preset's first that has it, with that axis changed. The
preset's other grids (a warm-up ablation, timelines, cold caches, …) are left out; each has its own flag. Equal cells
are measured once. Standard library only.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from runner.errors import UsageError
from runner.experiments import experiment_of, kind_of
from runner.experiments.grid import Grid, Variants
from runner.plan.presets import PRESETS, QUESTIONS, Preset, preset_for
from runner.plan.shards import Shard, size_of, take_shard
from runner.schema import Cell, Model, flags

#: How often every cell is measured; `auto` decides it cell by cell, while the sweep runs.
Rounds = int | Literal["auto"]
#: The flags that say how carefully a cell is measured; every other flag of a column is an axis.
LIMITS = frozenset(name for name, column in flags().items() if column.sets == "limit")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user wants measured. `axes` are the values set by flags; `shape` replaces the preset's sizes, so it
    comes with `sizes`. Where `cells` are given, they are all that is measured, and no preset is asked. `shard` is
    this machine's share of a plan that several measure."""

    preset: str | None = None
    experiments: tuple[str, ...] = tuple(QUESTIONS)
    axes: Mapping[str, Any] = field(default_factory=dict)
    rounds: Rounds = 1
    cells: tuple[Cell, ...] = ()
    shard: Shard | None = None

    def named_preset(self, device: str) -> str | None:
        """Returns the preset that this request starts from on such a device; None for given cells."""
        return None if self.cells else self.preset or preset_for(device)

    @property
    def may_compile(self) -> bool:
        """Whether cells of this request use torch.compile, as far as is known before the machine is."""
        if "backends" in self.axes and not self.cells:
            return any(backend.startswith("compiled") for backend in self.axes["backends"])
        grids = {} if self.cells else PRESETS[self.preset or preset_for("cuda")].grids
        cells = (cell for name in self.experiments if name in grids for grid in grids[name] for cell in grid.cells())
        return any(getattr(cell, "backend", "eager").startswith("compiled") for cell in (*self.cells, *cells))


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One cell of a sweep, to be measured in one round."""

    experiment: str
    cell: Cell
    round: int


def plan(request: Request, *, device: str, device_memory_bytes: int | None, seed: str = "") -> list[Planned]:
    """Returns every cell of `request` on this device, once a round, in the order of measuring.

    Each round is shuffled by `seed`, so that a machine that warms up or slows down favors no cell (see `shuffle`).
    Rounds that are `auto` begin with one. Raises UsageError for an axis that no experiment of the request has, and
    where no cell is left."""
    name = request.named_preset(device)
    if name is None:
        cells = [Planned(experiment=experiment_of(type(cell)).name, cell=cell, round=0) for cell in request.cells]
    else:
        cells = _cells_of(PRESETS[name], request, device_memory_bytes)
    if not cells:
        raise UsageError("No cell is left of what was asked for.", do="See it without some of its flags: --dry-run.")
    if request.shard:
        mine = {cell.key for cell in take_shard([item.cell for item in cells], request.shard, device=device)}
        cells = [item for item in cells if item.cell.key in mine]
    order = random.Random(seed)
    count = 1 if request.rounds == "auto" else request.rounds
    rounds = (shuffle(cells, order) for _ in range(count))
    return [replace(item, round=number) for number, items in enumerate(rounds) for item in items]


def shuffle(cells: Sequence[Planned], order: random.Random) -> list[Planned]:
    """Returns the cells of a round in random order, but those that are compared with each other one after the other:
    those of one kind, size and mode. What slows a machine down for some seconds then slows both sides.

    By how much a step was off its own median correlated with the next step at 0.43, with those two to eight steps later
    at 0.20, so that the variance of a ratio of neighbors was 0.52 to 0.89 of that of others (`python -m tests.bench
    noise`, six recordings on CPUs with busy neighbors). Such blocks are R. A. Fisher's (The Design of Experiments,
    1935)."""
    blocks: dict[tuple[object, ...], list[Planned]] = {}
    for item in order.sample(cells, len(cells)):
        key = (type(item.cell), getattr(item.cell, "mode", None), size_of(item.cell))
        blocks.setdefault(key, []).append(item)
    return [item for block in order.sample(list(blocks.values()), len(blocks)) for item in block]


def _cells_of(preset: Preset, request: Request, device_memory_bytes: int | None) -> list[Planned]:
    """Returns the cells that the request makes of a preset's grids."""
    cells: dict[str, Planned] = {}
    _check_axes(request, preset)
    for name in request.experiments:
        for grid in _grids(preset, name, request.axes):
            for cell in grid.over(request.axes).cells():
                cells.setdefault(cell.key, Planned(experiment=name, cell=cell, round=0))
    named = "sizes" in request.axes or "shape" in request.axes
    if preset.fitting and not named and device_memory_bytes:
        return [item for item in cells.values() if kind_of(item.cell).fits(item.cell, device_memory_bytes)]
    return list(cells.values())


def _grids(preset: Preset, experiment: str, axes: Mapping[str, Any]) -> tuple[Grid | Variants, ...]:
    """Returns the preset's grids of an experiment; where an axis of theirs is set, only the first grid of each table
    that has it."""
    every = preset.grids[experiment]
    if "model" in axes:  # whoever names a model asks about models
        every = tuple(grid for grid in every if issubclass(grid.cell, Model))
    first = {grid.cell: grid for grid in reversed(every)}
    return tuple(grid for grid in first.values() if grid.settable & (axes.keys() - LIMITS)) or every


def _check_axes(request: Request, preset: Preset) -> None:
    """Raises UsageError for an axis that none of the request's experiments has."""
    known = {axis for name in request.experiments for grid in preset.grids[name] for axis in grid.settable}
    unknown = sorted(f"--{name.replace('_', '-')}" for name in request.axes if name not in known)
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} means nothing to {', '.join(request.experiments)}.",
            expected=f"some of {', '.join(sorted(f'--{name}'.replace('_', '-') for name in known))}",
        )
