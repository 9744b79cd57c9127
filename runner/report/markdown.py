"""A report as Markdown: pipe tables, footnotes, commands. Text from rows is escaped, so that it stays text.

print(render_markdown(report))
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from runner.report.document import Answered, Open, Report, ReportTable, name_table, say_lack
from runner.report.text import NONE
from runner.visible import visible

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#~$|!&@]")
#: The characters that begin a list at the start of a line: a mark, or a number and a mark.
_OPENING = re.compile(r"^(\s*\d*)([-+.)])(?=\s|$)")
#: A link that some renderers make of plain text.
_LINK = re.compile(r"(?<=:)(?=//)|(?<=[wW]{3})(?=\.)")
#: The longest text that counts as one number.
_MAX_WIDTH = 40
_NUMBER = re.compile(r"[-+−]?[(]?[\d.,]+%?")


def render_markdown(report: Report) -> str:
    """Returns the whole report."""
    lines = [f"# {escape(report.title)}", ""]
    lines += [f"- **{escape(name)}:** {escape(text)}" for name, text in report.facts]
    for answered in report.answered:
        lines += ["", *_write_answered(answered)]
    lines += ["", "## What this file cannot answer yet", "", *_write_open(report.open)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Returns text that Markdown shows as it is, on one line."""
    plain = _SPECIAL.sub(lambda match: f"\\{match[0]}", visible(text))
    plain = _LINK.sub(r"\\", plain)
    return _OPENING.sub(r"\1\\\2", plain)


def _write_answered(answered: Answered) -> list[str]:
    lines = [f"## {escape(answered.id)}. {escape(answered.text)}", "", escape(answered.answer.sentence)]
    lines += _write_tables(answered)
    if answered.commands:
        lines += ["", "Measure these rows again:", "", *_write_commands(answered.commands)]
    return lines


def _write_tables(answered: Answered) -> list[str]:
    """Returns the tables of an answer with their footnotes."""
    answer, lines = answered.answer, list[str]()
    for number, table in enumerate(answer.tables, start=1):
        caption = f"{name_table(answered, number)}. {table.caption}"
        lines += ["", f"**{escape(caption)}**", "", *_write_table(table)]
        lines += ["", f"*{escape(table.note)}*"] if table.note else []
    marked = [f"- {write_mark(number)} {escape(text)}" for number, text in enumerate(answer.footnotes, start=1)]
    return [*lines, *(["", *marked] if marked else [])]


def write_mark(*numbers: int) -> str:
    """Returns footnote numbers as a superscript; empty without any."""
    return f"<sup>{','.join(map(str, numbers))}</sup>" if numbers else ""


def align(table: ReportTable) -> list[bool]:
    """Returns whether each column holds numbers, which are aligned right."""
    return [_is_numeric(line.values[place] for line in table.lines) for place in range(len(table.headings))]


def _is_numeric(values: Iterable[str]) -> bool:
    known = [value for value in values if value not in ("", NONE)]
    numbers = sum(bool(_NUMBER.match(value)) and len(value) <= _MAX_WIDTH for value in known)
    return numbers > len(known) / 2


def _write_table(table: ReportTable) -> list[str]:
    rules = ["---:" if right else "---" for right in align(table)]
    rows = [_write_row([*map(escape, table.headings)]), _write_row(rules)]
    for line in table.lines:
        first, *rest = map(escape, line.values)
        rows.append(_write_row([first + write_mark(*line.marks), *rest]))
    return rows


def _write_row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _write_commands(commands: Sequence[str]) -> list[str]:
    return ["```sh", *map(visible, commands), "```"]


def _write_open(still_open: Sequence[Open]) -> list[str]:
    if not still_open:
        return ["Every question is answered."]
    lines: list[str] = []
    for commands, items in groupby(still_open, key=lambda item: item.commands):
        for item in items:
            lines += [f"**{escape(item.id)}. {escape(item.text)}** {escape(say_lack(item))}", ""]
        lines += [*_write_commands(commands), ""] if commands else []
    return lines[:-1]
