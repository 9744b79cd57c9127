"""One sweep at a time on a machine: two at once slow each other down.

with lock_machine(report=print): ...
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.temporary import remove_leftovers, unusable_error


@contextlib.contextmanager
def lock_machine(report: Callable[[str], None]) -> Iterator[None]:
    """Waits until no other sweep measures on this machine. The lock ends with the process."""
    path = Path(tempfile.gettempdir(), f"stepscope-{os.getuid()}.lock")
    with contextlib.ExitStack() as opened:
        try:
            lock = opened.enter_context(path.open("a"))
        except OSError as error:
            raise unusable_error(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("Another sweep is measuring on this machine; waiting for it to end.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        remove_leftovers()
        yield
