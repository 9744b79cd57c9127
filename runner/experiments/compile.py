"""What does torch.compile buy, what does it cost, and after how many steps has it paid for itself?

    python -m runner sweep --experiment compile --backends eager,compiled,compiled-block

Answers C2. The cells are those of `benchmark`, each compiled with an empty cache, so that the cold compile time and the
warm one are both in the row.
"""

from runner.experiments.experiment import Experiment
from runner.measure.timing.step import measure_step

EXPERIMENT = Experiment(name="compile", measure=measure_step)
