"""The experiments. A new one is a file and a line here; `runner.plan.presets` has its question and its grids."""

from runner.experiments import (
    attention,
    benchmark,
    compile,
    counterfactuals,
    kernels,
    memory,
    mixed_precision,
    numerics,
)
from runner.experiments.experiment import Experiment
from runner.measure.memory.frontier import measure_trial

EXPERIMENTS: tuple[Experiment, ...] = (
    benchmark.EXPERIMENT,
    mixed_precision.EXPERIMENT,
    attention.EXPERIMENT,
    memory.EXPERIMENT,
    kernels.EXPERIMENT,
    compile.EXPERIMENT,
    numerics.EXPERIMENT,
    counterfactuals.EXPERIMENT,
)
#: What `python -m runner frontier` asks of a worker, again and again; no sweep asks it.
TRIAL = Experiment(name="frontier", measure=measure_trial)
