"""The audit of imported memory snapshots in the terminal, in the form of `runner.cli.audit`.

python -m runner audit "their run"
"""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from runner.analysis.audit.timeline_rules import TIMELINE_REMEDIES
from runner.cli.lists import new_grid
from runner.cli.terminal import STYLES, Terminal
from runner.results import Timeline
from runner.results.findings import GRADE_WORDS, SEVERITIES, format_evidence, grade
from runner.store.queries.findings import load_timeline_findings


def print_timeline_audit(console: Terminal, timelines: Sequence[Timeline], *, db: Path) -> int:
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
