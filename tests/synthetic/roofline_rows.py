"""A results file for everything about limits: ceilings, profiled kernels and one step measured in many ways.

    store(path)          # the H200 of tests.synthetic.rows' host: `MACHINE`

bf16 takes half the time of fp32, and compiled blocks take 1/1.2 of eager's (`rows.FASTER`); nothing else changes the
time. The plain step has nine rounds, which determine the noise of the machine.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.schema import CeilingRow, KernelRow, ProfileCell, ProfileRow, new_id
from runner.store.spool import Spool
from runner.sweep.loop import ingest_all
from tests.synthetic import rows
from tests.synthetic.rows import TOYS, asked, failed, ok

RUN = UUID(int=1)
MACHINE = "NVIDIA H200 · bench1"
#: The settings under which the first run measured the plain step of toy-256, apart from those that failed.
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"precision": "bf16"},
    {"precision": "bf16", "weights_dtype": "bf16"},
    {"optimizer": "fused"},
    {"precision": "bf16", "backend": "compiled-block"},
    {"context": 64, "precision": "bf16"},
)


def ceiling(name: str, value: float, *, moment: Any = "start", doubt: float = 0.01, run: UUID = RUN) -> CeilingRow:
    """Returns a ceiling: `matmul bf16` in FLOP/s, or `copy` in bytes/s."""
    kind, _, precision = name.partition(" ")
    rest: dict[str, Any] = {"ceiling": kind, "precision": precision or None, "interval_share": doubt}
    rest |= {"bytes_per_s" if kind == "copy" else "flops_per_s": value}
    return CeilingRow(run_id=run, moment=moment, name=name, **rest)


def kernel(ms: float, kernel_class: Any, flops: int | None = None, moved_bytes: int | None = None) -> KernelRow:
    return KernelRow(
        run_id=RUN, cell_id=RUN, phase="forward", scope="", kernel=f"{kernel_class} {ms}", calls=1, device_ms=ms,
        kernel_class=kernel_class, flops=flops, moved_bytes=moved_bytes,
    )  # fmt: skip


#: 6 and 2 ms of matrix products at 100 and 2 operations a byte, and two times 1 ms of kernels without figures.
KERNELS = (kernel(6, "matmul", 1000, 10), kernel(2, "matmul", 20, 10), kernel(1, "elementwise"), kernel(1, "other"))


def profile(**values: Any) -> ProfileRow:
    """Returns a profiled training step of toy-64 at 128 tokens; `values` are any other columns."""
    asked_for: dict[str, Any] = {**TOYS["toy-64"], "context": 128, "mode": "train", "precision": "fp32", **values}
    key = ProfileCell(**{name: value for name, value in asked_for.items() if name in ProfileCell.names()})
    ids: dict[str, Any] = {"run_id": RUN, "cell_id": RUN, "cell_key": key.key, "status": "ok"}
    return ProfileRow(**(ids | asked_for))


def store(path: Path) -> Path:
    """Writes a run that changes the plain step of toy-256 in many ways, and a later run that measures it once more.
    Both have ceilings. The first has a profile, and its bf16 products slow down by a fifth."""
    of = rows.run(device_name="NVIDIA H200", device="cuda", argv="python -m runner sweep --label first")
    cells = [ok(of, asked("toy-256", **way)) for way in WAYS]
    cells += [ok(of, asked("toy-256"), round=number) for number in range(1, 9)]
    cells += [failed(of, asked("toy-256", attention="sdpa"), message="12 GiB more")]
    cells += [failed(of, asked("toy-256", precision="tf32"), status="skipped", message="no TF32 here")]
    rows.store(path, of, cells)
    later = replace(of, run_id=new_id(), label="later")
    rows.store(path, later, [ok(later, asked("toy-256"))])
    for run, rate in ((of, 1e12), (later, 2e12)):
        found = [
            ceiling("matmul fp32", rate, run=run.run_id),
            ceiling("matmul bf16", 5 * rate, run=run.run_id),
            ceiling("copy", 1e11, run=run.run_id),
            ceiling("matmul fp32", rate, run=run.run_id, moment="end"),
            ceiling("matmul bf16", 4 * rate, run=run.run_id, moment="end"),
        ]
        Spool(path).write({"ceilings": found}, f"ceilings-{run.run_id}")
    own: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
    row = profile(**TOYS["toy-256"], **own, busy_share=0.5, host_bound_share=0.5)
    Spool(path).write({"profiles": [row], "kernels": [replace(one, **own) for one in KERNELS]}, "profile")
    ingest_all(path)
    return path
