"""The ceilings of a run as a table for the terminal: what its machine can do at most, beside its datasheet.

print_ceilings(console, db, Selection(run=run_id))
"""

from pathlib import Path

from runner.cli.lists import new_grid
from runner.cli.terminal import Terminal
from runner.schema import CeilingRow
from runner.store.queries.selection import Selection
from runner.store.read.kernels import load_ceilings


def print_ceilings(console: Terminal, db: Path, of: Selection) -> None:
    """Prints one line a ceiling; nothing for a run that measured none."""
    rows = load_ceilings(db, of)
    if not rows:
        return
    grid = new_grid("ceiling", "at the start", "at the end", "datasheet")
    for name in dict.fromkeys(row.name for row in rows):
        at = {row.moment: row for row in rows if row.name == name}
        measured = [_format_rate(at[moment]) if moment in at else "" for moment in ("start", "end")]
        grid.add_row(name, *measured, _format_rate(next(iter(at.values())), datasheet=True))
    console.print(grid, "")


def _format_rate(row: CeilingRow, *, datasheet: bool = False) -> str:
    """Returns the measured rate or the datasheet's, in TFLOP/s or GB/s; nothing where it is unknown."""
    flops = row.datasheet_flops_per_s if datasheet else row.flops_per_s
    size = row.datasheet_bytes_per_s if datasheet else row.bytes_per_s
    if flops:
        return f"{flops / 1e12:,.3g} TFLOP/s"
    return f"{size / 1e9:,.4g} GB/s" if size else ""
