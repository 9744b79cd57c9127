"""Where does the memory of a step go, what does backward keep, and when does the peak fall?

    python -m runner sweep --experiment memory --sizes small --contexts 128,512 --timeline

Answers M1 to M6. The cell records every allocation of one steady step, which follows a whole real step.
"""

from math import sqrt

from runner.analysis.costs.steps import best_checkpoint
from runner.experiments.experiment import Experiment, Grid, Kind
from runner.experiments.models import EDITIONS, SIZES, TOYS, check_model, fits_trained, predict_model
from runner.formats import format_bytes
from runner.schema import MemoryCell

#: The number of steps that a cell runs, and the time to examine their allocations (s).
STEPS_RUN = 4
EXTRA_SECONDS = 0.1

GRID = Grid.of(MemoryCell, modes=("inference", "forward", "train"), precisions=("fp32", "bf16"))
TOY = GRID.change(sizes=TOYS, contexts=(64,))


def _record_timelines(grid: Grid) -> Grid:
    """Returns the timelines of an inference and a training step of each size, at the shortest and longest context."""
    contexts = tuple(dict.fromkeys((grid.value("contexts")[0], grid.value("contexts")[-1])))
    return grid.change(modes=("inference", "train"), precisions=("fp32",), contexts=contexts, timeline=(True,))


def _checkpoint(grid: Grid) -> Grid:
    """Returns the training step of each size at its longest context, with each block computed again in backward."""
    contexts = grid.value("contexts")[-1:]
    return grid.change(modes=("train",), precisions=("fp32",), contexts=contexts, checkpoint=(1,))


def _search(grid: Grid) -> Grid:
    """Returns the steps with and without the optimizer of one size, with so many blocks recomputed together as need
    least memory by the formula, one fewer, one more, and √L, which is best where a block keeps as much as its input."""
    (cell, *_) = grid.change(contexts=grid.value("contexts")[-1:]).cells()
    assert isinstance(cell, MemoryCell)
    best, layers = best_checkpoint(cell), cell.shape.layers
    return _checkpoint(grid).change(
        modes=("backward", "train"), checkpoint=(best - 1, best, min(best + 1, layers), round(sqrt(layers)))
    )


MEMORY = Kind(
    cell=MemoryCell,
    measure="runner.measure.memory:measure_memory",
    check=check_model,
    predict=lambda cell, on: predict_model(cell, on, steps_run=STEPS_RUN, more_seconds=EXTRA_SECONDS),
    summarize=lambda row, timings: f"peak {format_bytes(row.peak_allocated_bytes or 0)} in {row.peak_phase}",
    fits=fits_trained,
)

EXPERIMENT = Experiment(
    name="memory",
    question="What fills the memory, and when?",
    kinds=(MEMORY,),
    grids={
        "laptop": (TOY, TOY.change(contexts=(128,), modes=("train",)), _record_timelines(TOY), _checkpoint(TOY)),
        "standard": (
            GRID.change(sizes=SIZES, contexts=(512,)),
            GRID.change(sizes=SIZES, contexts=(128, 1024), modes=("train",)),
            _record_timelines(GRID.change(sizes=SIZES, contexts=(512,))),
            _checkpoint(GRID.change(sizes=SIZES, contexts=(512,))),
        ),
        **{
            name: (grid, _record_timelines(grid), _search(grid))
            for name, axes in EDITIONS.items()
            for grid in (GRID.change(**axes["memory"]),)
        },
    },
)
