"""An answer, the rows of a run, its audit, or the names there are, in the terminal or as JSON. The audit has the grades
by table, then every finding with its cells and what to do about it.

python -m runner show precision --clock latency
python -m runner show
python -m runner show "their run" --findings --json
python -m runner show sizes
"""

import re
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
from runner.analysis.costs import steps
from runner.answers import check_chosen
from runner.cli.progress import STATUS_STYLES, format_result, make_json
from runner.cli.report import answer_for
from runner.cli.terminal import Terminal, new_grid
from runner.errors import UsageError
from runner.experiments import KINDS
from runner.formats import format_count
from runner.places import write_db
from runner.plan.planning import PRESETS
from runner.plan.planning import QUESTIONS as EXPERIMENTS
from runner.render.json import as_json as answer_json
from runner.render.text import print_answer
from runner.results.cells import Timeline
from runner.results.findings import GRADE_WORDS, GRADES, SEVERITIES, Finding, Grade, format_evidence, grade
from runner.results.rows import RunSummary
from runner.schema import TABLES, CeilingRow, FrontierRow, Row, StepCell, Table, TimingRow
from runner.schema.sizes import SIZES, title
from runner.store.database import look_through
from runner.store.packing import is_reference
from runner.store.read import load_ceilings
from runner.store.read.findings import (
    AUDITED,
    MAX_ROWS,
    count_not_read,
    load_audit,
    load_findings,
    load_timeline_findings,
)
from runner.store.read.memory import load_timelines
from runner.store.read.published import load_published
from runner.store.read.runs import find_run, load_contents
from runner.store.read.selection import Selection, load_run_rows
from runner.sweep import frontier
from runner.sweep.request import FRONTIER_QUESTION

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


def _print_left_out(console: Terminal, db: Path) -> None:
    """Prints how many rows of the file break the contract and are in no table, and which of several files cannot be
    read, if any."""
    found = look_through(db)
    for name, reason in found.broken.items():
        console.say(f"Left out, as it cannot be read: {name}. {reason}", style="yellow")
    if counts := ", ".join(f"{count:,} of {name}" for name, count in found.left_out.items()):
        console.say(f"Left out, as their values break the contract: {counts} in {db}.", style="yellow")


def _print_head(console: Terminal, run: RunSummary, db: Path) -> None:
    """Prints what one run is: its id, when it began, its label, what measured it and how many cells; and what of the
    file is left out."""
    started = f"{run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else ""
    named = " ".join([run.given or run.label or "", *(f"#{tag}" for tag in run.tags)]).strip()
    preset = run.preset or ("" if run.source in (None, "measured") else run.source)
    torch = f"torch {run.torch}" if run.torch else ""
    failed = run.failed + run.skipped
    cells = f"{format_count(run.cells, 'cell')}{f', {failed} not ok' if failed else ''}"
    console.print(f"run {run.run_id}", style="bold")
    console.print(" · ".join(filter(None, (started, named, preset, run.device_name, torch, cells))), "")
    _print_left_out(console, db)


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
        _print_head(console, found, db)
        _print_audit(console, audited)
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


def _print_audit(console: Terminal, audited: _Audited) -> None:
    if audited.grades:
        grid = new_grid(audited.of, *GRADES, "no result")
        for name, counts in audited.grades.items():
            numbers = [Text(str(counts[letter]), STYLES[letter] if counts[letter] else "dim") for letter in GRADES]
            grid.add_row(name, *numbers, str(counts[None]))
        console.print(grid)
        console.say(" ".join([*audited.notes, GRADE_WORDS]), style="dim")
    for (severity, code), found in group_findings(audited.found).items():
        count = format_count(len({one for (_, touched), _ in found for one in touched}), audited.noun)
        console.say("")
        console.say(Text.assemble((code, f"bold {STYLES[SEVERITIES[severity]]}"), f" ({severity}), {count}"))
        console.say(f"  What to do: {audited.remedies[code]}")
        said: dict[tuple[str, str], list[str]] = {}
        for (where, _), finding in found:
            said.setdefault((finding.sentence, format_evidence(finding)), []).append(where)
        for (sentence, evidence), places in said.items():
            for where in places:
                console.say(f"  {where}")
            console.say(f"    {sentence}")
            if evidence:
                console.say(f"    {evidence}", style="dim")
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


