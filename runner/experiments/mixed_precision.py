"""How much faster are bf16, fp16 and TF32 at each size?

    python -m runner sweep --experiment mixed-precision --precisions fp32,tf32,bf16

Answers P3. The cells are those of `benchmark` at several precisions, shuffled together so that they can be compared. A
cell that belongs to both experiments is measured once.
"""

from runner.experiments.experiment import Experiment
from runner.experiments.models import EDITION_STEPS, FITTING, STEPS, TOY_STEPS

_BOTH = ("fp32", "bf16")

EXPERIMENT = Experiment(
    name="mixed-precision",
    question="How much faster are bf16, fp16 and TF32 at each size?",
    kinds=(STEPS,),
    grids={
        "laptop": (TOY_STEPS.change(contexts=(64, 128), precisions=_BOTH),),
        "standard": (
            FITTING.change(precisions=_BOTH),
            FITTING.change(contexts=(512,), precisions=("fp32", "tf32", "bf16")),
        ),
        **{name: (grid.change(precisions=_BOTH),) for name, grid in EDITION_STEPS.items()},
    },
)
