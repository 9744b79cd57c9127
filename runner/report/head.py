"""Writes the top of a report: the machine and its versions, the runs with their commands, and how far the rows can be
trusted.

facts(rows)          # (("Machine", "NVIDIA H200 · node1"), ("Versions", "torch 2.11, …"), …)
"""

from collections import Counter
from collections.abc import Sequence

from runner.analysis.audit.findings import Grade
from runner.analysis.audit.report import GRADE_WORDS, group_findings
from runner.formats import format_bytes, format_count, format_list
from runner.report.rows import Rows
from runner.report.text import NONE
from runner.results import RunSummary
from runner.schema import RunRow
from runner.store.database import look_through
from runner.store.queries.audit import MAX_ROWS, Audit, load_audit
from runner.store.queries.overview import load_run_details
from runner.store.reference import MEASURE, describe_reference, is_reference

_READING = (
    "small numbers behind a line, or in the column Findings, are findings of the audit, which stand below the tables "
    "of "
    "their question; n counts measured "
    f"steps, warm-up left out; {NONE} is not known or does not apply; a cell without a result says how it ended."
)
#: The most runs that are listed with their commands, and the most findings that are named.
_MAX_RUNS, _NAMED = 8, 3


def facts(rows: Rows) -> tuple[tuple[str, str], ...]:
    """Returns the facts under short names."""
    if not rows.runs:
        return (("Rows", f"This file has no measured run. Measure what this machine can: {MEASURE}"),)
    details = load_run_details(rows.path, [run.run_id for run in rows.runs])
    others = [name for name in rows.machines if name != rows.machine]
    reference = f"{describe_reference([run.device_name for run in rows.runs])} Measure your own: {MEASURE}"
    found = [
        ("Reference", reference if is_reference(rows.path) else ""),
        ("Machine", describe_machine(rows.machine or "", details)),
        ("Versions", describe_versions(details)),
        *_describe_runs(rows.runs),
        ("Rows", _describe_rows(rows)),
        ("Trust", _describe_trust(rows)),
        *_list_notes(rows),
        ("Edition", _describe_edition(rows)),
        ("Reading", _READING),
        ("Not in this report", _describe_others(rows, others)),
    ]
    return tuple((name, text) for name, text in found if text)


def describe_machine(name: str, details: Sequence[RunRow]) -> str:
    """Returns a machine in words, as its newest run, the first of `details`, has recorded it."""
    first = details[0]
    memory = f"{format_bytes(first.device_memory_bytes)} of memory" if first.device_memory_bytes else ""
    cores = f"{first.cpu_cores} CPU cores" if first.cpu_cores else ""
    cpu = first.cpu_name if first.cpu_name and first.cpu_name != first.device_name else ""
    parts = [
        name,
        f"device {first.device}" if first.device else "",
        memory,
        cpu or "",
        cores,
        first.os or "",
    ]
    return ", ".join(part for part in parts if part)


def describe_versions(details: Sequence[RunRow]) -> str:
    """Returns every version of the software that these runs used."""
    names = {
        "torch": "torch",
        "python": "Python",
        "cuda": "CUDA",
        "driver": "driver",
        "stepscope": "Stepscope",
        "git_commit": "commit",
    }
    parts = []
    for column, words in names.items():
        values = list(
            dict.fromkeys(
                str(value)[:12] if column == "git_commit" else str(value)
                for row in details
                if (value := getattr(row, column)) is not None
            )
        )
        parts += [f"{words} {' and '.join(values)}"] if values else []
    dirty = any(row.git_dirty for row in details)
    return ", ".join(parts) + (" with uncommitted changes" if dirty else "")


def _describe_runs(runs: Sequence[RunSummary]) -> list[tuple[str, str]]:
    """Returns one entry a run: when, what it was called, its command, and how its cells ended."""
    found = []
    for run in runs[:_MAX_RUNS]:
        when = f"{run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else "at an unknown time"
        called = run.given or run.label
        label = f", labeled {called}" if called else ""
        cells = f"{run.ok} cells ok, {run.failed} out of memory or failed, {run.skipped} skipped"
        found.append(("Run", f"{when}{label}, by {run.argv or 'an unknown command'}: {cells}"))
    if len(runs) > _MAX_RUNS:
        found.append(("Run", f"and {format_count(len(runs) - _MAX_RUNS, 'earlier one')}"))
    return found


def _list_notes(rows: Rows) -> list[tuple[str, str]]:
    """Returns the notes on the report's runs and their cells."""
    names = {run.run_id: run.name for run in rows.runs}
    said = [note for note in rows.notes.notes if note.kind == "note" and note.run_id in names]
    return [
        ("Note", f"{names[note.run_id]}{f', cell {note.cell_id}' if note.cell_id else ''}: {note.text}")
        for note in said
    ]


def _describe_rows(rows: Rows) -> str:
    """Says how many rows of each kind there are, and how they were chosen."""
    counts = {
        "step": len(rows.steps),
        "attention cell": len(rows.attention),
        "memory cell": len(rows.peaks),
        "profiled step": len(rows.traces),
        "sum": len(rows.sums),
        "measured precision": len(rows.precisions),
    }
    parts = [format_count(many, name) for name, many in counts.items() if many]
    left_out = look_through(rows.path).left_out
    broken = f" {sum(left_out.values()):,} rows that break the contract were left out." if left_out else ""
    chosen = "of a cell that several runs measured the latest run counts, all its rounds together"
    return f"{', '.join(parts) or 'none'}; {chosen}.{broken}"


def _describe_trust(rows: Rows) -> str:
    audit = load_audit(rows.path, rows.selection)
    counts: Counter[Grade | None] = Counter(row.grade for row in audit.rows)
    graded = sum(number for grade, number in counts.items() if grade)
    if not graded:
        return "no row has a grade."
    trusted = f"{counts['A'] + counts['B']:,} of {graded:,} graded rows can be trusted (A or B)"
    parts = [trusted, f"{counts['C']:,} in doubt (C)", f"{counts['D']:,} wrong (D)"]
    return f"{format_list(parts)}.{_name_reasons(audit)} {GRADE_WORDS} Rounds count one by one."


def _name_reasons(audit: Audit) -> str:
    groups = [group for group in group_findings(audit.rows) if group.severity != "note"]
    groups.sort(key=lambda group: -len(group.found))
    named = [f"{group.code.replace('_', ' ')} ({len(group.found):,})" for group in groups[:_NAMED]]
    older = (
        f" {audit.not_read:,} rows older than the newest {MAX_ROWS:,} of their table were not graded."
        if audit.not_read
        else ""
    )
    return (f" Most frequent findings: {format_list(named)}." if named else "") + older


def _describe_edition(rows: Rows) -> str:
    edition = rows.scope.edition
    return f"{edition} of the assignment: models of its sizes at its contexts, and no others." if edition else ""


def _describe_others(rows: Rows, others: Sequence[str]) -> str:
    parts = [f"rows of {format_list(others)} (--machine)"] if others else []
    parts += [f"{format_count(rows.other_runs, 'published or imported run')}"] if rows.other_runs else []
    return f"{format_list(parts)}." if parts else ""
