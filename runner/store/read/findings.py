"""Loads the audit's findings: of chosen cells, of the rows of a selection, of imported memory timelines.

    findings = load_findings(path, (cell_id, other_id), "steps")  ->  {cell_id: [Finding(code="cold_step", …)],
    other_id: []}
    rows = load_audit(path, Selection(run=run_id))

The rules read a row, its steps, summaries and telemetry, and other rows of the same run for what only several rows show
together. `load_audit` judges rows of every effort, each round on its own: where several runs on one machine measured a
cell, the latest run counts, with the rounds that it goes on with; where a round was tried again, the last try. A filter
narrows the tables that have its column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from runner.analysis.audit.findings import RowContext
from runner.analysis.audit.judge import judge, judge_together
from runner.analysis.audit.timeline_rules import RecordedBlock, RecordedTimeline, judge_timeline
from runner.results.findings import Audited, AuditedRow, Finding
from runner.schema import TABLES, AttentionRow, MemoryRow, RunRow, StepRow, TelemetryRow, TimingRow
from runner.store.database import open_reader
from runner.store.read.noise import load_drifts
from runner.store.read.selection import Selection, fetch, fetch_by_cell, fetch_rows, select_chosen, write_conditions
from runner.store.read.timed import STEP_MS

#: The audited tables, each with its row and the columns that a cell shares with the cells beside it.
AUDITED: Mapping[str, tuple[type[Audited], tuple[str, ...]]] = {
    "steps": (StepRow, ("d_model", "d_ff", "layers", "heads", "vocabulary", "mode")),
    "attention": (AttentionRow, ("implementation", "d_head", "causal", "cache")),
    "memory": (MemoryRow, ("d_model", "d_ff", "layers", "heads", "vocabulary", "mode", "context")),
}
_STEPS = f"""
    SELECT cell_id, list(step_ms ORDER BY step) FROM (
        SELECT cell_id, step, {STEP_MS} AS step_ms FROM samples
        SEMI JOIN chosen USING (cell_id) WHERE NOT is_warmup GROUP BY ALL
    ) GROUP BY cell_id"""

#: The chosen cells, and the cells of the same run beside them.
_BESIDE = """
    CREATE OR REPLACE TEMP TABLE seen AS
    SELECT run_id, cell_id FROM {table} SEMI JOIN chosen USING (cell_id)
    UNION SELECT run_id, cell_id FROM {table}
    SEMI JOIN (FROM {table} SEMI JOIN chosen USING (cell_id)) USING ({columns}) WHERE status = 'ok'"""


def load_findings(path: Path, cells: tuple[UUID, ...], table: str = "steps") -> dict[UUID, list[Finding]]:
    """Returns the findings of each of these cells of one table, in the given order."""
    return {cell: findings for cell, (_, findings) in _judge_cells(path, cells, table).items()}


def _judge_cells(path: Path, cells: Sequence[UUID], table: str) -> dict[UUID, tuple[Audited, list[Finding]]]:
    """Returns the rows of these cells of one table with their findings, in the given order."""
    kind, alike = AUDITED[table]
    with open_reader(path) as reader:
        # Semi-joins, because a list of thousands would be searched once for each row of the file.
        reader.execute(
            "CREATE OR REPLACE TEMP TABLE chosen AS SELECT unnest($cells) AS cell_id", {"cells": list(cells)}
        )
        reader.execute(_BESIDE.format(table=table, columns=", ".join(("run_id", *alike))))
        found = fetch_rows(reader, kind, f"{table} SEMI JOIN seen USING (cell_id)")
        timings = fetch_by_cell(reader, TimingRow, "timings SEMI JOIN seen USING (cell_id)")
        runs = {row.run_id: row for row in fetch_rows(reader, RunRow, "runs SEMI JOIN seen USING (run_id)")}
        telemetry = fetch_by_cell(reader, TelemetryRow, "telemetry SEMI JOIN chosen USING (cell_id)")
        steps: dict[UUID, list[float]] = dict(reader.execute(_STEPS).fetchall())
    drifts = load_drifts(path, runs)
    known = [
        (row, RowContext(
            step_ms=steps.get(row.cell_id, ()), timings={item.phase: item for item in timings.get(row.cell_id, ())},
            telemetry=telemetry.get(row.cell_id, ()), run=runs.get(row.run_id),
            drifts=drifts.get(row.run_id, ())))
        for row in found
    ]  # fmt: skip
    chosen, both = set(cells), judge_together(known)
    said = dict[UUID, tuple[Audited, list[Finding]]]()
    for row, seen in known:
        if row.cell_id in chosen:  # what a row and its neighbor both have counts once
            named = {one.code: one for one in reversed([*judge(row, seen), *both.get(row.cell_id, ())])}
            said[row.cell_id] = row, [*named.values()][::-1]
    return {cell: said[cell] for cell in cells if cell in said}


#: The most rows of a table that are audited, the newest, because every sample of theirs is read.
MAX_ROWS = 2_000


def load_audit(path: Path, of: Selection) -> list[AuditedRow]:
    """Returns the rows of a selection with their findings, the newest of each table first."""
    audited = []
    for table in AUDITED:
        if machines := dict(_find_counted(path, table, of)[:MAX_ROWS]):
            for cell, (row, findings) in _judge_cells(path, [*machines], table).items():
                audited.append(AuditedRow(row=row, machine=machines[cell], findings=tuple(findings)))
    return audited


def count_not_read(path: Path, of: Selection) -> int:
    """Returns how many rows of a selection are too many to be audited."""
    return sum(max(0, len(_find_counted(path, table, of)) - MAX_ROWS) for table in AUDITED)


def _find_counted(path: Path, table: str, of: Selection) -> list[tuple[UUID, str]]:
    """Returns the ids of the rows of a table that count and pass the filters, newest first, and their machines."""
    query, parameters = select_chosen(table, replace(of, settled=False))
    filters, values = write_conditions((column, wanted) for column, wanted in of.asked() if column in TABLES[table].key)
    query = f"SELECT cell_id, machine FROM ({query}) WHERE {' AND '.join(filters) or 'true'} ORDER BY cell_id DESC"
    with open_reader(path) as reader:
        return reader.execute(query, [*parameters, *values]).fetchall()


_BLOCKS = """
    SELECT allocated_bytes AS size, born_us, died_us, category, coalesce(frames, '') AS frames
    FROM (SELECT * FROM allocations WHERE cell_id = $id)
    LEFT JOIN (SELECT stack, frames FROM stacks WHERE cell_id = $id) USING (stack)"""


def load_timeline_findings(path: Path, cell_id: UUID) -> list[Finding]:
    """Returns the findings of one imported timeline; none for a measured one, whose memory cell is judged, or for one
    that the file does not have."""
    with open_reader(path) as reader:
        about = reader.execute(
            "SELECT peak_bytes, peak_at_us FROM timelines WHERE cell_id = ? AND origin = 'imported'", [cell_id]
        ).fetchone()
        if about is None:
            return []
        blocks = fetch(reader, _BLOCKS, {"id": cell_id}, kind=RecordedBlock)
    return judge_timeline(RecordedTimeline(blocks=blocks, peak_bytes=about[0], peak_at_us=about[1]))
