"""Pickles that are not snapshots or are hostile are refused with a reason, quickly and with little memory."""

import io
import os
import pickle
import resource
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.analysis.timeline.snapshot import BadSnapshot
from runner.errors import UsageError
from runner.importers import files, snapshots
from runner.importers.files import import_file
from runner.store.spool import Spool
from tests.command import execute
from tests.some import some
from tests.synthetic.snapshots import DOCUMENTED, block, event, frames, segment, trace, write


class Calls:
    """Pickles to a call of `os.system` that would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


#: A tuple of two tuples of two tuples, 40 deep, in 88 bytes, as a key: hashing it takes 2⁴⁰ steps.
BOMB = b"\x80\x04})" + b"2\x86" * 40 + b"K\x01s."


def deep(depth: int) -> bytes:
    return pickle.PROTO + b"\x04" + pickle.EMPTY_LIST * depth + pickle.APPEND * (depth - 1) + pickle.STOP


def claims(opcode: bytes, size: int) -> bytes:
    return b"\x80\x04" + opcode + struct.pack("<Q", size) + b"short"


def shared(levels: int) -> list[Any]:
    """Returns a list of ten references to a list of ten references and so on: walking all of it visits 10^levels
    items."""
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
    "text": (b"<html><script>alert(1)</script></html>", "no pickle"),
    "2 GB of text": (claims(pickle.BINUNICODE8, 2**31), "pickle"),
    "an exabyte": (claims(pickle.BYTEARRAY8, 2**60), "pickle"),
    "a frame of 2 GB": (claims(pickle.FRAME, 2**31), "pickle"),
    "a memo": (b"\x80\x04" + pickle.NONE + pickle.LONG_BINPUT + b"\xff" * 4 + b".", "needs more memory"),
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


#: One of what executes, what is cut or claims too much, what is nested or shared, and what has wrong values.
SOME = ("a global", "half of one", "a memo", "deep nesting", "shared references", "no segments", "a negative size")


@pytest.mark.parametrize("name", some(REFUSED, SOME))
def test_a_bad_pickle_is_refused_and_nothing_is_added(tmp_path: Path, db: Path, name: str) -> None:
    content, reason = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        import_file(write(tmp_path, content), db=db)
    assert reason in refused.value.got
    assert refused.value.expected
    assert refused.value.do
    assert not db.exists()
    assert not Spool(db).files()


def test_a_call_in_a_pickle_is_not_executed(tmp_path: Path) -> None:
    for content in (Calls(tmp_path / "owned"), {"segments": [], "device_traces": [[Calls(tmp_path / "owned")]]}):
        with pytest.raises(UsageError, match=r"names posix\.system"):
            import_file(write(tmp_path, content), db=tmp_path / "results.duckdb")
        assert not (tmp_path / "owned").exists()


def test_a_pickle_that_crashes_its_reader_is_refused(tmp_path: Path) -> None:
    """Hashing a million nested tuples exceeds Python's own recursion, for which it has no limit."""
    deep_key = b"\x80\x04" + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.TUPLE1 * 1_000_000 + b"Ns."
    with pytest.raises(UsageError, match="snapshot"):
        import_file(write(tmp_path, deep_key), db=tmp_path / "results.duckdb")


#: Imports its first argument into its second. Prints the peak memory in bytes and the processor seconds that it and its
#: child process used. Linux counts the size of the parent into a child's peak, so a small shell starts it and not the
#: tests' own process.
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


def test_references_to_one_event_are_refused_quickly_and_with_little_memory(tmp_path: Path) -> None:
    """10 MB with 5,000,000 references to one event once took 14 GB and minutes; the limits apply to the whole
    import."""
    path = write(tmp_path, {"segments": [], "device_traces": [TRACE * 5_000_000]})
    python = ("sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", COSTS)
    done = execute(*python, str(path), str(tmp_path / "results.duckdb"), code=0)
    words, most_bytes, seconds = done.stdout.splitlines()
    assert "more events and blocks" in words
    assert float(most_bytes) < 2**30
    assert float(seconds) < 20
    assert not (tmp_path / "results.duckdb").exists()


def test_a_key_that_hashes_for_minutes_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processor time is limited, and so is the time of reading."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with pytest.raises(UsageError, match="computes longer than a snapshot of its size"):
        import_file(write(tmp_path, BOMB), db=tmp_path / "results.duckdb")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began < 5
    monkeypatch.setattr(files, "READING_SECONDS", 0.5)
    with pytest.raises(UsageError, match=r"more than 0\.5 s"):
        import_file(write(tmp_path, BOMB), db=tmp_path / "results.duckdb")


def test_of_many_allocations_the_largest_and_the_peak_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of 100 to 1,000 bytes come and go; then 5 and 7 bytes make the peak together with 3,000 held before."""
    events = [event(act, 2 * at + (act != "alloc"), 64 * at, 100 * at)
              for at in range(1, 11) for act in ("alloc", "free_completed")]  # fmt: skip
    events += [event("alloc", 90, 6400, 3000), event("alloc", 91, 12800, 5), event("alloc", 92, 12864, 7)]
    monkeypatch.setattr(snapshots, "MAX_ROWS", 5)
    (timeline,) = snapshots.read(io.BytesIO(pickle.dumps(trace(*events))))
    assert timeline["allocations"]["allocated_bytes"] == [900, 1000, 3000, 5, 7]
    assert (timeline["timeline"]["allocations"], timeline["timeline"]["peak_bytes"]) == (13, 3012)


def test_sums_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    """Each size fits into 64 bits but their sum does not, whether in use at once or one after the other."""
    sizes = [event("alloc", at, 64 * at, 2**61) for at in range(8)]
    blocks = segment(0, *(block(512 * at, 512, "active_allocated", 2**61) for at in range(8)))
    for content in (trace(*sizes), {"segments": [blocks], "device_traces": []}):
        with pytest.raises(UsageError, match=r"allocations of [0-9,]+ bytes together"):
            import_file(write(tmp_path, content), db=tmp_path / "results.duckdb")


def test_the_total_size_of_stacks_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few long names in many orders make many stacks, each longer than all names together."""
    names = frames(*("x" * 299 + letter for letter in "abcdefgh"))
    events = [event("alloc", at, 64 * at, 8, frames=names[at % 8 :] + names[: at % 7]) for at in range(56)]
    monkeypatch.setattr(snapshots, "MAX_STACK_CHARACTERS", 50_000)
    with pytest.raises(BadSnapshot, match="stacks of more than 50,000 characters"):
        snapshots.read(io.BytesIO(pickle.dumps(trace(*events))))


def test_a_file_that_is_too_large_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, DOCUMENTED)
    with pytest.raises(UsageError, match=r"missing\.pickle cannot be read: No such file"):
        import_file(tmp_path / "missing.pickle", db=tmp_path / "results.duckdb")
    monkeypatch.setattr(files, "SNAPSHOT_BYTES", 100)
    with pytest.raises(UsageError, match="at most 100"):
        import_file(path, db=tmp_path / "results.duckdb")
