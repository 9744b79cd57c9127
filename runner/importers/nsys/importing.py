"""What Nsight Systems recorded elsewhere becomes a run with traces: the `import` command's work.

    imported = import_export(Path("report.sqlite"), db=Path("data/results.duckdb"), label="their run")
    imported = import_stats(Path("report_cuda_gpu_kern_sum.csv"), db=Path("data/results.duckdb"), label=None)

A report holds far more than kernels: host name, user, command line, environment variables, what the program printed.
Of all that nothing is read but which of its tables are there, so that the person can be told; of the machine, the GPU's
name and memory. Limits: what was measured (the shape, the batch, the precision) is in no report, so an imported trace
has no cell. Standard library and the store.
"""

import hashlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.analysis.kernels import kernel_class
from runner.importers.nsys.export import open_export
from runner.importers.nsys.ranges import LaunchPlace
from runner.importers.nsys.recordings import Launched, TracedProcess, recordings
from runner.importers.nsys.stats import read_stats
from runner.schema import KernelRow, RunRow, TraceRow, new_id, utc_now
from runner.store.database import ingest
from runner.store.spool import Spool
from runner.store.staging import check_rows

#: How long the rows may wait for whoever reads the results file; later they still get in with the next command.
INGEST_SECONDS = 5.0
UNKNOWN_PHASE = "unknown"


@dataclass(frozen=True, kw_only=True)
class ImportedTrace:
    """One trace that an import made. `attributed_share` is the share of its time whose phase is known; `overlapping`
    says that a kernel counts in every range around it."""

    row: TraceRow
    attributed_share: float
    overlapping: bool = False


@dataclass(frozen=True, kw_only=True)
class ImportedTraces:
    """The run that an import made. `private` are the file's tables of other things, of which nothing was read."""

    run_id: UUID
    traces: tuple[ImportedTrace, ...]
    private: tuple[str, ...] = ()


def import_export(path: Path, *, db: Path, label: str | None = None) -> ImportedTraces:
    """Reads the SQLite export at `path` and adds a trace for each process that used the GPU. Raises UsageError for a
    file that is none; then nothing was added. Importing a file twice makes two runs."""
    with open_export(path) as export:
        found = recordings(export, path)
        (gpu, memory), private = export.gpu(), tuple(export.private())
    run = replace(_run(path, label), device_name=gpu, device_memory_bytes=memory)
    return replace(_added(run, found, db=db, title=path.name), private=private)


def import_stats(path: Path, *, db: Path, label: str | None = None) -> ImportedTraces:
    """Reads what `nsys stats` wrote at `path` and adds it as one trace, over all recorded steps unless its ranges say
    how many. Raises UsageError for a file that is none; then nothing was added."""
    return _added(_run(path, label), [read_stats(path)], db=db, title=path.name)


def _run(path: Path, label: str | None) -> RunRow:
    run_id = new_id()
    return RunRow(
        run_id=run_id,
        sweep_key=hashlib.sha256(str(run_id).encode()).hexdigest()[:16],
        source="imported",
        label=label or path.name,
        argv=shlex.join(["python", "-m", "runner", *sys.argv[1:]]),
        started_at=utc_now(),
        device="cuda",
    )


def _added(run: RunRow, found: Sequence[TracedProcess], *, db: Path, title: str) -> ImportedTraces:
    traces: list[ImportedTrace] = []
    kernels: list[KernelRow] = []
    for number, recording in enumerate(found, start=1):
        ids: dict[str, Any] = {"run_id": run.run_id, "cell_id": new_id()}
        rows = _kernel_rows(ids, recording)
        total = sum(row.device_ms for row in rows)
        trace = TraceRow(**ids, origin="nsys", title=title if len(found) == 1 else f"{title} · process {number}",
                         kernels=len(rows), steps=recording.steps, kernel_ms=total)  # fmt: skip
        known = sum(row.device_ms for row in rows if row.phase != UNKNOWN_PHASE)
        share = known / total if total else 0.0
        traces.append(ImportedTrace(row=trace, attributed_share=share, overlapping=recording.overlapping))
        kernels += rows
    added: dict[str, list[object]] = {"runs": [run], "traces": [trace.row for trace in traces], "kernels": [*kernels]}
    check_rows(added, where=Path(title))
    Spool(db).write(added, name=f"import-{run.run_id}")
    ingest(db, patience_s=INGEST_SECONDS)
    return ImportedTraces(run_id=run.run_id, traces=tuple(traces))


def _kernel_rows(ids: dict[str, Any], recording: TracedProcess) -> list[KernelRow]:
    """Kernels by phase and range; per step where steps are known: means, since a report is summed over its steps."""
    grouped: dict[tuple[str, str, str], list[tuple[LaunchPlace, Launched]]] = {}
    for (place, name), sums in recording.kernels.items():
        grouped.setdefault((place.phase or UNKNOWN_PHASE, place.scope, name), []).append((place, sums))
    return [_row(ids, key, same, per=recording.steps or 1) for key, same in grouped.items()]


def _row(ids: dict[str, Any], key: tuple[str, str, str], same: Sequence[tuple[LaunchPlace, Launched]], *, per: int
         ) -> KernelRow:  # fmt: skip
    """One kernel in one phase and range, over all the operators that launched it there."""
    phase, scope, name = key
    moved = sum(sums.moved_bytes or 0 for _, sums in same)
    operators = {place.operator for place, _ in same}
    return KernelRow(
        **ids,
        phase=phase,
        scope=scope,
        kernel=name,
        kernel_class=kernel_class(name, phase=phase),
        calls=sum(sums.calls for _, sums in same) / per,
        device_ms=sum(sums.duration_ns for _, sums in same) / 1e6 / per,
        operator=operators.pop() or None if len(operators) == 1 else None,
        moved_bytes=round(moved / per) if 0 < moved < 2**62 else None,
    )
