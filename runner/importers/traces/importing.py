"""Turns a recording of Nsight Systems or of torch.profiler into a run with traces.

    imported = import_export(Path("report.sqlite"), db=Path("data/results.duckdb"), label="their run")
    imported = import_stats(Path("report_cuda_gpu_kern_sum.csv"), db=Path("data/results.duckdb"), label=None)

A report holds far more than kernels: host name, user, command line, environment variables, what the program printed.
None of that is read; only which of its tables exist, so that the person can be told. Of the machine, only the GPU's
name and memory are read. Limits: no report says what was measured (shape, batch, precision), so an imported trace has
no cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.analysis.kernels import kernel_class
from runner.importers.runs import INGEST_SECONDS, new_run, write_run
from runner.importers.traces.export import open_export
from runner.importers.traces.profiler import load_trace
from runner.importers.traces.ranges import LaunchPlace
from runner.importers.traces.recordings import Launched, TracedProcess, load_processes
from runner.importers.traces.stats import load_stats
from runner.schema import KernelRow, RunRow, TraceOrigin, TraceRow, new_id
from runner.store.database import ingest

UNKNOWN_PHASE = "unknown"
#: What the names of copies and sets begin with, which are no kernels.
_COPIES = ("[CUDA memcpy", "[CUDA memset")


@dataclass(frozen=True, kw_only=True)
class ImportedTrace:
    """One imported trace. `attributed_share` is the share of its time whose phase is known; with `overlapping`, a
    kernel counts in every range around it. `copies_ms` is the time of copies and sets, a step, which are no kernels;
    `remarks` say what was not read."""

    row: TraceRow
    attributed_share: float
    overlapping: bool = False
    copies_ms: float = 0.0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImportedTraces:
    """The traces of one import. `private` are the file's tables of other things, which were not read."""

    traces: tuple[ImportedTrace, ...]
    private: tuple[str, ...] = ()


def import_export(path: Path, *, db: Path, label: str | None = None) -> ImportedTraces:
    """Reads the SQLite export at `path` and adds a trace for each process that used the GPU.

    Raises UsageError for a file that is no such export; then nothing was added."""
    with open_export(path) as export:
        processes = load_processes(export, path)
        (gpu, memory), private = export.gpu(), tuple(export.private())
    run = replace(new_run(path, label), device_name=gpu, device_memory_bytes=memory)
    return replace(_add_traces(run, processes, db=db, title=path.name), private=private)


def import_stats(path: Path, *, db: Path, label: str | None = None) -> ImportedTraces:
    """Reads what `nsys stats` wrote at `path` and adds it as one trace, over all recorded steps unless its ranges say
    how many there were.

    Raises UsageError for a file without such tables; then nothing was added."""
    return _add_traces(new_run(path, label), [load_stats(path)], db=db, title=path.name)


def import_traces(paths: Sequence[Path], *, db: Path, label: str | None = None) -> ImportedTraces:
    """Reads traces of torch.profiler, one a rank, and adds them as one run. Raises UsageError; then nothing was
    added."""
    processes, titles = [load_trace(path) for path in paths], [path.name for path in paths]
    run = new_run(paths[0] if len(paths) == 1 else paths[0].parent, label)
    return _add_traces(run, processes, db=db, title=run.label or "", origin="torch-profiler", titles=titles)


def _add_traces(
    run: RunRow,
    processes: Sequence[TracedProcess],
    *,
    db: Path,
    title: str,
    origin: TraceOrigin = "nsys",
    titles: Sequence[str] = (),
) -> ImportedTraces:
    traces: list[ImportedTrace] = []
    kernels: list[KernelRow] = []
    for number, process in enumerate(processes, start=1):
        ids: dict[str, Any] = {"run_id": run.run_id, "cell_id": new_id()}
        rows = _kernel_rows(ids, process)
        ran = [row for row in rows if not row.kernel.startswith(_COPIES)]
        total = sum(row.device_ms for row in ran)
        known = sum(row.device_ms for row in ran if row.phase != UNKNOWN_PHASE)
        own = title if len(processes) == 1 else f"{title} · process {number}"
        trace = TraceRow(
            **ids,
            origin=origin,
            title=titles[number - 1] if titles else own,
            kernels=len(ran),
            steps=process.steps,
            kernel_ms=total,
            step_ms=process.step_ms,
            busy_ms=process.busy_ms,
            gap_ms=process.gap_ms,
        )
        share = known / total if total else 0.0
        traces.append(
            ImportedTrace(
                row=trace,
                attributed_share=share,
                overlapping=process.overlapping,
                copies_ms=sum(row.device_ms for row in rows) - total,
                remarks=process.remarks,
            )
        )
        kernels += rows
    added: dict[str, Sequence[object]] = {"runs": [run], "traces": [trace.row for trace in traces], "kernels": kernels}
    write_run(added, run=run, db=db, where=Path(title))
    ingest(db, patience_s=INGEST_SECONDS)
    return ImportedTraces(traces=tuple(traces))


def _kernel_rows(ids: dict[str, Any], process: TracedProcess) -> list[KernelRow]:
    """Returns the kernels by phase and range, as means over the steps where their number is known, because a report
    sums over its steps."""
    grouped: dict[tuple[str, str, str], list[tuple[LaunchPlace, Launched]]] = {}
    for (place, name), sums in process.kernels.items():
        grouped.setdefault((place.phase or UNKNOWN_PHASE, place.scope, name), []).append((place, sums))
    per, rows = process.steps or 1, []
    for (phase, scope, name), launches in grouped.items():
        moved = sum(sums.moved_bytes or 0 for _, sums in launches)
        operators = {place.operator for place, _ in launches}
        rows.append(
            KernelRow(
                **ids,
                phase=phase,
                scope=scope,
                kernel=name,
                kernel_class=kernel_class(name, phase=phase),
                calls=sum(sums.calls for _, sums in launches) / per,
                device_ms=sum(sums.duration_ns for _, sums in launches) / 1e6 / per,
                operator=operators.pop() or None if len(operators) == 1 else None,
                moved_bytes=round(moved / per) if 0 < moved < 2**62 else None,
            )
        )
    return rows
