"""The statistics of normalization, computed in each dtype and compared with float64.

    rows = measure_sensitivity(job, streams={0: x_btd, 5: ...})

The inputs are residual streams of the real model, times powers of two, because activations of a trained model are
larger than those of a fresh one. The input and the result of every operation are rounded to the dtype, as under
autocast. Limits: within one operation torch adds in float32 and rounds once, on CUDA and on a CPU; a device that added
in the dtype itself would be less exact.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from runner.job import Job
from runner.measure.numerics.dtypes import DTYPES
from runner.models.transformer import NORM_EPSILON
from runner.models.workload import Workload
from runner.schema import FloatName, NormalisationRow, NormStatistic

#: The factors of the streams. The squares of the least and of the largest are outside fp16's range.
SCALES = (2.0**-14, 2.0**-7, 1.0, 2.0**5, 2.0**7, 2.0**10)
COMPARED: tuple[FloatName, ...] = ("fp32", "bf16", "fp16")
#: The most blocks whose streams are recorded; more would show nothing new.
MAX_BLOCKS = 4


def mean(x: Tensor) -> Tensor:
    """Returns the mean over the width: (…, width) -> (…, 1)."""
    return x.mean(dim=-1, keepdim=True)


def variance(x: Tensor) -> Tensor:
    """Returns the variance over the width in two passes, as layer normalization computes it."""
    return mean_of_squares(x - mean(x))


def mean_of_squares(x: Tensor) -> Tensor:
    """Returns the mean of squares over the width, as RMS normalization computes it."""
    return mean(x.square())


def output(x: Tensor) -> Tensor:
    """Returns the RMS normalization of x with a gain of 1 (Zhang and Sennrich 2019)."""
    return x * torch.rsqrt(mean_of_squares(x) + NORM_EPSILON)


STATISTICS: Mapping[NormStatistic, Callable[[Tensor], Tensor]] = {
    "mean": mean,
    "variance": variance,
    "mean of squares": mean_of_squares,
    "output": output,
}


@contextmanager
def record_streams(workload: Workload) -> Iterator[dict[int, Tensor]]:
    """Records the inputs of a few blocks, spread over the depth: block -> (batch, time, width)."""
    streams: dict[int, Tensor] = {}

    def record(layer: int, block: object, inputs: tuple[Tensor, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].is_floating_point():
            streams[layer] = inputs[0].detach()

    with ExitStack() as hooks:
        for layer in choose_layers(len(workload.blocks)):
            block = workload.model.get_submodule(workload.blocks[layer])
            hooks.enter_context(block.register_forward_pre_hook(partial(record, layer)))
        yield streams


def choose_layers(layers: int) -> list[int]:
    """Returns at most MAX_BLOCKS of the layers, evenly spread, the first and the last among them."""
    count = min(layers, MAX_BLOCKS)
    return sorted({round(place * (layers - 1) / max(count - 1, 1)) for place in range(count)})


def measure_sensitivity(job: Job, streams: Mapping[int, Tensor]) -> list[NormalisationRow]:
    """Returns one row for each block, statistic, dtype and scale."""
    exact = {layer: to_float64(stream) for layer, stream in streams.items()}
    return [
        NormalisationRow(
            run_id=job.run_id,
            cell_id=job.cell_id,
            layer=layer,
            statistic=statistic,
            computed_in=name,
            scale=scale,
            **measure_statistic(exact[layer] * scale, statistic=statistic, computed_in=name),
        )
        for layer, scale, statistic, name in itertools.product(exact, SCALES, STATISTICS, COMPARED)
    ]


def measure_statistic(x: Tensor, *, statistic: NormStatistic, computed_in: FloatName) -> dict[str, Any]:
    """Returns the error and the lost shares of a statistic of `x` (…, width), by column of the row."""
    compute = STATISTICS[statistic]
    expected, actual = compute(to_float64(x)), to_float64(compute(x.to(DTYPES[computed_in])))
    finite = actual.isfinite().all(dim=-1)
    vanished = (actual == 0).all(dim=-1) & (expected != 0).any(dim=-1)
    error = (actual - expected).norm() / expected.norm()
    return {
        "error": error.item() if finite.all() else None,
        "overflowed_share": 1 - finite.double().mean().item(),
        "underflowed_share": vanished.double().mean().item(),
    }


def to_float64(tensor: Tensor) -> Tensor:
    """Returns the same numbers in float64, on the CPU where the device has no float64."""
    return (tensor.detach().cpu() if tensor.device.type == "mps" else tensor.detach()).double()
