"""What does a lower precision cost in accuracy, and where?

    python -m runner sweep --experiment numerics --precisions bf16,fp16

Answers P1 and P2: sums bit by bit, the dtypes of a pass as read from it, the errors of loss and gradients.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from runner.experiments.experiment import START_SECONDS, Experiment, Grid, Kind, On, Prediction
from runner.experiments.models import EDITIONS, check_model, predict_model
from runner.schema import AccumulationCell, NumericsCell, NumericsRow, Precision, TimingRow, step_of

#: The cost of a pass in float64 as a multiple of one in the cell's precision, and the time for the rest of a cell (s).
REFERENCE_COST = 8
EXTRA_SECONDS = 0.5

SUMS_GRID = Grid.of(AccumulationCell)
GRID = Grid.of(NumericsCell, precisions=get_args(Precision))
_SMALL = GRID.change(sizes=("toy-256", "small"))


def _predict(cell: NumericsCell, on: On) -> Prediction:
    """Predicts the cost of two models in one process, with a reference of twice the width of fp32."""
    found = predict_model(step_of(cell), on, steps_run=REFERENCE_COST, more_seconds=EXTRA_SECONDS)
    return replace(found, peak_bytes=None if found.peak_bytes is None else 3 * found.peak_bytes)


def _summarize(row: NumericsRow, timings: Mapping[str, TimingRow]) -> str:
    error = "" if row.gradient_error is None else f", gradients off by {row.gradient_error:.1e}"
    return f"loss {row.loss or float('nan'):.6g}{error} ({row.reference})"


SUMS = Kind(
    cell=AccumulationCell,
    measure="runner.measure.numerics:measure_accumulation",
    predict=lambda cell, on: Prediction(step_flops=0, peak_bytes=0, seconds=START_SECONDS[on.device]),
    summarize=lambda row, timings: f"{row.total or float('nan'):.9g} for {row.exact or float('nan'):g}",
)
NUMERICS = Kind(
    cell=NumericsCell,
    measure="runner.measure.numerics:measure_numerics",
    check=lambda cell: check_model(step_of(cell)),
    predict=_predict,
    summarize=_summarize,
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
