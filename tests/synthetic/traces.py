"""Synthetic profiles and their kernels, which look like measurements.

    rows.store_tables(path, [profiled(of, mode="train"), profiled(of, mode="inference")])

Times are whole numbers of ms per step (`KERNELS`). Rows are written through the real spool and the real ingest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from runner.analysis.kernels import kernel_class
from runner.schema import KernelRow, Mode, ProfileCell, ProfileRow, RunRow, TraceRow, new_id
from tests.synthetic.rows import TOYS, key_of

GEMM, GEMM_BACK = "ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_nt"
SOFTMAX = "void cunn_SoftMaxForward<4, float, float, float>(float *, const float *, int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, MulFunctor<float>>>(int)"
ADAM = "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float>>(T1)"
#: (phase, range, kernel, calls, ms, FLOPs) of a training step in fp32. Forward 20 ms, backward 24, optimizer 6.
KERNELS = (
    ("forward", "feed-forward", GEMM, 6, 8.0, 6_000_000),
    ("forward", "feed-forward", MUL, 2, 2.0, None),
    ("forward", "attention scores", GEMM, 2, 2.0, 1_000_000),
    ("forward", "attention mask", MUL, 2, 1.0, None),
    ("forward", "attention softmax", SOFTMAX, 2, 4.0, None),
    ("forward", "attention product", GEMM, 2, 3.0, 1_000_000),
    ("backward", "feed-forward", GEMM_BACK, 12, 18.0, 12_000_000),
    ("backward", "attention softmax", SOFTMAX, 2, 6.0, None),
    ("optimizer", "", ADAM, 4, 6.0, None),
)
#: The phases that each mode runs.
PHASES: Mapping[str, tuple[str, ...]] = {
    "inference": ("forward",), "forward": ("forward",), "backward": ("forward", "backward"),
    "train": ("forward", "backward", "optimizer"),
}  # fmt: skip
Tables = dict[str, Sequence[object]]


def profiled(of: RunRow, *, mode: Mode = "train") -> Tables:
    """Returns a profiled cell whose step takes 2 ms more than its kernels, and a tenth longer under the profiler."""
    cell = ProfileCell(**TOYS["toy-64"], context=128, precision="fp32", mode=mode)
    ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
    kernels = [
        KernelRow(**ids, phase=phase, scope=scope, kernel=kernel, kernel_class=kernel_class(kernel, phase=phase),
                  calls=calls, device_ms=took, flops=flops)
        for phase, scope, kernel, calls, took, flops in KERNELS if phase in PHASES[mode]
    ]  # fmt: skip
    took = sum(kernel.device_ms for kernel in kernels)
    own: dict[str, Any] = {
        "status": "ok", "steps": 5, "unprofiled_step_ms": took + 2, "profiled_step_ms": (took + 2) * 1.1,
        "overhead_share": 0.1, "kernel_ms": took, "busy_ms": took, "busy_share": took / (took + 2),
        "host_bound_share": 2 / (took + 2), "attributed_share": 1.0, "kernel_calls": len(kernels),
    }  # fmt: skip
    row = ProfileRow(**key_of(cell), **ids, cell_key=cell.key, **own)
    trace = TraceRow(**ids, origin="torch-profiler", title="a cell", kernels=len(kernels), kernel_ms=took, steps=1)
    return {"runs": [of], "profiles": [row], "traces": [trace], "kernels": kernels}
