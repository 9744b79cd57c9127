"""Tables that others published: the table, its rows with their settings, and every figure with the text of its cell.

A published table belongs to a run with `source = 'published'`, one run a file. Its rows are no cells: they may leave
settings open, and nothing that reads measured cells reads them. Standard library only.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from runner.schema.choices import FigureQuantity, FigureStatistic, Status, TableSubject
from runner.schema.columns import Column
from runner.schema.tables import Table

RunId = Annotated[UUID, Column("Run", "", "The import that it belongs to: one a file and mapping.")]


@dataclass(frozen=True, kw_only=True)
class PublishedTableRow:
    """One table that others published."""

    run_id: RunId
    table_id: Annotated[UUID, Column("Table", "", "This table's own id: a hash of its file, its mapping and place.")]
    position: Annotated[int, Column("Position", "", "Its place in the file, from 0.", least=0)]
    title: Annotated[str, Column("Title", "", "Its heading or caption; the file's name where there is none.")]
    file: Annotated[str, Column("File", "", "The name of the file that it was read from.")]
    subject: Annotated[TableSubject, Column("Subject", "", "What its rows are about.")]
    report: Annotated[str | None, Column("Report", "", "The report that it is from, by the name of its file.")] = None
    machine: Annotated[str | None, Column("Machine", "", "What it or its provenance says that it ran on.")] = None
    provenance: Annotated[
        str, Column("Provenance", "", "What is known of how it was measured, from `provenance.csv`; a JSON object.")
    ] = "{}"
    meanings: Annotated[str, Column("Meanings", "", "What each heading was understood to mean; a JSON object.")] = "{}"
    remarks: Annotated[
        str, Column("Remarks", "", "What was assumed to read it, and what was refused; a JSON list.")
    ] = "[]"


@dataclass(frozen=True, kw_only=True)
class PublishedLineRow:
    """One row of a published table: what it says that it measured. A size has no shape but the one that is stated."""

    run_id: RunId
    row_id: Annotated[UUID, Column("Row", "", "This row's own id, from its table's id and its line.")]
    table_id: Annotated[UUID, Column("Table", "", "The table that it belongs to.")]
    position: Annotated[int, Column("Position", "", "Its place in the table, from 0.", least=0)]
    line: Annotated[int, Column("Line", "", "Its line in the file, from 1.")]
    status: Annotated[Status, Column("Status", "", "ok, or the way in which it ended without a result.")]
    source: Annotated[
        str | None, Column("Transcribed from", "", "File and line that the row was transcribed from, if it says so.")
    ] = None
    name: Annotated[str | None, Column("Size", "", "Name of the size, as it is written.")] = None
    part: Annotated[str | None, Column("Part", "", "The kernel, range, case or component.")] = None
    d_model: Annotated[int | None, Column("Model width", "", "Width of the residual stream.")] = None
    d_ff: Annotated[int | None, Column("Feed-forward width", "", "Inner width of the feed-forward layer.")] = None
    layers: Annotated[int | None, Column("Layers", "", "Number of Transformer blocks.")] = None
    heads: Annotated[int | None, Column("Heads", "", "Attention heads.")] = None
    vocabulary: Annotated[int | None, Column("Vocabulary", "tokens", "Size of the token vocabulary.")] = None
    parameters: Annotated[int | None, Column("Parameters", "", "Number of parameters, rounded as it is written.")] = (
        None
    )
    batch: Annotated[int | None, Column("Batch", "sequences", "Sequences in one step.")] = None
    context: Annotated[int | None, Column("Context", "tokens", "Tokens of each sequence of a model.")] = None
    seq_len: Annotated[int | None, Column("Sequence length", "tokens", "Tokens of single-head attention.")] = None
    d_head: Annotated[int | None, Column("Head width", "", "Width of a head.")] = None
    mode: Annotated[str | None, Column("Mode", "", "What a step ran, by Stepscope's word where there is one.")] = None
    precision: Annotated[str | None, Column("Precision", "", "dtype, by Stepscope's word where there is one.")] = None
    backend: Annotated[str | None, Column("Backend", "", "eager, compiled, or as it is written.")] = None
    implementation: Annotated[str | None, Column("Attention", "", "Attention implementation, as it is written.")] = None
    warmup_steps: Annotated[int | None, Column("Warm-up steps", "steps", "Steps run before the measured ones.")] = None
    steps: Annotated[int | None, Column("Steps", "steps", "Measured steps.")] = None
    device: Annotated[str | None, Column("Device", "", "cuda, cpu or mps.")] = None
    is_profiled: Annotated[bool | None, Column("Profiled", "", "Whether a profiler watched.")] = None
    stated: Annotated[
        str, Column("Other cells", "", "Every cell that is no figure, by heading, as it is written; a JSON object.")
    ] = "{}"
    remarks: Annotated[
        str, Column("Remarks", "", "What was assumed of the row, or contradicts itself; a JSON list.")
    ] = "[]"


@dataclass(frozen=True, kw_only=True)
class PublishedFigureRow:
    """One figure of a published row."""

    run_id: RunId
    row_id: Annotated[UUID, Column("Row", "", "The row that it belongs to.")]
    position: Annotated[int, Column("Position", "", "Its place in the row, from 0.", least=0)]
    heading: Annotated[str, Column("Heading", "", "Heading of its column.")]
    text: Annotated[str, Column("Text", "", "Its cell, as it is written.")]
    quantity: Annotated[FigureQuantity, Column("Quantity", "", "What it measures.")]
    statistic: Annotated[FigureStatistic, Column("Statistic", "", "The mean, the std, or the only value.")]
    value: Annotated[
        float | None,
        Column(
            "Value",
            "",
            "Times in ms, memory in bytes, rates a second, shares of 1; unknown where the cell states none that can "
            "be read.",
        ),
    ] = None
    remark: Annotated[str | None, Column("Remark", "", "What was assumed or repaired, or why it was refused.")] = None
    variant: Annotated[
        str, Column("Variant", "", "Settings that the heading states for this figure alone; a JSON object.")
    ] = "{}"


TABLES = (
    Table(
        name="published_tables",
        row=PublishedTableRow,
        unique=("run_id", "table_id"),
        doc="One table that others published.",
        published=True,
    ),
    Table(
        name="published_rows",
        row=PublishedLineRow,
        unique=("run_id", "row_id"),
        doc="One row of a published table, with the settings it states.",
        published=True,
    ),
    Table(
        name="published_figures",
        row=PublishedFigureRow,
        unique=("run_id", "row_id", "position"),
        doc="Every figure of a published row, with the text of its cell.",
        published=True,
    ),
)
