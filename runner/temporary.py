"""Folders in the system's temporary folder that last as long as their process, and the removal of those that did not.

    with temporary_folder("merge") as folder: ...        # /tmp/stepscope-merge-4711-k2j8/
    remove_leftovers()                                    # of processes that were killed

Whatever a program leaves behind when it is killed is removed by the next sweep of the same user. Standard library only.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runner.errors import StepscopeError

#: A folder of ours, and a file of ours in a folder that multiprocessing made, with the id of the process.
_OURS, _MARK = re.compile(r"stepscope-(?:[a-z]+-)?(\d+)-"), re.compile(r"stepscope-(\d+)")


@contextlib.contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """Yields a new folder, which is removed afterwards. Raises StepscopeError where there can be none."""
    try:
        made = tempfile.TemporaryDirectory(prefix=f"stepscope-{what}-{os.getpid()}-")
    except OSError as error:
        raise unusable_error(error) from error
    with made as name:
        yield Path(name)


def unusable_error(error: OSError) -> StepscopeError:
    """Returns the error of a temporary folder that is full, read-only, gone, or of too long a path."""
    return StepscopeError(
        f"The temporary folder {tempfile.gettempdir()} cannot be used: {error.strerror or error}.",
        expected="a folder with room, where you may write, whose path is short enough for a socket (some 60 letters)",
        do="Make room there, or name another one with TMPDIR. Finished cells are kept; the same command goes on.",
    )


def mark(folder: str) -> None:
    """Marks a folder that something else made for this process."""
    Path(folder, f"stepscope-{os.getpid()}").touch()


def remove_leftovers() -> None:
    """Removes this user's folders of processes that no longer run."""
    for folder in Path(tempfile.gettempdir()).iterdir():
        with contextlib.suppress(OSError):  # it has just been removed, or is somebody else's
            found = _OURS.match(folder.name)
            if folder.name.startswith("pymp-"):
                found = next((match for name in os.listdir(folder) if (match := _MARK.fullmatch(name))), None)
            owner = int(found[1]) if found else None
            if owner is not None and folder.stat().st_uid == os.getuid() and not _is_running(owner):
                shutil.rmtree(folder)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
