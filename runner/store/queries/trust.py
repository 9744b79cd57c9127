"""What the audit says of chosen cells: their rows, their steps in order and their telemetry go through its rules.

findings = audited(path, (cell_id, other_id))      ->  {cell_id: [Finding(code="cold_step", …)], other_id: []}
"""

from pathlib import Path
from uuid import UUID

from runner.analysis.audit import Finding, audit
from runner.schema import TABLES, StepRow, TelemetryRow
from runner.store.database import open_reader
from runner.store.queries.steps import STEP_MS

_STEPS = f"""
    SELECT cell_id, list(step_ms ORDER BY step) FROM (
        SELECT cell_id, step, {STEP_MS} AS step_ms FROM samples
        WHERE NOT is_warmup AND list_contains($cells, cell_id) GROUP BY ALL
    ) GROUP BY cell_id"""


def audited(path: Path, cells: tuple[UUID, ...]) -> dict[UUID, list[Finding]]:
    """The findings of each of these cells, in the order asked for; none for a cell that has no result."""
    rows, telemetry = (tuple(column.name for column in TABLES[name].columns) for name in ("steps", "telemetry"))
    chosen = {"cells": list(cells)}
    with open_reader(path) as reader:
        found = reader.execute(f"SELECT {', '.join(rows)} FROM steps WHERE list_contains($cells, cell_id)", chosen)
        measured = [StepRow(**dict(zip(rows, row, strict=True))) for row in found.fetchall()]
        steps = dict(reader.execute(_STEPS, chosen).fetchall())
        seen = reader.execute(
            f"SELECT {', '.join(telemetry)} FROM telemetry WHERE list_contains($cells, cell_id)", chosen
        ).fetchall()
    gpu: dict[UUID, list[TelemetryRow]] = {}
    for row in seen:
        sample = TelemetryRow(**dict(zip(telemetry, row, strict=True)))
        gpu.setdefault(sample.cell_id, []).append(sample)
    said = {
        row.cell_id: audit(row, step_ms=steps.get(row.cell_id, ()), telemetry=gpu.get(row.cell_id, ()))
        for row in measured
    }
    return {cell: said[cell] for cell in cells if cell in said}
