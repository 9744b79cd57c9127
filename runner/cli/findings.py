"""The audit of a run in the terminal: grades by table, then every finding with its cells and what to do about it.

python -m runner show --findings
python -m runner show "their run" --findings
"""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from rich.text import Text

from runner.analysis.audit.findings import FindingGroup, count_grades, group_findings, shorten_ids
from runner.analysis.audit.timeline_rules import TIMELINE_REMEDIES
from runner.cli.audit_published import print_published_audit
from runner.cli.lists import find_run, new_grid, print_left_out, print_title
from runner.cli.terminal import STYLES, Terminal
from runner.results import Timeline
from runner.results.findings import GRADE_WORDS, GRADES, SEVERITIES, format_evidence, grade
from runner.store.read.findings import MAX_ROWS, Audit, load_audit, load_timeline_findings
from runner.store.read.memory import load_timelines
from runner.store.read.selection import Selection


def print_findings(console: Terminal, run: str, *, db: Path) -> int:
    """Prints the audit of one run, found as `find_run` does. Returns the exit code: 1 if a row is graded D, else 0."""
    found = find_run(run, db=db)
    print_title(console, found)
    print_left_out(console, db)
    if found.source == "published":
        return print_published_audit(console, found, db=db)
    if found.source == "imported" and (timelines := load_timelines(db, found.run_id)):
        return _print_timelines(console, timelines, db=db)
    audit = load_audit(db, Selection(run=found.run_id))
    if not audit.rows:
        console.say("This run has no rows of steps, attention or memory, which are what the audit looks at.")
        return 0
    _print_grades(console, audit)
    groups = group_findings(audit.rows)
    short = shorten_ids([row.cell_id for row in audit.rows])
    for group in groups:
        console.say("")
        _print_group(console, group, short)
    if not groups:
        console.say("The audit found nothing against any of these rows.")
    return 1 if any(row.grade == "D" for row in audit.rows) else 0


def _print_grades(console: Terminal, audit: Audit) -> None:
    """Prints one line a table: how many rows have each grade."""
    grid = new_grid("table", *GRADES, "no result")
    for table, counts in count_grades(audit.rows).items():
        numbers = [Text(str(counts[grade]), STYLES[grade] if counts[grade] else "dim") for grade in GRADES]
        grid.add_row(table, *numbers, str(counts[None]))
    console.print(grid)
    console.say(GRADE_WORDS, style="dim")
    if audit.not_read:
        console.say(f"{audit.not_read:,} older rows were not read: the newest {MAX_ROWS:,} of each table are.")


def _print_group(console: Terminal, group: FindingGroup, short: dict[UUID, str]) -> None:
    """Prints a code with what to do, and below it each cell with its sentence and evidence."""
    style, count = STYLES[SEVERITIES[group.severity]], len(group.found)
    number = "1 cell" if count == 1 else f"{count:,} cells"
    console.say(Text.assemble((group.code, f"bold {style}"), f" ({group.severity}), {number}"))
    console.say(f"  What to do: {group.remedy}")
    for row, finding in group.by_title:
        console.say(f"  {short[row.cell_id]}  {row.table}: {row.title}")
        console.say(f"    {finding.sentence}")
        if finding.evidence:
            console.say(f"    {format_evidence(finding)}", style="dim")


def _print_timelines(console: Terminal, timelines: Sequence[Timeline], *, db: Path) -> int:
    """Prints the grade of each timeline and what is to be said of it. Returns the exit code: 1 if one is graded D."""
    found = {timeline.label: load_timeline_findings(db, timeline.cell_id) for timeline in timelines}
    grid = new_grid("timeline", "grade")
    for label, findings in found.items():
        letter = grade(findings)
        grid.add_row(label, Text(letter, STYLES[letter]))
    console.print(grid)
    console.say(f"Recorded by others. {GRADE_WORDS}", style="dim")
    for label, findings in found.items():
        for finding in findings:
            style = STYLES[SEVERITIES[finding.severity]]
            console.say("")
            console.say(Text.assemble((finding.code, f"bold {style}"), f" ({finding.severity}), {label}"))
            console.say(f"  What to do: {TIMELINE_REMEDIES[finding.code]}")
            console.say(f"    {finding.sentence}")
            console.say(f"    {format_evidence(finding)}", style="dim")
    if not any(found.values()):
        console.say("The audit found nothing against any of these recordings.")
    return 1 if any(grade(findings) == "D" for findings in found.values()) else 0
