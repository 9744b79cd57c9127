"""What an experiment is: its name and the function that measures one of its cells.

    EXPERIMENT = Experiment(name="benchmark", measure=measure_step)

Its question and its cells stand in `runner.plan.presets` under the same name: they are needed where torch is not.
"""

from collections.abc import Callable
from dataclasses import dataclass

from runner.job import Job, Measurement


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """`measure(job, report)` returns a Measurement or raises; it calls `report` with what it is doing now."""

    name: str
    measure: Callable[[Job, Callable[[str], None]], Measurement]
