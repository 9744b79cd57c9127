"""Whatever stands where a file is expected: links that lead nowhere, pipes, devices, folders that one may not enter.

    >>> explain_place(Path("/dev/zero"))
    'it is a device'

Reading a pipe waits for ever and reading a device never ends, so that each is refused before it is opened. What is
written is written beside and renamed, so that an earlier file survives a full disk. Commands look at the places that
they are given first (`check_results`, `check_room`), before they import or compute anything. Several results
files are named together by a folder, or by a list as in PATH (`list_files`).

    with temporary_folder("merge") as folder: ...        # /tmp/stepscope-merge-4711-k2j8/
    remove_leftovers()                                    # of processes that were killed

Whatever a program leaves in the system's temporary folder when it is killed is removed by the next sweep of the same
user. Standard library only.
"""

import contextlib
import errno
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from runner.errors import DatabaseMissing, StepscopeError, StoreError, UsageError

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
    except ValueError as error:  # a name with a zero byte, such as from a TOML file
        return str(error)
    return "" if stat.S_ISREG(mode) else f"it is {_KINDS.get(stat.S_IFMT(mode), 'no file')}"


def explain_error(error: OSError) -> str:
    """Returns what the system says, without the path: `Permission denied`."""
    return error.strerror or type(error).__name__


@contextlib.contextmanager
def explained(what: str, *, expected: str = "", do: str, kind: type[StepscopeError] = StoreError) -> Iterator[None]:
    """Makes an error of the system one that says what cannot be done: `FOLDER cannot be written: Permission denied.`"""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {explain_error(error)}.", expected=expected, do=do) from error


_SHIPPED_NAME = Path("data/reference/h200")
SHIPPED = Path(__file__).parents[1] / _SHIPPED_NAME


def default_path() -> Path:
    """Returns the results file to use when none is named: `STEPSCOPE_DB`, which may also be a folder or a list
    (`list_files`), else `data/results.duckdb`."""
    return Path(os.environ.get("STEPSCOPE_DB") or "data/results.duckdb")


def write_db(path: Path) -> str:
    """Returns ` --db PATH` for a command that is to use this file; empty where it does without, and for what no sweep
    adds to, folders and lists."""
    is_file = not (is_list(path) or path.is_dir())
    return f" --db {shlex.quote(str(path))}" if is_file and path != default_path() else ""


def split(path: Path) -> list[Path]:
    """Returns the files and folders of a list `A:B`; of any other path, that one."""
    return [Path(name) for name in str(path).split(os.pathsep) if name] if is_list(path) else [path]


def is_list(path: Path) -> bool:
    """Returns whether the path is a list of paths, as in PATH; a file whose own name has a `:` in it is one file."""
    return os.pathsep in str(path) and not (os.path.exists(path) or os.path.exists(f"{path}.spool"))


def is_fleet(path: Path) -> bool:
    """Returns whether the path names several files: a folder, or a list."""
    return os.path.isdir(path) or is_list(path)


def list_files(path: Path) -> list[Path]:
    """Returns the results files that a path names, each once. A folder stands for its files that end in `.duckdb`, in
    the order of their names, and for those of which there is only a spool yet. Raises StoreError for a folder that
    cannot be read."""
    if is_list(path):
        return list(dict.fromkeys(file for one in split(path) for file in list_files(one)))
    if not os.path.isdir(path):
        return [path]
    with explained(f"{path} cannot be read", do="Get the right to read it."):
        names = {name.removesuffix(".spool") for name in os.listdir(path)}
    return [path / name for name in sorted(names) if name.endswith(".duckdb") and not name.startswith(".")]


def join(paths: Iterable[Path]) -> Path:
    """Returns the list of these paths."""
    return Path(os.pathsep.join(map(str, paths)))


def absolute(path: Path) -> Path:
    """Returns the path, or the list of paths, as from the root of the file system."""
    return join(one.absolute() for one in split(path))


def refuse_fleet(path: Path) -> None:
    """Raises UsageError for a fleet, which is for reading."""
    if is_fleet(path):
        raise UsageError(
            f"{path} names several results files, to which nothing can be added.",
            expected="one file",
            do="Name it with --db, such as --db results.duckdb.",
        )


