"""A results file with rows for every sentence that a page can say. They look like measurements but are synthetic.

store(path)          # keeps what the file already holds
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.store.spool import Spool
from tests.synthetic import memory_rows, numerics, roofline_rows, rows

#: The longest sequence that fits, by implementation.
LARGEST = {"sdpa-flash": 8192, "naive": 2048}


def store(path: Path) -> Path:
    """Stores saved tensors, frontiers, compile times, ceilings of a slowing machine, the four sums, and errors."""
    of = rows.run()
    parts = {"parameters": 2**20, "activations": 2**22, "autocast_copies": 2**19}
    kept = [("aten::mm", "blocks.0.attention.query", 2**17), ("aten::mul", "blocks.0.feed_forward", 2**18)]
    cells = [memory_rows.saved(memory_rows.memory(of, parts, values={"block_saved_bytes": 2**17 + 2**18}), kept)]
    cells += [memory_rows.memory(of, parts, precision="bf16"), memory_rows.memory(of, parts, checkpoint_blocks=1)]
    cells += [memory_rows.attention(of, seq_len=65536, status="oom", values={"device_bytes": 2**33})]
    cells += [memory_rows.attention(of, seq_len=1024, backend="compiled")]
    cells += [memory_rows.frontier(of, largest=size, implementation=how) for how, size in LARGEST.items()]
    cells += [memory_rows.frontier(of, largest=512, **rows.TOYS["toy-64"], limited="context", batch=4, d_head=None)]
    attended, queries = memory_rows.attention(of, seq_len=2048), ("aten::bmm", None, 2**17)
    cells += [memory_rows.saved(attended, [queries], tensor="queries", shape="8×2048×64")]
    rows.store_tables(path, cells)
    compiled = rows.ok(of, rows.asked("toy-256", backend="compiled", compile_cache="empty"))
    took: Any = {"compile_seconds": 9.0, "compile_cold_seconds": 9.0, "compile_warm_seconds": 1.0}
    rows.store(path, of, [replace(compiled, step=replace(compiled.step, **took, graph_breaks=0))])
    roofs = [roofline_rows.ceiling("matmul fp32", 1e12 * share, moment=moment, run=of.run_id)
             for moment, share in (("start", 1), ("end", 0.7))]  # fmt: skip
    Spool(path).write({"ceilings": roofs}, "ceilings")
    return numerics.store(path)
