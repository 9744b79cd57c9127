"""Which rows can be trusted, and what would fix the others?"""

from collections import Counter
from uuid import UUID

from runner.analysis.audit.findings import REMEDIES, group_findings, list_findings
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose, verbatim
from runner.answers.shared import name_machines
from runner.answers.words import lacks
from runner.formats import format_count
from runner.results.findings import GRADE_WORDS, GRADES, format_evidence
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
    groups = {f"{code.replace('_', ' ')} ({severity})": (severity, code) for severity, code in found}
    name = choose(asked, "finding", "Finding", list(groups))
    shown = found[groups[name.chosen]] if found else []
    cells: dict[tuple[str, str], list[UUID]] = {}
    for row in rows.audited:
        cells.setdefault((row.table, row.grade or NO_GRADE), []).append(row.cell_id)
    grades = View(
        name="grades",
        title="Rows by grade",
        about=name_machines(rows.audited),
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
        about=grades.about,
        fields=(SEVERITY, CODE, ROWS, REMEDY),
        rows=tuple(
            Row(
                values=(severity, code.replace("_", " "), len(of_code), _remedy(code)),
                cells=tuple(row.cell_id for row, _ in of_code),
            )
            for (severity, code), of_code in found.items()
        ),
        draw=Draw("bars", "rows", down=("severity", "code")),
        note="The most severe first; a row may have several.",
    )
    rows_found = View(
        name="found",
        title=f"Rows with the finding {name.chosen}",
        about=name_machines(row for row, _ in shown),
        fields=(PLACE, TABLE, CELL, SENTENCE, EVIDENCE),
        rows=tuple(
            Row.of(row, place, row.table, row.title, one.sentence, format_evidence(one))
            for place, (row, one) in enumerate(shown, 1)
        ),
        draw=Draw("table", "sentence", down=("place", "table", "cell")),
    )
    return Answer(
        sentence=_say(grades, findings),
        more=f"{name.chosen}: {_remedy(groups[name.chosen][1])}" if found else "",
        views=(grades, findings, rows_found),
        choices=(name,) if found else (),
        cells={row.cell_id: row.row for row, _ in shown},
    )


def _remedy(code: str) -> str:
    """Returns what to do about a finding, as a table's cell has it: without Markdown."""
    return REMEDIES[code].replace("`", "")


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
