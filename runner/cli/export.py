"""A copy of a results file: whole, or as Parquet files that are small enough for git.

python -m runner export data/reference/h200 --parquet --db h200.duckdb
"""

from pathlib import Path

from runner.cli.terminal import Terminal
from runner.formats import format_bytes
from runner.store.packing import copy_file, pack


def export(console: Terminal, db: Path, out: Path, *, parquet: bool) -> None:
    """Writes the copy and prints its size; of Parquet files, that of each."""
    if parquet:
        sizes = pack(db, out)
        for table, size in sizes.items():
            console.say(f"{table}: {format_bytes(size)}")
        console.say(f"{out}: {format_bytes(sum(sizes.values()))} in {len(sizes)} files.")
        return
    waiting = copy_file(db, out)
    console.say(f"{out}: {format_bytes(out.stat().st_size)}{f', {waiting} cells from the spool' if waiting else ''}.")
