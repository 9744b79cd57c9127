"""Where does the memory of a step go, what does backward keep, and when does the peak fall?

    python -m runner sweep --experiment memory --sizes small --contexts 128,512 --timeline

Answers M1 to M6. One steady step is recorded, allocation by allocation, after a whole real step.
"""

from runner.experiments.experiment import Experiment
from runner.measure.memory.step import measure_memory

EXPERIMENT = Experiment(name="memory", measure=measure_memory)
