"""One real step of a Transformer or of an own model, as a training loop runs it.

step = ModelStep(cell, device)
step(mark)      # forward in the cell's precision, loss, backward, optimizer and zero_grad, as far as its mode goes

Whatever measures a step takes a `Step`: a call that does the work and marks the end of each of its phases. The model
runs eagerly, compiled (`compile_model`), or captured once as CUDA graphs and replayed (`CapturedStep`): the eager
kernels without the time for Python to launch them. Each phase is a graph of its own, so that phases are timed as in any
other step. The limits are those of PyTorch's documentation ("CUDA semantics", section "CUDA Graphs"): the same memory
every time, and no decision of the host in between. Inputs, weights and gradients stay in place.
"""

import gc
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from runner.errors import BadModel, Skipped
from runner.measure import precision
from runner.measure.correctness import check_parts
from runner.measure.device import Device, cpp_compiler
from runner.models.attention import require_available
from runner.models.given import own_workload
from runner.models.ranges import named_range
from runner.models.source import load_part
from runner.models.workload import Workload, first_tensor, list_tensors, transformer_workload
from runner.places import temporary_folder
from runner.schema import PHASES, Backend, CompileCache, PassCell, Phase, Precision, StepCell
from runner.schema.own import is_own_part

Step = Callable[[Callable[[], None]], None]


class ModelStep:
    """The model, optimizer and data of one cell; calling it runs one step and marks the end of each phase.

    `phase` is the running phase, for the row of a cell that fails; `loss` and `logits_dtype` are of the last step."""

    def __init__(self, cell: StepCell, device: Device) -> None:
        self.cell, self.device, self.phase = cell, device, ""
        if cell.backend == "cuda-graphs":
            require_capture(cell, device)
        check_parts(cell, device)
        is_differentiated = cell.mode in ("backward", "train")
        if cell.model_key is None:
            self.workload = transformer_workload(cell, device=device.torch)
        else:
            keep = cell.backend == "cuda-graphs" or (is_differentiated and is_compiled(cell.backend))
            self.workload = own_workload(cell, device=device.torch, keep_weights=keep)
        self.model = self.workload.model
        self.model.train(cell.mode != "inference")
        self.run = compile_model(self.workload, cell.backend, device, precision=cell.precision)
        self.autocast = precision.autocast(cell, device)
        self.optimizer = make_optimizer(self.model.parameters(), cell) if cell.mode == "train" else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=cell.precision == "fp16" and is_differentiated)
        self.loss: Tensor | None = None
        self.output_shape: tuple[int, ...] | None = None
        self.logits_dtype = ""
        self.captured: CapturedStep | None = None
        if cell.backend == "cuda-graphs":
            self.captured = CapturedStep(self)

    def __call__(self, mark: Callable[[], None]) -> None:
        if self.captured is not None:
            self.captured.replay(mark)
            return
        self.phase = "forward"
        with named_range("forward"), torch.no_grad() if self.cell.mode == "inference" else nullcontext():
            output = self.forward()
        mark()
        if self.cell.mode in ("backward", "train"):
            self.backward(output, mark)
            self.update(mark)
        if (logits := first_tensor(output)) is None:
            return
        self.logits_dtype, shape = precision.dtype_name(logits), tuple(logits.shape)
        if self.output_shape not in (None, shape):
            raise BadModel(
                f"The model returned a tensor of {precision.format_shape(shape)} after "
                f"{precision.format_shape(self.output_shape or ())}.",
                expected="the same work in every step, so that steps can be compared",
            )
        self.output_shape = shape

    def forward(self) -> Any:
        """Returns the model's output; of the Transformer, logits of shape (batch, context, vocabulary)."""
        with self.autocast:
            return self.workload.run(self.run)

    def backward(self, output: Any, mark: Callable[[], None]) -> None:
        self.phase = "loss"
        with named_range("loss"), self.autocast:
            self.loss = self.workload.loss(output)
            if not self.loss.requires_grad:
                raise BadModel("The loss depends on no parameter: there is nothing to differentiate.")
        mark()
        self.phase = "backward"
        with named_range("backward"):
            self.scaler.scale(self.loss).backward()  # type: ignore[no-untyped-call]
        mark()

    def update(self, mark: Callable[[], None]) -> None:
        """Runs the optimizer's step and zero_grad, in training."""
        if self.optimizer is not None:
            self.phase = "optimizer"
            with named_range("optimizer"):
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
            mark()

    def between(self) -> None:
        """Prepares a step without being part of it: drops the gradients of a mode without an optimizer."""
        if self.optimizer is None:
            self.model.zero_grad()
        if self.cell.backend in GRAPHED:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]

    def gradients(self) -> dict[str, Tensor]:
        """Returns one pass's gradients by parameter, fp16 scaled as in training; the model has none afterwards."""
        self.between()
        self.backward(self.forward(), lambda: None)
        return take_gradients(self.model)

    def restart(self) -> None:
        """Resets weights and optimizer, in the same memory, to what they were before the first step."""
        self.loss = None
        assert self.workload.restart is not None
        self.workload.restart()
        for state in self.optimizer.state.values() if self.optimizer is not None else ():
            for tensor in list_tensors(state):
                tensor.zero_()


def require_attention(cell: PassCell, device: Device) -> None:
    """Raises Skipped where this device cannot run the cell's attention implementation, if it asks for one by name."""
    if cell.attention != "own":
        require_available(cell.attention, device.type, dtype=precision.product_dtype(cell.precision))


