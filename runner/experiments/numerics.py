"""What does a lower precision cost in accuracy, and where?

    python -m runner sweep --experiment numerics --precisions bf16,fp16

Answers P1 and P2: sums bit by bit, the dtypes of a pass as read from it, the errors of loss and gradients.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from runner.experiments.experiment import START_SECONDS, Experiment, Grid, Kind, Lines, On, Prediction, Shown
from runner.experiments.models import EDITIONS, check_model, order_by_size, predict_model
from runner.schema import AccumulationCell, AccumulationRow, NumericsCell, NumericsRow, Precision, TimingRow

#: The cost of a pass in float64 as a multiple of one in the cell's precision, and the time for the rest of a cell (s).
REFERENCE_COST = 8
EXTRA_SECONDS = 0.5

_WIDE_FIRST = ("fp64", "fp32", "bf16", "fp16")
SUMS_GRID = Grid.of(AccumulationCell)
GRID = Grid.of(NumericsCell, precisions=get_args(Precision))
_SMALL = GRID.change(sizes=("toy-256", "small"))


def _predict(cell: NumericsCell, on: On) -> Prediction:
    """Predicts the cost of two models in one process, with a reference of twice the width of fp32."""
    found = predict_model(cell.step(), on, steps_run=REFERENCE_COST, more_seconds=EXTRA_SECONDS)
    return replace(found, peak_bytes=None if found.peak_bytes is None else 3 * found.peak_bytes)


def _summarize(row: NumericsRow, timings: Mapping[str, TimingRow]) -> str:
    error = "" if row.gradient_error is None else f", gradients off by {row.gradient_error:.1e}"
    return f"loss {row.loss or float('nan'):.6g}{error} ({row.reference})"


def _format_line(shown: Shown) -> list[str]:
    """Returns the reference, the loss, and the relative errors against the reference."""
    row: NumericsRow = shown.row
    errors = (row.loss_error, row.logits_error, row.gradient_error, row.worst_gradient_error)
    loss = "" if row.loss is None else f"{row.loss:.6f}"
    return [row.reference or "", loss, *("" if error is None else f"{error:.1e}" for error in errors)]


def _format_sum(shown: Shown) -> list[str]:
    """Returns a sum and the numbers that explain it."""
    row: AccumulationRow = shown.row
    numbers = (row.total, row.error, row.rounded_value, row.spacing, row.last_increment, row.slips_at)
    return ["" if number is None else f"{number:.9g}" for number in numbers]


SUMS = Kind(
    cell=AccumulationCell,
    measure="runner.measure.numerics:measure_accumulation",
    predict=lambda cell, on: Prediction(step_flops=0, peak_bytes=0, seconds=START_SECONDS[on.device]),
    summarize=lambda row, timings: f"{row.total or float('nan'):.9g} for {row.exact or float('nan'):g}",
    lines=Lines(
        headings=("sum", "error", "addend as held", "spacing there", "last increment", "slips at"),
        line=_format_sum,
        order=lambda row: (_WIDE_FIRST.index(row.accumulator), _WIDE_FIRST.index(row.addend), row.upcast),
        settled=True,
    ),
)
NUMERICS = Kind(
    cell=NumericsCell,
    measure="runner.measure.numerics:measure_numerics",
    check=lambda cell: check_model(cell.step()),
    predict=_predict,
    summarize=_summarize,
    lines=Lines(
        headings=("reference", "loss", "loss error", "logits", "gradients", "worst of one"),
        line=_format_line,
        order=lambda row: (
            *order_by_size(row),
            row.batch,
            row.attention,
            row.weights_dtype,
            get_args(Precision).index(row.precision),
        ),
        caption="Errors are relative: ‖x − reference‖ / ‖reference‖.",
        settled=True,
    ),
)

EXPERIMENT = Experiment(
    name="numerics",
    question="What does a lower precision cost in accuracy, and where?",
    kinds=(SUMS, NUMERICS),
    grids={
        "laptop": (SUMS_GRID, GRID.change(sizes=("toy-256",), contexts=(64,))),
        "standard": (SUMS_GRID, _SMALL.change(contexts=(512,))),
        **{name: (SUMS_GRID, _SMALL.change(contexts=axes["steps"]["contexts"][:1])) for name, axes in EDITIONS.items()},
    },
)
