"""How often new rows are drawn while a sweep runs: less often for more readers.

    state = choose_shown_state(path)  # the state of the file that pages show now
    with drawing(path, reader): ...   # the page of one of them is drawn

One reader sees new rows at once. For several, a state is shown for twice the time that drawing it took for all of them,
and for MAX_HELD_S at most. Otherwise every cell of a sweep would restart all their pages before most were drawn once.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runner.store.database import fingerprint

MAX_HELD_S = 30.0


@dataclass(kw_only=True)
class _Shown:
    """A state, since when it is shown and for how long at least, and what it took the server to draw it."""

    state: str
    since: float
    held_s: float
    spent_s: float = 0.0
    readers: set[str] = field(default_factory=set)


_shown: dict[Path, _Shown] = {}
_lock = threading.Lock()


def choose_shown_state(path: Path) -> str:
    """Returns the fingerprint of the file that its readers are to see: its own, or for a while the one before."""
    state, now = fingerprint(path), time.monotonic()
    with _lock:
        before = _shown.get(path)
        if before is None:
            _shown[path] = _Shown(state=state, since=now, held_s=0.0)
        elif before.state != state and now >= before.since + before.held_s:
            held_s = min(2 * before.spent_s, MAX_HELD_S) if len(before.readers) > 1 else 0.0
            _shown[path] = _Shown(state=state, since=now, held_s=held_s)
        return _shown[path].state


@contextlib.contextmanager
def drawing(path: Path, reader: str) -> Iterator[None]:
    """Counts the processor time of what is drawn within for this reader."""
    started = time.thread_time()
    try:
        yield
    finally:
        with _lock:
            if shown := _shown.get(path):
                shown.spent_s += time.thread_time() - started
                shown.readers.add(reader)
