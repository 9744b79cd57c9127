"""What the queries of timelines return, for a timeline computed by hand."""

from pathlib import Path

from runner.schema import TimelineRow
from runner.store.read.memory import CATEGORIES, load_columns, load_largest_at, load_parts_at
from runner.store.read.memory import load_timelines as stored
from tests.pages.timeline.conftest import BY_HAND, INFERENCE, TRAIN, by_hand
from tests.synthetic import rows, timelines
from tests.synthetic.stored import change
from tests.synthetic.timelines import HOSTILE, MIB


def test_blocks_in_use_by_hand(written: tuple[Path, TimelineRow]) -> None:
    path, row = written
    assert [item.label for item in stored(path)] == [BY_HAND, TRAIN, INFERENCE]
    assert (row.peak_bytes, row.peak_at_us) == (30 * MIB, 300)
    parts = {one.category: (one.held_bytes // MIB, one.allocations) for one in load_parts_at(path, row.cell_id, 300)}
    assert parts == {"activation": (20, 2), "parameter": (8, 1), "temporary": (2, 1)}
    assert [item.allocated_bytes // MIB for item in load_largest_at(path, row.cell_id, 400)] == [16, 8, 4]
    assert [item.allocation for item in load_largest_at(path, row.cell_id, 699, limit=1)] == [1]
    assert [item.module for item in load_largest_at(path, row.cell_id, 700)] == ["blocks.0.weight"]


def test_allocations_that_differ_in_their_block_alone_are_one_line(db: Path) -> None:
    row = timelines.write(db, rows.run(), by_hand())
    copied = """INSERT INTO allocations SELECT * REPLACE (allocation + {0} AS allocation, '{1}' AS module)
        FROM allocations WHERE module = 'blocks.0.weight'"""
    change(db, copied.format(100, "blocks.7.weight"), copied.format(200, "head"))
    found = [(item.module, item.alike) for item in load_largest_at(db, row.cell_id, 700)]
    assert found == [("blocks.0.weight", 2), ("head", 1)]


def test_the_latest_recording_of_a_title_counts_on_each_machine(tmp_path: Path) -> None:
    path, here, there = tmp_path / "results.duckdb", rows.run(), rows.run(host="bench2")
    timelines.write(path, here, by_hand())
    newest = timelines.write(path, here, by_hand())
    assert [(item.label, item.cell_id) for item in stored(path)] == [(TRAIN, newest.cell_id)]
    timelines.write(path, there, by_hand())
    machine = "Example CPU · bench"
    assert [item.label for item in stored(path)] == [f"{TRAIN} · {machine}2", f"{TRAIN} · {machine}1"]
    assert [item.label for item in stored(path, first=f"{machine}1")] == [f"{TRAIN} · {machine}{n}" for n in (1, 2)]
    assert [item.label for item in stored(path, there.run_id)] == [TRAIN]


def test_columns_by_hand(written: tuple[Path, TimelineRow]) -> None:
    path, row = written
    found = load_columns(path, row.cell_id)
    assert found.arrays["born"].tolist() == [0, 100, 200, 300, 500]
    assert found.arrays["died"].tolist() == [-1, 700, 600, 400, 510]
    assert [CATEGORIES[number] for number in found.arrays["category"]] == [
        "parameter", "activation", "activation", "temporary", "temporary",
    ]  # fmt: skip
    named = [found.names["module"][n] if n >= 0 else None for n in found.arrays["module"]]
    assert named == ["blocks.0.weight", "blocks.0.attn", "blocks.0.ffn", None, HOSTILE]
    assert "transformer.py" in found.stacks[found.arrays["stack"][1]]
    assert [name for _, name in found.marks] == ["forward", "backward"]
