"""What Stepscope itself costs: every bench in turn, and one table of figures and goals.

    python -m tests.bench            # or: make bench

A bench is no test: it exits with 0 whatever it finds. Run it on a machine that does nothing else.
"""

import sys
from types import ModuleType

from rich.console import Console
from rich.table import Table

from tests.bench import app, cell, snapshot, step, store, timeline

BENCHES: tuple[ModuleType, ...] = (step, cell, store, app, snapshot, timeline)


def main() -> None:
    table = Table("bench", "figure", "goal", "met", box=None, header_style="bold", pad_edge=False)
    for bench in BENCHES:
        print(f"{bench.__name__} …", file=sys.stderr)
        for result in bench.run():
            met = {True: "[green]yes[/]", False: "[red]NO[/]", None: ""}[result.met]
            table.add_row(result.name, result.figure, result.goal, met)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":  # the store's readers import this module under another name
    main()
