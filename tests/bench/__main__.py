"""What Stepscope itself costs and how often it is wrong: runs every bench in turn and prints one table of results.

    python -m tests.bench            # or: make bench
    python -m tests.bench step       # only these
    python -m tests.bench app --only cold --only warm
    python -m tests.bench noise --seconds 600 --db noise.duckdb

A bench is not a test: it exits with 0 whatever the results are. Run it on an otherwise idle machine.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

#: The bench modules in this folder. Each is imported only when it runs, because half of them need a browser.
BENCHES = ("step", "cell", "store", "fleet", "app", "snapshot", "timeline", "noise")
#: The options that a bench takes.
OPTIONS = {"noise": ("seconds", "db"), "app": ("seconds", "only")}


def main() -> None:
    parser = argparse.ArgumentParser(description="What Stepscope itself costs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    words = "noise: no process is started after this time; 0 measures none. app: of each part"
    parser.add_argument("--seconds", type=float, help=words)
    parts = ("warm", "busy", "cold", "filters", "large", "readers")
    parser.add_argument("--only", action="append", choices=parts, help="app: these parts")
    parser.add_argument("--db", type=Path, help="noise: the results file, which is added to [default: a new one]")
    given = vars(parser.parse_args())
    names = given.pop("names") or BENCHES
    chosen = {name: value for name, value in given.items() if value is not None}
    options = {name: {one: value for one, value in chosen.items() if one in known} for name, known in OPTIONS.items()}
    if unknown := set(names) - set(BENCHES):
        parser.error(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    table = Table("bench", "figure", "goal", "met", box=None, header_style="bold", pad_edge=False)
    for name in names:
        print(f"{name} …", file=sys.stderr)
        for result in import_module(f"tests.bench.{name}").run(**options.get(name, {})):
            met = {True: "[green]yes[/]", False: "[red]NO[/]", None: ""}[result.met]
            table.add_row(result.name, result.figure, result.goal, met)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":  # benches that start processes import this module under another name
    main()
