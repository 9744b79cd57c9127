"""The contract: every table, every column, with its label, unit and meaning.

A *cell* is one combination of settings (`StepCell`); a *row* is a cell with its result (`StepRow`). Everything else
that knows a column's name or type derives it from here: the DDL, `data/README.md`, axis titles, filters, tests.

    >>> from runner.schema import TABLES
    >>> [column.name for column in TABLES["timings"].columns if column.unit == "ms"]
    ['median_ms', 'mean_ms', 'std_ms', 'low_ms', 'high_ms', 'host_median_ms']

Standard library only, so that whoever reads rows needs neither torch nor DuckDB. Columns are only ever added: never
renamed, removed or retyped. Unknown is None (NULL), never 0, -1 or NaN. Times of day are naive UTC.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from runner.schema.attention import AttentionCell as AttentionCell
from runner.schema.attention import AttentionRow as AttentionRow
from runner.schema.axes import Model as Model
from runner.schema.axes import ModelCell as ModelCell
from runner.schema.axes import PassCell as PassCell
from runner.schema.cells import Cell as Cell
from runner.schema.cells import Row as Row
from runner.schema.cells import Table as Table
from runner.schema.cells import TimedRow as TimedRow
from runner.schema.cells import new_id as new_id
from runner.schema.cells import utc_now as utc_now
from runner.schema.choices import DONE as DONE
from runner.schema.choices import PHASES as PHASES
from runner.schema.choices import Attention as Attention
from runner.schema.choices import Backend as Backend
from runner.schema.choices import Bound as Bound
from runner.schema.choices import Category as Category
from runner.schema.choices import CompileCache as CompileCache
from runner.schema.choices import FigureQuantity as FigureQuantity
from runner.schema.choices import FigureStatistic as FigureStatistic
from runner.schema.choices import FloatName as FloatName
from runner.schema.choices import FlopsSource as FlopsSource
from runner.schema.choices import KernelClass as KernelClass
from runner.schema.choices import Mode as Mode
from runner.schema.choices import Moment as Moment
from runner.schema.choices import NormStatistic as NormStatistic
from runner.schema.choices import NoteKind as NoteKind
from runner.schema.choices import OtherQuantity as OtherQuantity
from runner.schema.choices import Phase as Phase
from runner.schema.choices import PlanState as PlanState
from runner.schema.choices import Precision as Precision
from runner.schema.choices import Status as Status
from runner.schema.choices import StoppedBy as StoppedBy
from runner.schema.choices import TableSubject as TableSubject
from runner.schema.choices import TimelineOrigin as TimelineOrigin
from runner.schema.choices import TraceOrigin as TraceOrigin
from runner.schema.columns import Column as Column
from runner.schema.columns import Flag as Flag
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
from runner.schema.numerics import SUMS as SUMS
from runner.schema.numerics import AccumulationCell as AccumulationCell
from runner.schema.numerics import AccumulationRow as AccumulationRow
from runner.schema.numerics import DtypeRow as DtypeRow
from runner.schema.numerics import NormalisationRow as NormalisationRow
from runner.schema.numerics import NumericsCell as NumericsCell
from runner.schema.numerics import NumericsRow as NumericsRow
from runner.schema.numerics import PartialSumRow as PartialSumRow
from runner.schema.published import PublishedFigureRow as PublishedFigureRow
from runner.schema.published import PublishedLineRow as PublishedLineRow
from runner.schema.published import PublishedSetting as PublishedSetting
from runner.schema.published import PublishedTableRow as PublishedTableRow
from runner.schema.runs import CeilingRow as CeilingRow
from runner.schema.runs import NoteRow as NoteRow
from runner.schema.runs import PlanRow as PlanRow
from runner.schema.runs import RunRow as RunRow
from runner.schema.runs import SampleRow as SampleRow
from runner.schema.runs import TelemetryRow as TelemetryRow
from runner.schema.runs import TimingRow as TimingRow
from runner.schema.steps import StepCell as StepCell
from runner.schema.steps import StepRow as StepRow
from runner.schema.steps import step_of as step_of

#: The order in which tables are listed; tables that are not named here come last.
_ORDER = (
    "runs steps timings samples attention memory phase_peaks saved_tensors timelines allocations stacks marks "
    "profiles traces kernels accumulation partial_sums numerics dtypes normalisation ceilings frontier "
    "published_tables published_rows published_figures notes telemetry plan"
)


def _load_tables() -> list[Table]:
    """Returns the tables that the files of this folder list as `TABLES`."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found: list[Table] = [table for module in modules for table in getattr(module, "TABLES", ())]
    known = _ORDER.split()
    return sorted(found, key=lambda table: known.index(table.name) if table.name in known else len(known))


TABLES: Mapping[str, Table] = {table.name: table for table in _load_tables()}
#: The tables of a file; the other is one of the spool.
STORED = tuple(table for table in TABLES.values() if table.stored)


def table_of(cell: Cell | type[Cell]) -> Table:
    """Returns the table that holds the rows of such a cell."""
    kind = cell if isinstance(cell, type) else type(cell)
    return next(table for table in TABLES.values() if issubclass(table.row, kind.asked()))


def config_of(cell: Cell) -> tuple[object, ...]:
    """Returns what is measured: the table and the config fields of a cell, whatever its effort fields."""
    table = table_of(cell)
    return (table.name, *(getattr(cell, name) for name in table.question))


def flags() -> Mapping[str, Column]:
    """Returns each flag's name with a column that the flag sets, in the order of the flags.

    A flag that sets several columns is given with the one that has the most choices."""
    found: dict[Flag, Column] = {}
    for table in TABLES.values():
        for column in table.columns:
            if column.flag and len(column.choices) >= len(found.get(column.flag, column).choices):
                found[column.flag] = column
        if table.named:
            flag, cells = table.named
            found[flag] = Column("", "", "", flag=flag, choices=tuple(cells))
    return {flag.name: found[flag] for flag in sorted(found, key=lambda flag: flag.order)}
