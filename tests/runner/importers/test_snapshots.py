"""Snapshots that somebody else made: imported to rows worked out by hand, and hostile ones refused or harmless."""

import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.analysis.timeline import snapshot
from runner.analysis.timeline.snapshot import BadSnapshot, recordings
from runner.errors import UsageError
from runner.importers.files import import_file
from runner.importers.snapshots import importing, reading
from runner.importers.snapshots.importing import import_snapshot
from runner.store.spool import Spool
from tests.bench.snapshot import synthetic
from tests.command import rows, run

HTML = "<img src=x onerror=\"document.title='owned'\">"


def frames(*names: str) -> list[dict[str, Any]]:
    return [{"filename": "/home/somebody/run/project/model.py", "name": name, "line": 7} for name in names]


def event(action: str, at_us: int, address: int = 0, size: int = 0, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": at_us, **more}


def block(address: int, size: int, state: str, asked: int, **more: Any) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": asked, "state": state, **more}


def segment(address: int, *blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    total = sum(item["size"] for item in blocks)
    return {"device": device, "address": address, "total_size": total, "stream": 0, "segment_type": "small",
            "segment_pool_id": (0, 0), "allocated_size": 0, "active_size": 0, "blocks": list(blocks)}  # fmt: skip


#: A ring that has lost its beginning: 512 bytes at 4,096 were there and stay, 300 at 5,120 were there and go, and so
#: on as the test below says, in the form that `torch.cuda.memory._snapshot` documents.
DOCUMENTED = {
    "segments": [
        segment(
            4096,
            block(4096, 512, "active_allocated", 500, frames=frames("embed")),
            block(4608, 512, "inactive", 0),
            block(5120, 1024, "active_allocated", 1000),
            block(6144, 512, "active_awaiting_free", 512),
            block(6656, 512, "active_pending_free", 512),
        )
    ],
    "device_traces": [
        [
            event("free_completed", 1_000_000, 5120, 300),  # its request, and its birth, are lost
            event("segment_alloc", 1_000_005, 4096, 3072),
            event("alloc", 1_000_010, 5120, 1000, frames=frames("inner", "outer")),
            event("alloc", 1_000_020, 6144, 512, frames=frames(HTML)),
            event("alloc", 1_000_020, 6656, 512, frames=frames("inner", "outer")),
            event("snapshot", 1_000_025),
            event("oom", 1_000_030, size=2**40, device_free=1),
            event("free_requested", 1_000_040, 6144, 512, frames=frames("elsewhere")),
            event("free_requested", 1_000_050, 6656, 512),
            event("free_completed", 1_000_060, 6656, 512),
        ]
    ],
    "allocator_settings": {"expandable_segments": False},
}


def trace(*events: object) -> dict[str, Any]:
    """A snapshot of nothing but one device's events."""
    return {"segments": [], "device_traces": [list(events)]}


def write(folder: Path, content: object) -> Path:
    path = folder / "their.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


def test_a_documented_snapshot_becomes_rows_worked_out_by_hand(tmp_path: Path) -> None:
    db = tmp_path / "results.duckdb"
    imported = import_snapshot(write(tmp_path, DOCUMENTED), db=db, label="theirs")
    assert [found["run_id"] for found in rows(db, "SELECT run_id FROM runs WHERE source = 'imported'")] == [
        imported.run_id
    ]
    assert rows(db, "SELECT label, device, device_name FROM runs") == [
        {"label": "theirs", "device": "cuda", "device_name": None}
    ]
    (timeline,) = rows(db, "SELECT * EXCLUDE (run_id, cell_id) FROM timelines")
    assert timeline == {
        "origin": "imported", "title": "their.pickle", "allocations": 5, "duration_us": 50, "baseline_bytes": 800,
        "peak_bytes": 2524, "peak_at_us": 21, "lost_events": 1, "device_bytes": None,
        "baseline_allocations": 2, "baseline_block_bytes": 1024, "peak_block_bytes": 2560,
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


def test_the_import_says_what_is_older_and_both_totals(tmp_path: Path) -> None:
    """Two allocations are older, of which one was freed; 2,524 bytes were asked for at the peak, in four blocks."""
    report = import_file(write(tmp_path, DOCUMENTED), db=tmp_path / "results.duckdb")
    assert report.lines == (
        "their.pickle: 5 allocations, 2 of them older than the recording (800 B); peak 2.46 KiB asked for, in the "
        "allocator's blocks 2.5 KiB.",
    )


def test_what_the_snapshot_says_of_categories_is_kept_and_time_may_be_missing(tmp_path: Path) -> None:
    """As `torch.cuda._memory_viz._profile_to_snapshot` makes them: no times, no addresses of blocks."""
    trace = [
        {"action": "alloc", "addr": 64, "size": 8, "category": "parameter", "frames": []},
        {"action": "alloc", "addr": 128, "size": 16, "category": "optimizer_state", "frames": []},
        {"action": "alloc", "addr": 256, "size": 4, "category": "autograd_detail", "frames": []},
        {"action": "free_requested", "addr": 128, "size": 16, "frames": []},
        {"action": "free_completed", "addr": 128, "size": 16, "frames": []},
    ]
    blocks = [{"size": 8, "state": "active_allocated"}, {"size": 24, "state": "active_allocated"}]
    db = tmp_path / "results.duckdb"
    path = write(tmp_path, {"segments": [{"address": 64, "blocks": blocks}], "device_traces": [trace]})
    import_snapshot(path, db=db)
    found = rows(db, "SELECT address, allocated_bytes, born_us, died_us, category FROM allocations ORDER BY allocation")
    assert [tuple(row.values()) for row in found] == [
        (72, 24, 0, None, "unknown"),
        (64, 8, 1, None, "parameter"),
        (128, 16, 2, 4, "optimizer state"),
        (256, 4, 3, None, "temporary"),
    ]


def test_every_device_is_a_timeline_of_its_own(tmp_path: Path) -> None:
    db = tmp_path / "results.duckdb"
    traces = [[event("alloc", 5, 64, 8)], [], [event("alloc", 6, 64, 16)]]
    import_snapshot(write(tmp_path, {"segments": [], "device_traces": traces}), db=db)
    assert rows(db, "SELECT title, peak_bytes FROM timelines ORDER BY title") == [
        {"title": "their.pickle · cuda:0", "peak_bytes": 8},
        {"title": "their.pickle · cuda:2", "peak_bytes": 16},
    ]
    assert rows(db, "SELECT count(DISTINCT cell_id) AS cells, count(DISTINCT run_id) AS runs FROM allocations") == [
        {"cells": 2, "runs": 1}
    ]


def test_a_snapshot_without_history_shows_what_is_in_use(tmp_path: Path) -> None:
    db = tmp_path / "results.duckdb"
    segments = [segment(0, block(0, 512, "active_allocated", 100), block(512, 512, "inactive", 0), device=1)]
    (timeline,) = import_snapshot(write(tmp_path, {"segments": segments, "device_traces": [[], []]}), db=db).timelines
    assert (timeline.peak_bytes, timeline.baseline_bytes, timeline.duration_us, timeline.allocations) == (
        100,
        100,
        0,
        1,
    )


# ------------------------------------------------------------------------------------------------------------- hostile


class Calls:
    """Pickles to a call of `os.system`, which would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def deep(depth: int) -> bytes:
    return pickle.PROTO + b"\x04" + pickle.EMPTY_LIST * depth + pickle.APPEND * (depth - 1) + pickle.STOP


def nested_tuple_key(depth: int) -> bytes:
    """A dictionary whose key is tuples within tuples, each twice in the next: 2^depth to hash."""
    doubled = pickle.DUP + pickle.TUPLE2
    return b"\x80\x04" + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + doubled * depth + pickle.NONE + pickle.SETITEM + b"."


def claims(opcode: bytes, size: int) -> bytes:
    return b"\x80\x04" + opcode + struct.pack("<Q", size) + b"short"


def shared(levels: int) -> list[Any]:
    """A list of ten references to a list of ten references to …: 10^levels items to whoever walks it all."""
    item: list[Any] = [event("alloc", 1, 64, 8)]
    for _ in range(levels):
        item = [item] * 10
    return item


TRACE = [event("alloc", 1, 64, 8)]
REFUSED: dict[str, tuple[object, str]] = {
    "a global": (b"cos\nsystem\n.", "names os.system"),
    "a global by stack": (pickle.dumps(Path), "names pathlib"),
    "an object elsewhere": (b"\x80\x04P1\n.", "outside of it"),
    "an extension": (b"\x80\x02\x82\x01.", "no pickle"),
    "half of one": (pickle.dumps(DOCUMENTED)[:-200], "half of one"),
    "nothing": (b"", "half of one"),
    "text": (b"<html><script>alert(1)</script></html>", "no pickle"),
    "2 GB of text": (claims(pickle.BINUNICODE8, 2**31), "pickle"),
    "an exabyte": (claims(pickle.BYTEARRAY8, 2**60), "pickle"),
    "a frame of 2 GB": (claims(pickle.FRAME, 2**31), "pickle"),
    "a memo of 2^32": (b"\x80\x04" + pickle.NONE + pickle.LONG_BINPUT + b"\xff" * 4 + b".", "needs more memory"),
    "a number of 10^6 digits": (b"\x80\x04I" + b"9" * 10**6 + b"\n.", "no pickle"),
    "deep nesting": (deep(1_000_000), "the snapshot that is a list"),
    "shared references": ({"segments": shared(9), "device_traces": [TRACE]}, "a segment that is a list"),
    "one trace again and again": ({"segments": [], "device_traces": [TRACE * 1000] * 100_000}, "100000 devices"),
    "another type": ([1, 2], "the snapshot that is a list"),
    "no segments": ({"device_traces": []}, "segments that is missing"),
    "nothing allocated": ({"segments": [], "device_traces": [[]]}, "without a single allocation"),
    "a size as text": (trace(event("alloc", 1, 64) | {"size": "8"}), "size that is '8'"),
    "a negative size": (trace(event("alloc", 1, 64, -8)), "size that is negative"),
    "a size that is true": (trace(event("alloc", 1, 64, True)), "size that is True"),
    "a huge time": (trace(event("alloc", 2**70, 64, 8)), "time_us that is too large"),
    "frames of text": (trace(event("alloc", 1, 64, 8, frames="xyz")), "frames that is a str"),
    "a frame of lists": (
        trace(event("alloc", 1, 64, 8, frames=[{"name": [], "filename": "", "line": 1}])),
        "a frame of other types",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_pickle_is_refused_and_nothing_is_added(tmp_path: Path, name: str) -> None:
    content, reason = REFUSED[name]
    db = tmp_path / "results.duckdb"
    with pytest.raises(UsageError) as refused:
        import_snapshot(write(tmp_path, content), db=db)
    assert reason in refused.value.got
    assert refused.value.expected
    assert refused.value.do
    assert not db.exists()
    assert not Spool(db).files()


def test_a_call_in_a_pickle_is_not_made(tmp_path: Path) -> None:
    for content in (Calls(tmp_path / "owned"), {"segments": [], "device_traces": [[Calls(tmp_path / "owned")]]}):
        with pytest.raises(UsageError, match=r"names posix\.system"):
            import_snapshot(write(tmp_path, content), db=tmp_path / "results.duckdb")
        assert not (tmp_path / "owned").exists()


def test_a_pickle_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "READING_SECONDS", 2)
    with pytest.raises(UsageError, match="more than 2 s"):
        import_snapshot(write(tmp_path, nested_tuple_key(100)), db=tmp_path / "results.duckdb")


def test_a_pickle_that_crashes_its_reader_crashes_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million tuples within each other, hashed: Python's own recursion, without a limit of its own."""
    deep_key = b"\x80\x04" + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.TUPLE1 * 1_000_000 + b"Ns."
    with pytest.raises(UsageError, match="snapshot"):
        import_snapshot(write(tmp_path, deep_key), db=tmp_path / "results.duckdb")


def test_walking_is_limited_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One list of events for every device: a small pickle, and as many events as devices times events."""
    many = {"segments": [], "device_traces": [TRACE * 1000] * 200}
    assert len(recordings(many)) == 200
    monkeypatch.setattr(snapshot, "MAX_ITEMS", 100_000)
    with pytest.raises(BadSnapshot, match="more events"):
        recordings(many)


#: Imports its first argument into its second, and prints the most memory in bytes and the seconds of computing that it
#: and the process that it started took. Linux counts the size of whoever starts a process into that process's peak, so
#: a small shell starts it, not the tests' own process.
COSTS = """
import resource, sys, pathlib
from runner.importers.files import import_file
from runner.errors import UsageError
try:
    print(import_file(pathlib.Path(sys.argv[1]), db=pathlib.Path(sys.argv[2])).lines[0])
except UsageError as error:
    print(error)
used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(sum(one.ru_maxrss for one in used) * (1 if sys.platform == "darwin" else 1024))
print(sum(one.ru_utime + one.ru_stime for one in used))
"""


@pytest.mark.parametrize(
    ("events", "reason"), [(5_000_000, "more events and blocks"), (450_000, "more than 400,000 allocations")]
)
def test_references_to_one_event_are_refused_soon_and_in_little_memory(
    tmp_path: Path, events: int, reason: str
) -> None:
    """10 MB that refer to one event 5,000,000 times took 14 GB and minutes; the limits hold for the whole import."""
    path = write(tmp_path, {"segments": [], "device_traces": [TRACE * events]})
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", COSTS, str(path), str(tmp_path / "results.duckdb")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    words, most_bytes, seconds = done.stdout.splitlines()
    assert reason in words
    assert float(most_bytes) < 2**30
    assert float(seconds) < 20
    assert not (tmp_path / "results.duckdb").exists()


def test_sums_that_no_64_bits_hold_are_refused(tmp_path: Path) -> None:
    """Each size is one, but not all of them together: in use at once, or one after the other."""
    sizes = [event("alloc", at, 64 * at, 2**61) for at in range(8)]
    blocks = segment(0, *(block(512 * at, 512, "active_allocated", 2**61) for at in range(8)))
    for content in (trace(*sizes), {"segments": [blocks], "device_traces": []}):
        with pytest.raises(UsageError, match=r"allocations of [0-9,]+ bytes together"):
            import_snapshot(write(tmp_path, content), db=tmp_path / "results.duckdb")


def test_stacks_are_limited_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few long names in many orders make as many stacks, each longer than all of them."""
    names = frames(*("x" * 299 + letter for letter in "abcdefgh"))
    events = [event("alloc", at, 64 * at, 8, frames=names[at % 8 :] + names[: at % 7]) for at in range(56)]
    monkeypatch.setattr(reading, "MAX_STACK_CHARACTERS", 50_000)
    with pytest.raises(BadSnapshot, match="stacks of more than 50,000 characters"):
        reading.read(io.BytesIO(pickle.dumps(trace(*events))))


def test_a_file_that_is_too_large_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, DOCUMENTED)
    with pytest.raises(UsageError, match=r"missing\.pickle cannot be read: No such file"):
        import_snapshot(tmp_path / "missing.pickle", db=tmp_path / "results.duckdb")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        import_snapshot(tmp_path, db=tmp_path / "results.duckdb")
    monkeypatch.setattr(importing, "FILE_BYTES", 100)
    with pytest.raises(UsageError, match="at most 100"):
        import_snapshot(path, db=tmp_path / "results.duckdb")


# --------------------------------------------------------------------------------------------------------- the command


def test_the_command(tmp_path: Path) -> None:
    db = tmp_path / "results.duckdb"
    done = run("import", str(write(tmp_path, synthetic(1000))), "--label", "theirs", db=db)
    assert done.returncode == 0, done.stdout
    (timeline,) = rows(db, "SELECT * FROM timelines")
    assert f"their.pickle: {timeline['allocations']:,} allocations; peak " in done.stdout
    (check,) = rows(
        db,
        """
        WITH changes AS (
            SELECT born_us AS at_us, allocated_bytes AS change FROM allocations
            UNION ALL SELECT died_us, -allocated_bytes FROM allocations WHERE died_us IS NOT NULL
        ), totals AS (SELECT at_us, sum(sum(change)) OVER (ORDER BY at_us) AS total FROM changes GROUP BY at_us)
        SELECT max(total)::BIGINT AS peak, min(at_us) FILTER (total = (SELECT max(total) FROM totals)) AS at_us
        FROM totals
        """,
    )
    assert (check["peak"], check["at_us"]) == (timeline["peak_bytes"], timeline["peak_at_us"])
    listed = run("list", "runs", db=db)
    assert "theirs" in listed.stdout

    refused = run("import", str(write(tmp_path, b"cos\nsystem\n.")), db=db)
    assert refused.returncode == 2
    assert "names os.system" in refused.stdout
    assert "Traceback" not in refused.stdout
    assert len(rows(db, "SELECT 1 FROM timelines")) == 1
