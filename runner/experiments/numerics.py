"""What does a lower precision cost in accuracy, and where?

    python -m runner sweep --experiment numerics --precisions bf16,fp16

Answers P1 and P2: sums bit by bit, the dtypes of a pass as they were, the error of loss and gradients.
"""

from runner.experiments.experiment import Experiment
from runner.measure.numerics.errors import measure_numerics

EXPERIMENT = Experiment(name="numerics", measure=measure_numerics)
