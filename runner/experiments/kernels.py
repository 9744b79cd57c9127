"""Which kernels make up the time of a step, of what kind, in which phase and range, and what waits for what?

    python -m runner sweep --experiment kernels --sizes small --modes inference,train

Answers K1 to K5. The kernels come from a separate pass under the profiler. Profiled time is never shown as the step's
time.
"""

from collections.abc import Mapping

from runner.experiments.experiment import Experiment, Grid, Kind, On, Prediction
from runner.experiments.models import EDITIONS, SIZES, check_model, compile_seconds, fits_trained, predict_model
from runner.schema import ProfileCell, ProfileRow, TimingRow

#: The number of steps that a cell runs without and with the profiler, and the time to read the events (s).
STEPS_RUN = 12
EXTRA_SECONDS = 1.0

GRID = Grid.of(ProfileCell, modes=("inference", "train"), precisions=("fp32",))
TOY = GRID.change(sizes=("toy-256",), contexts=(64,))
_SMALL = GRID.change(sizes=("small",), contexts=(512,), precisions=("bf16",))


def _predict(cell: ProfileCell, on: On) -> Prediction:
    extra = compile_seconds(cell.backend, cell.layers, device=on.device) + EXTRA_SECONDS
    return predict_model(cell, on, steps_run=STEPS_RUN, more_seconds=extra)


def _summarize(row: ProfileRow, timings: Mapping[str, TimingRow]) -> str:
    cost = f"{row.overhead_share or 0:+.0%} under the profiler"
    what = "operators" if row.host_bound_share is None else "kernels"
    return f"{row.unprofiled_step_ms or 0:,.2f} ms, {cost}, {row.kernel_calls} {what} {row.kernel_ms or 0:,.2f} ms"


PROFILES = Kind(
    cell=ProfileCell,
    measure="runner.measure.kernels:measure_kernels",
    check=check_model,
    predict=_predict,
    summarize=_summarize,
    fits=fits_trained,
)

EXPERIMENT = Experiment(
    name="kernels",
    question="What does the time of a step consist of?",
    kinds=(PROFILES,),
    grids={
        "laptop": (
            TOY.change(sizes=("toy-64", "toy-256")),
            TOY.change(contexts=(32,), modes=("train",)),
            TOY.change(modes=("train",), precisions=("bf16",)),
        ),
        "standard": (
            GRID.change(sizes=SIZES, contexts=(512,), modes=("inference", "backward", "train")),
            GRID.change(sizes=("small", "large"), contexts=(128, 1024)),
            GRID.change(sizes=("small", "large"), contexts=(512,), modes=("train",), precisions=("tf32", "bf16")),
            _SMALL.change(backends=("compiled",)),
            _SMALL.change(attention=("sdpa",), modes=("train",)),
        ),
        **{name: (GRID.change(**axes["profiles"]),) for name, axes in EDITIONS.items()},
    },
)