def print_question(console: Terminal, name: str, words: Sequence[str], *, db: Path, as_json: bool) -> None:
    """Prints the answer to a question by the choices of `words`: `--clock latency`. Raises UsageError for a choice or a
    value that the answer does not have."""
    asked = parse_choices(words)
    machine, run = asked.pop("machine", None), asked.pop("run", None)
    of = load_contents(db).select(machine, find_run(db, run).run_id if run else None)
    answer = answer_for(name, db, of, asked)
    check_chosen(answer, asked)
    if as_json:
        console.dump(answer_json(answer))
    else:
        _print_left_out(console, db)
        print_answer(console, answer, ending="" if is_reference(db) else write_db(db))


def parse_choices(words: Sequence[str]) -> dict[str, str]:
    """Returns the choices of `--name value` and `--name=value` by name. Raises UsageError for anything else."""
    choices: dict[str, str] = {}
    left = list(words)
    while left:
        name, _, value = left.pop(0).partition("=")
        if not name.startswith("--") or (not value and not left):
            raise UsageError(f"{name!r}.", expected="choices such as --size small --clock latency")
        choices[name.removeprefix("--")] = value or left.pop(0)
    return choices


def print_run(console: Terminal, run: str, *, db: Path, as_json: bool) -> None:
    """Prints the rows of one run, found as `find_run` does: of each what its sweep printed, its grade and findings."""
    found = find_run(db, run)
    listed: dict[Table, list[tuple[Row, list[TimingRow]]]] = {}
    said: dict[UUID, list[Finding]] = {}
    for table in dict.fromkeys(kind.table for kind in KINDS):
        listed[table] = load_run_rows(db, found.run_id, table.row)
        if table.name in AUDITED:
            said |= load_findings(db, tuple(row.cell_id for row, _ in listed[table]), table.name)
    ceilings = load_ceilings(db, Selection(run=found.run_id))
    largest = [row for row, _ in load_run_rows(db, found.run_id, FrontierRow)]
    published = load_published(db, run=found.run_id) if found.source == "published" else []
    if as_json:
        known = {
            table.name: [
                {**make_json(row, timings), "findings": list(map(asdict, said.get(row.cell_id, ())))}
                for row, timings in rows
            ]
            for table, rows in listed.items()
            if rows
        }
        named: dict[str, Sequence[Any]] = {"ceilings": ceilings, "frontier": largest, "published": published}
        others = {name: list(map(asdict, of)) for name, of in named.items() if of}
        console.dump({"run": asdict(found), **known, **others})
        return
    _print_head(console, found, db)
    for one in published:
        console.say(f"{one.title}, {one.file}")
        headings = [*dict.fromkeys(figure.heading for row in one.rows for figure in row.figures)]
        grid = new_grid("line", "cell", "status", *headings)
        for line in one.rows:
            texts = {figure.heading: figure.text for figure in line.figures}
            setting = ", ".join(f"{name} {value}" for name, value in vars(line.setting).items() if value is not None)
            grid.add_row(str(line.line), setting, _status(line.status), *(texts.get(name, "") for name in headings))
        console.print(grid, "")
    for table, rows in listed.items():
        if rows:
            _print_rows(console, table.name, rows, said)
    _print_ceilings(console, ceilings)
    for row in largest:
        console.say(f"{frontier.title(row)}: {frontier.answer(row)}")


def _print_rows(
    console: Terminal, name: str, rows: Sequence[tuple[Row, list[TimingRow]]], said: Mapping[UUID, Sequence[Finding]]
) -> None:
    """Prints a line a cell, the smallest first, below a heading that says what all of them share."""
    order = {row.cell_id: re.sub(r"\d+", lambda number: number[0].zfill(12), title(row)) for row, _ in rows}
    rows = sorted(rows, key=lambda one: (getattr(one[0], "order", ()), order[one[0].cell_id], one[0].cell_id))
    titles = [title(row).split(" · ") for row, _ in rows]
    shared = [word for word in titles[0] if all(word in words for words in titles)] if len(rows) > 1 else []
    console.print(" · ".join([format_count(len(rows), f"{name} row"), *shared]), style="bold")
    has_failed, is_judged = any(row.status != "ok" for row, _ in rows), name in AUDITED
    grid = new_grid("cell", *["status"] * has_failed, "result", *["grade", "findings"] * is_judged)
    for (row, timings), words in zip(rows, titles, strict=True):
        cell = " · ".join(word for word in words if word not in shared) or " · ".join(words)
        findings = said.get(row.cell_id, ())
        verdict = [grade(findings) if row.status == "ok" else "", ", ".join(one.code for one in findings)]
        grid.add_row(cell, *[_status(row.status)] * has_failed, format_result(row, timings), *verdict * is_judged)
    console.print(grid, "")


