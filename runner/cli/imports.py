"""What an import says: the lines of what was understood and added, or a first draft of a mapping.

python -m runner import table.md --label 'their run'
"""

from pathlib import Path

from runner.cli.commands import errors
from runner.cli.terminal import Terminal
from runner.importers.files import import_file
from runner.importers.published import propose_tables
from runner.store.database import check_writable


def import_into(
    console: Terminal, file: Path, db: Path, *, label: str | None, mapping: Path | None, propose: bool
) -> int:
    """Adds the file's rows and prints what became of them; with `propose` prints the draft and adds nothing. Returns
    the exit code: 1 where something that was wanted is not stored."""
    if propose:
        print(propose_tables(file), end="")
        return 0
    check_writable(db)
    report = import_file(file, db=db, label=label, mapping=mapping)
    for line in report.lines:
        console.say(line)
    if report.warning:
        errors.print("warning:", style="yellow", end=" ")
        errors.say(report.warning)
    return 0 if report.is_whole else 1
