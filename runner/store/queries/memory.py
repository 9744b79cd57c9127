"""The memory of a step: peaks with their parts, peaks by phase, and the tensors that one block keeps for backward.

    for peak in load_peaks(path, Selection()):
        print(peak.cell.context, peak.peak_allocated_bytes, peak.parts["activation"])

A part that was not counted is None, such as fragmentation and rounding on a CPU. A part that was counted and is empty
is 0.
"""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from runner.analysis.costs.tensors import MeasuredTensor
from runner.results import Peak, PhasePeak, SavedOperation
from runner.schema import TABLES
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.selection import Selection
from runner.store.queries.steps import choose

KEY = TABLES["memory"].key
#: The column of each part of a peak, in the order of stacking. The names are those of `Category` and two more of the
#: allocator.
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
#: The beginning of the paths of the first block's modules.
_FIRST_BLOCK = "blocks.0."
_OWN = (
    "failed_phase", "message", "peak_phase", "peak_allocated_bytes", "peak_reserved_bytes", "peak_driver_bytes",
    "predicted_peak_bytes", "residual_stream_bytes", "saved_bytes", "block_saved_bytes",
)  # fmt: skip

_PEAKS = f"""
    SELECT cell_id, status, machine, device_memory_bytes AS machine_bytes, device, device_name, {", ".join(_OWN)},
        MAP {{{", ".join(f"'{part}': {column}" for part, column in PARTS.items())}}} AS parts, {", ".join(KEY)}
    FROM chosen LEFT JOIN (SELECT run_id, device, device_name, device_memory_bytes FROM runs) USING (run_id)
    ORDER BY d_model * d_model * layers, d_model, layers, context, precision <> 'fp32', precision, mode,
        checkpoint_blocks, attention, batch, cell_id"""
_LIVE = """
    SELECT cell_id, phase, peak_allocated_bytes FROM phase_peaks SEMI JOIN chosen USING (cell_id)
    WHERE peak_allocated_bytes IS NOT NULL"""


def load_peaks(path: Path, of: Selection) -> list[Peak]:
    """Returns every cell that counts, smallest model and shortest context first."""
    with open_reader(path) as reader:
        choose(reader, "memory", of, (*_OWN, *PARTS.values()))
        found = fetch(reader, _PEAKS, kind=Peak)
        by_id = {peak.cell_id: peak for peak in found}
        for cell_id, phase, peak_bytes in reader.execute(_LIVE).fetchall():
            by_id[cell_id].phases[phase] = peak_bytes
    return found


_PHASES = """
    SELECT phase, peak_allocated_bytes AS allocated, peak_reserved_bytes AS reserved, peak_driver_bytes AS driver,
        end_allocated_bytes AS left
    FROM phase_peaks WHERE cell_id = ?
    ORDER BY list_position(['forward', 'loss', 'backward', 'optimizer'], phase)"""


def load_phase_peaks(path: Path, cell_id: UUID) -> list[PhasePeak]:
    """Returns the peaks of each phase of a memory cell, in the order of the phases."""
    with open_reader(path) as reader:
        return fetch(reader, _PHASES, [cell_id], kind=PhasePeak)


_KEPT = """
    SELECT operation, module, string_agg(DISTINCT shape || ' ' || dtype, ', ' ORDER BY shape || ' ' || dtype) AS shapes,
        count(*) AS tensors, sum(storage_bytes)::BIGINT AS kept_bytes
    FROM saved_tensors WHERE cell_id = ? AND storage_bytes > 0
    GROUP BY operation, module ORDER BY kept_bytes DESC, min(position)"""


def load_saved_by_operation(path: Path, cell_id: UUID) -> list[SavedOperation]:
    """Returns the tensors that the first block of this cell keeps for backward, by operation, the largest first."""
    with open_reader(path) as reader:
        return fetch(reader, _KEPT, [cell_id], kind=SavedOperation)


_SAVED = f"""
    SELECT operation, CASE WHEN starts_with(module, '{_FIRST_BLOCK}') THEN substr(module, {len(_FIRST_BLOCK) + 1})
        ELSE coalesce(module, '') END AS module, tensor, shape || ' ' || dtype AS shape, storage_bytes AS size
    FROM saved_tensors WHERE cell_id = ? AND storage_bytes > 0 ORDER BY position"""


def load_saved_tensors(path: Path, cell_id: UUID) -> list[MeasuredTensor]:
    """Returns each tensor that a memory cell's first block, or an attention cell, keeps for backward, in the order of
    saving. The paths of modules begin at the block."""
    with open_reader(path) as reader:
        return fetch(reader, _SAVED, [cell_id], kind=MeasuredTensor)
