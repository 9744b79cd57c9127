"""At what sequence length does single-head attention run out, of time and of memory, and what helps?

    python -m runner sweep --experiment attention --attention naive,sdpa-flash --precisions bf16

Answers A1, A2, A3 and C1. Forward and backward are timed inside the same iterations; a cell that runs out of memory is
a row with the bytes it asked for.
"""

from collections.abc import Mapping

from runner.analysis.costs import attention
from runner.errors import UsageError
from runner.experiments.experiment import START_SECONDS, Experiment, Grid, Kind, On, Prediction, Variants
from runner.experiments.models import COMPILE_SECONDS, EDITIONS, check_limits
from runner.formats import format_bytes
from runner.schema import AttentionCell, AttentionRow, TimingRow
from runner.schema.own import is_own_part

#: A cell also looks at what it keeps and compares with float64 (s).
EXTRA_SECONDS = 0.3

GRID = Grid.of(
    AttentionCell,
    attention=("naive",),
    seq_lens=(256, 1024, 4096, 8192, 16384),
    d_heads=(16, 32, 64, 128),
    precisions=("fp32",),
    max_seconds=2.0,
)
#: The grid has batch 2, so that even the longest sequence runs ten iterations on two cores.
TOY = GRID.change(
    attention=("naive", "sdpa-flash"),
    seq_lens=(128, 256, 512, 1024),
    d_heads=(16, 64),
    batch=(2,),
    steps=10,
    max_steps=400,
    max_seconds=1.2,
)


def _make_fused(grid: Grid) -> tuple[Grid, ...]:
    """Returns the fused kernels where each exists, and the naive cells that they are compared with."""
    return (
        grid.change(attention=("naive", "sdpa-efficient")),
        grid.change(attention=("naive", "sdpa-flash"), precisions=("bf16",)),
    )


def _check(cell: AttentionCell) -> None:
    if min(cell.batch, cell.seq_len, cell.d_head) < 1:
        raise UsageError("Batch, sequence length and head width must be at least 1.")
    check_limits(cell)


def _predict(cell: AttentionCell, on: On) -> Prediction:
    """Predicts the cost of warm-up and measured iterations. The time limit precedes the least number of iterations."""
    flops = attention.forward_flops(cell) + attention.backward_flops(cell)
    step = flops / on.flops_per_s
    compiling = COMPILE_SECONDS[on.device][0] if cell.backend == "compiled" else 0
    measuring = cell.warmup_steps * step + min(cell.max_seconds, cell.max_steps * step)
    return Prediction(
        step_flops=flops,
        peak_bytes=None
        if is_own_part(cell.implementation)
        else attention.predicted_peak_bytes(cell, device=on.device, gpu=on.gpu),
        seconds=START_SECONDS[on.device] + compiling + EXTRA_SECONDS + measuring,
    )


def _summarize(row: AttentionRow, timings: Mapping[str, TimingRow]) -> str:
    times = ", ".join(f"{phase} {timings[phase].median_ms:,.3f} ms" for phase in ("forward", "backward"))
    return f"{times}, n {row.steps}, peak {format_bytes(row.peak_allocated_bytes or 0)}"


def _explain(row: AttentionRow) -> str:
    if not row.asked_bytes:
        return ""
    in_use = format_bytes(row.in_use_bytes or 0)
    return f"{row.failed_phase} asked for {format_bytes(row.asked_bytes)} more than the {in_use} in use"


ATTENTION = Kind(
    cell=AttentionCell,
    measure="runner.measure.attention:measure_attention",
    check=_check,
    predict=_predict,
    summarize=_summarize,
    explain=_explain,
    repeat_group=lambda cell: "attention" if (cell.backend, cell.implementation) == ("eager", "naive") else "",
)

#: The tokens of a pass times its head width: that of 2,048 channels at 16,384 tokens, as in FlashAttention's papers.
FLASH_WORK = 2048 * 16_384
FLASH = Grid.of(
    AttentionCell,
    seq_lens=tuple(512 * 2**n for n in range(8)),
    d_heads=(64, 128),
    batch=tuple(4 * 2**n for n in range(9)),
    warmup=(3,),
    steps=10,
    max_steps=30,
    max_seconds=5.0,
)
#: In fp32 no fused kernel but one runs on CUDA; naive attention ends where memory does.
_FLASH = Variants(
    grids=(
        FLASH.change(
            attention=("naive", "sdpa-flash", "sdpa-flash3", "sdpa-flash4", "sdpa-efficient", "sdpa-cudnn", "flex"),
            precisions=("bf16",),
        ),
        FLASH.change(attention=("naive", "sdpa-efficient"), precisions=("fp32",)),
        FLASH.change(attention=("naive",), backends=("compiled",), precisions=("fp32", "bf16")),
    ),
    holds=lambda cell: cell.batch * cell.seq_len * cell.d_head == FLASH_WORK,
)

EXPERIMENT = Experiment(
    name="attention",
    question="How do time and memory of attention grow, and where does memory run out?",
    kinds=(ATTENTION,),
    grids={
        "laptop": (TOY,),
        "standard": (
            GRID,
            GRID.change(d_heads=(64,), backends=("eager", "compiled")),
            *_make_fused(GRID.change(d_heads=(64, 128))),
            # Small enough for the L2 cache, so that what it is worth can be seen; on CUDA only.
            GRID.change(
                attention=("naive", "sdpa-flash"),
                seq_lens=(256, 1024),
                d_heads=(64,),
                precisions=("bf16",),
                cache=("hot", "cold"),
            ),
        ),
        **{name: (GRID.change(backends=("eager", "compiled")), *_make_fused(GRID)) for name in EDITIONS},
        "flash": (_FLASH,),
    },
)
