"""How long does it take to import a snapshot of 100,000 events, and how much smaller is it stored than as a pickle?

    python -m tests.bench snapshot
    snapshot of 100,000 events, import: 3.7 s (under 5 s)
    snapshot, stored: 1.8 MB of 20.7 MB, 0.09 (at most 0.1 of the pickle)

The snapshot is synthetic, in the form of `torch.cuda.memory._snapshot()`: 200 stacks of 30 frames, each event with its
own list of frames and many lists sharing frames, as PyTorch makes them. Most allocations are short-lived.
"""

import pickle
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from runner.importers.files import import_file
from runner.schema import RunRow, new_id
from runner.store.database import ingest
from runner.store.spool import Spool
from tests.bench.result import Result

EVENTS, STACKS, FRAMES = 100_000, 200, 30
#: The longest time of an import, and the largest stored size as a share of the pickle's.
GOAL_SECONDS, GOAL_SHARE = 5.0, 0.1


def synthetic(events: int) -> dict[str, Any]:
    """Returns a snapshot whose trace has `events` events: allocations, and two events for each free."""
    order = random.Random(0)
    stacks = [
        [
            {"filename": f"/home/somebody/model/file{depth}.py", "name": f"function{depth}", "line": 10 * stack + depth}
            for depth in range(FRAMES)
        ]
        for stack in range(STACKS)
    ]
    trace: list[dict[str, Any]] = []
    alive: list[tuple[int, int]] = []
    time_us, address = 1_700_000_000_000_000, 0x7F00_0000_0000

    def add(action: str, at: int, size: int) -> None:
        nonlocal time_us
        time_us += order.randrange(1, 40)
        entry = {"action": action, "addr": at, "size": size, "stream": 0, "time_us": time_us,
                 "frames": list(order.choice(stacks)), "compile_context": "N/A", "user_metadata": ""}  # fmt: skip
        trace.append(entry)

    while len(trace) < events:
        if len(alive) < 2000 and order.random() < 0.6:
            size = 512 * order.choice((1, 4, 128, 2048, 24576))
            alive.append((address, size))
            add("alloc", address, size)
            address += size
        elif alive:
            at, size = alive.pop(order.randrange(max(0, len(alive) - 20), len(alive)))
            add("free_requested", at, size)
            add("free_completed", at, size)
    return {"segments": [], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def run(events: int = EVENTS) -> list[Result]:
    """Measures one import into a results file that already has a run."""
    with tempfile.TemporaryDirectory() as folder:
        path, db = Path(folder, "snapshot.pickle"), Path(folder, "results.duckdb")
        path.write_bytes(pickle.dumps(synthetic(events)))
        Spool(db).write({"runs": [RunRow(run_id=new_id(), sweep_key="before")]}, "before")
        ingest(db)
        before, began = db.stat().st_size, time.perf_counter()
        import_file(path, db=db)
        seconds, stored, pickled = time.perf_counter() - began, db.stat().st_size - before, path.stat().st_size
    return [
        Result(
            name=f"snapshot of {events:,} events, import",
            figure=f"{seconds:.1f} s",
            goal=f"under {GOAL_SECONDS:g} s",
            met=seconds < GOAL_SECONDS,
        ),
        Result(
            name="snapshot, stored",
            figure=f"{stored / 1e6:.1f} MB of {pickled / 1e6:.1f} MB, {stored / pickled:.2f}",
            goal=f"at most {GOAL_SHARE:g} of the pickle",
            met=stored <= GOAL_SHARE * pickled,
        ),
    ]
