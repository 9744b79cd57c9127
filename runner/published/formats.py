"""The tables of a text, whatever their format.

    for table in parse_tables(text, ending=".csv"):
        print(table.kind, table.title, table.headings)

Standard library only.
"""

from runner.published.delimited import parse_delimited
from runner.published.tables import LINE_CHARACTERS, LINES, TABLES, TableRefused, TextTable


def parse_tables(text: str, *, ending: str = "", headings: bool | None = None) -> list[TextTable]:
    """Returns every table of the text. Raises TableRefused where there is none, or the text is too long."""
    lines = text.split("\n")
    if len(lines) > LINES:
        raise TableRefused(f"{len(lines):,} lines", expected=f"at most {LINES:,}")
    if any(len(line) > LINE_CHARACTERS for line in lines):
        raise TableRefused(f"a line of more than {LINE_CHARACTERS:,} characters", expected="shorter lines")
    table = parse_delimited(text, delimiter="\t" if ending == ".tsv" else ",", headings=headings)
    tables = [table] if table else []
    if not tables:
        raise TableRefused("no table")
    if len(tables) > TABLES:
        raise TableRefused(f"{len(tables):,} tables", expected=f"at most {TABLES:,}")
    return tables
