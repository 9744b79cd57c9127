"""The ceilings of a run as a table for the terminal: what its machine could do at most, beside its datasheet.

print_ceilings(console, db, Selection(run=run_id))
"""

from pathlib import Path

from rich.table import Table as Grid

from runner.cli.terminal import Terminal
from runner.schema import CeilingRow
from runner.store.queries.roofline import ceilings
from runner.store.queries.selection import Selection


def print_ceilings(console: Terminal, db: Path, of: Selection) -> None:
    """One line a ceiling; nothing for a run that measured none."""
    limits = ceilings(db, of)
    if not limits:
        return
    grid = Grid("ceiling", box=None, header_style="bold", pad_edge=False)
    for heading in ("at the start", "at the end", "datasheet"):
        grid.add_column(heading, justify="right")
    for name in dict.fromkeys(row.name for row in limits):
        at = {row.moment: row for row in limits if row.name == name}
        some = next(iter(at.values()))
        promised = some.datasheet_flops_per_s or some.datasheet_bytes_per_s
        measured = (_value(at[moment]) if moment in at else None for moment in ("start", "end"))
        grid.add_row(name, *(_rate(value, some) for value in (*measured, promised)))
    console.print(grid, "")


def _value(row: CeilingRow) -> float | None:
    return row.flops_per_s or row.bytes_per_s


def _rate(value: float | None, row: CeilingRow) -> str:
    """In TFLOP/s, or GB/s."""
    if value is None:
        return ""
    return f"{value / 1e12:,.3g} TFLOP/s" if row.precision else f"{value / 1e9:,.4g} GB/s"
