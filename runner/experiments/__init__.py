"""The experiments. A new one is a file beside these and a line here; its question and grids are in `runner.presets`."""

from runner.experiments import benchmark, mixed_precision
from runner.experiments.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (benchmark.EXPERIMENT, mixed_precision.EXPERIMENT)
