"""Whatever stands where a file is expected: links that lead nowhere, pipes, devices, folders that one may not enter.

    >>> explain_place(Path("/dev/zero"))
    'it is a device'

Reading a pipe waits for ever and reading a device never ends, so that each is refused before it is opened. What is
written is written beside and renamed, so that an earlier file survives a full disk. Standard library only.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

from runner.errors import StoreError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def explain_place(path: Path) -> str:
    """Returns why there is no file to read at the path; empty for a regular file, and where there is nothing."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return f"it is a link to {os.readlink(path)}, which is not there" if os.path.islink(path) else ""
    except OSError as error:
        return "its links lead in a circle" if error.errno == errno.ELOOP else explain_error(error)
    return "" if stat.S_ISREG(mode) else f"it is {_KINDS.get(stat.S_IFMT(mode), 'no file')}"


def explain_error(error: OSError) -> str:
    """Returns what the system says, without the path: `Permission denied`."""
    return error.strerror or type(error).__name__


def write_text(path: Path, text: str) -> None:
    """Writes a file as a whole: beside its place, and then there. Raises StoreError, and then an earlier file is as it
    was."""
    beside = path.with_name(f"{path.name}.part")
    try:
        if os.path.lexists(path) and (why := explain_place(path)):
            raise StoreError(f"{path} cannot be written: {why}.", do="Name another file.")
        if os.path.lexists(path.parent) and not os.path.isdir(path.parent):
            raise StoreError(f"{path} cannot be written: {path.parent} is no folder.", do="Name another file.")
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        do = "Name another file, in a folder with room where you may write."
        raise StoreError(f"{path} cannot be written: {explain_error(error)}.", do=do) from None
