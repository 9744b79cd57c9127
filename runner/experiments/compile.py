"""What does torch.compile buy, what does it cost, and after how many steps does it pay off?

    python -m runner sweep --experiment compile --backends eager,compiled,compiled-block

Answers C2. The cells are those of `benchmark`. Each is compiled with an empty cache, so that its row holds the cold and
the warm compile time.
"""

from runner.experiments.experiment import Experiment
from runner.experiments.models import EDITION_STEPS, FITTING, STEPS, TOY_STEP

_COLD = FITTING.change(contexts=(512,), compile_cache=("empty",))

EXPERIMENT = Experiment(
    name="compile",
    question="How much faster is torch.compile, and when does it pay off?",
    kinds=(STEPS,),
    grids={
        "laptop": (TOY_STEP.change(backends=("eager", "compiled-block")),),
        "standard": (
            _COLD.change(
                sizes=("small", "medium"),
                modes=("inference", "train"),
                precisions=("fp32", "bf16"),
                backends=("eager", "compiled"),
            ),
            _COLD.change(
                sizes=("small",),
                precisions=("bf16",),
                backends=("compiled-block", "compiled-reduce-overhead", "compiled-max-autotune"),
            ),
        ),
        **{
            name: (
                grid.change(
                    sizes=grid.value("sizes")[:4],
                    contexts=grid.value("contexts")[:1],
                    modes=("inference", "train"),
                    backends=("eager", "compiled"),
                    compile_cache=("empty",),
                ),
            )
            for name, grid in EDITION_STEPS.items()
        },
    },
)
