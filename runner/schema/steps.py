"""End-to-end Transformer steps: what is asked, and what came of it."""

from dataclasses import dataclass

from runner.schema.choices import Attention, Backend, CompileCache, Mode, Optimizer, Precision, StoppedBy, WeightsDtype
from runner.schema.columns import Cell, column, required
from runner.schema.runs import Row


@dataclass(frozen=True, kw_only=True)
class StepCell(Cell):
    """One end-to-end Transformer step."""

    d_model: int = required("Model width", "", "Width of the residual stream.")
    d_ff: int = required("Feed-forward width", "", "Inner width of the SwiGLU feed-forward layer.")
    layers: int = required("Layers", "", "Number of Transformer blocks.")
    heads: int = required("Heads", "", "Attention heads; each is d_model / heads wide.")
    vocabulary: int = column("Vocabulary", "tokens", "Size of the token vocabulary.", 10_000)
    batch: int = column("Batch", "sequences", "Sequences in one step.", 4)
    context: int = required("Context", "tokens", "Tokens of each sequence.")
    mode: Mode = required(
        "Mode",
        "",
        "inference: forward under no_grad; forward: with its graph; backward: forward, "
        "loss and backward; train: and the optimizer step.",
    )
    precision: Precision = required(
        "Precision",
        "",
        "fp32 is IEEE; tf32 rounds matrix products' inputs to 10 bits; "
        "bf16 and fp16 are autocast over the weights (fp16 with a gradient scaler).",
    )
    weights_dtype: WeightsDtype = column("Weights", "", "The dtype in which the parameters are held.", "fp32")
    backend: Backend = column("Backend", "", "eager, or what torch.compile was applied to and in which mode.", "eager")
    attention: Attention = column("Attention", "", "Attention implementation by name.", "naive")
    optimizer: Optimizer = column("Optimizer", "", "AdamW implementation.", "foreach")
    checkpoint_blocks: int = column(
        "Checkpointing",
        "blocks",
        "Blocks recomputed together in the backward pass; 0 keeps every activation.",
        0,
        least=0,
    )
    warmup_steps: int = column(
        "Warm-up", "steps", "Steps run before the measured ones; their samples are kept too.", 5, effort="most", least=0
    )
    min_steps: int = column("Steps, at least", "steps", "Measured steps before the cell may end.", 10, effort="most")
    max_steps: int = column("Steps, at most", "steps", "Measured steps after which the cell ends.", 200, effort="most")
    max_seconds: float = column(
        "Time, at most",
        "s",
        "Measuring time after which the cell ends, once it has its least number of steps.",
        10.0,
        effort="most",
    )
    compile_cache: CompileCache = column(
        "Compile cache",
        "",
        "shared: compiled with whatever earlier cells left in the compiler's cache; empty: with a cache of its own, "
        "so that the compile time is a cold one, and then once more with it warm.",
        "shared",
        effort="first",
    )


@dataclass(frozen=True, kw_only=True)
class StepRow(StepCell, Row):
    """One measured end-to-end cell; its times are in `timings`, its raw samples in `samples`."""

    parameters: int | None = column("Parameters", "", "Number of trainable parameters, counted in the built model.")
    steps: int | None = column("Measured steps", "steps", "Measured steps; warm-up not counted.")
    stopped_by: StoppedBy | None = column(
        "Stopped by",
        "",
        "Why measuring ended: the interval of the median was narrow "
        "enough, or the limit on steps or seconds was reached.",
    )
    interval_share: float | None = column(
        "Interval / median", "", "Width of the 95% interval of the median step, as a share of that median."
    )
    tokens_per_s: float | None = column("Throughput", "tokens/s", "Tokens of one step over the median step.")
    step_flops: int | None = column(
        "FLOPs of a step", "FLOP", "Matrix-product operations of one step, recomputation included, predicted."
    )
    flops_per_s: float | None = column("Achieved rate", "FLOP/s", "Predicted FLOPs over the median step.")
    mfu: float | None = column(
        "MFU",
        "",
        "Model FLOPs, recomputation not counted, per second of the median step, over the datasheet's dense peak for "
        "this precision; unknown where no datasheet figure is known.",
    )
    phase_sum_share: float | None = column(
        "Phases / step",
        "",
        "Median over steps of the sum of the phases divided by the host clock around the same synchronized step.",
    )
    build_seconds: float | None = column("Build time", "s", "Making the model, the optimizer and the data.")
    warmup_seconds: float | None = column("Warm-up time", "s", "The warm-up steps, compilation included.")
    measure_seconds: float | None = column("Measuring time", "s", "The measured steps.")
    compile_seconds: float | None = column(
        "Compile time", "s", "First step minus the median measured step; compiled cells only."
    )
    compile_cold_seconds: float | None = column(
        "Compile time, cold", "s", "The same, where the compiler found nothing of it in its cache."
    )
    compile_warm_seconds: float | None = column(
        "Compile time, warm", "s", "The same, compiled once more with the cache that the first time filled."
    )
    graphs: int | None = column("Graphs", "", "Graphs compiled up to the end of the warm-up; compiled cells only.")
    graph_breaks: int | None = column(
        "Graph breaks", "", "Where the compiler split the model into several graphs; compiled cells only."
    )
    recompiles: int | None = column("Recompiles", "", "Graphs compiled after the warm-up; compiled cells only.")
    compiler_fallback: bool | None = column(
        "Fell back to eager", "", "Whether the compiler gave up on a frame and ran it eagerly; compiled cells only."
    )
    compiled_gradient_error: float | None = column(
        "Gradient error, compiled",
        "",
        "Largest ‖compiled − eager‖ / ‖eager‖ of one parameter's gradient, from the initial weights; of compiled cells "
        "with a backward pass, where memory sufficed for both.",
    )
    loss: float | None = column("Loss", "nats", "Cross-entropy of the last measured step.")
    logits_dtype: str | None = column("Logits dtype", "", "dtype of the model's output, read from the run.")
    matmul_precision: str | None = column(
        "Matmul precision", "", "What torch says of float32 matrix products after the run: ieee or tf32."
    )
    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    peak_allocated_bytes: int | None = column("Peak allocated", "bytes", "Peak of live tensors (CUDA allocator).")
    peak_reserved_bytes: int | None = column("Peak reserved", "bytes", "Peak held by the CUDA caching allocator.")
    peak_resident_bytes: int | None = column("Peak resident", "bytes", "Peak resident memory of the worker process.")
    threads: int | None = column("Threads", "", "Threads that torch computes with.")
    omp_wait_policy: str | None = column(
        "OpenMP wait policy", "", "What idle OpenMP threads do; ACTIVE ones spin and slow their neighbours."
    )
    cpu_capability: str | None = column("CPU kernels", "", "Instruction set of torch's CPU kernels, read back.")
    other_cpu_share: float | None = column(
        "CPU taken by others",
        "",
        "Share of the machine's CPU time that other processes used while this cell was measured.",
    )
