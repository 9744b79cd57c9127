"""The contract: every table, every column, with its label, unit and meaning.

A *cell* is one combination of settings (`StepCell`); a *row* is a cell with its result (`StepRow`). Everything else
that knows a column's name or type derives it from here: the DDL, `data/README.md`, axis titles, filters, tests.

    >>> from runner.schema import TABLES
    >>> [column.name for column in TABLES["timings"].columns if column.unit == "ms"]
    ['median_ms', 'mean_ms', 'std_ms', 'low_ms', 'high_ms', 'host_median_ms']

Standard library only, so that whoever reads rows needs neither torch nor DuckDB. Columns are only ever added: never
renamed, removed or retyped. Unknown is None (NULL), never 0, -1 or NaN. Times of day are naive UTC.
"""

from collections.abc import Mapping

from runner.schema import axes
from runner.schema.attention import *
from runner.schema.axes import Model as Model
from runner.schema.axes import ModelCell as ModelCell
from runner.schema.axes import PassCell as PassCell
from runner.schema.cells import *
from runner.schema.choices import *
from runner.schema.columns import Column as Column
from runner.schema.columns import Flag as Flag
from runner.schema.kernels import *
from runner.schema.memory import *
from runner.schema.numerics import *
from runner.schema.published import *
from runner.schema.runs import *
from runner.schema.steps import *

#: Every table by its name, in the order of listing.
TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table("runs", RunRow, unique=("run_id",)),
        Table(
            "steps",
            StepRow,
            words="training steps",
            numbers="tokens_per_s mfu compile_seconds compile_cold_seconds compile_warm_seconds graphs graph_breaks "
            "recompiles compiler_fallback compiled_gradient_error parameters",
            timed=True,
        ),
        Table("timings", TimingRow, unique=("cell_id", "phase")),
        Table("samples", SampleRow, unique=("cell_id", "phase", "step")),
        Table(
            "attention",
            AttentionRow,
            words="attention",
            numbers="peak_allocated_bytes saved_bytes before_backward_bytes predicted_peak_bytes device_bytes "
            "in_use_bytes asked_bytes output_error gradient_error tolerance largest_error",
            timed=True,
            whole="forward_backward",
        ),
        Table(
            "memory",
            MemoryRow,
            words="memory of steps",
            numbers="peak_phase peak_allocated_bytes peak_reserved_bytes predicted_peak_bytes parameters_bytes "
            "gradients_bytes optimizer_state_bytes activations_bytes autocast_copies_bytes inputs_bytes "
            "temporaries_bytes workspace_bytes rounding_bytes residual_bytes fragmentation_bytes "
            "block_saved_bytes residual_stream_bytes",
            first="timeline, round",
        ),
        Table("phase_peaks", PhasePeakRow, unique=("cell_id", "phase")),
        Table("saved_tensors", SavedTensorRow, unique=("cell_id", "position")),
        Table("timelines", TimelineRow),
        Table("allocations", AllocationRow, unique=("cell_id", "allocation")),
        Table("stacks", StackRow, unique=("cell_id", "stack")),
        Table("marks", MarkRow, unique=("cell_id", "at_us")),
        Table(
            "profiles",
            ProfileRow,
            words="profiled steps",
            numbers="unprofiled_step_ms profiled_step_ms overhead_share kernel_ms busy_share host_bound_share "
            "attributed_share",
            first="round",
        ),
        Table("traces", TraceRow),
        Table("kernels", KernelRow, unique=("cell_id", "phase", "scope", "kernel")),
        Table(
            "accumulation",
            AccumulationRow,
            numbers="total exact error rounded_value spacing last_increment slips_at",
            first="round",
            named=(axes.SUMS, SUMS),
        ),
        Table("partial_sums", PartialSumRow, unique=("cell_id", "addend")),
        Table(
            "numerics",
            NumericsRow,
            words="numerics",
            numbers="reference loss_error logits_error gradient_error zero_gradient_share unscaled_zero_gradient_share",
            first="round",
        ),
        Table("dtypes", DtypeRow, unique=("cell_id", "position")),
        Table("normalisation", NormalisationRow, unique=("cell_id", "layer", "statistic", "computed_in", "scale")),
        Table("ceilings", CeilingRow, unique=("run_id", "moment", "name")),
        Table("frontier", FrontierRow, numbers="predicted largest smallest_failing largest_peak_bytes trials"),
        Table("published_tables", PublishedTableRow, unique=("run_id", "table_id"), published=True),
        Table("published_rows", PublishedLineRow, unique=("run_id", "row_id"), published=True),
        Table("published_figures", PublishedFigureRow, unique=("run_id", "row_id", "position"), published=True),
        Table("notes", NoteRow, unique=("note_id",)),
        Table("telemetry", TelemetryRow, unique=("cell_id", "at_seconds")),
        Table("plan", PlanRow, unique=("run_id", "position"), stored=False),
    )
}
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
