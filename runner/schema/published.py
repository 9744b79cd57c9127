"""Tables that others published: the table, its rows with their settings, and every figure with the text of its cell.

A published table belongs to a run with `source = 'published'`, one run a file. Its rows are no cells: they may leave
settings open, and nothing that reads measured cells reads them. Standard library only.
"""

from dataclasses import dataclass, field
from uuid import UUID

from runner.schema.choices import FigureQuantity, FigureStatistic, Status, TableSubject
from runner.schema.columns import column, describe

_RUN = describe("Run", "", "The import that it belongs to: one a file and mapping.")


@dataclass(frozen=True, kw_only=True)
class PublishedTableRow:
    """One table that others published."""

    run_id: UUID = field(metadata=_RUN)
    table_id: UUID = field(metadata=describe("Table", "", "This table's id: a hash of file, mapping and place."))
    position: int = field(metadata=describe("Position", "", "Its place in the file, from 0.", least=0))
    title: str = field(metadata=describe("Title", "", "Its heading or caption; the file's name where there is none."))
    file: str = field(metadata=describe("File", "", "The name of the file that it was read from."))
    subject: TableSubject = field(metadata=describe("Subject", "", "What its rows are about."))
    report: str | None = column("Report", "", "The report that it is from, by the name of its file.")
    machine: str | None = column("Machine", "", "What it or its provenance says that it ran on.")
    provenance: str = column("Provenance", "", "How it was measured, by `provenance.csv`; JSON.", default="{}")
    meanings: str = column("Meanings", "", "What each heading was understood to mean; a JSON object.", default="{}")
    remarks: str = column("Remarks", "", "What was assumed to read it, or refused; a JSON list.", default="[]")


@dataclass(frozen=True, kw_only=True)
class PublishedSetting:
    """What one row of a published table, or one column of it, says that it measured."""

    name: str | None = column("Size", "", "Name of the size, as it is written, such as 2.7B.")
    part: str | None = column("Part", "", "The kernel, range, case or component.")
    d_model: int | None = column("Model width", "", "Width of the residual stream.")
    d_ff: int | None = column("Feed-forward width", "", "Inner width of the feed-forward layer.")
    layers: int | None = column("Layers", "", "Number of Transformer blocks.")
    heads: int | None = column("Heads", "", "Attention heads.")
    vocabulary: int | None = column("Vocabulary", "tokens", "Size of the token vocabulary.")
    parameters: int | None = column("Parameters", "", "Number of parameters, rounded as it is written.")
    batch: int | None = column("Batch", "sequences", "Sequences in one step.")
    context: int | None = column("Context", "tokens", "Tokens of each sequence of a model.")
    seq_len: int | None = column("Sequence length", "tokens", "Tokens of single-head attention.")
    d_head: int | None = column("Head width", "", "Width of a head.")
    mode: str | None = column("Mode", "", "What a step ran, by Stepscope's word where there is one.")
    precision: str | None = column("Precision", "", "dtype, by Stepscope's word where there is one.")
    backend: str | None = column("Backend", "", "eager, compiled, or as it is written.")
    implementation: str | None = column("Attention", "", "Attention implementation, as it is written.")
    warmup_steps: int | None = column("Warm-up steps", "steps", "Steps run before the measured ones.")
    steps: int | None = column("Steps", "steps", "Measured steps.")
    device: str | None = column("Device", "", "cuda, cpu or mps.")
    is_profiled: bool | None = column("Profiled", "", "Whether a profiler watched.")


@dataclass(frozen=True, kw_only=True)
class PublishedLineRow(PublishedSetting):
    """One row of a published table: what it says that it measured. A size has no shape but the one that is stated."""

    run_id: UUID = field(metadata=_RUN)
    row_id: UUID = field(metadata=describe("Row", "", "This row's own id, from its table's id and its line."))
    table_id: UUID = field(metadata=describe("Table", "", "The table that it belongs to."))
    position: int = field(metadata=describe("Position", "", "Its place in the table, from 0.", least=0))
    line: int = field(metadata=describe("Line", "", "Its line in the file, from 1."))
    status: Status = field(metadata=describe("Status", "", "ok, or the way in which it ended without a result."))
    source: str | None = column("Transcribed from", "", "File and line that the row is from, if it says so.")
    stated: str = column("Other cells", "", "Cells that are no figures, by heading; a JSON object.", default="{}")
    remarks: str = column("Remarks", "", "What was assumed of it, or contradicts itself; a JSON list.", default="[]")


@dataclass(frozen=True, kw_only=True)
class PublishedFigureRow:
    """One figure of a published row."""

    run_id: UUID = field(metadata=_RUN)
    row_id: UUID = field(metadata=describe("Row", "", "The row that it belongs to."))
    position: int = field(metadata=describe("Position", "", "Its place in the row, from 0.", least=0))
    heading: str = field(metadata=describe("Heading", "", "Heading of its column."))
    text: str = field(metadata=describe("Text", "", "Its cell, as it is written."))
    quantity: FigureQuantity = field(metadata=describe("Quantity", "", "What it measures."))
    statistic: FigureStatistic = field(metadata=describe("Statistic", "", "The mean, the std, or the only value."))
    value: float | None = column(
        "Value",
        "",
        "Times in ms, memory in bytes, rates a second, shares of 1; unknown where the cell states none that can be "
        "read.",
    )
    remark: str | None = column("Remark", "", "What was assumed or repaired, or why it was refused.")
    variant: str = column("Variant", "", "Settings of this figure alone, by its heading; a JSON object.", default="{}")
