"""How long does the audit of 100,000 published rows take?

    python -m tests.bench published
    audit of 100,000 published rows: 4.2 s (under 5 s)

The rows are repeated copies of the shipped tables: 31 tables a report, with their own contexts and lengths.
"""

import time
from dataclasses import replace
from pathlib import Path

from runner.analysis.audit.published import audit_published
from runner.published.reading import read_file
from runner.results.published import PublishedTable
from tests.bench.result import Result

REFERENCE = Path(__file__).parents[2] / "data/reference"
ROWS, GOAL_SECONDS = 100_000, 5.0


def make_tables(rows: int) -> list[PublishedTable]:
    """Returns at least this many rows: copies of all shipped tables, each copy with its own reports."""
    paths = sorted(path for path in REFERENCE.glob("*.csv") if path.name != "provenance.csv")
    shipped = [table for path in paths for table in read_file(path).tables]
    copies = -(-rows // sum(len(table.rows) for table in shipped))
    return [replace(table, report=f"{table.report}-{copy}") for copy in range(copies) for table in shipped]


def run(rows: int = ROWS) -> list[Result]:
    tables = make_tables(rows)
    started = time.perf_counter()
    audit_published(tables)
    seconds = time.perf_counter() - started
    return [
        Result(
            name=f"audit of {rows:,} published rows",
            figure=f"{seconds:.1f} s",
            goal=f"under {GOAL_SECONDS:.0f} s",
            met=seconds < GOAL_SECONDS,
        )
    ]
