"""The largest size that fits in memory: the cell and its row."""

from dataclasses import dataclass
from typing import Annotated

from runner.schema.cells import Cell, Row
from runner.schema.choices import Attention, Limited, Mode, Precision
from runner.schema.columns import Column
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class FrontierCell(Cell):
    """A search for the largest sequence in single-head attention, or the largest context or batch of a model's step,
    that fits in memory."""

    limited: Annotated[
        Limited, Column("What grows", "", "seq_len of single-head attention; context or batch of a model's step.")
    ]
    implementation: Annotated[Attention, Column("Implementation", "", "Attention implementation by name.")]
    precision: Annotated[Precision, Column("Precision", "", "dtype of the tensors, or autocast for a model's step.")]
    batch: Annotated[int | None, Column("Batch", "", "Sequences together; none where the batch is what grows.")] = None
    d_head: Annotated[int | None, Column("Head width", "", "Single-head attention only.")] = None
    causal: Annotated[bool, Column("Causal", "", "Whether a query sees only the keys up to its own position.")] = True
    d_model: Annotated[int | None, Column("Model width", "", "A model's step only.")] = None
    d_ff: Annotated[int | None, Column("Feed-forward width", "", "A model's step only.")] = None
    layers: Annotated[int | None, Column("Layers", "", "A model's step only.")] = None
    heads: Annotated[int | None, Column("Heads", "", "A model's step only.")] = None
    vocabulary: Annotated[int | None, Column("Vocabulary", "tokens", "A model's step only.")] = None
    context: Annotated[
        int | None, Column("Context", "tokens", "A model's step; none where the context is what grows.")
    ] = None
    mode: Annotated[Mode, Column("Mode", "", "A model's step only: what has to fit.")] = "train"
    model: Annotated[
        str | None, Column("Own model", "", "Where an own model comes from; unknown for the Transformer.")
    ] = None
    model_key: Annotated[str | None, Column("Own model's key", "", "Hash of an own model's source.")] = None
    limit_bytes: Annotated[int, Column("Memory limit", "bytes", "What it has to fit in.")]
    step: Annotated[int, Column("Resolution", "", "Sizes tried are multiples of this.", effort="least")] = 64


@dataclass(frozen=True, kw_only=True)
class FrontierRow(FrontierCell, Row):
    """The largest size, found by a prediction and then by bisection with real allocations."""

    predicted: Annotated[int | None, Column("Predicted largest", "", "Largest size by the closed formula.")] = None
    largest: Annotated[int | None, Column("Largest that fits", "", "Largest size that ran.")] = None
    smallest_failing: Annotated[
        int | None, Column("Smallest that fails", "", "Smallest size tried that ran out of memory.")
    ] = None
    largest_peak_bytes: Annotated[
        int | None, Column("Peak of the largest", "bytes", "Peak of the largest size that ran.")
    ] = None
    trials: Annotated[int | None, Column("Trials", "", "Sizes that were run.")] = None


TABLES = (
    Table(
        name="frontier",
        row=FrontierRow,
        unique=("cell_id",),
        doc="The largest size that fits in memory.",
        numbers="predicted largest smallest_failing largest_peak_bytes trials",
    ),
)
