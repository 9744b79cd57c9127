"""Defines end-to-end Transformer steps: the cell and its row."""

from dataclasses import dataclass, replace
from typing import Self

from runner.schema import axes
from runner.schema.axes import ModelCell, PassCell
from runner.schema.cells import TimedRow
from runner.schema.choices import Backend, CompileCache, FlopsSource
from runner.schema.columns import MAX_WHOLE, column


@dataclass(frozen=True, kw_only=True)
class StepCell(ModelCell):
    """One end-to-end Transformer step."""

    TITLE = "{context} · {mode} · {precision} · {backend}"

    backend: Backend = column("Backend", "", "eager, or what is compiled and how.", flag=axes.BACKENDS, default="eager")
    warmup_steps: int = column(
        "Warm-up",
        "steps",
        "Steps run before the measured ones; their samples are kept too.",
        least=0,
        flag=axes.WARMUP,
        default=5,
    )
    min_steps: int = column(
        "Steps, at least", "steps", "Measured steps before the cell may end.", flag=axes.STEPS, default=10
    )
    max_steps: int = column(
        "Steps, at most", "steps", "Measured steps after which it ends.", flag=axes.MAX_STEPS, default=200
    )
    max_seconds: float = column(
        "Time, at most",
        "s",
        "Measuring time after which the cell ends, once it has its least number of steps.",
        flag=axes.MAX_SECONDS,
        default=10.0,
    )
    compile_cache: CompileCache = column(
        "Compile cache",
        "",
        "shared: compiled with whatever earlier cells left in the compiler's cache; empty: with a cache of its own, so"
        " that the compile time is a cold one, and then once more with it warm. Further rounds find it in the shared"
        " one.",
        flag=axes.COMPILE_CACHE,
        default="shared",
    )

    def normalized(self) -> Self:
        """A cell that is not compiled has no compiler's cache."""
        return self if self.backend.startswith("compiled") else replace(self, compile_cache="shared")

    def remarks(self) -> list[str]:
        return [f"exactly {self.min_steps} steps"] if self.min_steps == self.max_steps else []


def step_of(cell: PassCell) -> StepCell:
    """Returns the end-to-end step of a cell that measures something else of it; forward and backward by default."""
    known = {name: getattr(cell, name) for name in StepCell.names() if name in cell.names()}
    return StepCell(**{"mode": "backward", **known})


@dataclass(frozen=True, kw_only=True)
class StepRow(StepCell, TimedRow):
    """One measured end-to-end cell; its times are in `timings`, its raw samples in `samples`."""

    parameters: int | None = column("Parameters", "", "Number of trainable parameters, counted in the built model.")
    interval_share: float | None = column(
        "Interval / median", "", "Width of the median's 95% interval, as a share of it."
    )
    tokens_per_s: float | None = column(
        "Throughput", "tokens/s", "Tokens of a step over its median time in a loop; on a CPU, over its latency."
    )
    samples_per_s: float | None = column("Samples per second", "", "Sequences or images of a step over the same time.")
    step_joules: float | None = column(
        "Energy of a step", "J", "Energy of a step in a loop, on average, by NVML; CUDA only."
    )
    step_flops: int | None = column(
        "FLOPs of a step", "FLOP", "FLOPs of a step's matrix products, recomputed ones included."
    )
    flops_source: FlopsSource | None = column(
        "FLOPs by",
        "",
        "formula: from the shape of Stepscope's Transformer; counter: PyTorch's own (torch.utils.flop_counter), of an "
        "own model.",
    )
    flops_per_s: float | None = column(
        "Achieved rate", "FLOP/s", "FLOPs of a step over the time that the throughput rests on."
    )
    mfu: float | None = column(
        "MFU",
        "",
        "Model FLOPs, recomputation not counted, over the time that the throughput rests on, as a share of the "
        "datasheet's dense peak for this precision; unknown where no datasheet figure is known.",
    )
    phase_sum_share: float | None = column(
        "Phases / step",
        "",
        "Median over steps of the sum of the phases divided by the host clock around the same synchronized step.",
    )
    compile_cold_seconds: float | None = column("Compile time, cold", "s", "The same, with an empty compiler cache.")
    compile_warm_seconds: float | None = column("Compile time, warm", "s", "The same, with that cache filled.")
    compiled_at_once: int | None = column(
        "Compiled at once",
        "",
        "Of rows of version 0.1: cells compiled at the same time, each by one thread, before the first was timed.",
    )
    graphs: int | None = column("Graphs", "", "Graphs compiled up to the end of the warm-up; compiled cells only.")
    graph_breaks: int | None = column("Graph breaks", "", "Where the compiler split the graph; compiled only.")
    recompiles: int | None = column("Recompiles", "", "Graphs compiled after the warm-up; compiled cells only.")
    compiler_fallback: bool | None = column(
        "Fell back to eager", "", "Whether the compiler gave up on a frame and ran it eagerly; compiled cells only."
    )
    compiled_gradient_error: float | None = column(
        "Gradient error, compiled",
        "",
        "Largest ‖compiled − eager‖ / ‖eager‖ of one parameter's gradient, from the initial weights; of compiled cells"
        " with a backward pass, where memory sufficed for both.",
    )
    loss: float | None = column("Loss", "nats", "Cross-entropy of the last measured step.")
    logits_dtype: str | None = column("Logits dtype", "", "dtype of the model's output, read from the run.")
    matmul_precision: str | None = column(
        "Matmul precision", "", "What torch says of float32 products after it: ieee or tf32."
    )
    peak_resident_bytes: int | None = column("Peak resident", "bytes", "Peak resident memory of the worker process.")
    memory_growth_bytes: int | None = column(
        "Memory growth",
        "bytes",
        "By how much the memory in use grew in a step, on average over the second half: live tensors on CUDA, the "
        "process elsewhere. A step that leaves nothing behind has 0.",
        least=-MAX_WHOLE,
    )
    threads: int | None = column("Threads", "", "Threads that torch computes with.")
    omp_wait_policy: str | None = column("OpenMP wait policy", "", "What idle OpenMP threads do; ACTIVE ones spin.")
    cpu_capability: str | None = column("CPU kernels", "", "Instruction set of torch's CPU kernels, read back.")
    other_cpu_share: float | None = column(
        "CPU taken by others",
        "",
        "Share of the machine's CPU time that other processes used while this cell was measured.",
    )
