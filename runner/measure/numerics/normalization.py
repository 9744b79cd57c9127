"""What in normalization needs more than 16 bits? Its statistics, computed in each dtype and compared with float64.

    rows = measure_sensitivity(job, streams={0: x_btd, 5: ...})

The inputs are residual streams of the real model, times powers of two, because activations of a trained model are
larger than those of a fresh one. Everything is rounded to the dtype: the input and the result of every operation, as
autocast would have it. Limits: inside one operation torch adds in float32 and rounds once, on CUDA and on a CPU; a
device that added in the dtype itself would do worse.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from runner.job import Job
from runner.measure.numerics.dtypes import DTYPES
from runner.models.transformer import NORM_EPSILON, Transformer
from runner.schema import FloatName, NormalisationRow, NormStatistic

#: What the streams are multiplied by. Values near 1 become 1/16384, whose square fp16 has not, or 1024, likewise.
SCALES = (2.0**-14, 2.0**-7, 1.0, 2.0**5, 2.0**7, 2.0**10)
COMPARED: tuple[FloatName, ...] = ("fp32", "bf16", "fp16")
#: Streams of more blocks than these say nothing new.
MAX_BLOCKS = 4


def mean(x: Tensor) -> Tensor:
    """(…, width) -> (…, 1)."""
    return x.mean(dim=-1, keepdim=True)


def variance(x: Tensor) -> Tensor:
    """Of the width, in two passes, as layer normalization needs it."""
    return (x - mean(x)).square().mean(dim=-1, keepdim=True)


def mean_of_squares(x: Tensor) -> Tensor:
    """What RMS normalization needs."""
    return x.square().mean(dim=-1, keepdim=True)


def output(x: Tensor) -> Tensor:
    """RMS normalization with a gain of 1 (Zhang and Sennrich 2019)."""
    return x * torch.rsqrt(mean_of_squares(x) + NORM_EPSILON)


STATISTICS: Mapping[NormStatistic, Callable[[Tensor], Tensor]] = {
    "mean": mean,
    "variance": variance,
    "mean of squares": mean_of_squares,
    "output": output,
}


@contextmanager
def streams_of(model: Transformer) -> Iterator[dict[int, Tensor]]:
    """While open, keeps what enters a few blocks, spread over the depth: block -> (batch, time, width)."""
    found: dict[int, Tensor] = {}

    def keeping(layer: int) -> Callable[[object, tuple[Tensor, ...]], None]:
        def keep(block: object, inputs: tuple[Tensor, ...]) -> None:
            found[layer] = inputs[0].detach()

        return keep

    chosen = spread(len(model.blocks))
    handles = [model.blocks[layer].register_forward_pre_hook(keeping(layer)) for layer in chosen]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def spread(layers: int) -> list[int]:
    """At most MAX_BLOCKS of so many, the first and the last among them."""
    count = min(layers, MAX_BLOCKS)
    return sorted({round(place * (layers - 1) / max(count - 1, 1)) for place in range(count)})


def measure_sensitivity(job: Job, streams: Mapping[int, Tensor]) -> list[NormalisationRow]:
    """One row a block, statistic, dtype and scale."""
    return [
        NormalisationRow(run_id=job.run_id, cell_id=job.cell_id, layer=layer, statistic=statistic, computed_in=name,
                         scale=scale, **measure_statistic(x * scale, statistic=statistic, computed_in=name))
        for layer, stream in streams.items()
        for x in [exactly(stream)]
        for scale in SCALES for statistic in STATISTICS for name in COMPARED
    ]  # fmt: skip


def measure_statistic(x: Tensor, *, statistic: NormStatistic, computed_in: FloatName) -> dict[str, Any]:
    """Error and lost shares of a statistic of `x` (…, width), by column of the row."""
    compute = STATISTICS[statistic]
    expected, found = compute(exactly(x)), exactly(compute(x.to(DTYPES[computed_in])))
    finite = found.isfinite().all(dim=-1)
    vanished = (found == 0).all(dim=-1) & (expected != 0).any(dim=-1)
    error = (found - expected).norm() / expected.norm()
    return {
        "error": error.item() if finite.all() else None,
        "overflowed_share": 1 - finite.double().mean().item(),
        "underflowed_share": vanished.double().mean().item(),
    }


def exactly(tensor: Tensor) -> Tensor:
    """The same numbers in float64, on the CPU where the device has none."""
    home = tensor.detach().cpu() if tensor.device.type == "mps" else tensor.detach()
    return home.double()
