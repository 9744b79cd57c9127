"""What do bf16, fp16 and TF32 buy at each size?

    python -m runner sweep --experiment mixed-precision --precisions fp32,tf32,bf16

Answers P3. The cells are those of `benchmark` at several precisions, shuffled together so that they can be compared; a
cell that both ask for is measured once.
"""

from runner.experiments.experiment import Experiment
from runner.measure.timing.step import measure_step

EXPERIMENT = Experiment(name="mixed-precision", measure=measure_step)
