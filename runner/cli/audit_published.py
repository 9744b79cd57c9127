"""The audit of an imported published file in the terminal, in the form of `runner.cli.findings`.

python -m runner show "1.1.3 Part a" --findings
"""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from runner.analysis.audit.published import (
    PUBLISHED_REMEDIES,
    PUBLISHED_RULES,
    PublishedFinding,
    audit_published,
    count_published_grades,
    count_rows,
    format_lines,
    group_published,
)
from runner.cli.lists import new_grid
from runner.cli.terminal import STYLES, Terminal
from runner.results import RunSummary
from runner.results.findings import GRADE_WORDS, GRADES, SEVERITIES, format_evidence
from runner.store.read.published import list_table_ids, load_published


def print_published_audit(console: Terminal, run: RunSummary, *, db: Path) -> int:
    """Prints what is to be said of the tables of one import. Returns the exit code: 1 if a row is graded D, else 0."""
    own = list_table_ids(db, run.run_id)
    tables = [table for table in load_published(db) if table.table_id in own]
    if not tables:
        console.say("This import counts no more: the same file was imported again. Audit the later import.")
        return 0
    findings = audit_published(tables)
    grid = new_grid("table", *GRADES, "no result")
    for table in tables:
        counts = count_published_grades(table, findings)
        numbers = [Text(str(counts[grade]), STYLES[grade] if counts[grade] else "dim") for grade in GRADES]
        grid.add_row(table.title, *numbers, str(counts[None]))
    console.print(grid)
    console.say(f"Published by others, not measured here. {GRADE_WORDS}", style="dim")
    for group in group_published(findings):
        console.say("")
        _print_group(console, group)
    if not findings:
        console.say(f"Nothing was found by {len(PUBLISHED_RULES)} rules, which does not say that the rows are right.")
    return 1 if any(found.finding.severity == "fault" for found in findings) else 0


def _print_group(console: Terminal, group: Sequence[PublishedFinding]) -> None:
    """Prints a code with what to do, and below it the lines that it touches with their sentence and evidence."""
    first, rows = group[0].finding, count_rows(group)
    style = STYLES[SEVERITIES[first.severity]]
    number = "1 row" if rows == 1 else f"{rows:,} rows"
    console.say(Text.assemble((first.code, f"bold {style}"), f" ({first.severity}), {number}"))
    console.say(f"  What to do: {PUBLISHED_REMEDIES[first.code]}")
    for found in group:
        word = "line" if len(found.lines) == 1 else "lines"
        console.say(f"  {found.table.file}, {word} {format_lines(found.lines)}")
        console.say(f"    {found.finding.sentence}")
        if found.finding.evidence:
            console.say(f"    {format_evidence(found.finding)}", style="dim")
