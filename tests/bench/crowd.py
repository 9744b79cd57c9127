"""What many readers see and cost while a sweep appends rows to the file that they read.

    python -m tests.bench.crowd                                   # 50 sessions, 10 cells a second, 10 minutes
    python -m tests.bench.crowd --sessions 10 --minutes 1 --db results.duckdb

Every session goes from page to page and stays on each for LOOKS_S seconds. Like a page, it asks every two seconds
whether there are new rows, and redraws the page when there are. Prints what readers saw, the time that the store added
to a cell, and the server's memory every half minute. Readers and sweep all run on this machine.
"""

import argparse
import multiprocessing
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from uuid import UUID

from runner.store.database import BETWEEN_CELLS, ingest, open_reader
from tests.bench.grid import fill
from tests.bench.readers import PAGES, find_server
from tests.bench.visitor import Visitor
from tests.browser import served
from tests.synthetic import rows

LOOKS_S, ASKS_S = 10.0, 2.0
CELLS = 20_000


@dataclass(kw_only=True)
class Crowd:
    """What all sessions saw together."""

    address: str
    over: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def browse(self, number: int) -> None:
        """Runs one session."""
        choice = random.Random(number)
        try:
            with Visitor(self.address) as visitor:
                while not self.over.is_set():
                    self._look(visitor, choice.choice(PAGES))
        except Exception as error:  # noqa: BLE001  every kind of failure is what this looks for
            self.errors[f"{type(error).__name__}: {error}"] += 1

    def _look(self, visitor: Visitor, page: str) -> None:
        until, state = time.monotonic() + LOOKS_S, visitor.load_state()
        visits = [visitor.open(page)]
        while time.monotonic() < until and not self.over.wait(ASKS_S):
            now = visitor.load_state()
            if now != state:
                state = now
                visits.append(visitor.redraw())
        self.seconds += [visit.seconds for visit in visits]
        self.errors.update(error for visit in visits for error in visit.errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=10.0, help="cells a second [default: 10]")
    parser.add_argument("--db", type=Path, help=f"a file that is added to [default: a new one of {CELLS:,} cells]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.db or Path(folder) / "crowd.duckdb"
        if not path.exists():
            fill(path, cells=CELLS)
        _measure(path, sessions=given.sessions, minutes=given.minutes, rate=given.rate)


def _measure(path: Path, *, sessions: int, minutes: float, rate: float) -> None:
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    here, there = context.Pipe(duplex=False)
    with served(path) as address:
        server, crowd = find_server(address), Crowd(address=address)
        sweep = context.Process(target=_sweep, args=(path, rate, over, there), daemon=True)
        threads = [threading.Thread(target=crowd.browse, args=(number,)) for number in range(sessions)]
        sweep.start()
        for thread in threads:
            thread.start()
        print(f"{sessions} sessions, {rate:g} cells a second; the server's memory and what was drawn by then:")
        for minute in range(round(minutes * 2)):
            crowd.over.wait(30)
            held = server.memory_info().rss / 2**20
            print(f"  {(minute + 1) / 2:4.1f} min  {held:5,.0f} MiB  {len(crowd.seconds):,} pages", flush=True)
        over.set()
        crowd.over.set()
        added, lost = here.recv()
        sweep.join()
        for thread in threads:
            thread.join()
        print(_describe(crowd, added, lost))


def _sweep(path: Path, rate: float, over: Event, done: Connection) -> None:
    """Stores a toy cell every 1/rate seconds, as a sweep does. Sends the time that storing each one took (ms) and the
    number of cells that were missing from the file in the end."""
    of, added, ids = rows.run(label="while all look"), list[float](), set[UUID]()
    shapes = [(size, context) for size in rows.TOYS for context in (32, 64, 128, 256, 512)]
    start = time.monotonic()
    while not over.wait(max(0.0, start + len(added) / rate - time.monotonic())):
        size, context = shapes[len(added) % len(shapes)]
        one = rows.ok(of, rows.asked(size, context=context), round=len(added) // len(shapes))
        began = time.perf_counter()
        rows.spooled(path, of, one)
        ingest(path, **BETWEEN_CELLS)
        added.append((time.perf_counter() - began) * 1e3)
        ids.add(one.step.cell_id)
    with open_reader(path) as reader:  # the file and the cells that wait in its spool
        found = [cell for (cell,) in reader.execute("SELECT cell_id FROM steps").fetchall()]
    assert len(found) == len({*found}), "a cell is in the file twice"
    done.send((added, len(ids - {*found})))


def _describe(crowd: Crowd, added_ms: list[float], lost: int) -> str:
    drawn, added = (quantiles(found, n=100, method="inclusive") for found in (crowd.seconds, added_ms))
    errors = "; ".join(f"{count} × {text}" for text, count in crowd.errors.most_common()) or "none"
    return (
        f"pages {len(crowd.seconds):,}: median {drawn[49]:.1f} s, 95% {drawn[94]:.1f} s; errors: {errors}\n"
        f"cells {len(added_ms):,}: the store added p50 {added[49]:.0f} ms, p99 {added[98]:.0f} ms, longest "
        f"{max(added_ms):.0f} ms; {lost} lost"
    )


if __name__ == "__main__":
    main()
