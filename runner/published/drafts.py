"""A first draft of a mapping: what each column was understood to mean, for a person to correct.

    print(draft_mapping("theirs.csv", tables))

Reading the file with the draft gives the same rows as reading it without. Standard library only.
"""

import json
from collections.abc import Iterator, Sequence

from runner.published.columns import PublishedColumn, understand_columns
from runner.published.headings import Meaning
from runner.published.tables import TextTable
from runner.visible import visible

_EXAMPLES = 3
_ROLES = {"kept": "keep", "status": "status", "oom": "oom", "quantity": "quantity", "value": "value"}


def draft_mapping(name: str, tables: Sequence[TextTable]) -> str:
    """Returns the draft for all tables of a file as TOML."""
    lines = [
        f"# What the columns of {visible(name)} mean. Correct what is wrong, then:",
        f"#   python -m runner import {visible(name)} --mapping THIS_FILE",
        "",
        "[table]  # of every row that does not say otherwise: title, machine, or a setting such as batch = 4",
    ]
    if any(not table.has_headings for table in tables):
        lines.append("# headings = true  # if the first row is headings after all")
    if any(understand_columns(table).commas == "doubtful" for table in tables):
        lines.append('# decimal = ","  # if 12,5 is twelve and a half')
    lines += ["", "[columns]"]
    written: set[str] = set()
    for number, table in enumerate(tables, start=1):
        columns = understand_columns(table)
        title = f" “{table.title}”" if table.title else ""
        lines += [
            "",
            f"# Table {number}{title}: {table.kind}, {len(table.rows):,} rows from line {table.rows[0].line}.",
        ]
        lines += [f"# {remark}" for remark in table.remarks]
        for column in columns.columns:
            if column.heading not in written:
                written.add(column.heading)
                lines += _draft_column(column, table)
    return "\n".join(lines) + "\n"


def _draft_column(column: PublishedColumn, table: TextTable) -> Iterator[str]:
    cells = [*dict.fromkeys(cell for cell in table.column(column.place) if cell)][:_EXAMPLES]
    examples = ", ".join(f"“{cell[:40]}”" for cell in cells) or "nothing"
    key = json.dumps(column.heading, ensure_ascii=False)
    if not column.meaning.understood:
        yield f"# Not understood, with cells such as {examples}. Say what it is in the form of:"
        yield f"# {key} = {_guess_form(cells)}"
        return
    note = f"  # {column.meaning.assumed}" if column.meaning.assumed else ""
    # What only the cells of this table say must not hold for another table with this heading.
    mark = "# " if note and column.meaning.role == "kept" else ""
    yield f"{mark}{key} = {_draft_meaning(column.meaning)}{note}"


def _guess_form(cells: Sequence[str]) -> str:
    """Returns the form that the meaning of such cells usually has; what it says is for a person to correct."""
    if not any(character.isdigit() for cell in cells for character in cell[:1]):
        return '{ setting = "name" }'
    if all(cell.isdigit() for cell in cells):
        return '{ setting = "context" }'
    return '{ quantity = "forward", statistic = "mean", unit = "ms" }'


def _draft_meaning(meaning: Meaning) -> str:
    if meaning.role in _ROLES:
        return json.dumps(_ROLES[meaning.role])
    parts: dict[str, str | int | bool] = {}
    if meaning.role == "origin":
        parts = {"origin": meaning.setting}
    elif meaning.role == "setting":
        parts = {"setting": meaning.setting}
        parts |= {"of_command": True} if meaning.from_command else {}
    else:
        statistic = " and ".join(meaning.statistics)
        parts = {"quantity": str(meaning.quantity)}
        parts |= {} if statistic == "value" else {"statistic": statistic}
    parts |= {"unit": meaning.unit} if meaning.unit else {}
    parts |= meaning.variant
    return "{ " + ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in parts.items()) + " }"
