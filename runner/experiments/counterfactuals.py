"""What would make this step faster, and by how much?

    python -m runner sweep --experiment counterfactuals --sizes small --contexts 512

The same step with one thing changed at a time, measured in the same sweep; what made it slower is listed too.
"""

from runner.experiments.experiment import Experiment
from runner.measure.timing.step import measure_step

EXPERIMENT = Experiment(name="counterfactuals", measure=measure_step)
