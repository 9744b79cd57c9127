"""The experiments: every file of this folder that defines `EXPERIMENT` is one.

    kind_of(cell).predict(cell, On(device="cuda", flops_per_s=1e15)).seconds

Standard library only: whoever plans, reads or draws needs no torch.
"""

import importlib
import pkgutil

from runner.experiments.experiment import Experiment, Kind
from runner.schema import Cell

#: The order in which experiments are listed and planned; experiments that are not named here come last.
_ORDER = "benchmark mixed-precision attention memory kernels compile numerics counterfactuals"
#: The function that measures one trial of `sweep --experiment frontier`, for cells of several kinds.
TRIAL = "runner.measure.memory:measure_trial"


def _load_experiments() -> list[Experiment]:
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found: list[Experiment] = [module.EXPERIMENT for module in modules if hasattr(module, "EXPERIMENT")]
    known = _ORDER.split()
    return sorted(found, key=lambda one: known.index(one.name) if one.name in known else len(known))


EXPERIMENTS = tuple(_load_experiments())
KINDS = tuple(dict.fromkeys(kind for experiment in EXPERIMENTS for kind in experiment.kinds))
_BY_CELL = {kind.cell: (kind, experiment) for experiment in reversed(EXPERIMENTS) for kind in experiment.kinds}


def kind_of(cell: Cell) -> Kind:
    """Returns the kind of a cell or of a row."""
    return _BY_CELL[cell.asked()][0]


def experiment_of(cell: type[Cell]) -> Experiment:
    """Returns the first experiment that measures such cells, whose command measures them again."""
    return _BY_CELL[cell][1]
