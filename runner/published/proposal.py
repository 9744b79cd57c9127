"""A first draft of a mapping: what each column of each table was understood to mean, for a person to correct.

    print(propose_mapping("theirs.csv", tables))

Reading the file with the draft gives the same rows as reading it without. Standard library only.
"""

import json
from collections.abc import Iterator, Sequence

from runner.published.headings import Meaning
from runner.published.mapping import TableMapping
from runner.published.reading import understand_columns
from runner.published.tables import GROUP, TextTable
from runner.visible import visible

_EXAMPLES = 3


def propose_mapping(name: str, tables: Sequence[TextTable]) -> str:
    """Returns the draft for all tables of a file as TOML."""
    lines = [
        f"# What the columns of {visible(name)} mean. Correct what is wrong, then:",
        f"#   python -m runner import {visible(name)} --mapping THIS_FILE",
        "",
        "[table]  # of every row that does not say otherwise: title, machine, or a setting such as batch = 4",
        '# decimal = ","  # if 12,5 is twelve and a half',
        "",
        "[columns]",
    ]
    written: set[str] = set()
    for number, table in enumerate(tables, start=1):
        title = f" “{table.title}”" if table.title else ""
        lines += ["", f"# Table {number}{title}, line {table.line}: {len(table.rows):,} rows."]
        lines += [f"# It {said}." for said in [f"cannot be read: {table.refused}"] if table.refused]
        lines += [f"# {remark}" for remark in table.lost]
        columns = understand_columns(table, TableMapping())
        for place, (heading, meaning) in enumerate(columns.meanings.items()):
            if heading not in (*written, GROUP):
                written.add(heading)
                lines += _propose_column(heading, meaning, table.column(place))
    return "\n".join(lines) + "\n"


def _propose_column(heading: str, meaning: Meaning, column: Sequence[str]) -> Iterator[str]:
    cells = [*dict.fromkeys(filter(None, column))][:_EXAMPLES]
    key = json.dumps(heading, ensure_ascii=False)
    if not meaning.understood:
        examples = ", ".join(f"“{cell[:40]}”" for cell in cells) or "nothing"
        yield f"# Not known, with cells such as {examples}: kept as text. If it is another thing, write"
        yield f"# {key} = {_guess_form(cells)}"
        return
    note = f"  # {meaning.assumed}" if meaning.assumed else ""
    # What only the cells of this table say must not hold for another table with this heading.
    mark = "# " if meaning.setting == "row" or (note and meaning.role == "kept") else ""
    yield f"{mark}{key} = {_write_meaning(meaning)}{note}"


def _guess_form(cells: Sequence[str]) -> str:
    """Returns the form that the meaning of such cells usually has; what it says is for a person to correct."""
    if not any(cell[:1].isdigit() for cell in cells):
        return '{ setting = "name" }'
    if all(cell.isdigit() for cell in cells):
        return '{ setting = "context" }'
    return '{ quantity = "forward", statistic = "mean", unit = "ms" }'


def _write_meaning(meaning: Meaning) -> str:
    if meaning.role in ("kept", "status", "oom", "quantity", "value"):
        return json.dumps("keep" if meaning.role == "kept" else meaning.role)
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
