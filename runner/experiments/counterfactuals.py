"""What would make this step faster, and by how much?

    python -m runner sweep --experiment counterfactuals --sizes small --contexts 512

The same step with one thing changed at a time, measured in the same sweep; what made it slower is listed too.
"""

from runner.experiments.experiment import Experiment
from runner.experiments.grid import Grid, Variants
from runner.experiments.steps import EDITION_STEP, FITTING, STEPS, TOY_STEP
from runner.schema import StepCell


def _changed(grid: Grid, *more: Grid) -> tuple[Variants]:
    """The same step with one thing changed at a time, with everything that may help at once, and whatever `more` there
    is. What is not compiled comes first; the grid itself is among them."""
    half = grid.change(precisions=("bf16",))
    changed = (
        grid.change(precisions=("fp32", "tf32", "bf16")),
        half.change(weights=("bf16",)),
        grid.change(attention=("sdpa",)),
        grid.change(optimizers=("fused",)),
        grid.change(backends=("cuda-graphs",)),
        half.change(attention=("sdpa",), optimizers=("fused",), weights=("fp32",)),
    )
    return (Variants((*changed, *more), holds=_holds_its_weights),)


def _holds_its_weights(cell: StepCell) -> bool:
    """Whether the weights can be held so in that precision."""
    return cell.weights_dtype == "fp32" or cell.precision == "bf16"


_STANDARD = FITTING.change(contexts=(512,))

EXPERIMENT = Experiment(
    name="counterfactuals",
    question="What would make the step faster, and by how much?",
    kinds=(STEPS,),
    grids={
        "laptop": _changed(TOY_STEP),
        "standard": _changed(
            _STANDARD,
            _STANDARD.change(
                sizes=("small", "medium"),
                precisions=("bf16",),
                attention=("sdpa",),
                optimizers=("fused",),
                backends=("compiled", "compiled-reduce-overhead"),
            ),
        ),
        **{name: _changed(grid) for name, grid in EDITION_STEP.items()},
    },
)
