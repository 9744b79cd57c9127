"""What is the time of a step made of: which kernels, of what kind, in which phase and range, and who waits for whom?

    python -m runner sweep --experiment kernels --sizes small --modes inference,train

Answers K1 to K5. A pass of its own under the profiler: profiled time is never shown as the step's time.
"""

from runner.experiments.experiment import Experiment
from runner.measure.profiling.kernels import measure_kernels

EXPERIMENT = Experiment(name="kernels", measure=measure_kernels)
