"""Single-head attention: times, bytes and samples of each cell, and the longest sequences that fit.

    for cell in attention_cells(path, Rows()):
        print(cell.cell.seq_len, cell.status, cell.times["forward"].median_ms, cell.peak_allocated_bytes)

Rounds of one cell are pooled: the median of the rounds' medians with the envelope of their intervals, the largest peak.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.results import PhaseTime, Rounds
from runner.schema import TABLES, AttentionCell, FrontierCell, Phase
from runner.store.database import open_reader
from runner.store.queries.latest import Rows, latest

KEY = TABLES["attention"].key
#: Columns of which the largest over the rounds counts.
_LARGEST = (
    "saved_bytes", "before_backward_bytes", "peak_allocated_bytes", "predicted_saved_bytes", "predicted_peak_bytes",
    "tensor_bytes", "asked_bytes", "in_use_bytes", "device_bytes", "output_error", "gradient_error", "tolerance",
    "compile_seconds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Attended:
    """One cell on one machine, over its rounds. `status` is ok when any round is; `times` is empty when none is.

    `machine_bytes` is the memory of the device; `device_bytes`, of cells that ran out, what the worker could take.
    `device` is its kind, such as cuda, and `device_name` what it is called.
    """

    cell_id: UUID
    cell: AttentionCell
    cell_key: str
    machine: str
    torch: str | None
    machine_bytes: int | None
    device: str | None
    device_name: str | None
    status: str
    failed_phase: str | None = None
    message: str | None = None
    saved_bytes: int | None = None
    before_backward_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    predicted_saved_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    tensor_bytes: int | None = None
    asked_bytes: int | None = None
    in_use_bytes: int | None = None
    device_bytes: int | None = None
    output_error: float | None = None
    gradient_error: float | None = None
    tolerance: float | None = None
    compile_seconds: float | None = None
    times: dict[Phase, PhaseTime] = field(default_factory=dict)

    @property
    def limit_bytes(self) -> int | None:
        """What the cell had to fit in."""
        return self.device_bytes or self.machine_bytes


_CELLS = f"""
    SELECT coalesce(min(cell_id) FILTER (status = 'ok'), min(cell_id)), machine, cell_key, any_value(torch),
        any_value(machine_bytes), any_value(device), any_value(device_name),
        CASE WHEN bool_or(status = 'ok') THEN 'ok' ELSE arg_max(status, cell_id) END,
        arg_max(failed_phase, cell_id), arg_max(message, cell_id), {", ".join(f"max({name})" for name in _LARGEST)},
        {", ".join(KEY)}
    FROM chosen LEFT JOIN (SELECT run_id, device, device_name FROM runs) USING (run_id)
    GROUP BY machine, cell_key, {", ".join(KEY)}
    ORDER BY implementation <> 'naive', implementation, backend DESC, d_head, seq_len, precision, causal"""

_TIMES = """
    SELECT machine, cell_key, phase, median(median_ms), avg(mean_ms), sqrt(avg(std_ms * std_ms)), min(low_ms),
        max(high_ms), CAST(sum(n) AS BIGINT)
    FROM chosen JOIN timings USING (cell_id) WHERE status = 'ok' AND median_ms IS NOT NULL GROUP BY ALL"""


def _chosen(of: Rows, *, settled: bool) -> tuple[str, list[Any]]:
    return latest("attention", ("status", "failed_phase", "message", *_LARGEST), of=of, settled=settled)


def attention_cells(path: Path, of: Rows, *, settled: bool = True) -> list[Attended]:
    """Every cell that counts; the written-out implementation first, then by width and length. With `settled` off, of
    cells that differ only in effort all."""
    query, parameters = _chosen(of, settled=settled)
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {query}", parameters)
        cells, timings = reader.execute(_CELLS).fetchall(), reader.execute(_TIMES).fetchall()
    times: dict[tuple[str, str], dict[Phase, PhaseTime]] = {}
    for machine, cell_key, phase, *numbers in timings:
        named = dict(zip(PhaseTime.__dataclass_fields__, numbers, strict=True))
        times.setdefault((machine, cell_key), {})[phase] = PhaseTime(**named)
    names = ("cell_id", "machine", "cell_key", "torch", "machine_bytes", "device", "device_name", "status",
             "failed_phase", "message", *_LARGEST)  # fmt: skip
    return [
        Attended(
            **dict(zip(names, row, strict=False)),
            cell=AttentionCell(**dict(zip(KEY, row[-len(KEY) :], strict=True))),
            times=times.get((row[1], row[2]), {}),
        )
        for row in cells
    ]


_SAMPLES = """
    SELECT machine, cell_key, phase, list(duration_ms ORDER BY step)
    FROM chosen c JOIN samples m USING (cell_id)
    WHERE c.status = 'ok' AND NOT m.is_warmup AND phase IN ('forward', 'backward', 'step')
    GROUP BY machine, cell_key, round, phase ORDER BY machine, cell_key, phase, round"""


def attention_samples(path: Path, of: Rows) -> dict[tuple[str, str], dict[Phase, Rounds]]:
    """The measured samples in ms, of every effort: (machine, cell_key) -> phase -> one tuple a round, in the order of
    the rounds."""
    query, parameters = _chosen(of, settled=False)
    with open_reader(path) as reader:
        reader.execute(f"CREATE TEMP TABLE chosen AS {query}", parameters)
        rows = reader.execute(_SAMPLES).fetchall()
    found: dict[tuple[str, str], dict[Phase, Rounds]] = {}
    for machine, cell_key, phase, values in rows:
        cell = found.setdefault((machine, cell_key), {})
        cell[phase] = (*cell.get(phase, ()), tuple(values))
    return found


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """How large a sequence, a context or a batch may be, and what was predicted."""

    cell_id: UUID
    cell: FrontierCell
    status: str
    predicted: int | None
    largest: int | None
    smallest_failing: int | None
    largest_peak_bytes: int | None
    trials: int | None


_FRONTIER_KEY = TABLES["frontier"].key
_ANSWER = ("cell_id", "status", "predicted", "largest", "smallest_failing", "largest_peak_bytes", "trials")


def frontiers(path: Path, of: Rows) -> list[Frontier]:
    """The answer to every question of `runner frontier`: the finest, and of those the latest."""
    query, parameters = latest("frontier", _ANSWER, of=of)
    names = ", ".join((*_ANSWER, *_FRONTIER_KEY))
    order = "limited, implementation <> 'naive', implementation, precision, d_head, d_model, layers, context, batch"
    with open_reader(path) as reader:
        rows = reader.execute(f"SELECT {names} FROM ({query}) ORDER BY {order}", parameters).fetchall()
    return [
        Frontier(
            **dict(zip(_ANSWER, row, strict=False)),
            cell=FrontierCell(**dict(zip(_FRONTIER_KEY, row[len(_ANSWER) :], strict=True))),
        )
        for row in rows
    ]
