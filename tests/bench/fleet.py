"""The results files of many machines: how long it takes to merge them and to open a page over a folder of them.

python -m tests.bench fleet
"""

import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

from runner.store.merging import merge_files
from tests.bench.app import MAX_ROUNDS, first_chart
from tests.bench.grid import add_cell, fill
from tests.bench.result import Result
from tests.browser import chromium, served

#: Each file has about 50,000 rows. MERGED of the files are merged.
FILES, CELLS, MERGED = 50, 1_000, 20
GOAL_S, MAX_RATIO = 30.0, 1.5
FIRST, COLD = "page to first chart", "first chart after new rows"
PAGE = "/training-step"


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder, into = Path(name, "fleet"), Path(name, "merged.duckdb")
        folder.mkdir()
        files = [folder / f"node{number:02}.duckdb" for number in range(FILES)]
        for file in files:
            fill(file, cells=CELLS)
        merged = [_merge(files[:MERGED], into, again) for again in (False, True)]
        for one in merge_files(files, into=into):
            assert one.refused is None, one.refused
        return [*merged, *_compare_pages(folder, into)]


def _compare_pages(folder: Path, merged: Path) -> list[Result]:
    """Measures the time from opening a page to its first chart, alternately over the folder and over the merged file:
    as a new visitor, and once more after a file has changed."""
    times: dict[str, dict[Path, list[float]]] = {what: {folder: [], merged: []} for what in (FIRST, COLD)}
    with served(folder) as fleet, served(merged) as one, chromium() as browser:
        pages = {folder: f"{fleet}{PAGE}", merged: f"{one}{PAGE}"}
        for address in pages.values():
            first_chart(browser, address)
        for _ in range(MAX_ROUNDS):
            for path, address in pages.items():
                times[FIRST][path].append(first_chart(browser, address))
        for path, address in pages.items():
            add_cell(merged if path == merged else folder / "node00.duckdb")
            times[COLD][path].append(first_chart(browser, address))
    results = []
    for what, taken in times.items():
        ours, theirs = median(taken[folder]), median(taken[merged])
        results.append(
            Result(
                name=f"{what}, a folder of {FILES} files against one",
                figure=f"{ours / theirs:.2f} ({ours * 1e3:.0f} ms, merged {theirs * 1e3:.0f} ms)",
                goal=f"at most {MAX_RATIO}" if what == FIRST else "",
                met=ours / theirs <= MAX_RATIO if what == FIRST else None,
            )
        )
    return results


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
    """Returns the processor time of this process and its children in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
