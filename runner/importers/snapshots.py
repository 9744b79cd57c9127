"""Reads a pickled snapshot that somebody else made, in a process of its own, without executing anything.

    python -m runner.importers.snapshots < snapshot.pickle       (the `import` command starts it so)

A pickle is a program. This reader refuses every name that it could look up, so that there is nothing to call. The
process has limits of memory and time, because a few bytes can claim gigabytes. It answers with one line of JSON:
`{"timelines": [...]}`, each a set of columns, or `{"refused": [got, expected]}`. Of more than MAX_ROWS allocations
those alive at the peak and the largest others are kept, so that the rest of the import stays within about 1.5 GiB.
Limits: macOS does not enforce the limit of memory. Standard library only.
"""

import contextlib
import gc
import json
import os
import pickle
import resource
import signal
import sys
from functools import partial
from typing import IO, Any, NoReturn

from runner.analysis.timeline.allocations import History, columns_of, follow, keep_largest
from runner.analysis.timeline.snapshot import (
    BadSnapshot,
    Recording,
    Stacks,
    category_of,
    frames_key,
    read_frames,
    recordings,
)

#: The limits of the process: bytes, more of them for each byte of the pickle, at most so many, and seconds of
#: computing, which grow with the pickle too, because one of 86 bytes can hash for minutes. A recorded snapshot needs 5
#: to 20 bytes for each of its own.
BASE_BYTES, BYTES_PER_BYTE, PROCESS_BYTES = 512 * 2**20, 32, 4 * 2**30
PROCESS_SECONDS, BYTES_PER_SECOND = 120, 2 * 2**20
#: The most allocations of all devices together that become rows, and characters of a device's stacks.
MAX_ROWS, MAX_STACK_CHARACTERS = 400_000, 64 * 2**20

#: Raised for bytes that are a truncated pickle or none. Any other error ends the process.
_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError,
    RecursionError, BufferError,
)  # fmt: skip


class PlainUnpickler(pickle.Unpickler):
    """Loads plain data. Raises BadSnapshot for whatever would look up a class, a function or an outside object."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise BadSnapshot(f"a pickle that names {module_name[:60]}.{global_name[:60]}", expected="plain data")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise BadSnapshot("a pickle that refers to an object outside of it", expected="plain data")


def read(file: IO[bytes]) -> list[dict[str, Any]]:
    """Returns the timelines of a pickled snapshot, one a device. Raises BadSnapshot."""
    try:
        snapshot = PlainUnpickler(file).load()
    except BadSnapshot:
        raise
    except _BROKEN as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise BadSnapshot(f"no pickle, or half of one ({reason})", expected="a whole pickle") from None
    devices = recordings(snapshot)
    if not devices:
        raise BadSnapshot("a snapshot without a single allocation", expected="one with history or memory in use")
    del snapshot
    most, timelines = MAX_ROWS // len(devices), []
    while devices:
        recording = devices.pop(0)
        timelines.append(_timeline(recording, follow(recording.events, recording.held), most))
    return timelines


def _timeline(recording: Recording, whole: History, most: int) -> dict[str, Any]:
    """Returns one device's timeline as columns, with at most so many allocations and failures."""
    stacks = Stacks()
    history = keep_largest(whole, most)
    for allocation in history.allocations:
        source = recording.sources[allocation.source]
        allocation.category = category_of(source)
        # A free's frames are not those of its allocation.
        if source.get("action", "alloc") == "alloc":
            allocation.stack = stacks.remember(frames_key(source), partial(read_frames, source))
            if stacks.characters > MAX_STACK_CHARACTERS:
                raise BadSnapshot(
                    f"stacks of more than {MAX_STACK_CHARACTERS:,} characters",
                    expected='fewer: record with stacks="python"',
                )
    marks = [(position, "out of memory") for position in recording.failures[-most:]]
    columns = columns_of(history, stacks=stacks.texts, marks=marks, phased=False)
    columns["timeline"] |= {"allocations": len(whole.allocations), "baseline_allocations": whole.baseline_allocations}
    return {"device": recording.device, **columns}


def main() -> None:
    limit(os.fstat(sys.stdin.fileno()).st_size)
    gc.disable()  # it would visit millions of new objects again and again, and the process ends soon
    with open(sys.stdout.fileno(), "w", encoding="ascii") as out:  # buffered, whatever PYTHONUNBUFFERED says
        json.dump(answer(sys.stdin.buffer), out, separators=(",", ":"))


def answer(file: IO[bytes]) -> dict[str, Any]:
    """Returns the answer of the process: the timelines of a pickle, or why it is refused."""
    try:
        return {"timelines": read(file)}
    except BadSnapshot as error:
        return {"refused": [str(error), error.expected]}
    except MemoryError:
        return {"refused": ["a snapshot that needs more memory than one of its size", "one as PyTorch writes it"]}


def limit(file_bytes: int) -> None:
    """Limits this process to what a pickle of this size needs: bytes, and from here on seconds of CPU, after which
    SIGPROF ends it."""
    memory = min(PROCESS_BYTES, BASE_BYTES + BYTES_PER_BYTE * file_bytes)
    with contextlib.suppress(ValueError, OSError):  # macOS; or a lower limit is set already
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.setitimer(signal.ITIMER_PROF, min(PROCESS_SECONDS, 1 + file_bytes / BYTES_PER_SECOND))


if __name__ == "__main__":
    main()
