"""How long do the forward pass, the loss, the backward pass and the optimizer take, and after how much warm-up?

    python -m runner sweep --experiment benchmark

Answers B1, B2, B3 and C2. All phases of a cell are timed inside the same real steps.
"""

from runner.experiments.experiment import Experiment, Grid
from runner.experiments.models import EDITION_STEP, EDITION_STEPS, EDITIONS, FITTING, STEPS, TOY_STEP, TOY_STEPS


def _vary_warmup(grid: Grid) -> Grid:
    """Returns the same cells after 0, 1, 2 and 5 warm-up steps, each with exactly ten measured steps."""
    return grid.change(warmup=(0, 1, 2, 5), steps=10, max_steps=0)


EXPERIMENT = Experiment(
    name="benchmark",
    question="How long do the forward pass, the backward pass and the optimizer take?",
    kinds=(STEPS,),
    grids={
        "laptop": (
            TOY_STEPS,
            TOY_STEPS.change(contexts=(64,), modes=("inference",)),
            _vary_warmup(TOY_STEP.change(sizes=("toy-128",))),
            TOY_STEP,
        ),
        "standard": (
            FITTING,
            FITTING.change(contexts=(512,), modes=("inference",)),
            _vary_warmup(FITTING.change(sizes=("small",), contexts=(512,))),
        ),
        **{
            name: (
                (both := grid.change(modes=("inference", "train"))),
                both.change(**EDITIONS[name]["profiles"]),  # whose forward passes are compared with the clock's
                _vary_warmup(EDITION_STEP[name]),
            )
            for name, grid in EDITION_STEPS.items()
        },
    },
)