def check_place(path: Path) -> None:
    """Raises StoreError for what is neither a results file nor a place for one, before DuckDB opens it or its log."""
    for file in (path, path.with_name(path.name + ".wal")):
        why = explain_place(file)
        if not why and os.path.exists(file) and not os.access(file, os.R_OK):
            why = os.strerror(errno.EACCES)
        if why:
            raise StoreError(
                f"{file} cannot be opened: {why}.",
                expected="a file that `python -m runner sweep` made",
                do="Name another with --db or STEPSCOPE_DB.",
            )


def check_results(named: Path | None = None, *, adds: bool = False) -> Path:
    """Returns the results file, folder or list to use: this one, or the usual one. Raises StoreError where it cannot be
    opened or, with `adds`, rows cannot be added, and DatabaseMissing where there is nothing to read. The shipped rows
    are found by their name from any folder."""
    path = named or default_path()
    if path == _SHIPPED_NAME and not adds and not path.exists():
        return SHIPPED
    for one in split(path):
        if not os.path.isdir(one):
            check_place(one.absolute())
        elif not os.access(one, os.R_OK | os.X_OK):
            raise StoreError(f"{one} cannot be read: {os.strerror(errno.EACCES)}.", do="Get the right to read it.")
    if is_list(path) or os.path.isdir(path):
        return path
    spool = Path(f"{path}.spool")
    if not adds and not os.path.lexists(path) and not os.path.lexists(spool):
        raise DatabaseMissing(f"{path} does not exist.", do="Measure something: python -m runner sweep.")
    if adds:
        check_room(path)
        do = "Name a file elsewhere with --db, or get the right to write there."
        if os.path.lexists(spool) and not os.path.isdir(spool):
            raise StoreError(f"{spool} is no folder.", expected="a place where rows can be added", do=do)
        for place in (path, spool):
            if os.path.exists(place) and not os.access(place, os.W_OK | (os.X_OK if place == spool else 0)):
                raise StoreError(f"{place} is read-only.", expected="a place where rows can be added", do=do)
    return path


def check_source(path: Path, do: str) -> None:
    """Raises UsageError where there is no file or folder to read."""
    why = "" if os.path.isdir(path) else explain_place(path)
    if not why and not os.access(path, os.R_OK):
        why = os.strerror(errno.EACCES if os.path.lexists(path) else errno.ENOENT)
    if why:
        raise UsageError(f"{path} cannot be read: {why}.", do=do)


def check_room(path: Path) -> None:
    """Raises StoreError where no file can be written: something else is there, the folder is closed, or its disk is
    full. Leaves nothing behind."""
    path = path.absolute()
    folder = next(parent for parent in path.parents if os.path.lexists(parent))
    why = explain_place(path)
    if not why and not os.path.isdir(folder):
        why = f"{folder} is no folder"
    try:
        if not why:
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(b"room")
    except OSError as error:
        why = explain_error(error)
    if why:
        do = "Name another file, in a folder with room where you may write."
        raise StoreError(f"{path} cannot be written: {why}.", do=do)


def write_text(path: Path, text: str) -> None:
    """Writes a file as a whole: beside its place, and then there. Raises StoreError, and then keeps an earlier file."""
    check_room(path)
    beside = path.with_name(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        do = "Name another file, in a folder with room where you may write."
        raise StoreError(f"{path} cannot be written: {explain_error(error)}.", do=do) from None


#: A folder of ours, and a file of ours in a folder that multiprocessing made, with the id of the process.
_OURS, _MARK = re.compile(r"stepscope-(?:[a-z]+-)?(\d+)-"), re.compile(r"stepscope-(\d+)")


@contextlib.contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """Yields a new folder, which is removed afterwards, or by the next sweep where another process still writes into
    it. Raises StepscopeError where there can be none."""
    try:
        made = tempfile.TemporaryDirectory(prefix=f"stepscope-{what}-{os.getpid()}-", ignore_cleanup_errors=True)
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
            if owner is not None and folder.stat().st_uid == os.getuid():
                try:
                    os.kill(owner, 0)
                except ProcessLookupError:
                    shutil.rmtree(folder)