def take_gradients(model: nn.Module) -> dict[str, Tensor]:
    """Returns the gradients by parameter, zeros for one without; the model has none afterwards."""
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }
    model.zero_grad()
    return gradients


def make_optimizer(parameters: Iterable[nn.Parameter], cell: StepCell) -> Any:
    """Returns AdamW with the cell's implementation, `foreach` being PyTorch's choice on CUDA, or the user's own."""
    if is_own_part(cell.optimizer):
        return load_part(cell.optimizer)(parameters)
    return torch.optim.AdamW(
        parameters,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01,
        foreach=cell.optimizer == "foreach",
        fused=cell.optimizer == "fused",
        capturable=cell.backend == "cuda-graphs",
    )


#: Modes of torch.compile that record CUDA graphs, where there is CUDA.
GRAPHED = ("compiled-reduce-overhead", "compiled-max-autotune")


def compile_model(workload: Workload, backend: Backend, device: Device, *, precision: Precision) -> Callable[..., Any]:
    """Returns the model as the backend runs it; the first step compiles it. Raises Skipped where that cannot work."""
    model: Callable[..., Any] = workload.model
    if not is_compiled(backend):
        return model
    require_compiler()
    if backend == "compiled-reduce-overhead" and device.type != "cuda":
        raise Skipped("Mode reduce-overhead is CUDA graphs, which need an NVIDIA GPU.")
    import torch._inductor.compile_fx  # so that the first step does not count it as compiling

    # PyTorch 2.11 leaves autocast's dtype out of the key of its cache: a step in fp16 would run what was compiled for
    # bf16. The compiler's settings are part of the key, and this one, for functions with such names, has no effect.
    torch._inductor.config.unsafe_marked_cacheable_functions = {"stepscope.precision": precision}
    if backend == "compiled-block":
        if not workload.blocks:
            raise Skipped("No block of this model repeats, so that there is none to compile alone.")
        for path in workload.blocks:
            workload.model.get_submodule(path).compile()
        return model
    mode = {"compiled": "default"}.get(backend, backend.removeprefix("compiled-"))
    compiled: Callable[..., Any] = torch.compile(model, mode=mode)
    return compiled


def is_compiled(backend: Backend) -> bool:
    return backend.startswith("compiled")


def require_compiler() -> None:
    """Raises Skipped where nothing can be compiled."""
    if cpp_compiler() is None:
        raise Skipped("torch.compile needs a C++ compiler and Python's headers, and this machine has not got both.")


@contextmanager
def compiler_cache(cache: CompileCache) -> Iterator[None]:
    """Makes the compiler and Triton use this cache. What they put into an empty one goes to the shared one afterwards,
    where further rounds find it. Must be entered before anything is compiled in this process."""
    if cache == "shared":
        yield
        return
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    with temporary_folder("compiler") as folder:
        with patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(folder), TRITON_CACHE_DIR=f"{folder}/triton"):
            yield
        with suppress(OSError):  # a full disk: further rounds compile again
            shutil.copytree(folder, cache_dir(), dirs_exist_ok=True, copy_function=_add_file)


def _add_file(source: str, target: str) -> None:
    """Copies a file as a whole, unless it is there: others may read the cache meanwhile."""
    if not os.path.exists(target):
        shutil.copy2(source, part := f"{target}.{os.getpid()}")
        os.replace(part, target)


#: Steps on the capturing stream before the capture, in which libraries and the optimizer allocate what they keep.
WARMUP = 3


def require_capture(cell: StepCell, device: Device) -> None:
    """Raises Skipped where a step cannot be captured."""
    if device.type != "cuda":
        raise Skipped("CUDA graphs need an NVIDIA GPU.")
    if cell.precision == "fp16" and cell.mode in ("backward", "train"):
        raise Skipped("With fp16 the gradient scaler decides on the host whether to step, which no CUDA graph can.")


class CapturedStep:
    """The phases of `step` as graphs that share one pool of memory. The steps that run here are undone. Raises Skipped
    with CUDA's message for a step that it cannot capture."""

    def __init__(self, step: ModelStep) -> None:
        device = step.device.torch
        self.phases: tuple[Phase, ...] = PHASES[step.cell.mode]
        self.graphs: list[torch.cuda.CUDAGraph] = []
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARMUP):
                step.between()
                step(lambda: None)
            step.between()
            step.restart()
            torch.cuda.synchronize(device)
            gc.collect()
            torch.cuda.empty_cache()
            try:
                self._capture(step)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise Skipped(f"CUDA could not capture this step: {str(error).splitlines()[0]}") from error
        current.wait_stream(stream)

    def _capture(self, step: Step) -> None:
        """Captures the step without computing it. Each mark ends one graph and begins the next."""
        pool = torch.cuda.graph_pool_handle()

        def begin() -> None:
            self.graphs.append(torch.cuda.CUDAGraph())
            self.graphs[-1].capture_begin(pool=pool)

        def mark() -> None:
            self.graphs[-1].capture_end()
            if len(self.graphs) < len(self.phases):
                begin()

        begin()
        step(mark)
        assert len(self.graphs) == len(self.phases), f"{len(self.graphs)} graphs for {len(self.phases)} phases"

    def replay(self, mark: Callable[[], None]) -> None:
        """Runs one step: the phases' graphs in the order of capture, because they share memory."""
        for phase, graph in zip(self.phases, self.graphs, strict=True):
            with named_range(phase):
                graph.replay()
            mark()