def _print_ceilings(console: Terminal, rows: Sequence[CeilingRow]) -> None:
    """Prints one line a ceiling of what the machine can do at most; nothing for a run that measured none."""
    if not rows:
        return

    def rate(flops: float | None, size: float | None) -> str:
        return f"{flops / 1e12:,.3g} TFLOP/s" if flops else f"{size / 1e9:,.4g} GB/s" if size else ""

    grid = new_grid("ceiling", "at the start", "at the end", "datasheet")
    for name in dict.fromkeys(row.name for row in rows):
        at = {row.moment: row for row in rows if row.name == name}
        measured = {moment: rate(row.flops_per_s, row.bytes_per_s) for moment, row in at.items()}
        sheet = rate(*next((row.datasheet_flops_per_s, row.datasheet_bytes_per_s) for row in at.values()))
        grid.add_row(name, measured.get("start", ""), measured.get("end", ""), sheet)
    console.print(grid, "")


def _status(status: str) -> Text:
    return Text(status, STATUS_STYLES.get(status, ""))


def print_names(console: Terminal, what: str, *, as_json: bool) -> None:
    """Prints the presets, experiments or sizes there are, or all of them; or every column as Markdown."""
    if what == "columns" and not as_json:
        print(columns_markdown(), end="")
        return
    experiments = {**EXPERIMENTS, "frontier": FRONTIER_QUESTION}
    plain: dict[str, Any] = {"context": 1, "mode": "inference", "precision": "fp32"}
    tables: dict[str, list[dict[str, Any]]] = {
        "presets": [{"preset": one.name, "what it measures": one.doc} for one in PRESETS.values()],
        "experiments": [{"experiment": name, "question": words} for name, words in experiments.items()],
        "sizes": [
            {"size": one.name, **one.numbers, "parameters": steps.parameter_count(StepCell(**{**plain, **one.numbers}))}
            for one in SIZES.values()
        ],
        "columns": [
            {"table": table.name, "column": one.name, "type": one.sql_type, "unit": one.unit, "meaning": one.doc}
            for table in TABLES.values()
            for one in table.columns
        ],
    }
    chosen = {name: rows for name, rows in tables.items() if name == what or (what == "all" and name != "columns")}
    if as_json:
        console.dump(chosen.get(what, chosen))
        return
    for rows in chosen.values():
        texts = [[f"{one:,}" if isinstance(one, int) else str(one) for one in row.values()] for row in rows]
        console.print(new_grid(*rows[0], rows=texts))


def columns_markdown() -> str:
    """Returns every table and column as Markdown: the text of `data/README.md`."""
    lines = [
        "# The results file",
        "",
        "Written by `python -m runner show columns`; a test keeps it equal to the schema. Times of day are UTC.",
        "NULL means unknown.",
        "",
        "`reference/` holds 31 tables of five published reports as they were transcribed: one CSV a table, in which",
        "`seed_file` and `source_line` say where each row stood, and `provenance.csv`, which says what is known of how",
        "each report measured. `python -m runner import data/reference` adds them as runs with the source `published`.",
        "",
        "`reference/h200/` holds rows that Stepscope measured on an NVIDIA H200: one Parquet file a table, as",
        "`python -m runner export data/reference/h200 --parquet --db FILE` writes them. The app shows them until",
        "`results.duckdb` has a row, and beside its rows afterwards; `--db` and `STEPSCOPE_DB` take the folder, too.",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            choices = f" One of {', '.join(f'`{choice}`' for choice in column.choices)}." if column.choices else ""
            key = " *Key.*" if column.name in table.key else ""
            lines.append(f"| `{column.name}` | {column.sql_type} | {column.unit} | {column.doc}{choices}{key} |")
    return "\n".join(lines) + "\n"
