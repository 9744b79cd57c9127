"""The results files of many machines: how long merging takes, and a page over a folder of them.

python -m tests.bench fleet
"""

import os
import resource
import tempfile
import time
from pathlib import Path

from runner.store.merging import merge_files
from tests.bench.grid import fill
from tests.bench.result import Result

#: Files of about 50,000 rows each; so many are merged.
FILES, CELLS, MERGED = 50, 1_000, 20
GOAL_S = 30.0


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder, into = Path(name, "fleet"), Path(name, "merged.duckdb")
        folder.mkdir()
        files = [folder / f"node{number:02}.duckdb" for number in range(FILES)]
        for file in files:
            fill(file, cells=CELLS)
        return [_merge(files[:MERGED], into, again) for again in (False, True)]


def _merge(files: list[Path], into: Path, again: bool) -> Result:
    started, worked = time.perf_counter(), _worked_s()
    rows = sum(sum(merged.added.values()) for merged in merge_files(files, into=into))
    seconds, worked = time.perf_counter() - started, _worked_s() - worked
    return Result(
        name=f"merge of {len(files)} files{', again' if again else ''}",
        figure=f"{seconds:.1f} s, {worked:.1f} s of processor time on {os.cpu_count()} cores; {rows:,} rows added",
        goal="no row added" if again else f"under {GOAL_S:.0f} s",
        met=rows == 0 if again else seconds < GOAL_S and rows > 0,
    )


def _worked_s() -> float:
    """The processor time of this process and of those that it started, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    for result in run():
        print(result)
