"""The audit of a run in the terminal: grades by table, then every finding with its cells and what to do about it.

python -m runner show --findings
python -m runner show "their run" --findings --json
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.text import Text

from runner.analysis.audit.findings import REMEDIES, count_grades, group_findings, list_findings, shorten_ids
from runner.analysis.audit.published import PUBLISHED_REMEDIES, PUBLISHED_RULES, audit_published, count_published_grades
from runner.analysis.audit.timeline_rules import TIMELINE_REMEDIES
from runner.cli.terminal import Terminal, new_grid
from runner.formats import format_count
from runner.results.cells import Timeline
from runner.results.findings import GRADE_WORDS, GRADES, SEVERITIES, Finding, Grade, format_evidence, grade
from runner.results.rows import RunSummary
from runner.store.database import look_through
from runner.store.read.findings import MAX_ROWS, count_not_read, load_audit, load_timeline_findings
from runner.store.read.memory import load_timelines
from runner.store.read.published import load_published
from runner.store.read.runs import find_run
from runner.store.read.selection import Selection

#: The color of each grade of the audit.
STYLES: Mapping[Grade, str] = {"A": "green", "B": "blue", "C": "yellow", "D": "red"}

#: Where something was found, in words, and what it touches.
_Place = tuple[str, frozenset[UUID]]


@dataclass(frozen=True, kw_only=True)
class _Audited:
    """What the audit says of a run: grades by table, findings that touch so many of what `noun` says, and the line that
    is printed where there are none."""

    of: str
    grades: Mapping[str, Counter[Grade | None]]
    found: Sequence[tuple[_Place, Finding]]
    remedies: Mapping[str, str]
    noun: str
    clean: str
    notes: Sequence[str] = ()


def print_left_out(console: Terminal, db: Path) -> None:
    """Prints how many rows of the file break the contract and are in no table, and which of several files cannot be
    read, if any."""
    found = look_through(db)
    for name, reason in found.broken.items():
        console.say(f"Left out, as it cannot be read: {name}. {reason}", style="yellow")
    if counts := ", ".join(f"{count:,} of {name}" for name, count in found.left_out.items()):
        console.say(f"Left out, as their values break the contract: {counts} in {db}.", style="yellow")


def print_title(console: Terminal, run: RunSummary) -> None:
    """Prints what one run is: its id, when it began, its label, what measured it and how many cells."""
    started = f"{run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else ""
    named = " ".join([run.given or run.label or "", *(f"#{tag}" for tag in run.tags)]).strip()
    preset = run.preset or ("" if run.source in (None, "measured") else run.source)
    torch = f"torch {run.torch}" if run.torch else ""
    failed = run.failed + run.skipped
    cells = f"{format_count(run.cells, 'cell')}{f', {failed} not ok' if failed else ''}"
    console.print(f"run {run.run_id}", style="bold")
    console.print(" · ".join(filter(None, (started, named, preset, run.device_name, torch, cells))), "")


def print_findings(console: Terminal, run: str, *, db: Path, as_json: bool) -> int:
    """Prints the audit of one run, found as `find_run` does. Returns the exit code: 1 if a row is graded D, else 0."""
    found = find_run(db, run)
    if found.source == "published":
        audited = _audit_published(db, found)
    elif found.source == "imported" and (timelines := load_timelines(db, found.run_id)):
        audited = _audit_timelines(db, timelines)
    else:
        audited = _audit_rows(db, found)
    if as_json:
        console.dump(_make_json(found, audited))
    else:
        print_title(console, found)
        print_left_out(console, db)
        _print(console, audited)
    return int(any(counts["D"] for counts in audited.grades.values()))


def _audit_rows(db: Path, run: RunSummary) -> _Audited:
    rows, left = load_audit(db, Selection(run=run.run_id)), count_not_read(db, Selection(run=run.run_id))
    short = shorten_ids([row.cell_id for row in rows])
    none = "This run has no rows of steps, attention or memory, which are what the audit looks at."
    older = f"{left:,} older rows were not read: the newest {MAX_ROWS:,} of each table are."
    return _Audited(
        of="table",
        grades=count_grades(rows),
        found=[
            ((f"{short[row.cell_id]}  {row.table}: {row.title}", frozenset([row.cell_id])), finding)
            for row, finding in list_findings(rows)
        ],
        remedies=REMEDIES,
        noun="cell",
        clean="The audit found nothing against any of these rows." if rows else none,
        notes=[older] if left else [],
    )


def _audit_published(db: Path, run: RunSummary) -> _Audited:
    tables, grades = load_published(db, run=run.run_id), defaultdict[str, Counter[Grade | None]](Counter)
    findings = sorted(audit_published(tables), key=lambda one: (one.table.file, one.lines))
    for table in tables:
        grades[table.title].update(count_published_grades(table, findings))
    rules = len(PUBLISHED_RULES)
    return _Audited(
        of="table",
        grades=grades,
        found=[((one.place, frozenset(row.row_id for row in one.rows)), one.finding) for one in findings],
        remedies=PUBLISHED_REMEDIES,
        noun="row",
        clean=f"Nothing was found by {rules} rules, which does not say that the rows are right.",
        notes=[f"Published by others, not measured here: an A says that {rules} rules found nothing."],
    )


def _audit_timelines(db: Path, timelines: Sequence[Timeline]) -> _Audited:
    found = {timeline.label: load_timeline_findings(db, timeline.cell_id) for timeline in timelines}
    return _Audited(
        of="timeline",
        grades={label: Counter([grade(findings)]) for label, findings in found.items()},
        found=[((one.label, frozenset([one.cell_id])), finding) for one in timelines for finding in found[one.label]],
        remedies=TIMELINE_REMEDIES,
        noun="recording",
        clean="The audit found nothing against any of these recordings.",
        notes=["Recorded by others."],
    )


def _print(console: Terminal, audited: _Audited) -> None:
    if audited.grades:
        grid = new_grid(audited.of, *GRADES, "no result")
        for name, counts in audited.grades.items():
            numbers = [Text(str(counts[letter]), STYLES[letter] if counts[letter] else "dim") for letter in GRADES]
            grid.add_row(name, *numbers, str(counts[None]))
        console.print(grid)
        console.say(" ".join([*audited.notes, GRADE_WORDS]), style="dim")
    for (severity, code), found in group_findings(audited.found).items():
        style = STYLES[SEVERITIES[severity]]
        count = format_count(len({one for (_, touched), _ in found for one in touched}), audited.noun)
        console.say("")
        console.say(Text.assemble((code, f"bold {style}"), f" ({severity}), {count}"))
        console.say(f"  What to do: {audited.remedies[code]}")
        for (where, _), finding in found:
            console.say(f"  {where}")
            console.say(f"    {finding.sentence}")
            if finding.evidence:
                console.say(f"    {format_evidence(finding)}", style="dim")
    if not audited.found:
        console.say(audited.clean)


def _make_json(run: RunSummary, audited: _Audited) -> dict[str, Any]:
    return {
        "run": asdict(run),
        "grades": {name: {str(letter): counts[letter] for letter in counts} for name, counts in audited.grades.items()},
        "findings": [
            {
                "code": code,
                "severity": severity,
                "remedy": audited.remedies[code],
                "found": [
                    {"where": where, "sentence": finding.sentence, "evidence": finding.evidence}
                    for (where, _), finding in found
                ],
            }
            for (severity, code), found in group_findings(audited.found).items()
        ],
    }
