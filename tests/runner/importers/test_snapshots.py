"""Foreign snapshots are imported to rows computed by hand; hostile ones are refused or harmless."""

from pathlib import Path

from runner.importers.files import import_file
from runner.schema import AllocationRow
from tests.bench.snapshot import synthetic
from tests.command import rows, run
from tests.synthetic.snapshots import DOCUMENTED, HTML, block, event, segment, write
from tests.synthetic.timelines import totals


def test_a_documented_snapshot_becomes_rows_computed_by_hand(tmp_path: Path, db: Path) -> None:
    (said,) = import_file(write(tmp_path, DOCUMENTED), db=db, label="theirs").lines
    assert said == (
        "their.pickle: 5 allocations, 2 of them older than the recording (800 bytes); peak 2.46 KiB asked for."
    )
    assert rows(db, "SELECT source, label, device, device_name FROM runs JOIN timelines USING (run_id)") == [
        {"source": "imported", "label": "theirs", "device": "cuda", "device_name": None}
    ]
    (timeline,) = rows(db, "SELECT * EXCLUDE (run_id, cell_id) FROM timelines")
    assert timeline == {
        "origin": "imported", "title": "their.pickle", "allocations": 5, "duration_us": 50, "baseline_bytes": 800,
        "peak_bytes": 2524, "peak_at_us": 21, "lost_events": 1, "device_bytes": None,
        "baseline_allocations": 2, "baseline_block_bytes": None, "peak_block_bytes": None,
    }  # fmt: skip
    found = rows(db, "SELECT * EXCLUDE (run_id, cell_id) FROM allocations ORDER BY allocation")
    assert [tuple(row.values()) for row in found] == [
        # allocation, address, bytes, born, died, category, phase, operation, module, stack
        (0, 4096, 500, 0, None, "unknown", None, None, None, 0),
        (1, 5120, 300, 0, 1, "unknown", None, None, None, None),
        (2, 5120, 1000, 10, None, "unknown", None, None, None, 1),
        (3, 6144, 512, 20, 40, "unknown", None, None, None, 2),
        (4, 6656, 512, 21, 50, "unknown", None, None, None, 1),
    ]
    stacks = rows(db, "SELECT stack, frames FROM stacks ORDER BY stack")
    place = "run/project/model.py:7"
    assert [row["frames"] for row in stacks] == [f"{place} embed", f"{place} inner\n{place} outer", f"{place} {HTML}"]
    assert rows(db, "SELECT at_us, name FROM marks") == [{"at_us": 30, "name": "out of memory"}]
    assert rows(db, "SELECT count(*) AS n FROM memory") == [{"n": 0}]


def test_memory_that_ran_out_is_no_history(tmp_path: Path) -> None:
    held = {"segments": [segment(0, block(0, 512, "active_allocated", 500))], "device_traces": [[event("oom", 5)]]}
    (line,) = import_file(write(tmp_path, held), db=tmp_path / "results.duckdb").lines
    assert "no history: 500 bytes are what was held, and no peak." in line


def test_categories_of_a_snapshot_are_kept_and_times_may_be_missing(tmp_path: Path, db: Path) -> None:
    """`torch.cuda._memory_viz._profile_to_snapshot` makes such snapshots, without times and without addresses of
    blocks."""
    trace = [
        {"action": "alloc", "addr": 64, "size": 8, "category": "parameter", "frames": []},
        {"action": "alloc", "addr": 128, "size": 16, "category": "optimizer_state", "frames": []},
        {"action": "alloc", "addr": 256, "size": 4, "category": "autograd_detail", "frames": []},
        {"action": "free_requested", "addr": 128, "size": 16, "frames": []},
        {"action": "free_completed", "addr": 128, "size": 16, "frames": []},
    ]
    blocks = [{"size": 8, "state": "active_allocated"}, {"size": 24, "state": "active_allocated"}]
    import_file(write(tmp_path, {"segments": [{"address": 64, "blocks": blocks}], "device_traces": [trace]}), db=db)
    found = rows(db, "SELECT address, allocated_bytes, born_us, died_us, category FROM allocations ORDER BY allocation")
    assert [tuple(row.values()) for row in found] == [
        (72, 24, 0, None, "unknown"),
        (64, 8, 1, None, "parameter"),
        (128, 16, 2, 4, "optimizer state"),
        (256, 4, 3, None, "temporary"),
    ]


def test_every_device_has_its_own_timeline(tmp_path: Path, db: Path) -> None:
    traces = [[event("alloc", 5, 64, 8)], [], [event("alloc", 6, 64, 16)]]
    import_file(write(tmp_path, {"segments": [], "device_traces": traces}), db=db)
    assert rows(db, "SELECT title, peak_bytes FROM timelines ORDER BY title") == [
        {"title": "their.pickle · cuda:0", "peak_bytes": 8},
        {"title": "their.pickle · cuda:2", "peak_bytes": 16},
    ]
    counts = "SELECT count(DISTINCT cell_id) AS cells, count(DISTINCT run_id) AS runs FROM allocations"
    assert rows(db, counts) == [{"cells": 2, "runs": 1}]


def test_the_command(tmp_path: Path, db: Path) -> None:
    done = run("import", str(write(tmp_path, synthetic(1000))), "--label", "theirs", db=db, code=0)
    (timeline,) = rows(db, "SELECT * FROM timelines")
    assert f"their.pickle: {timeline['allocations']:,} allocations; peak " in done.stdout
    held = totals(AllocationRow(**row) for row in rows(db, "FROM allocations"))
    assert max(held.values()) == held[timeline["peak_at_us"]] == timeline["peak_bytes"]
    assert timeline["peak_at_us"] == max(held, key=held.__getitem__), "the first moment of several"
    assert "theirs" in run("show", "runs", db=db).stdout
