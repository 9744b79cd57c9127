"""Defines end-to-end Transformer steps: the cell and its row."""

from dataclasses import dataclass, replace
from typing import Annotated, Self

from runner.schema import axes
from runner.schema.axes import Model
from runner.schema.cells import Cell, TimedRow
from runner.schema.choices import CompileCache, FlopsSource, Mode, Precision, StoppedBy
from runner.schema.columns import MAX_WHOLE, Column
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class StepCell(Model, Cell):
    """One end-to-end Transformer step."""

    TITLE = "{context} · {mode} · {precision} · {backend}"

    batch: axes.Batch = 4
    context: axes.Context
    mode: Annotated[
        Mode,
        Column(
            "Mode",
            "",
            "inference: forward under no_grad; forward: with its graph; backward: forward, "
            "loss and backward; train: and the optimizer step.",
            flag=axes.MODES,
        ),
    ]
    precision: Annotated[
        Precision,
        Column(
            "Precision",
            "",
            "fp32 is IEEE; tf32 rounds matrix products' inputs to 10 bits; "
            "bf16 and fp16 are autocast over the weights (fp16 with a gradient scaler).",
            flag=axes.PRECISIONS,
        ),
    ]
    weights_dtype: axes.Weights = "fp32"
    backend: axes.Backend = "eager"
    attention: axes.Attention = "naive"
    optimizer: axes.Optimizer = "foreach"
    checkpoint_blocks: Annotated[
        int,
        Column(
            "Checkpointing",
            "blocks",
            "Blocks recomputed together in the backward pass; 0 keeps every activation.",
            least=0,
            flag=axes.CHECKPOINT,
        ),
    ] = 0
    warmup_steps: Annotated[
        int,
        Column(
            "Warm-up",
            "steps",
            "Steps run before the measured ones; their samples are kept too.",
            effort="most",
            least=0,
            flag=axes.WARMUP,
        ),
    ] = 5
    min_steps: Annotated[
        int,
        Column("Steps, at least", "steps", "Measured steps before the cell may end.", effort="most", flag=axes.STEPS),
    ] = 10
    max_steps: Annotated[
        int,
        Column(
            "Steps, at most", "steps", "Measured steps after which the cell ends.", effort="most", flag=axes.MAX_STEPS
        ),
    ] = 200
    max_seconds: Annotated[
        float,
        Column(
            "Time, at most",
            "s",
            "Measuring time after which the cell ends, once it has its least number of steps.",
            effort="most",
            flag=axes.MAX_SECONDS,
        ),
    ] = 10.0
    compile_cache: Annotated[
        CompileCache,
        Column(
            "Compile cache",
            "",
            "shared: compiled with whatever earlier cells left in the compiler's cache; empty: with a cache "
            "of its own, "
            "so that the compile time is a cold one, and then once more with it warm.",
            effort="first",
            flag=axes.COMPILE_CACHE,
        ),
    ] = "shared"

    def normalized(self) -> Self:
        """A cell that is not compiled has no compiler's cache."""
        return self if self.backend.startswith("compiled") else replace(self, compile_cache="shared")

    def remarks(self) -> list[str]:
        return [f"exactly {self.min_steps} steps"] if self.min_steps == self.max_steps else []


