"""Which rows can be trusted, and what would fix the others?"""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from runner.analysis.audit.findings import REMEDIES, group_findings, list_findings
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose, verbatim
from runner.answers.words import lacks
from runner.formats import format_count
from runner.results.findings import GRADE_WORDS, GRADES, AuditedRow, Finding, format_evidence
from runner.results.rows import Rows

TABLE = Field("table", "Table")
GRADE = Field("grade", "Grade", doc=GRADE_WORDS)
ROWS = Field("rows", "Rows", role="value", doc="Each round of a cell is a row of its own.")
SEVERITY = Field("severity", "Severity", doc="A fault makes the grade D, a doubt C, a note B.")
CODE = Field("code", "Finding")
REMEDY = Field("remedy", "What to do", role="note")
PLACE = Field("place", "#")
CELL = Field("cell", "Cell")
SENTENCE = Field("sentence", "What was found", role="value")
EVIDENCE = Field("evidence", "Evidence", role="note")
NO_GRADE = "no result"


def answer(rows: Rows, asked: Asked) -> Answer:
    if not rows.audited:
        return Answer(missing=lacks("no row of steps, attention or memory"))
    found = group_findings(list_findings(rows.audited))
    groups = {f"{one.code.replace('_', ' ')} ({one.severity})": one for one in found}
    name = choose(asked, "finding", "Finding", list(groups))
    group = groups.get(name.chosen)
    shown = group.found if group else []
    cells: dict[tuple[str, str], list[UUID]] = {}
    for row in rows.audited:
        cells.setdefault((row.table, row.grade or NO_GRADE), []).append(row.cell_id)
    grades = View(
        name="grades",
        title="Rows by grade",
        about=_about(rows.audited),
        fields=(TABLE, GRADE, ROWS),
        rows=tuple(
            Row(values=(table, grade, len(cells[table, grade])), cells=tuple(cells[table, grade]))
            for table in dict.fromkeys(table for table, _ in cells)
            for grade in (*GRADES, NO_GRADE)
            if (table, grade) in cells
        ),
        draw=Draw("bars", "rows", down=("table",), series="grade"),
        note=GRADE_WORDS,
    )
    findings = View(
        name="findings",
        title="Rows by finding",
        about=_about(rows.audited),
        fields=(SEVERITY, CODE, ROWS, REMEDY),
        rows=tuple(
            Row(
                values=(one.severity, one.code.replace("_", " "), len(one.found), _remedy(one.code)),
                cells=tuple(row.cell_id for row, _ in one.found),
            )
            for one in groups.values()
        ),
        draw=Draw("bars", "rows", down=("severity", "code")),
        note="The most severe first; a row may have several.",
    )
    return Answer(
        sentence=_say(grades, findings),
        more=f"{name.chosen}: {_remedy(group.code)}" if group else "",
        views=(grades, findings, *([_draw_rows(shown, name.chosen)] if shown else [])),
        choices=(name,) if group else (),
        cells={row.cell_id: row.row for row, _ in shown},
    )


def _remedy(code: str) -> str:
    """Returns what to do about a finding, as a table's cell has it: without Markdown."""
    return REMEDIES[code].replace("`", "")


def _about(rows: Sequence[AuditedRow]) -> str:
    return " · ".join(dict.fromkeys(row.machine.split(" · ")[0] for row in rows))


def _draw_rows(shown: Sequence[tuple[AuditedRow, Finding]], name: str) -> View:
    return View(
        name="found",
        title=f"Rows with the finding {name}",
        about=_about([row for row, _ in shown]),
        fields=(PLACE, TABLE, CELL, SENTENCE, EVIDENCE),
        rows=tuple(
            Row.of(row, place, row.table, row.title, one.sentence, format_evidence(one))
            for place, (row, one) in enumerate(shown, 1)
        ),
        draw=Draw("table", "sentence", down=("place", "table", "cell")),
    )


def _say(grades: View, findings: View) -> str:
    counts = Counter[str]()
    for row in grades.rows:
        counts[row.values[1]] += row.values[2]
    every = sum(counts[grade] for grade in GRADES)
    text = f"**{counts['A'] + counts['B']}** of {format_count(every, 'row')} are graded A or B, {counts['C']} C (in "
    text += f"doubt), **{counts['D']}** D"
    if not findings.rows:
        return f"{text}."
    place, name, count = findings.rows[0].values[:3]
    return f"{text}. The most frequent {verbatim(place)}: {name} ({format_count(count, 'row')})."


QUESTION = Question(answer=answer, needs=("audited",))
