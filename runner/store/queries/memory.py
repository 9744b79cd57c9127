"""What fills the memory of a step: peaks with their parts, peaks by phase, and what one block keeps for backward.

    for peak in peaks(path, Rows()):
        print(peak.cell.context, peak.peak_allocated_bytes, peak.parts["activation"])

A part is None where it was not counted (fragmentation and rounding on a CPU), 0 where it was counted and nothing was
there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from runner.analysis.costs.tensors import MeasuredTensor
from runner.schema import TABLES, MemoryCell
from runner.store.database import open_reader
from runner.store.queries.latest import Rows, latest

KEY = TABLES["memory"].key
#: The parts of a peak in the order of stacking: what it is -> its column. The names are those of `Category`, with what
#: the allocator adds.
PARTS: Mapping[str, str] = {
    "parameter": "parameters_bytes",
    "gradient": "gradients_bytes",
    "optimizer state": "optimizer_state_bytes",
    "activation": "activations_bytes",
    "autocast copy": "autocast_copies_bytes",
    "input": "inputs_bytes",
    "temporary": "temporaries_bytes",
    "workspace": "workspace_bytes",
    "rounding": "rounding_bytes",
    "unknown": "residual_bytes",
    "fragmentation": "fragmentation_bytes",
}
#: What the paths of the first block's modules begin with.
FIRST_BLOCK = "blocks.0."
_OWN = (
    "cell_id", "status", "failed_phase", "message", "peak_phase", "peak_allocated_bytes", "peak_reserved_bytes",
    "peak_driver_bytes", "predicted_peak_bytes", "residual_stream_bytes", "saved_bytes", "block_saved_bytes",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One memory cell on one machine, of the kind `device`, whose device is called `device_name`. `parts` has every
    name of `PARTS`; `phases` are peaks of live tensors."""

    machine: str
    machine_bytes: int | None
    device: str | None
    device_name: str | None
    cell_id: UUID
    status: str
    failed_phase: str | None
    message: str | None
    peak_phase: str | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_driver_bytes: int | None
    predicted_peak_bytes: int | None
    residual_stream_bytes: int | None
    saved_bytes: int | None
    block_saved_bytes: int | None
    cell: MemoryCell
    parts: dict[str, int | None]
    phases: dict[str, int]


_PEAKS = f"""
    SELECT machine, machine_bytes, device, device_name, {", ".join(_OWN)}, {", ".join(PARTS.values())},
        {", ".join(KEY)}
    FROM chosen LEFT JOIN (SELECT run_id, device, device_name FROM runs) USING (run_id) QUALIFY row_number() OVER (
        PARTITION BY machine, {", ".join(TABLES["memory"].question)}
        ORDER BY status = 'ok' DESC, timeline, round) = 1
    ORDER BY d_model * d_model * layers, d_model, layers, context, precision <> 'fp32', precision, mode,
        checkpoint_blocks, attention, batch"""


def peaks(path: Path, of: Rows) -> list[Peak]:
    """Every cell that counts, smallest model and shortest context first."""
    names = (*_OWN, *PARTS.values())
    query, parameters = latest("memory", names, of=of)
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {query}", parameters)
        rows = reader.execute(_PEAKS).fetchall()
        phases: dict[UUID, dict[str, int]] = {}
        for cell_id, phase, peak in reader.execute(
            """SELECT cell_id, phase, peak_allocated_bytes FROM phase_peaks SEMI JOIN chosen USING (cell_id)
            WHERE peak_allocated_bytes IS NOT NULL"""
        ).fetchall():
            phases.setdefault(cell_id, {})[phase] = peak
    where = ("machine", "machine_bytes", "device", "device_name")
    own, part = len(where) + len(_OWN), len(where) + len(_OWN) + len(PARTS)
    return [
        Peak(
            **dict(zip((*where, *_OWN), row, strict=False)),
            parts=dict(zip(PARTS, row[own:part], strict=True)),
            cell=MemoryCell(**dict(zip(KEY, row[part:], strict=True))),
            phases=phases.get(row[len(where)], {}),
        )
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What one operation of the first block keeps for backward; each piece of memory counts once."""

    operation: str
    module: str | None
    shapes: str
    tensors: int
    kept_bytes: int


_KEPT = """
    SELECT operation, module, string_agg(DISTINCT shape || ' ' || dtype, ', ' ORDER BY shape || ' ' || dtype),
        count(*), sum(storage_bytes)::BIGINT
    FROM saved_tensors WHERE cell_id = ? AND storage_bytes > 0
    GROUP BY operation, module ORDER BY 5 DESC, min(position)"""


def kept_by_block(path: Path, cell_id: UUID) -> list[Kept]:
    """What the first block of this cell keeps for backward, by operation, the largest first."""
    with open_reader(path) as reader:
        rows = reader.execute(_KEPT, [cell_id]).fetchall()
    return [Kept(**dict(zip(Kept.__dataclass_fields__, row, strict=True))) for row in rows]


_SAVED = """
    SELECT operation, coalesce(module, ''), tensor, shape || ' ' || dtype, storage_bytes
    FROM saved_tensors WHERE cell_id = ? AND storage_bytes > 0 ORDER BY position"""


def saved_tensors(path: Path, cell_id: UUID) -> list[MeasuredTensor]:
    """Each tensor that a memory cell's first block, or an attention cell, keeps for backward, in the order of keeping.
    The module is named from the block on."""
    with open_reader(path) as reader:
        rows = reader.execute(_SAVED, [cell_id]).fetchall()
    return [
        MeasuredTensor(
            operation=operation, module=module.removeprefix(FIRST_BLOCK), tensor=tensor, shape=shape, size=size
        )
        for operation, module, tensor, shape, size in rows
    ]
