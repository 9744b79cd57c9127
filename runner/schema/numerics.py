"""Defines the cost of precision: accumulations, dtypes under autocast, statistics of normalization, errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from runner.schema import axes
from runner.schema.axes import Model
from runner.schema.cells import Cell, Detail, Row
from runner.schema.choices import FloatName, NormStatistic
from runner.schema.columns import Column
from runner.schema.steps import StepCell
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class AccumulationCell(Cell):
    """A sum of equal addends, which are added one after the other."""

    TITLE = "sum in {accumulator} · of {addend}"

    accumulator: Annotated[FloatName, Column("Accumulator", "", "dtype of the running sum.")]
    addend: Annotated[FloatName, Column("Addend", "", "dtype in which each addend is held.")]
    upcast: Annotated[
        bool, Column("Upcast first", "", "Whether the addend is converted to the accumulator's dtype before adding.")
    ] = False
    value: Annotated[float, Column("Value", "", "What is added, before rounding to the addend's dtype.")] = 0.01
    addends: Annotated[int, Column("Addends", "", "How often it is added.")] = 1000


@dataclass(frozen=True, kw_only=True)
class AccumulationRow(AccumulationCell, Row):
    """The sum, bit for bit, and what explains it."""

    total: Annotated[
        float | None, Column("Sum", "", "The accumulator at the end, converted to float64 without rounding.")
    ] = None
    exact: Annotated[float | None, Column("Exact", "", "value × addends, rounded once.")] = None
    error: Annotated[float | None, Column("Error", "", "Sum minus exact.")] = None
    rounded_value: Annotated[float | None, Column("Value as held", "", "The addend after rounding to its dtype.")] = (
        None
    )
    spacing: Annotated[
        float | None,
        Column("Spacing at the sum", "", "Distance from the sum to the next larger number of the accumulator's dtype."),
    ] = None
    last_increment: Annotated[
        float | None, Column("Last increment", "", "By how much the last addition made the sum larger.")
    ] = None
    slips_at: Annotated[
        int | None,
        Column(
            "Slips at addend",
            "",
            "First addend that made the sum grow by a tenth too much or too little; none if none did.",
        ),
    ] = None
    predicted_peak_bytes: Annotated[
        int | None, Column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class PartialSumRow(Detail):
    """A running sum after so many addends."""

    addend: Annotated[int, Column("Addend", "", "How many have been added.")]
    total: Annotated[float, Column("Sum so far", "", "The accumulator, converted to float64 without rounding.")]
    spacing: Annotated[float, Column("Spacing", "", "Distance from there to the next larger number of its dtype.")]


@dataclass(frozen=True, kw_only=True)
class NumericsCell(Model, Cell):
    """One forward and backward pass of a model in one precision, beside the same pass in the reference precision."""

    TITLE = "{context} · {precision}"

    batch: axes.Batch = 4
    context: axes.Context
    precision: axes.Precision
    weights_dtype: axes.Weights = "fp32"
    attention: axes.Attention = "naive"

    def step(self) -> StepCell:
        """Returns the measured pass as an end-to-end step."""
        return StepCell(**{name: getattr(self, name) for name in NumericsCell.names()}, mode="backward")


@dataclass(frozen=True, kw_only=True)
class NumericsRow(NumericsCell, Row):
    """The errors of a precision against the reference. Errors are relative: ‖x − ref‖ / ‖ref‖ over all elements. They
    are unknown where either side is not finite, and for fp32 where it is itself the reference."""

    reference: Annotated[
        FloatName | None, Column("Reference", "", "dtype of the reference: fp64, or fp32 where that is too much.")
    ] = None
    loss: Annotated[float | None, Column("Loss", "nats", "Cross-entropy in this precision.")] = None
    reference_loss: Annotated[
        float | None, Column("Reference loss", "nats", "Cross-entropy in the reference precision.")
    ] = None
    loss_error: Annotated[float | None, Column("Loss error", "", "|loss − reference| / |reference|.")] = None
    logits_error: Annotated[float | None, Column("Logits error", "", "Relative error of all logits.")] = None
    gradient_error: Annotated[
        float | None, Column("Gradient error", "", "Relative error of all gradients as one vector.")
    ] = None
    worst_gradient_error: Annotated[
        float | None, Column("Worst gradient error", "", "Largest relative error of one parameter's gradient.")
    ] = None
    worst_gradient: Annotated[
        str | None, Column("Worst gradient of", "", "The parameter whose gradient is farthest off.")
    ] = None
    zero_gradient_share: Annotated[
        float | None,
        Column(
            "Gradients lost to zero",
            "",
            "Of the gradient elements that are not 0 in the reference, the share that is 0 here.",
        ),
    ] = None
    loss_scale: Annotated[
        float | None,
        Column(
            "Loss scale",
            "",
            "What the gradient scaler multiplied the loss by: the largest tried that kept gradients finite.",
        ),
    ] = None
    unscaled_zero_gradient_share: Annotated[
        float | None,
        Column(
            "Lost to zero without a scaler",
            "",
            "The same share with the loss not scaled; only where there is a scaler.",
        ),
    ] = None
    matmul_precision: Annotated[
        str | None,
        Column("Matmul precision", "", "What torch says of float32 matrix products after the pass: ieee or tf32."),
    ] = None
    predicted_peak_bytes: Annotated[
        int | None, Column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    ] = None
    build_seconds: Annotated[float | None, Column("Build time", "s", "Making both models and the data.")] = None
    measure_seconds: Annotated[float | None, Column("Measuring time", "s", "All passes and comparisons.")] = None


@dataclass(frozen=True, kw_only=True)
class DtypeRow(Detail):
    """The dtype of one thing in a pass, read from the run."""

    position: Annotated[int, Column("Position", "", "Order in which the pass meets it, from 0.")]
    model: Annotated[
        str, Column("Model", "", "`transformer`, `own`, or `toy` for the two-layer model with layer normalisation.")
    ]
    part: Annotated[str, Column("Part", "", "What it is: parameter, output (of a module), logits, loss or gradient.")]
    module: Annotated[
        str, Column("Module", "", "Path of the module or parameter; of blocks, the first stands for all.")
    ]
    dtype: Annotated[str, Column("dtype", "", "Its dtype, as torch says.")]


@dataclass(frozen=True, kw_only=True)
class NormalisationRow(Detail):
    """One statistic of normalization over one residual stream of the model, computed in one dtype."""

    layer: Annotated[int, Column("Block", "", "Block whose input it is, from 0.")]
    statistic: Annotated[NormStatistic, Column("Statistic", "", "What is computed over the width.")]
    computed_in: Annotated[FloatName, Column("Computed in", "", "dtype of every operation and of what it returns.")]
    scale: Annotated[
        float, Column("Scale", "", "What the residual stream was multiplied by first, to meet larger values.")
    ]
    error: Annotated[
        float | None, Column("Error", "", "Relative error against float64; unknown where it is not finite.")
    ] = None
    overflowed_share: Annotated[float, Column("Overflowed", "", "Share of tokens whose statistic is infinite or NaN.")]
    underflowed_share: Annotated[
        float,
        Column("Underflowed", "", "Share of tokens whose statistic is 0 and should not be; of an output, all of it."),
    ]


#: Four common ways to add a thousand hundredths, by the names of `--sums`.
SUMS: Mapping[str, AccumulationCell] = {
    "fp32": AccumulationCell(accumulator="fp32", addend="fp32"),
    "fp16": AccumulationCell(accumulator="fp16", addend="fp16"),
    "fp16-in-fp32": AccumulationCell(accumulator="fp32", addend="fp16"),
    "fp16-upcast-in-fp32": AccumulationCell(accumulator="fp32", addend="fp16", upcast=True),
}

TABLES = (
    Table(
        name="accumulation",
        row=AccumulationRow,
        unique=("cell_id",),
        doc="One sum of many equal addends.",
        numbers="total exact error rounded_value spacing last_increment slips_at",
        first="round",
        named=(axes.SUMS, SUMS),
    ),
    Table(name="partial_sums", row=PartialSumRow, unique=("cell_id", "addend"), doc="Such a sum on its way."),
    Table(
        name="numerics",
        row=NumericsRow,
        unique=("cell_id",),
        doc="The error of one precision in one model.",
        words="numerics",
        numbers="reference loss_error logits_error gradient_error zero_gradient_share unscaled_zero_gradient_share",
        first="round",
    ),
    Table(name="dtypes", row=DtypeRow, unique=("cell_id", "position"), doc="What autocast made of a pass."),
    Table(
        name="normalisation",
        row=NormalisationRow,
        unique=("cell_id", "layer", "statistic", "computed_in", "scale"),
        doc="Statistics of normalisation computed in several dtypes.",
    ),
)
