"""At what sequence length does single-head attention run out, of time and of memory, and what helps?

    python -m runner sweep --experiment attention --attention naive,sdpa-flash --precisions bf16

Answers A1, A2, A3 and C1. Forward and backward are timed inside the same iterations; a cell that runs out of memory is
a row with the bytes it asked for.
"""

from runner.experiments.experiment import Experiment
from runner.measure.timing.attention import measure_attention

EXPERIMENT = Experiment(name="attention", measure=measure_attention)
