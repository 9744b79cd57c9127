"""What precision costs and where: accumulations, dtypes under autocast, statistics of normalisation, errors."""

from dataclasses import dataclass

from runner.schema.choices import Attention, FloatName, NormStatistic, Precision, WeightsDtype
from runner.schema.columns import Cell, column, required
from runner.schema.runs import Detail, Row
from runner.schema.steps import StepCell


@dataclass(frozen=True, kw_only=True)
class AccumulationCell(Cell):
    """A sum of equal addends, one after the other."""

    accumulator: FloatName = required("Accumulator", "", "dtype of the running sum.")
    addend: FloatName = required("Addend", "", "dtype in which each addend is held.")
    upcast: bool = column(
        "Upcast first", "", "Whether the addend is converted to the accumulator's dtype before adding.", False
    )
    value: float = column("Value", "", "What is added, before rounding to the addend's dtype.", 0.01)
    addends: int = column("Addends", "", "How often it is added.", 1000)


@dataclass(frozen=True, kw_only=True)
class AccumulationRow(AccumulationCell, Row):
    """The sum, bit for bit, and why it is what it is."""

    total: float | None = column("Sum", "", "The accumulator at the end, converted to float64 without rounding.")
    exact: float | None = column("Exact", "", "value × addends, rounded once.")
    error: float | None = column("Error", "", "Sum minus exact.")
    rounded_value: float | None = column("Value as held", "", "The addend after rounding to its dtype.")
    spacing: float | None = column(
        "Spacing at the sum", "", "Distance from the sum to the next larger number of the accumulator's dtype."
    )
    last_increment: float | None = column("Last increment", "", "By how much the last addition made the sum larger.")
    slips_at: int | None = column(
        "Slips at addend",
        "",
        "First addend that made the sum grow by a tenth too much or too little; none if none did.",
    )
    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak memory predicted before the run.")


@dataclass(frozen=True, kw_only=True)
class PartialSumRow(Detail):
    """A running sum on its way."""

    addend: int = required("Addend", "", "How many have been added.")
    total: float = required("Sum so far", "", "The accumulator, converted to float64 without rounding.")
    spacing: float = required("Spacing", "", "Distance from there to the next larger number of its dtype.")


@dataclass(frozen=True, kw_only=True)
class NumericsCell(Cell):
    """One forward and backward pass of a model in one precision, beside the same pass in the reference precision."""

    d_model: int = required("Model width", "", "Width of the residual stream.")
    d_ff: int = required("Feed-forward width", "", "Inner width of the SwiGLU feed-forward layer.")
    layers: int = required("Layers", "", "Number of Transformer blocks.")
    heads: int = required("Heads", "", "Attention heads; each is d_model / heads wide.")
    vocabulary: int = column("Vocabulary", "tokens", "Size of the token vocabulary.", 10_000)
    batch: int = column("Batch", "sequences", "Sequences in one step.", 4)
    context: int = required("Context", "tokens", "Tokens of each sequence.")
    precision: Precision = required("Precision", "", "fp32, tf32, or bf16 and fp16 as autocast over the weights.")
    weights_dtype: WeightsDtype = column("Weights", "", "The dtype in which the parameters are held.", "fp32")
    attention: Attention = column("Attention", "", "Attention implementation by name.", "naive")

    def step(self) -> StepCell:
        """The pass that is looked at, as an end-to-end step."""
        return StepCell(**{name: getattr(self, name) for name in NumericsCell.names()}, mode="backward")


@dataclass(frozen=True, kw_only=True)
class NumericsRow(NumericsCell, Row):
    """How far a precision is from the reference. Errors are relative: ‖x − ref‖ / ‖ref‖ over all elements; unknown
    where either side is not finite, and for fp32 where it is itself the reference."""

    reference: FloatName | None = column(
        "Reference", "", "dtype of the reference: fp64, or fp32 where that is too much."
    )
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
        "Matmul precision", "", "What torch says of float32 matrix products after the pass: ieee or tf32."
    )
    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    build_seconds: float | None = column("Build time", "s", "Making both models and the data.")
    measure_seconds: float | None = column("Measuring time", "s", "All passes and comparisons.")


@dataclass(frozen=True, kw_only=True)
class DtypeRow(Detail):
    """The dtype of one thing in a pass, read from the run."""

    position: int = required("Position", "", "Order in which the pass meets it, from 0.")
    model: str = required("Model", "", "`transformer`, or `toy` for the two-layer model with layer normalisation.")
    part: str = required("Part", "", "What it is: parameter, output (of a module), logits, loss or gradient.")
    module: str = required("Module", "", "Path of the module or parameter; of blocks, the first stands for all.")
    dtype: str = required("dtype", "", "Its dtype, as torch says.")


@dataclass(frozen=True, kw_only=True)
class NormalisationRow(Detail):
    """One statistic of normalisation over one residual stream of the model, computed in one dtype."""

    layer: int = required("Block", "", "Block whose input it is, from 0.")
    statistic: NormStatistic = required("Statistic", "", "What is computed over the width.")
    computed_in: FloatName = required("Computed in", "", "dtype of every operation and of what it returns.")
    scale: float = required("Scale", "", "What the residual stream was multiplied by first, to meet larger values.")
    error: float | None = column("Error", "", "Relative error against float64; unknown where it is not finite.")
    overflowed_share: float = required("Overflowed", "", "Share of tokens whose statistic is infinite or NaN.")
    underflowed_share: float = required(
        "Underflowed", "", "Share of tokens whose statistic is 0 and should not be; of an output, all of it."
    )
