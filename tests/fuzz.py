"""Foreign files that are broken in every way: files built by `hypothesis`, and real files with changed bytes.

    outcomes = fuzz(SNAPSHOT, examples=60, folder=tmp_path)       # Counter({"refused": 51, "imported": 9})

An importer must either add rows that the store accepts or end in a StepscopeError; anything else fails the test.
Pickles are read by a process with the same limits as in an import; one process reads many. Imported rows wait in the
spool, and the last SPOOLED of its files are ingested into a results file.
"""

import contextlib
import itertools
import os
import pickle
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from runner.errors import StepscopeError
from runner.importers.files import import_file
from runner.store.database import ingest
from runner.store.spool import Spool

#: Examples for each importer in `make soak`; an environment variable may set another number.
SOAK_EXAMPLES = int(os.environ.get("SOAK_EXAMPLES", "10000"))
#: How long one example may take (s): far longer than any needs on a busy machine.
PATIENCE_S = 60.0
FLIPS, SPOOLED = 8, 20

#: Reads pickles of the length that each line names, as the process of an import does, and answers each with its line.
_READER = """
import io, json, os, sys
from runner.importers.snapshots import answer, limit
limit(64 * 2**20)
while line := sys.stdin.buffer.readline():
    print(json.dumps(answer(io.BytesIO(sys.stdin.buffer.read(int(line))))), flush=True)
"""

#: Keeps standard output for answers only, because DuckDB takes `python -c` for an interactive session and draws the
#: progress of slow queries there.
_ANSWERS_ONLY = "import os, sys; sys.stdout = open(os.dup(1), 'w'); os.dup2(2, 1)\n"


class Reader:
    """A process that answers each request with a line. It is replaced after `files` files or one that ended it."""

    def __init__(self, script: str, *, files: int = 500) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.script, self.files, self.left = script, files, files

    def ask(self, request: bytes) -> "subprocess.CompletedProcess[bytes]":
        """Returns the answer, or how the process ended. Raises TimeoutError if it does neither within PATIENCE_S.

        An exception between a request and its answer ends the process, so that the next request gets its own answer.
        """
        self.left -= 1
        if self.left < 0:
            self.close()
        if self.process is None:
            self.left = self.files
            command = [sys.executable, "-c", _ANSWERS_ONLY + self.script]
            pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(request)
                self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
                raise TimeoutError
            line = self.process.stdout.readline()
            code = 0 if line else self.process.wait()
        except BaseException:
            self.close()
            raise
        if not line:
            self.close()
        return subprocess.CompletedProcess([], code, stdout=line, stderr=b"")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of file: its suffix, a function that makes a real one, and strategies for whole files."""

    ending: str
    real: Callable[[Path], bytes]
    built: st.SearchStrategy[bytes]


def fuzz(kind: Kind, *, examples: int, folder: Path) -> Counter[str]:
    """Imports `examples` files of a kind, half built and half with changed bytes. Returns how the imports ended."""
    ends: Counter[str] = Counter()

    def read(path: Path) -> "subprocess.CompletedProcess[bytes]":
        content = path.read_bytes()
        return reader.ask(b"%d\n" % len(content) + content)

    path = folder / f"their{kind.ending}"
    real = kind.real(folder / f"real{kind.ending}")
    with (
        contextlib.closing(Reader(_READER)) as reader,
        patch("runner.importers.files.run_reader", read),
        patch("runner.importers.files.ingest", return_value=0),
    ):

        @seed(0)
        @settings(max_examples=examples // 2, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(kind.built)
        def import_built(content: bytes) -> None:
            ends[_end(path, content, folder)] += 1

        import_built()
        for content in itertools.islice(changed(real), examples - ends.total()):
            ends[_end(path, content, folder)] += 1
    while ingest(folder / "results.duckdb"):
        pass
    return ends


def changed(real: bytes) -> Iterator[bytes]:
    """Yields the file with up to FLIPS bytes changed, cut off, or with a piece of itself copied elsewhere."""
    order = random.Random(0)
    while True:
        content = bytearray(real)
        for _ in range(order.randint(1, FLIPS)):
            at = order.randrange(len(content))
            content[at] = order.choice((0, 0xFF, order.randrange(256), content[at] ^ 1 << order.randrange(8)))
        if order.random() < 0.1:
            del content[order.randrange(len(content)) :]
        elif order.random() < 0.1:
            start, to = order.randrange(len(content)), order.randrange(len(content))
            content[to : to + 200] = content[start : start + 200]
        yield bytes(content)


def _end(path: Path, content: bytes, folder: Path) -> str:
    """Imports the file. Returns `imported` or `refused`; anything else is a defect and raises."""
    path.write_bytes(content)
    db, began = folder / "results.duckdb", time.monotonic()
    refused = None
    try:
        import_file(path, db=db)
    except StepscopeError as error:
        refused = error
    assert time.monotonic() - began < PATIENCE_S
    for waiting in Spool(db).files()[:-SPOOLED]:
        waiting.unlink()
    if refused is None:
        return "imported"
    assert refused.got
    assert refused.do
    return "ended" if "reading ended with" in refused.got else "refused"


EDGES = (0, 1, 512, 2**20, 2**31, 2**61, 2**62, 2**63, 2**64, 10**30)
NUMBERS = st.one_of(st.integers(0, 2**20), st.sampled_from(EDGES), st.integers(-(2**64), 2**64))
ODD = st.one_of(NUMBERS, st.none(), st.booleans(), st.floats(), st.text(max_size=5), st.binary(max_size=5),
                st.lists(st.integers(), max_size=2), st.just({}))  # fmt: skip


def _mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Returns a strategy that mostly draws the usual values, else anything."""
    return st.integers(0, 39).flatmap(lambda number: usual if number else ODD)


ADDRESSES, SIZES = st.integers(0, 64).map(lambda number: number * 512), st.integers(0, 2**22)
FRAME = st.fixed_dictionaries({"filename": _mostly(st.text(max_size=8)), "name": _mostly(st.text(max_size=8)),
                               "line": _mostly(NUMBERS)})  # fmt: skip
EVENT = st.fixed_dictionaries(
    {"action": _mostly(st.sampled_from(["alloc", "free_requested", "free_completed", "oom", "segment_alloc",
                                        "segment_free", "segment_map", "segment_unmap", "snapshot"])),
     "addr": _mostly(ADDRESSES), "size": _mostly(SIZES)},
    optional={"time_us": _mostly(NUMBERS), "frames": _mostly(st.lists(FRAME, max_size=3)), "category": ODD},
)  # fmt: skip
BLOCK = st.fixed_dictionaries(
    {"size": _mostly(SIZES), "state": st.sampled_from(["active_allocated", "inactive", "active_pending_free"])},
    optional={"address": _mostly(ADDRESSES), "requested_size": _mostly(SIZES), "frames": ODD},
)
SEGMENT = st.fixed_dictionaries(
    {"address": _mostly(ADDRESSES), "blocks": _mostly(st.lists(BLOCK, max_size=4))},
    optional={"device": _mostly(st.integers(0, 3)), "is_expandable": ODD},
)
SNAPSHOTS = st.fixed_dictionaries(
    {"segments": _mostly(st.lists(_mostly(SEGMENT), max_size=3)),
     "device_traces": _mostly(st.lists(_mostly(st.lists(_mostly(EVENT), max_size=12)), max_size=3))},
    optional={"allocator_settings": st.one_of(ODD, st.fixed_dictionaries(
        {"max_split_size": ODD, "roundup_power2_divisions": st.one_of(ODD, st.just({"1": 0}))}))},
).map(pickle.dumps)  # fmt: skip
