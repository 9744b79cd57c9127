"""Loads single-head attention: times and bytes of each cell, and the longest sequences that fit.

for cell in load_attention(path, Selection()):
    print(cell.cell.seq_len, cell.status, cell.times["forward"].median_ms, cell.peak_allocated_bytes)
"""

from pathlib import Path

from runner.results import AttentionResult, Frontier
from runner.schema import TABLES
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.selection import Selection, select_chosen
from runner.store.queries.steps import POOLED, choose
from runner.store.queries.times import with_times

KEY = TABLES["attention"].key
#: The columns whose largest value over the rounds counts.
_LARGEST = (
    "saved_bytes", "before_backward_bytes", "peak_allocated_bytes", "predicted_saved_bytes", "predicted_peak_bytes",
    "tensor_bytes", "asked_bytes", "in_use_bytes", "device_bytes", "output_error", "gradient_error", "tolerance",
    "compile_seconds",
)  # fmt: skip

_CELLS = f"""
    SELECT machine, cell_key, any_value(torch) AS torch, any_value(device_memory_bytes) AS machine_bytes,
        any_value(device) AS device, any_value(device_name) AS device_name, {POOLED},
        {", ".join(f"max({name}) AS {name}" for name in _LARGEST)}, {", ".join(KEY)}
    FROM chosen LEFT JOIN (SELECT run_id, device, device_name, device_memory_bytes FROM runs) USING (run_id)
    GROUP BY machine, cell_key, {", ".join(KEY)}
    ORDER BY implementation <> 'naive', implementation, backend DESC, d_head, seq_len, precision, causal,
        min(chosen.cell_id)"""


def load_attention(path: Path, of: Selection) -> list[AttentionResult]:
    """Returns every cell that counts: the naive implementation first, then by width and length."""
    with open_reader(path) as reader:
        choose(reader, "attention", of, ("failed_phase", "message", *_LARGEST))
        return with_times(reader, "attention", fetch(reader, _CELLS, kind=AttentionResult))


def load_frontiers(path: Path, of: Selection) -> list[Frontier]:
    """Returns the answer to every question of `runner frontier`: the one with the finest resolution, and of those the
    latest."""
    columns = ("predicted", "largest", "smallest_failing", "largest_peak_bytes", "trials")
    query, parameters = select_chosen("frontier", of, columns)
    order = "limited, implementation <> 'naive', implementation, precision, d_head, d_model, layers, context, batch"
    names = ", ".join(("cell_id", "status", *columns, *TABLES["frontier"].key))
    with open_reader(path) as reader:
        return fetch(reader, f"SELECT {names} FROM ({query}) ORDER BY {order}", parameters, kind=Frontier)
