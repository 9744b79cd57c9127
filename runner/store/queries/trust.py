"""Loads the audit's findings of chosen cells. The rules read their rows, steps, summaries and telemetry, and other rows
of the same run for what only several rows show together.

    findings = load_findings(path, (cell_id, other_id), "steps")  ->  {cell_id: [Finding(code="cold_step", …)],
    other_id: []} sentences = load_faults(path, (cell_id, other_id), "steps")  ->  {}
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import UUID

import duckdb

from runner.analysis.audit.findings import Audited, Finding, RowContext
from runner.analysis.audit.grades import FAULT_PHASES, judge
from runner.analysis.audit.pair_rules import FAULT_RULES, PAIR_RULES, judge_together
from runner.schema import AttentionRow, MemoryRow, RunRow, StepRow, TelemetryRow, TimingRow
from runner.store.database import open_reader
from runner.store.queries.noise import load_drifts
from runner.store.queries.raw import fetch_rows
from runner.store.queries.steps import STEP_MS

R = TypeVar("R", bound=Audited)
Depth = Literal["all", "faults"]

#: The audited tables, each with its row and the columns that a cell shares with the cells beside it.
_KINDS: Mapping[str, tuple[type[Audited], tuple[str, ...]]] = {
    "steps": (StepRow, ("d_model", "d_ff", "layers", "heads", "vocabulary", "mode")),
    "attention": (AttentionRow, ("implementation", "d_head", "causal", "cache")),
    "memory": (MemoryRow, ("d_model", "d_ff", "layers", "heads", "vocabulary", "mode", "context")),
}
_STEPS = f"""
    SELECT cell_id, list(step_ms ORDER BY step) FROM (
        SELECT cell_id, step, {STEP_MS} AS step_ms FROM samples
        SEMI JOIN chosen USING (cell_id) WHERE NOT is_warmup GROUP BY ALL
    ) GROUP BY cell_id"""
_PHASES: Mapping[Depth, str] = {"all": "true", "faults": f"phase IN {FAULT_PHASES}"}

#: The chosen cells, and the cells of the same run beside them.
_BESIDE = """
    CREATE OR REPLACE TEMP TABLE seen AS
    SELECT run_id, cell_id FROM {table} SEMI JOIN chosen USING (cell_id)
    UNION SELECT run_id, cell_id FROM {table}
    SEMI JOIN (FROM {table} SEMI JOIN chosen USING (cell_id)) USING ({columns}) WHERE status = 'ok'"""


def load_findings(path: Path, cells: tuple[UUID, ...], table: str = "steps") -> dict[UUID, list[Finding]]:
    """Returns the findings of each of these cells of one table, in the given order."""
    return _judge_cells(path, cells, table, depth="all")


def load_faults(path: Path, cells: tuple[UUID, ...], table: str = "steps") -> dict[UUID, tuple[str, ...]]:
    """Returns the sentences that say why, for each of these cells that the audit grades D. It does not read the
    samples, because thousands of cells would take too long."""
    found = _judge_cells(path, cells, table, depth="faults").items()
    said = {cell: tuple(item.sentence for item in findings if item.severity == "fault") for cell, findings in found}
    return {cell: sentences for cell, sentences in said.items() if sentences}


def _judge_cells(path: Path, cells: tuple[UUID, ...], table: str, *, depth: Depth) -> dict[UUID, list[Finding]]:
    """Returns the findings of all rules or, with depth `faults`, at least those of rules that find faults."""
    kind, alike = _KINDS[table]
    columns = ", ".join(("run_id", *alike))
    with open_reader(path) as reader:
        # Semi-joins, because a list of thousands would be searched once for each row of the file.
        reader.execute(
            "CREATE OR REPLACE TEMP TABLE chosen AS SELECT unnest($cells) AS cell_id", {"cells": list(cells)}
        )
        reader.execute(_BESIDE.format(table=table, columns=columns))
        found = fetch_rows(reader, kind, f"{table} SEMI JOIN seen USING (cell_id)")
        source = f"timings SEMI JOIN seen USING (cell_id) WHERE {_PHASES[depth]}"
        timings = _group_by_cell(fetch_rows(reader, TimingRow, source))
        runs = {row.run_id: row for row in fetch_rows(reader, RunRow, "runs SEMI JOIN seen USING (run_id)")}
        telemetry, steps = _load_measured(reader) if depth == "all" else ({}, {})
    drifts = load_drifts(path, runs) if depth == "all" else {}
    known = [
        (row, RowContext(
            step_ms=steps.get(row.cell_id, ()), timings={item.phase: item for item in timings.get(row.cell_id, ())},
            telemetry=telemetry.get(row.cell_id, ()), run=runs.get(row.run_id),
            drifts=drifts.get(row.run_id, ())))
        for row in found
    ]  # fmt: skip
    chosen, both = set(cells), judge_together(known, rules=PAIR_RULES if depth == "all" else FAULT_RULES)
    said = {
        row.cell_id: _drop_repeated([*judge(row, seen), *both.get(row.cell_id, ())])
        for row, seen in known
        if row.cell_id in chosen
    }
    return {cell: said[cell] for cell in cells if cell in said}


def _load_measured(reader: duckdb.DuckDBPyConnection) -> tuple[dict[UUID, list[TelemetryRow]], dict[UUID, list[float]]]:
    """Returns the telemetry of the chosen cells while they were measured, and every step's time in ms."""
    telemetry = _group_by_cell(fetch_rows(reader, TelemetryRow, "telemetry SEMI JOIN chosen USING (cell_id)"))
    return telemetry, dict(reader.execute(_STEPS).fetchall())


def _group_by_cell(rows: list[Any]) -> dict[UUID, list[Any]]:
    found: dict[UUID, list[Any]] = defaultdict(list)
    for row in rows:
        found[row.cell_id].append(row)
    return found


def _drop_repeated(findings: list[Finding]) -> list[Finding]:
    """Returns the findings without those that a row and its neighbor both have."""
    return list({finding.code: finding for finding in reversed(findings)}.values())[::-1]
