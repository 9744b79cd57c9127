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

from runner.schema.choices import DONE as DONE
from runner.schema.choices import PHASES as PHASES
from runner.schema.choices import Attention as Attention
from runner.schema.choices import Backend as Backend
from runner.schema.choices import Mode as Mode
from runner.schema.choices import Optimizer as Optimizer
from runner.schema.choices import Phase as Phase
from runner.schema.choices import PlanState as PlanState
from runner.schema.choices import Precision as Precision
from runner.schema.choices import Source as Source
from runner.schema.choices import Status as Status
from runner.schema.choices import StoppedBy as StoppedBy
from runner.schema.choices import WeightsDtype as WeightsDtype
from runner.schema.columns import Cell as Cell
from runner.schema.columns import Column as Column
from runner.schema.columns import Table as Table
from runner.schema.columns import new_id as new_id
from runner.schema.columns import utc_now as utc_now
from runner.schema.runs import PlanRow as PlanRow
from runner.schema.runs import Row as Row
from runner.schema.runs import RunRow as RunRow
from runner.schema.runs import SampleRow as SampleRow
from runner.schema.runs import TelemetryRow as TelemetryRow
from runner.schema.runs import TimingRow as TimingRow
from runner.schema.steps import StepCell as StepCell
from runner.schema.steps import StepRow as StepRow

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