@dataclass(frozen=True, kw_only=True)
class StepRow(StepCell, TimedRow):
    """One measured end-to-end cell; its times are in `timings`, its raw samples in `samples`."""

    parameters: Annotated[
        int | None, Column("Parameters", "", "Number of trainable parameters, counted in the built model.")
    ] = None
    steps: Annotated[int | None, Column("Measured steps", "steps", "Measured steps; warm-up not counted.")] = None
    stopped_by: Annotated[
        StoppedBy | None,
        Column(
            "Stopped by",
            "",
            "Why measuring ended: the interval of the median was narrow "
            "enough, or the limit on steps or seconds was reached.",
        ),
    ] = None
    interval_share: Annotated[
        float | None,
        Column("Interval / median", "", "Width of the 95% interval of the median step, as a share of that median."),
    ] = None
    tokens_per_s: Annotated[
        float | None,
        Column(
            "Throughput",
            "tokens/s",
            "Tokens of one step over its median time in a loop; on a CPU over the median step.",
        ),
    ] = None
    samples_per_s: Annotated[
        float | None,
        Column("Samples per second", "", "Samples (sequences, images) of one step over the same time."),
    ] = None
    step_flops: Annotated[
        int | None,
        Column("FLOPs of a step", "FLOP", "Matrix-product operations of one step, recomputation included."),
    ] = None
    flops_source: Annotated[
        FlopsSource | None,
        Column(
            "FLOPs by",
            "",
            "formula: from the shape of Stepscope's Transformer; counter: PyTorch's own (torch.utils.flop_counter), of "
            "an own model.",
        ),
    ] = None
    flops_per_s: Annotated[
        float | None, Column("Achieved rate", "FLOP/s", "FLOPs of a step over the time that the throughput rests on.")
    ] = None
    mfu: Annotated[
        float | None,
        Column(
            "MFU",
            "",
            "Model FLOPs, recomputation not counted, over the time that the throughput rests on, as a share of the "
            "datasheet's dense peak for this precision; unknown where no datasheet figure is known.",
        ),
    ] = None
    phase_sum_share: Annotated[
        float | None,
        Column(
            "Phases / step",
            "",
            "Median over steps of the sum of the phases divided by the host clock around the same synchronized step.",
        ),
    ] = None
    build_seconds: Annotated[
        float | None, Column("Build time", "s", "Making the model, the optimizer and the data.")
    ] = None
    warmup_seconds: Annotated[float | None, Column("Warm-up time", "s", "The warm-up steps, compilation included.")] = (
        None
    )
    measure_seconds: Annotated[float | None, Column("Measuring time", "s", "The measured steps.")] = None
    unwaited_seconds: Annotated[
        float | None, Column("Loop's time", "s", "The steps of the loop, and the one traced for the device time.")
    ] = None
    compile_seconds: Annotated[
        float | None, Column("Compile time", "s", "First step minus the median measured step; compiled cells only.")
    ] = None
    compile_cold_seconds: Annotated[
        float | None,
        Column("Compile time, cold", "s", "The same, where the compiler found nothing of it in its cache."),
    ] = None
    compile_warm_seconds: Annotated[
        float | None,
        Column("Compile time, warm", "s", "The same, compiled once more with the cache that the first time filled."),
    ] = None
    compiled_at_once: Annotated[
        int | None,
        Column(
            "Compiled at once",
            "",
            "Cells compiled at the same time, each by one thread, before the first of them was timed; nothing where "
            "the cell was compiled in its turn. Only of cells with an empty cache.",
        ),
    ] = None
    graphs: Annotated[
        int | None, Column("Graphs", "", "Graphs compiled up to the end of the warm-up; compiled cells only.")
    ] = None
    graph_breaks: Annotated[
        int | None,
        Column("Graph breaks", "", "Where the compiler split the model into several graphs; compiled cells only."),
    ] = None
    recompiles: Annotated[
        int | None, Column("Recompiles", "", "Graphs compiled after the warm-up; compiled cells only.")
    ] = None
    compiler_fallback: Annotated[
        bool | None,
        Column(
            "Fell back to eager", "", "Whether the compiler gave up on a frame and ran it eagerly; compiled cells only."
        ),
    ] = None
    compiled_gradient_error: Annotated[
        float | None,
        Column(
            "Gradient error, compiled",
            "",
            "Largest ‖compiled − eager‖ / ‖eager‖ of one parameter's gradient, from the initial weights; of compiled "
            "cells with a backward pass, where memory sufficed for both.",
        ),
    ] = None
    loss: Annotated[float | None, Column("Loss", "nats", "Cross-entropy of the last measured step.")] = None
    logits_dtype: Annotated[
        str | None, Column("Logits dtype", "", "dtype of the model's output, read from the run.")
    ] = None
    matmul_precision: Annotated[
        str | None,
        Column("Matmul precision", "", "What torch says of float32 matrix products after the run: ieee or tf32."),
    ] = None
    predicted_peak_bytes: Annotated[
        int | None, Column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    ] = None
    peak_allocated_bytes: Annotated[
        int | None, Column("Peak allocated", "bytes", "Peak of live tensors (CUDA allocator).")
    ] = None
    peak_reserved_bytes: Annotated[
        int | None, Column("Peak reserved", "bytes", "Peak held by the CUDA caching allocator.")
    ] = None
    peak_resident_bytes: Annotated[
        int | None, Column("Peak resident", "bytes", "Peak resident memory of the worker process.")
    ] = None
    memory_growth_bytes: Annotated[
        int | None,
        Column(
            "Memory growth",
            "bytes",
            "By how much the memory in use grew in a step, on average over the second half: live tensors on CUDA, "
            "the process elsewhere. A step that leaves nothing behind has 0.",
            least=-MAX_WHOLE,
        ),
    ] = None
    threads: Annotated[int | None, Column("Threads", "", "Threads that torch computes with.")] = None
    omp_wait_policy: Annotated[
        str | None,
        Column("OpenMP wait policy", "", "What idle OpenMP threads do; ACTIVE ones spin and slow their neighbours."),
    ] = None
    cpu_capability: Annotated[
        str | None, Column("CPU kernels", "", "Instruction set of torch's CPU kernels, read back.")
    ] = None
    other_cpu_share: Annotated[
        float | None,
        Column(
            "CPU taken by others",
            "",
            "Share of the machine's CPU time that other processes used while this cell was measured.",
        ),
    ] = None


TABLES = (
    Table(
        name="steps",
        row=StepRow,
        unique=("cell_id",),
        doc="One end-to-end Transformer cell.",
        words="training steps",
        numbers="tokens_per_s mfu compile_seconds compile_cold_seconds compile_warm_seconds graphs graph_breaks "
        "recompiles compiler_fallback compiled_gradient_error parameters",
        timed=True,
    ),
)
