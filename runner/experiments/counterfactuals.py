"""What would make this step faster, and by how much?

    python -m runner sweep --experiment counterfactuals --sizes small --contexts 512

The sweep measures one step again and again with one setting changed at a time. Changes that make it slower are listed
too.
"""

from runner.experiments.experiment import Experiment, Grid, Variants
from runner.experiments.models import EDITION_STEP, FITTING, STEPS, TOY_STEP


def _vary(grid: Grid, *more: Grid) -> tuple[Variants]:
    """Returns the grid's step, the same step with one setting changed at a time and with all promising settings at
    once, and the steps of `more`. Steps that are not compiled come first."""
    half = grid.change(precisions=("bf16",))
    variants = (
        grid.change(precisions=("fp32", "tf32", "bf16")),
        half.change(weights=("bf16",)),
        grid.change(attention=("sdpa",)),
        grid.change(optimizers=("fused",)),
        grid.change(backends=("cuda-graphs",)),
        half.change(attention=("sdpa",), optimizers=("fused",), weights=("fp32",)),
        *more,
    )
    return (Variants(variants, holds=lambda cell: cell.weights_dtype == "fp32" or cell.precision == "bf16"),)


_STANDARD = FITTING.change(contexts=(512,))

EXPERIMENT = Experiment(
    name="counterfactuals",
    question="What would make the step faster, and by how much?",
    kinds=(STEPS,),
    grids={
        "laptop": _vary(TOY_STEP),
        "standard": _vary(
            _STANDARD,
            _STANDARD.change(
                sizes=("small", "medium"),
                precisions=("bf16",),
                attention=("sdpa",),
                optimizers=("fused",),
                backends=("compiled", "compiled-reduce-overhead"),
            ),
        ),
        **{name: _vary(grid) for name, grid in EDITION_STEP.items()},
    },
)
