"""How long do the forward pass, the loss, the backward pass and the optimizer take, and after how much warm-up?

    python -m runner sweep --experiment benchmark

Answers B1, B2, B3 and C2. All phases of a cell are timed inside the same real steps.
"""

from runner.experiments.experiment import Experiment
from runner.measure.timing.step import measure_step

EXPERIMENT = Experiment(name="benchmark", measure=measure_step)
