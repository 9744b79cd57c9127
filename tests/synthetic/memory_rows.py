"""Synthetic attention, memory and frontier rows, which look like measurements.

    rows.store_tables(path, [attention(of, seq_len=1024), attention(of, implementation="sdpa-flash", seq_len=1024)])

Values follow simple formulas, so that a test can compute by hand what a chart must show. They are written through the
real spool and the real ingest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.schema import (
    AttentionCell,
    AttentionRow,
    FrontierCell,
    FrontierRow,
    MemoryCell,
    MemoryRow,
    Phase,
    PhasePeakRow,
    RunRow,
    SampleRow,
    SavedTensorRow,
    TimingRow,
    new_id,
)
from tests.synthetic.rows import TOYS, key_of

KIB, MIB, GIB = 2**10, 2**20, 2**30
#: Forward time in ms at 1024 tokens. It grows with the square of the length, and backward takes twice as long.
FORWARD_MS = {"naive": 4.0, "sdpa-flash": 1.0, "sdpa-math": 8.0}
STEPS = 11
Tables = dict[str, Sequence[object]]


def forward_ms(cell: AttentionCell) -> float:
    """Returns the median forward time of a synthetic cell; compiled implementations take half."""
    half = 0.5 if cell.backend == "compiled" else 1.0
    return FORWARD_MS[cell.implementation] * half * (cell.seq_len / 1024) ** 2


def peak_bytes(cell: AttentionCell) -> int:
    """Returns the peak: that of naive attention grows with the square of the length, the others with the length."""
    squares = 3 * cell.seq_len if cell.implementation == "naive" else 8 * cell.d_head
    return squares * cell.batch * cell.seq_len * 4


def attention(of: RunRow, *, seq_len: int, status: str = "ok", values: Mapping[str, Any] | None = None, **asked: Any
              ) -> Tables:  # fmt: skip
    """Returns one attention cell. `values` are columns of its row that do not follow from the cell."""
    cell = AttentionCell(seq_len=seq_len, **{"implementation": "naive", "d_head": 64, "precision": "fp32", **asked})
    ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
    own: dict[str, Any] = {"status": status, "predicted_peak_bytes": peak_bytes(cell)}
    if status == "ok":
        own |= {"peak_allocated_bytes": peak_bytes(cell), "saved_bytes": peak_bytes(cell) // 3,
                "output_error": 1e-7, "gradient_error": 2e-7, "tolerance": 5e-6}  # fmt: skip
    row = AttentionRow(**key_of(cell), **ids, cell_key=cell.key, **{**own, **(values or {})})
    found: Tables = {"runs": [of], "attention": [row]}
    return {**found, **_times(ids, forward_ms(cell))} if status == "ok" else found


def _times(ids: dict[str, Any], forward: float) -> Tables:
    """Returns samples that are symmetric about their median, and their summaries."""
    shares: dict[Phase, int] = {"forward": 1, "backward": 2, "forward_backward": 3, "step": 3}
    medians = {phase: share * forward for phase, share in shares.items()}
    spread = [1 + 0.01 * (step - STEPS // 2) for step in range(STEPS)]
    return {
        "timings": [
            TimingRow(**ids, phase=phase, n=STEPS, median_ms=value, mean_ms=value, std_ms=0.03 * value,
                      low_ms=0.96 * value, high_ms=1.04 * value, clock="host")
            for phase, value in medians.items()
        ],
        "samples": [
            SampleRow(**ids, phase=phase, step=step, is_warmup=False, duration_ms=value * factor)
            for phase, value in medians.items() for step, factor in enumerate(spread)
        ],
    }  # fmt: skip


def frontier(of: RunRow, *, largest: int, **asked: Any) -> Tables:
    """Returns a result of the frontier: it fits at `largest`, does not fit 64 further, and was predicted 64 too
    far."""
    rest = {"limited": "seq_len", "implementation": "naive", "precision": "fp32", "d_head": 64, "batch": 8, **asked}
    cell = FrontierCell(limit_bytes=GIB, **rest)
    row = FrontierRow(**key_of(cell), run_id=of.run_id, cell_id=new_id(), cell_key=cell.key, status="ok",
                      predicted=largest + 64, largest=largest, smallest_failing=largest + 64, trials=3)  # fmt: skip
    return {"runs": [of], "frontier": [row]}


def memory(of: RunRow, parts: Mapping[str, int], *, values: Mapping[str, Any] | None = None, **asked: Any) -> Tables:
    """Returns one memory cell whose peak is the sum of `parts` (bytes by column without `_bytes`)."""
    cell = MemoryCell(**{**TOYS["toy-64"], "context": 128, "mode": "train", "precision": "fp32", **asked})
    ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
    held = {f"{name}_bytes": size for name, size in parts.items()}
    own: dict[str, Any] = {
        "status": "ok", "peak_phase": "backward", "peak_allocated_bytes": sum(parts.values()), "residual_bytes": 0,
        "predicted_peak_bytes": sum(parts.values()), **held,
        "residual_stream_bytes": cell.batch * cell.context * cell.shape.d_model * 4, **(values or {}),
    }  # fmt: skip
    row = MemoryRow(**key_of(cell), **ids, cell_key=cell.key, **own)
    peaks = [PhasePeakRow(**ids, phase="backward", peak_allocated_bytes=own["peak_allocated_bytes"])]
    return {"runs": [of], "memory": [row], "phase_peaks": peaks}


def saved(tables: Tables, kept: Iterable[tuple[str, str | None, int]], **more: Any) -> Tables:
    """Returns the cell with what it or its first block saves: (operation, module, bytes), in order of saving. `more`
    are other columns of each."""
    (row,) = tables.get("memory") or tables["attention"]
    assert isinstance(row, MemoryRow | AttentionRow)
    rest: dict[str, Any] = {"shape": "4×128×64", "dtype": "float32", **more}
    found = [
        SavedTensorRow(run_id=row.run_id, cell_id=row.cell_id, position=position, operation=operation, module=module,
                       storage_bytes=size, **rest)
        for position, (operation, module, size) in enumerate(kept)
    ]  # fmt: skip
    return {**tables, "saved_tensors": found}
