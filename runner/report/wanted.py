"""The cells that would answer a question, and the commands that measure them.

wanted_cells(rows, "benchmark", StepCell)        # of the edition's preset, or of the one for this device
commands(rows, cells)                            # ("python -m runner sweep --experiment benchmark …",)
"""

import shlex
from collections.abc import Iterable, Sequence
from typing import TypeVar

from runner.experiments import kind_of
from runner.plan.commands import sweep_commands
from runner.plan.presets import PRESETS, preset_for
from runner.report.rows import Rows
from runner.schema import Cell
from runner.store.database import default_path
from runner.store.reference import is_reference

C = TypeVar("C", bound=Cell)


def wanted_cells(rows: Rows, experiment: str, kind: type[C]) -> list[C]:
    """Returns the cells of one kind that an experiment has in the preset of the report's edition, or else in the one
    for the report's device, if they are predicted to fit it."""
    edition = rows.scope.edition
    preset = PRESETS[f"cs336-{edition}" if edition else preset_for(rows.device or "cpu")]
    cells = [cell for grid in preset.grids[experiment] for cell in grid.cells() if isinstance(cell, kind)]
    memory = rows.device_memory_bytes
    if preset.fitting and memory:
        cells = [cell for cell in cells if kind_of(cell).fits(cell, memory)]
    return list(dict.fromkeys(cells))


def commands(rows: Rows, cells: Iterable[Cell], *, fresh: bool = False) -> tuple[str, ...]:
    """Returns the commands that measure exactly these cells into the report's file, and not into the reference. With
    `fresh` they measure again what is done."""
    listed: Sequence[str] = sweep_commands(cells, fresh=fresh)
    is_usual = rows.path.absolute() == default_path().absolute() or is_reference(rows.path)
    file = [] if is_usual else ["--db", str(rows.path)]
    return tuple(f"{command} {shlex.join(file)}" if file else command for command in listed)
