"""The contract: every table, every column, with its label, unit and meaning.

A *cell* is what was asked for (`StepCell`); a *row* is a cell with what came of it (`StepRow`). Everything else that
knows a column's name or type derives it from here: the DDL, `data/README.md`, axis titles, filters, tests.

    >>> from runner.schema import TABLES
    >>> [column.name for column in TABLES["timings"].columns if column.unit == "ms"]
    ['median_ms', 'mean_ms', 'std_ms', 'low_ms', 'high_ms', 'host_median_ms']

Standard library only, so that whoever reads rows needs neither torch nor DuckDB. Columns are only ever added: never
renamed, removed or retyped. Unknown is None (NULL), never 0, -1 or NaN. Times of day are naive UTC.
"""

from collections.abc import Mapping

from runner.schema.attention import AttentionCell as AttentionCell
from runner.schema.attention import AttentionRow as AttentionRow
from runner.schema.choices import DONE as DONE
from runner.schema.choices import PHASES as PHASES
from runner.schema.choices import Attention as Attention
from runner.schema.choices import AttentionBackend as AttentionBackend
from runner.schema.choices import Backend as Backend
from runner.schema.choices import Cache as Cache
from runner.schema.choices import Category as Category
from runner.schema.choices import Ceiling as Ceiling
from runner.schema.choices import CompileCache as CompileCache
from runner.schema.choices import FloatName as FloatName
from runner.schema.choices import KernelClass as KernelClass
from runner.schema.choices import Limited as Limited
from runner.schema.choices import Mode as Mode
from runner.schema.choices import Moment as Moment
from runner.schema.choices import NormStatistic as NormStatistic
from runner.schema.choices import Optimizer as Optimizer
from runner.schema.choices import Phase as Phase
from runner.schema.choices import PlanState as PlanState
from runner.schema.choices import Precision as Precision
from runner.schema.choices import Source as Source
from runner.schema.choices import Status as Status
from runner.schema.choices import StoppedBy as StoppedBy
from runner.schema.choices import TimelineOrigin as TimelineOrigin
from runner.schema.choices import TraceOrigin as TraceOrigin
from runner.schema.choices import WeightsDtype as WeightsDtype
from runner.schema.columns import Cell as Cell
from runner.schema.columns import Column as Column
from runner.schema.columns import Table as Table
from runner.schema.columns import new_id as new_id
from runner.schema.columns import utc_now as utc_now
from runner.schema.kernels import KernelRow as KernelRow
from runner.schema.kernels import ProfileCell as ProfileCell
from runner.schema.kernels import ProfileRow as ProfileRow
from runner.schema.kernels import TraceRow as TraceRow
from runner.schema.memory import AllocationRow as AllocationRow
from runner.schema.memory import FrontierCell as FrontierCell
from runner.schema.memory import FrontierRow as FrontierRow
from runner.schema.memory import MarkRow as MarkRow
from runner.schema.memory import MemoryCell as MemoryCell
from runner.schema.memory import MemoryRow as MemoryRow
from runner.schema.memory import PhasePeakRow as PhasePeakRow
from runner.schema.memory import SavedTensorRow as SavedTensorRow
from runner.schema.memory import StackRow as StackRow
from runner.schema.memory import TimelineRow as TimelineRow
from runner.schema.numerics import AccumulationCell as AccumulationCell
from runner.schema.numerics import AccumulationRow as AccumulationRow
from runner.schema.numerics import DtypeRow as DtypeRow
from runner.schema.numerics import NormalisationRow as NormalisationRow
from runner.schema.numerics import NumericsCell as NumericsCell
from runner.schema.numerics import NumericsRow as NumericsRow
from runner.schema.numerics import PartialSumRow as PartialSumRow
from runner.schema.runs import CeilingRow as CeilingRow
from runner.schema.runs import PlanRow as PlanRow
from runner.schema.runs import Row as Row
from runner.schema.runs import RunRow as RunRow
from runner.schema.runs import SampleRow as SampleRow
from runner.schema.runs import TelemetryRow as TelemetryRow
from runner.schema.runs import TimingRow as TimingRow
from runner.schema.steps import StepCell as StepCell
from runner.schema.steps import StepRow as StepRow

