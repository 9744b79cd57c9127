"""What is wrong with a results file, and its repair.

python -m runner check --repair
"""

import os
from pathlib import Path

from rich.table import Table as Grid
from rich.text import Text

from runner.cli.terminal import Terminal
from runner.errors import DatabaseMissing
from runner.store.attached import check_place
from runner.store.checking import Checked, check_file, repair_file
from runner.store.spool import Spool


def check(console: Terminal, db: Path, *, repair: bool) -> int:
    """Prints what is wrong with the file and, with `repair`, repairs it and prints what is left. Returns the exit code:
    0 if nothing is wrong, 1 if something is."""
    check_place(db)
    if not os.path.exists(db) and not os.path.exists(Spool(db).folder):
        raise DatabaseMissing(f"{db} does not exist.", do="Name a results file with --db.")
    found = check_file(db)
    _print(console, db, found)
    if not repair or not any(problem.repair for problem in found.problems):
        return 1 if found.problems else 0
    copy = repair_file(db)
    console.print("")
    console.say(f"Repaired. The file as it was is {copy}." if copy else "Repaired.")
    left = check_file(db)
    _print(console, db, left)
    return 1 if left.problems else 0


def _print(console: Terminal, db: Path, found: Checked) -> None:
    rows = sum(found.rows.values())
    what = f"{db}: {rows:,} rows in {sum(count > 0 for count in found.rows.values())} tables"
    grid = Grid(box=None, show_header=False, pad_edge=False)
    for problem in found.problems:
        repair = problem.repair or "A repair leaves it as it is."
        grid.add_row(Text(problem.kind, "red"), f"{problem.sentence} {Text(repair)}")
    console.say(f"{what}, nothing wrong." if not found.problems else f"{what}, {len(found.problems)} problems:")
    if found.problems:
        console.print(grid)
    for note in found.notes:
        console.say(note, style="dim")
