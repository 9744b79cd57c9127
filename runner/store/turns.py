"""Makes readers leave gaps for a sweep, which can move cells into the file only while nobody reads, and tries to after
each cell.

    with take_turn([spool], patience_s=2.0): ...  # every reader of the file, or of several

In one process AT_ONCE threads read at a time; the others wait without holding anything, so that each read is shorter
and the process needs less memory. Where cells still wait in the spool, readers wait until those are in the file,
because each reader reads the spool.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

from runner.allowance import count_cpus
from runner.store.spool import Spool

#: A query uses all cores, and Python builds rows on one: a second reader gains only where it has cores of its own. On
#: two cores ten readers waited as long one at a time, and the server took 518 MiB instead of 626.
AT_ONCE = 1 if count_cpus() < 4 else 2

_free = threading.BoundedSemaphore(AT_ONCE)
#: Those who read just now.
_reading: set[object] = set()
_has_turn: ContextVar[bool] = ContextVar("_has_turn", default=False)
#: Until when readers do not wait for a sweep, because waiting was in vain: another program may hold the file.
_in_vain_until: dict[Path, float] = {}


@contextlib.contextmanager
def take_turn(spools: Iterable[Spool], *, patience_s: float) -> Iterator[None]:
    """Waits until it is this reader's turn, and then up to `patience_s` for each sweep that is behind. A reader within
    a reader has its turn already."""
    if _has_turn.get():
        yield
        return
    with _free:
        for spool in spools:
            _give_way(spool, patience_s)
        token, reader = _has_turn.set(True), object()
        _reading.add(reader)
        try:
            yield
        finally:
            _reading.remove(reader)
            _has_turn.reset(token)


def _give_way(spool: Spool, patience_s: float) -> None:
    """Waits until the sweep is no longer behind, or makes no progress although nobody is reading."""
    since, least = time.monotonic(), len(spool.files())
    while _in_vain_until.get(spool.folder, since) <= since and spool.is_behind():
        time.sleep(0.02)
        waiting = len(spool.files())
        if _reading or waiting < least:
            since, least = time.monotonic(), min(waiting, least)
        elif time.monotonic() - since > patience_s:
            _in_vain_until[spool.folder] = time.monotonic() + 5 * patience_s
