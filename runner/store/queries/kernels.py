"""What steps are made of: profiled cells and imported traces, and their kernels by phase, class, range and name.

    for trace in traces(path, Rows()):
        print(trace.title, trace.kernel_ms, parts(path, Rows()).get(trace.cell_id))

Times and calls are per step; of a trace without steps (`steps` is None) they are sums over all that was recorded. Of a
cell measured in several rounds the first that worked counts: a profile explains a time, it does not measure one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.schema import TABLES, KernelClass, ProfileCell, TraceOrigin
from runner.store.database import open_reader
from runner.store.queries.latest import Rows, latest

KEY = TABLES["profiles"].key
_OWN = (
    "status", "failed_phase", "message", "unprofiled_step_ms", "profiled_step_ms", "overhead_share", "busy_ms",
    "busy_share", "host_bound_share", "attributed_share", "kernel_calls", "graph_breaks", "recompiles",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One profiled cell, or one imported trace (`cell` is None, and so is whatever only a profiled pass knows)."""

    cell_id: UUID
    run_id: UUID
    machine: str
    device: str | None
    label: str | None
    origin: TraceOrigin | None
    title: str | None
    kernel_ms: float | None
    steps: int | None
    cell: ProfileCell | None
    status: str = "ok"
    failed_phase: str | None = None
    message: str | None = None
    unprofiled_step_ms: float | None = None
    profiled_step_ms: float | None = None
    overhead_share: float | None = None
    busy_ms: float | None = None
    busy_share: float | None = None
    host_bound_share: float | None = None
    attributed_share: float | None = None
    kernel_calls: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None

    @property
    def is_imported(self) -> bool:
        return self.cell is None


_TRACE = ("cell_id", "run_id", "machine", "device", "label", "origin", "title", "kernel_ms", "steps")
_MEASURED = f"""
    SELECT c.cell_id, c.run_id, c.machine, r.device, r.label, t.origin, t.title, t.kernel_ms, t.steps,
        {", ".join(f"c.{name}" for name in (*_OWN, *KEY))}
    FROM chosen c LEFT JOIN runs r USING (run_id) LEFT JOIN traces t ON t.cell_id = c.cell_id
    QUALIFY row_number() OVER (
        PARTITION BY c.machine, {", ".join(f"c.{name}" for name in KEY)} ORDER BY c.status = 'ok' DESC, c.round) = 1
    ORDER BY d_model * d_model * layers, d_model, layers, context, precision <> 'fp32', precision, backend <> 'eager',
        backend, attention <> 'naive', attention, list_position(['inference', 'forward', 'backward', 'train'], mode)"""

_IMPORTED = """
    SELECT t.cell_id, t.run_id, coalesce(r.device_name, r.device, 'unknown device'), r.device, r.label, t.origin,
        t.title, t.kernel_ms, t.steps
    FROM traces t JOIN runs r USING (run_id) WHERE r.source <> 'measured' AND coalesce(t.run_id = ?, true)
    ORDER BY t.run_id, t.cell_id"""


def traces(path: Path, of: Rows) -> list[Trace]:
    """The profiled cells that count, smallest model first, failed ones too; then what was imported, from whatever
    machine (of the named run, if one is named)."""
    query, parameters = latest("profiles", _OWN, of=of)
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {query}", parameters)
        measured, imported = reader.execute(_MEASURED).fetchall(), reader.execute(_IMPORTED, [of.run]).fetchall()
    names = (*_TRACE, *_OWN)
    return [
        *(
            Trace(
                **dict(zip(names, row, strict=False)),
                cell=ProfileCell(**dict(zip(KEY, row[len(names) :], strict=True))),
            )
            for row in measured
        ),
        *(Trace(**dict(zip(_TRACE, row, strict=True)), cell=None) for row in imported),
    ]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one class of kernels takes in one phase and, where asked for, in one named range."""

    phase: str
    scope: str
    kernel_class: KernelClass
    calls: float
    device_ms: float
    flops: int | None


_PARTS = """
    SELECT cell_id, phase, {scope}, kernel_class, sum(calls), sum(device_ms), TRY_CAST(sum(flops) AS BIGINT)
    FROM kernels WHERE {condition} GROUP BY ALL ORDER BY cell_id, phase, 3, sum(device_ms) DESC, kernel_class"""


def parts(path: Path) -> dict[UUID, list[Part]]:
    """The classes of every trace, phase by phase; ranges are summed up."""
    return _parts(path, _PARTS.format(scope="''", condition="true"), [])


def ranges(path: Path, cell_id: UUID) -> list[Part]:
    """The classes of one trace in every phase and named range."""
    return _parts(path, _PARTS.format(scope="scope", condition="cell_id = ?"), [cell_id]).get(cell_id, [])


def _parts(path: Path, query: str, parameters: list[Any]) -> dict[UUID, list[Part]]:
    with open_reader(path) as reader:
        rows = reader.execute(query, parameters).fetchall()
    found: dict[UUID, list[Part]] = {}
    for cell_id, *values in rows:
        found.setdefault(cell_id, []).append(Part(**dict(zip(Part.__dataclass_fields__, values, strict=True))))
    return found


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel of one trace in one phase, over the ranges that launched it. `operator` and `scope` name the one
    that took most of its time."""

    phase: str
    kernel: str
    kernel_class: KernelClass
    calls: float
    device_ms: float
    flops: int | None
    moved_bytes: int | None
    operator: str | None
    scope: str


_KERNELS = """
    SELECT phase, kernel, any_value(kernel_class), sum(calls), sum(device_ms), TRY_CAST(sum(flops) AS BIGINT),
        TRY_CAST(sum(moved_bytes) AS BIGINT), arg_max(operator, device_ms), arg_max(scope, device_ms)
    FROM kernels WHERE cell_id = ? GROUP BY phase, kernel ORDER BY sum(device_ms) DESC, kernel, phase"""


def kernels(path: Path, cell_id: UUID) -> list[Kernel]:
    """Every kernel of one trace in each phase, the one with the most time first."""
    with open_reader(path) as reader:
        rows = reader.execute(_KERNELS, [cell_id]).fetchall()
    return [Kernel(**dict(zip(Kernel.__dataclass_fields__, row, strict=True))) for row in rows]
