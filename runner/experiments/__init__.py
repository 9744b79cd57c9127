"""The experiments: every file of this folder that defines `EXPERIMENT` is one.

    kind_of(cell).predict(cell, On(device="cuda", flops_per_s=1e15)).seconds

Standard library only: whoever plans, reads or draws needs no torch.
"""

import importlib
import pkgutil

from runner.experiments.experiment import Experiment, Kind
from runner.schema import Cell

#: The order in which experiments are listed and planned; what is not named here comes last.
_ORDER = "benchmark mixed-precision attention memory kernels compile numerics counterfactuals"
#: What `python -m runner frontier` measures, again and again, of cells of several kinds.
TRIAL = "runner.measure.memory.frontier:measure_trial"


def _experiments() -> list[Experiment]:
    """What the files of this folder call `EXPERIMENT`."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found: list[Experiment] = [module.EXPERIMENT for module in modules if hasattr(module, "EXPERIMENT")]
    known = _ORDER.split()
    return sorted(found, key=lambda one: known.index(one.name) if one.name in known else len(known))


EXPERIMENTS = tuple(_experiments())
KINDS = tuple(dict.fromkeys(kind for experiment in EXPERIMENTS for kind in experiment.kinds))
_ASKED = {kind.cell: (kind, experiment) for experiment in reversed(EXPERIMENTS) for kind in experiment.kinds}


def kind_of(cell: Cell) -> Kind:
    """The kind of a cell, also of a row."""
    return _ASKED[cell.asked()][0]


def experiment_of(cell: type[Cell]) -> Experiment:
    """The experiment by which such cells are asked for again: the first that measures them."""
    return _ASKED[cell][1]
