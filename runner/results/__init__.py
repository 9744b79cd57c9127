"""The read model: results as pages, the terminal and the analysis read them.

    for cell in load_steps(path, Selection(mode="train")):     # runner.store.read brings them
        print(cell.cell.context, cell.status, cell.times["step"].median_ms)

The store makes them, the analysis reasons from them. Standard library and the schema only.
"""

from runner.results.cells import AccumulationResult as AccumulationResult
from runner.results.cells import AttentionResult as AttentionResult
from runner.results.cells import EarlyStep as EarlyStep
from runner.results.cells import Frontier as Frontier
from runner.results.cells import Kernel as Kernel
from runner.results.cells import KernelPart as KernelPart
from runner.results.cells import KernelTrace as KernelTrace
from runner.results.cells import LiveAllocation as LiveAllocation
from runner.results.cells import MemoryPart as MemoryPart
from runner.results.cells import NormalizationResult as NormalizationResult
from runner.results.cells import Peak as Peak
from runner.results.cells import PhasePeak as PhasePeak
from runner.results.cells import PhaseSample as PhaseSample
from runner.results.cells import PrecisionResult as PrecisionResult
from runner.results.cells import Profiled as Profiled
from runner.results.cells import Result as Result
from runner.results.cells import SavedOperation as SavedOperation
from runner.results.cells import StepResult as StepResult
from runner.results.cells import TimedResult as TimedResult
from runner.results.cells import Timeline as Timeline
from runner.results.published import OtherQuantity as OtherQuantity
from runner.results.published import PublishedFigure as PublishedFigure
from runner.results.published import PublishedRow as PublishedRow
from runner.results.published import PublishedTable as PublishedTable
from runner.results.published import Quantity as Quantity
from runner.results.published import Setting as Setting
from runner.results.published import Statistic as Statistic
from runner.results.published import Subject as Subject
from runner.results.runs import Machine as Machine
from runner.results.runs import RunSummary as RunSummary
from runner.results.times import Clock as Clock
from runner.results.times import Estimate as Estimate
from runner.results.times import Noise as Noise
from runner.results.times import PhaseTime as PhaseTime
from runner.results.times import RepeatedCell as RepeatedCell
from runner.results.times import Repetition as Repetition
from runner.results.times import RoundTime as RoundTime
