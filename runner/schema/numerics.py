"""Defines the cost of precision: accumulations, dtypes under autocast, statistics of normalization, errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.schema.axes import PassCell
from runner.schema.cells import BuiltRow, Cell, Detail, Row
from runner.schema.choices import FloatName, NormStatistic
from runner.schema.columns import column, describe


@dataclass(frozen=True, kw_only=True)
class AccumulationCell(Cell):
    """A sum of equal addends, which are added one after the other."""

    TITLE = "sum in {accumulator} · of {addend}"

    accumulator: FloatName = field(metadata=describe("Accumulator", "", "dtype of the running sum."))
    addend: FloatName = field(metadata=describe("Addend", "", "dtype in which each addend is held."))
    upcast: bool = column("Upcast first", "", "Whether the addend gets the accumulator's dtype first.", default=False)
    value: float = column("Value", "", "What is added, before rounding to the addend's dtype.", default=0.01)
    addends: int = column("Addends", "", "How often it is added.", default=1000)


@dataclass(frozen=True, kw_only=True)
class AccumulationRow(AccumulationCell, Row):
    """The sum, bit for bit, and what explains it."""

    total: float | None = column("Sum", "", "The accumulator at the end, converted to float64 without rounding.")
    exact: float | None = column("Exact", "", "value × addends, rounded once.")
    error: float | None = column("Error", "", "Sum minus exact.")
    rounded_value: float | None = column("Value as held", "", "The addend after rounding to its dtype.")
    spacing: float | None = column("Spacing at the sum", "", "Distance from there to the next larger number.")
    last_increment: float | None = column("Last increment", "", "By how much the last addition made the sum larger.")
    slips_at: int | None = column("Slips at addend", "", "First addend that added a tenth too much or too little.")
    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak memory predicted before the run.")


@dataclass(frozen=True, kw_only=True)
class PartialSumRow(Detail):
    """A running sum after so many addends."""

    addend: int = field(metadata=describe("Addend", "", "How many have been added."))
    total: float = field(metadata=describe("Sum so far", "", "The accumulator, converted to float64 without rounding."))
    spacing: float = field(metadata=describe("Spacing", "", "Distance from there to the next larger number."))


@dataclass(frozen=True, kw_only=True)
class NumericsCell(PassCell):
    """One forward and backward pass of a model in one precision, beside the same pass in the reference precision."""

    TITLE = "{context} · {precision}"


@dataclass(frozen=True, kw_only=True)
class NumericsRow(NumericsCell, BuiltRow):
    """The errors of a precision against the reference. Errors are relative: ‖x − ref‖ / ‖ref‖ over all elements. They
    are unknown where either side is not finite, and for fp32 where it is itself the reference."""

    reference: FloatName | None = column("Reference", "", "Its dtype: fp64, or fp32 where that is too much.")
    loss: float | None = column("Loss", "nats", "Cross-entropy in this precision.")
    reference_loss: float | None = column("Reference loss", "nats", "Cross-entropy in the reference precision.")
    loss_error: float | None = column("Loss error", "", "|loss − reference| / |reference|.")
    logits_error: float | None = column("Logits error", "", "Relative error of all logits.")
    gradient_error: float | None = column("Gradient error", "", "Relative error of all gradients as one vector.")
    worst_gradient_error: float | None = column(
        "Worst gradient error", "", "Largest relative error of one parameter's gradient."
    )
    worst_gradient: str | None = column("Worst gradient of", "", "The parameter whose gradient is farthest off.")
    zero_gradient_share: float | None = column(
        "Gradients lost to zero",
        "",
        "Of the gradient elements that are not 0 in the reference, the share that is 0 here.",
    )
    loss_scale: float | None = column(
        "Loss scale",
        "",
        "What the gradient scaler multiplied the loss by: the largest tried that kept gradients finite.",
    )
    unscaled_zero_gradient_share: float | None = column(
        "Lost to zero without a scaler", "", "The same share with the loss not scaled; only where there is a scaler."
    )
    matmul_precision: str | None = column(
        "Matmul precision", "", "What torch says of float32 products after it: ieee or tf32."
    )


@dataclass(frozen=True, kw_only=True)
class DtypeRow(Detail):
    """The dtype of one thing in a pass, read from the run."""

    position: int = field(metadata=describe("Position", "", "Order in which the pass meets it, from 0."))
    model: str = field(metadata=describe("Model", "", "`transformer`, `own`, or `toy`, with layer normalisation."))
    part: str = field(metadata=describe("Part", "", "parameter, output (of a module), logits, loss or gradient."))
    module: str = field(
        metadata=describe("Module", "", "Path of the module or parameter; the first block's stands for all.")
    )
    dtype: str = field(metadata=describe("dtype", "", "Its dtype, as torch says."))


@dataclass(frozen=True, kw_only=True)
class NormalisationRow(Detail):
    """One statistic of normalization over one residual stream of the model, computed in one dtype."""

    layer: int = field(metadata=describe("Block", "", "Block whose input it is, from 0."))
    statistic: NormStatistic = field(metadata=describe("Statistic", "", "What is computed over the width."))
    computed_in: FloatName = field(metadata=describe("Computed in", "", "dtype of all operations and of the result."))
    scale: float = field(metadata=describe("Scale", "", "What the residual stream was multiplied by first."))
    error: float | None = column("Error", "", "Relative error against float64; unknown where it is not finite.")
    overflowed_share: float = field(
        metadata=describe("Overflowed", "", "Share of tokens whose statistic is infinite or NaN.")
    )
    underflowed_share: float = field(
        metadata=describe(
            "Underflowed", "", "Share of tokens whose statistic is 0 and should not be; of an output, all of it."
        )
    )


#: Four common ways to add a thousand hundredths, by the names of `--sums`.
SUMS: Mapping[str, AccumulationCell] = {
    "fp32": AccumulationCell(accumulator="fp32", addend="fp32"),
    "fp16": AccumulationCell(accumulator="fp16", addend="fp16"),
    "fp16-in-fp32": AccumulationCell(accumulator="fp32", addend="fp16"),
    "fp16-upcast-in-fp32": AccumulationCell(accumulator="fp32", addend="fp16", upcast=True),
}