#: A question about a whole Transformer step, whether of its time or of its memory.
ModelCell = StepCell | MemoryCell | ProfileCell
#: A question that a sweep asks, and its answer.
SweepCell = StepCell | AttentionCell | MemoryCell | ProfileCell | NumericsCell | AccumulationCell
SweepRow = StepRow | AttentionRow | MemoryRow | ProfileRow | NumericsRow | AccumulationRow

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(name="runs", row=RunRow, unique=("run_id",), doc="One sweep on one machine."),
        Table(name="steps", row=StepRow, unique=("cell_id",), doc="One end-to-end Transformer cell."),
        Table(name="timings", row=TimingRow, unique=("cell_id", "phase"), doc="One phase of a cell, summed up."),
        Table(
            name="samples",
            row=SampleRow,
            unique=("cell_id", "phase", "step"),
            doc="Every step of every phase, warm-up included.",
        ),
        Table(name="attention", row=AttentionRow, unique=("cell_id",), doc="One single-head attention cell."),
        Table(name="memory", row=MemoryRow, unique=("cell_id",), doc="The memory of one Transformer step."),
        Table(
            name="phase_peaks",
            row=PhasePeakRow,
            unique=("cell_id", "phase"),
            doc="Peaks within each phase of a memory cell.",
        ),
        Table(
            name="saved_tensors",
            row=SavedTensorRow,
            unique=("cell_id", "position"),
            doc="What each operation of one block saves for backward.",
        ),
        Table(name="timelines", row=TimelineRow, unique=("cell_id",), doc="One recorded memory timeline."),
        Table(
            name="allocations",
            row=AllocationRow,
            unique=("cell_id", "allocation"),
            doc="Every allocation of a timeline, from birth to death.",
        ),
        Table(
            name="stacks",
            row=StackRow,
            unique=("cell_id", "stack"),
            doc="The Python stacks of a timeline's allocations.",
        ),
        Table(name="marks", row=MarkRow, unique=("cell_id", "at_us"), doc="Where the phases of a timeline begin."),
        Table(name="profiles", row=ProfileRow, unique=("cell_id",), doc="What a profiled pass says of a step."),
        Table(name="traces", row=TraceRow, unique=("cell_id",), doc="One trace whose kernels are listed."),
        Table(
            name="kernels",
            row=KernelRow,
            unique=("cell_id", "phase", "scope", "kernel"),
            doc="Every kernel of a trace, by phase and named range; operators, on a CPU.",
        ),
        Table(
            name="accumulation",
            row=AccumulationRow,
            unique=("cell_id",),
            doc="One sum of many equal addends.",
        ),
        Table(name="partial_sums", row=PartialSumRow, unique=("cell_id", "addend"), doc="Such a sum on its way."),
        Table(name="numerics", row=NumericsRow, unique=("cell_id",), doc="The error of one precision in one model."),
        Table(name="dtypes", row=DtypeRow, unique=("cell_id", "position"), doc="What autocast made of a pass."),
        Table(
            name="normalisation",
            row=NormalisationRow,
            unique=("cell_id", "layer", "statistic", "computed_in", "scale"),
            doc="Statistics of normalisation computed in several dtypes.",
        ),
        Table(
            name="ceilings",
            row=CeilingRow,
            unique=("run_id", "moment", "name"),
            doc="Measured matrix rate per precision and copy bandwidth, at a sweep's start and end.",
        ),
        Table(name="frontier", row=FrontierRow, unique=("cell_id",), doc="The largest size that fits in memory."),
        Table(
            name="telemetry",
            row=TelemetryRow,
            unique=("cell_id", "at_seconds"),
            doc="Clocks, power, temperature and neighbors on an NVIDIA GPU while a cell was measured.",
        ),
        Table(
            name="plan",
            row=PlanRow,
            unique=("run_id", "position"),
            stored=False,
            doc="The cells a running or interrupted sweep still owes, and its heartbeat.",
        ),
    )
}


def table_of(cell: Cell) -> Table:
    """The table whose rows answer such a cell."""
    return next(table for table in TABLES.values() if issubclass(table.row, type(cell)))
