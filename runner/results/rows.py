"""The rows that answers are made of, by kind: those of one file and one selection.

rows = read(path, Selection(mode="train"), needs=("every_step",))        # runner.store.read
rows = Rows(every_step=(StepResult(…),))                                 # a test makes them by hand
"""

from dataclasses import dataclass

from runner.results.cells import AttentionResult, StepResult
from runner.results.kernels import Kernel, KernelPart, KernelTrace
from runner.results.memory import Peak
from runner.results.runs import RunSummary


@dataclass(frozen=True, kw_only=True)
class Traced:
    """One profiled cell with its kernels: summed by phase and class, and one by one."""

    trace: KernelTrace
    parts: tuple[KernelPart, ...]
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, kw_only=True)
class RunSteps:
    """One run and what it measured, whatever later runs measured again."""

    run: RunSummary
    steps: tuple[StepResult, ...]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows by kind; empty for what a question does not need."""

    steps: tuple[StepResult, ...] = ()
    every_step: tuple[StepResult, ...] = ()
    attention: tuple[AttentionResult, ...] = ()
    peaks: tuple[Peak, ...] = ()
    traced: tuple[Traced, ...] = ()
    runs: tuple[RunSummary, ...] = ()
    by_run: tuple[RunSteps, ...] = ()
