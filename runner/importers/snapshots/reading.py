"""Reads a pickled snapshot that somebody else made, in a process of its own, without executing anything.

    python -m runner.importers.snapshots.reading < snapshot.pickle       (the `import` command starts it so)

A pickle is a program. This one's reader refuses every name it could look up, so that there is nothing to call; and the
process may take only so much memory and time, because a few bytes can claim gigabytes. What leaves it is one line of
JSON: `{"timelines": [...]}`, each a set of columns, or `{"refused": [got, expected]}`. It is small enough for the rest
of the import to stay within about 1.5 GiB: at most MAX_ROWS allocations and MAX_STACK_CHARACTERS of stacks. Limits: the
memory of the process is not limited on macOS, which knows no such limit. Standard library only.
"""

import contextlib
import gc
import json
import os
import pickle
import resource
import sys
from functools import partial
from typing import IO, Any, NoReturn

from runner.analysis.timeline.blocks import block_totals
from runner.analysis.timeline.lives import History, follow
from runner.analysis.timeline.rows import columns_of
from runner.analysis.timeline.snapshot import MAX_BYTES, BadSnapshot, Frames, Recording, category_of, recordings
from runner.analysis.timeline.stacks import Stacks

#: What the process may take in bytes: so much, and so much more for each byte of the pickle, up to a most. A recorded
#: snapshot needs 5 to 20 bytes a byte. And in seconds of its own computing.
BASE_BYTES, BYTES_PER_BYTE, PROCESS_BYTES, PROCESS_SECONDS = 512 * 2**20, 32, 4 * 2**30, 120
#: Allocations and failures of all devices together, which become rows, and characters of a device's stacks.
MAX_ROWS, MAX_STACK_CHARACTERS = 400_000, 64 * 2**20

#: What a pickle that is cut off, is none or asks for too much raises; whatever else happens ends the process.
_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError,
    RecursionError, BufferError,
)  # fmt: skip


class Refusing(pickle.Unpickler):
    """Loads plain data, and refuses whatever would look up a class, a function or an object outside the pickle."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise BadSnapshot(f"a pickle that names {module_name[:60]}.{global_name[:60]}", expected="plain data")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise BadSnapshot("a pickle that refers to an object outside of it", expected="plain data")


def read(file: IO[bytes]) -> list[dict[str, Any]]:
    """The timelines of a pickled snapshot, one a device. Raises BadSnapshot."""
    try:
        snapshot = Refusing(file).load()
    except BadSnapshot:
        raise
    except MemoryError:
        raise BadSnapshot(
            "a pickle that needs more memory than a snapshot of its size", expected="a pickle that is whole"
        ) from None
    except _BROKEN as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise BadSnapshot(f"no pickle, or half of one ({reason})", expected="a whole pickle") from None
    found = recordings(snapshot)
    if not found:
        raise BadSnapshot("a snapshot without a single allocation", expected="one with history or memory in use")
    rows, timelines = 0, []
    for recording in found:
        history = follow(recording.events, recording.held)
        rows += len(history.lives) + len(recording.failures)
        if rows > MAX_ROWS:
            raise BadSnapshot(f"a snapshot of more than {MAX_ROWS:,} allocations", expected="fewer: record fewer steps")
        timelines.append(timeline(recording, history))
    return timelines


def timeline(recording: Recording, history: History) -> dict[str, Any]:
    """One device's timeline as columns."""
    stacks, frames = Stacks(), Frames()
    for life in history.lives:
        source = recording.sources[life.source]
        life.category = category_of(source)
        # A free's frames are not those of its allocation.
        if source.get("action", "alloc") == "alloc":
            life.stack = stacks.remember(frames.key(source), partial(frames.read, source))
            if stacks.characters > MAX_STACK_CHARACTERS:
                raise BadSnapshot(
                    f"stacks of more than {MAX_STACK_CHARACTERS:,} characters",
                    expected='fewer: record with stacks="python"',
                )
    marks = [(position, "out of memory") for position in recording.failures]
    columns = columns_of(history, stacks=stacks.texts, marks=marks, phased=False)
    baseline, peak = block_totals(recording.layout, recording.events, history)
    if peak is not None and peak >= MAX_BYTES:
        raise BadSnapshot(f"blocks of {peak:,} bytes together", expected="sizes whose sum fits into 64 bits")
    columns["timeline"] |= {"baseline_block_bytes": baseline, "peak_block_bytes": peak}
    return {"device": recording.device, **columns}


def main() -> None:
    """Reads standard input, writes standard output."""
    limit(os.fstat(sys.stdin.fileno()).st_size)
    gc.disable()  # it would search millions of new objects again and again, and the process ends soon
    json.dump(answer(sys.stdin.buffer), sys.stdout, separators=(",", ":"))


def answer(file: IO[bytes]) -> dict[str, Any]:
    """What the process says of a pickle: its timelines, or why it is refused."""
    try:
        return {"timelines": read(file)}
    except BadSnapshot as error:
        return {"refused": [str(error), error.expected]}
    except MemoryError:
        return {"refused": ["a snapshot that needs more memory than one of its size", "one as PyTorch writes it"]}


def limit(file_bytes: int) -> None:
    """Limits this process to what a pickle of this size may take."""
    memory = min(PROCESS_BYTES, BASE_BYTES + BYTES_PER_BYTE * file_bytes)
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, PROCESS_SECONDS)):
        with contextlib.suppress(ValueError, OSError):  # macOS; or a lower limit is set already
            resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
