"""The kernels of profiled cells and imported traces, by phase, class, range and name; the ceilings of a machine.

    for one in load_traced(path, Selection()):
        print(one.trace.title, one.trace.kernel_ms, one.kernels[0].kernel)

Times and calls are per step, but sums over the whole recording in a trace without steps (`steps` is None). The first
ok round of a cell counts, because a profile explains a time and does not measure one.
"""

from pathlib import Path
from uuid import UUID

from runner.results import Kernel, KernelPart, KernelTrace
from runner.results.rows import Traced
from runner.schema import TABLES, CeilingRow
from runner.store.database import open_reader
from runner.store.read.fetch import fetch, fetch_by, select
from runner.store.read.selection import Selection
from runner.store.read.timed import choose

KEY = TABLES["profiles"].key
_OWN = (
    "failed_phase", "message", "unprofiled_step_ms", "profiled_step_ms", "overhead_share", "busy_ms", "busy_share",
    "host_bound_share", "attributed_share", "kernel_calls", "graph_breaks", "recompiles",
)  # fmt: skip

_MEASURED = f"""
    SELECT c.cell_id, c.run_id, c.machine, r.device, r.label, t.origin, t.title, t.kernel_ms, t.steps, c.status,
        {", ".join(f"c.{name}" for name in (*_OWN, *KEY))}, c.steps AS profiled_steps
    FROM chosen c LEFT JOIN runs r USING (run_id) LEFT JOIN traces t ON t.cell_id = c.cell_id
    ORDER BY d_model * d_model * layers, d_model, layers, context, precision <> 'fp32', precision, backend <> 'eager',
        backend, attention <> 'naive', attention, list_position(['inference', 'forward', 'backward', 'train'], mode),
        c.cell_id"""

_IMPORTED = """
    SELECT t.cell_id, t.run_id, coalesce(r.device_name, r.device, 'unknown device') AS machine, r.device, r.label,
        t.origin, t.title, t.kernel_ms, t.steps
    FROM traces t JOIN runs r USING (run_id) WHERE r.source <> 'measured' AND coalesce(t.run_id = ?, true)
    ORDER BY t.run_id, t.cell_id"""


def load_traces(path: Path, of: Selection) -> list[KernelTrace]:
    """Returns the profiled cells that count, also failed ones, smallest model first; then the imported traces of all
    machines, or of the selected run."""
    with open_reader(path) as reader:
        choose(reader, "profiles", of, (*_OWN, "steps"))
        measured = fetch(reader, _MEASURED, kind=KernelTrace)
        return measured + fetch(reader, _IMPORTED, [of.run], kind=KernelTrace)


_PARTS = """
    SELECT cell_id, phase, {scope} AS scope, kernel_class, sum(calls) AS calls, sum(device_ms) AS device_ms,
        TRY_CAST(sum(flops) AS BIGINT) AS flops
    FROM kernels GROUP BY cell_id, phase, 3, kernel_class
    ORDER BY cell_id, phase, 3, sum(device_ms) DESC, kernel_class"""
_KERNELS = """
    SELECT cell_id, phase, kernel, any_value(kernel_class) AS kernel_class, sum(calls) AS calls,
        sum(device_ms) AS device_ms, TRY_CAST(sum(flops) AS BIGINT) AS flops,
        TRY_CAST(sum(moved_bytes) AS BIGINT) AS moved_bytes, arg_max(operator, device_ms) AS operator,
        arg_max(scope, device_ms) AS scope
    FROM kernels k GROUP BY cell_id, phase, kernel ORDER BY sum(k.device_ms) DESC, kernel, phase"""


def load_traced(path: Path, of: Selection) -> list[Traced]:
    """Returns the profiled cells that count, smallest model first, with their kernels."""
    with open_reader(path) as reader:
        kernels: dict[UUID, list[Kernel]] = fetch_by(reader, _KERNELS, kind=Kernel, by=("cell_id",))
        parts, ranges = (
            fetch_by(reader, _PARTS.format(scope=scope), kind=KernelPart, by=("cell_id",)) for scope in ("''", "scope")
        )
    return [
        Traced(
            trace=one,
            parts=tuple(parts.get(one.cell_id, ())),
            kernels=tuple(kernels.get(one.cell_id, ())),
            ranges=tuple(ranges.get(one.cell_id, ())),
        )
        for one in load_traces(path, of)
        if one.cell is not None
    ]


def load_ceilings(path: Path, of: Selection) -> list[CeilingRow]:
    """Returns every ceiling of a machine or a run, the latest run first, and in a run those of its start first."""
    conditions, parameters = of.of_runs()
    query = f"""
        SELECT {select(CeilingRow, "s.")} FROM ceilings s LEFT JOIN runs r USING (run_id)
        WHERE {" AND ".join(conditions) or "true"}
        ORDER BY s.run_id DESC, s.moment DESC, s.ceiling DESC, s.name"""
    with open_reader(path) as reader:
        return fetch(reader, query, parameters, kind=CeilingRow)
