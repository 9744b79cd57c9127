"""torch.compile as an axis: compiling a model, and the cache that the compiler uses.

with compiler_cache(cell.compile_cache):
    run = compile_model(workload, "compiled-block", device, precision="bf16")
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.errors import Skipped
from runner.measure.machine.device import Device
from runner.measure.machine.environment import cpp_compiler
from runner.models.workload import Workload
from runner.schema import Backend, CompileCache, Precision

#: Modes of torch.compile that record CUDA graphs, where there is CUDA.
GRAPHED = ("compiled-reduce-overhead", "compiled-max-autotune")


def compile_model(workload: Workload, backend: Backend, device: Device, *, precision: Precision) -> Callable[..., Any]:
    """Returns the model as the backend runs it; compilation itself happens in the first step. Raises Skipped where the
    backend cannot work."""
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
    """Returns whether the backend uses torch.compile."""
    return backend.startswith("compiled")


def require_compiler() -> None:
    """Raises Skipped where nothing can be compiled."""
    if cpp_compiler() is None:
        raise Skipped("torch.compile needs a C++ compiler and Python's headers, and this machine has not got both.")


@contextmanager
def compiler_cache(cache: CompileCache) -> Iterator[None]:
    """Makes the compiler and Triton use this cache; an empty one is deleted afterwards. Must be entered before anything
    is compiled in this process."""
    if cache == "shared":
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="stepscope-compiler-", ignore_cleanup_errors=True) as folder,
        cache_in(Path(folder)),
    ):
        yield


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Makes the compiler and Triton keep their work in this folder, and use what they find there."""
    before = dict(os.environ)
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before
