"""The measured rows that ship with Stepscope. The app shows them until a reader has rows, and compares those with them.

    >>> choose_file()                                # no STEPSCOPE_DB, and no cell in data/results.duckdb
    PosixPath('/home/ann/.cache/stepscope/reference-1f2e3d4c5b6a7988/reference-h200.duckdb')

They lie in `data/reference/h200` as Parquet. `STEPSCOPE_REFERENCE` names another packed folder; empty, there is no
reference. A results file is built of them once for each content of the folder, in the user's cache (`XDG_CACHE_HOME`)
or, where nothing can be written there, in the temporary folder until the process ends. The checkout is only read.
"""

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from runner.errors import DatabaseMissing, StoreError
from runner.places import check_place, default_path, explain_error, split
from runner.schema import TABLES
from runner.store.attached import EVERY_CELL
from runner.store.database import fingerprint, open_reader
from runner.store.fleet import join
from runner.store.packing import ENDING, is_packed, unpack
from runner.temporary import temporary_folder

#: What commands and pages say of it.
MEASURE = "python -m runner sweep"
_SHIPPED = Path(__file__).parents[2] / "data/reference/h200"
_NAME = re.compile(r"reference-[0-9a-f]{16}")
#: What is built again after this time is cheaper than what is kept for ever (s).
_KEPT_S = 30 * 86_400.0
#: Of the schema, too: a file that an older Stepscope built lacks columns.
_SCHEMA = repr([(table.name, column.name, column.sql_type) for table in TABLES.values() for column in table.columns])
_building = threading.Lock()
_own = contextlib.ExitStack()
atexit.register(_own.close)


def choose_file() -> Path:
    """Returns the results file that the app reads: the one that `STEPSCOPE_DB` names, else the reader's own as soon as
    it holds a cell or a published table, else the reference rows, if there are any that can be opened."""
    own = default_path()
    if os.environ.get("STEPSCOPE_DB") or _holds_rows(own):
        return find_file(own)
    with contextlib.suppress(StoreError):
        return find_stand_in() or own
    return own


def find_stand_in() -> Path | None:
    """Returns the results file of the reference rows for a reader who names no file. Raises StoreError."""
    return None if os.environ.get("STEPSCOPE_DB") else find_reference()


def find_file(named: Path | None = None) -> Path:
    """Returns the results file to read where this one is named, or none: a packed folder, alone or in a list, stands
    for the file that is built of it. Raises StoreError for a folder that cannot be opened."""
    return join(_build(one.absolute()) if is_packed(one) else one for one in split(named or default_path()))


def find_reference() -> Path | None:
    """Returns the results file of the reference rows; None where there are none. Raises StoreError where they cannot be
    opened."""
    folder = Path(os.environ.get("STEPSCOPE_REFERENCE", _SHIPPED))
    return _build(folder.absolute()) if is_packed(folder) else None


def is_reference(path: Path) -> bool:
    """Returns whether the results file was built of a packed folder."""
    return _NAME.fullmatch(path.parent.name) is not None


def describe_reference(devices: Sequence[str | None]) -> str:
    """Says whose rows these are, given the devices of the runs, after the word `reference`."""
    names = list(dict.fromkeys(with_article(name) for name in devices if name)) or ["another machine"]
    return f"rows of {', '.join(names)} that come with Stepscope, not of your machine."


def with_article(device: str) -> str:
    """Returns the name as it is said: `an NVIDIA H200`, `a Tesla V100`."""
    word = device.split()[0] if device.split() else ""
    vowels = "AEFHILMNORSX" if word.isupper() else "AEIOUaeiou"
    return f"{'an' if word[:1] in vowels else 'a'} {device}"


def _holds_rows(path: Path) -> bool:
    """Returns whether a reader has rows of their own; yes, where the file cannot be read, which is then explained."""
    try:
        return _has_rows(path.absolute(), fingerprint(path))
    except StoreError:
        return True


@lru_cache(maxsize=4)
def _has_rows(path: Path, state: str) -> bool:
    """Returns whether the file has a cell or a published table, worked out once for each `state` of it."""
    query = f"SELECT EXISTS (FROM ({EVERY_CELL})) OR EXISTS (FROM runs WHERE source = 'published')"
    try:
        with open_reader(path) as reader:
            return reader.execute(query).fetchone() == (True,)
    except DatabaseMissing:
        return False


# ----------------------------------------------------------------------------------------------- from Parquet to a file


def _build(folder: Path) -> Path:
    """Returns the results file of a packed folder, and makes it where this content has none yet."""
    files = tuple(sorted(folder.glob(f"*{ENDING}")))
    for file in files:
        check_place(file)
    try:
        states = tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files)
        name = f"reference-{_hash(folder.name, files, states)}"
    except OSError as error:
        do = "Let this user read it (chmod a+rX)."
        raise StoreError(f"{folder} cannot be read: {explain_error(error)}.", do=do) from error
    with _building:
        cache = _find_cache()
        path = cache / name / f"reference-{folder.name}.duckdb"
        if not path.exists():
            try:
                _make(folder, path)
            except OSError as error:
                do = "Make room there, or name another folder with XDG_CACHE_HOME."
                raise StoreError(f"{cache} cannot be written: {error.strerror}.", do=do) from error
            for made in cache.iterdir():
                with contextlib.suppress(OSError):
                    if time.time() - made.stat().st_mtime > _KEPT_S:
                        shutil.rmtree(made)
    return path


@lru_cache(maxsize=4)
def _hash(name: str, files: tuple[Path, ...], states: tuple[tuple[int, int], ...]) -> str:
    """Returns 16 hex digits of the folder's name and content, read once for each of its `states`."""
    found = hashlib.sha256(f"{_SCHEMA} {name} ".encode())
    for file in files:
        found.update(f"{file.name} {file.stat().st_size} ".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def _find_cache() -> Path:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope"
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except (OSError, RuntimeError):  # a home that is read-only, or none
        pass
    return _find_temporary()


@lru_cache(maxsize=1)
def _find_temporary() -> Path:
    """Returns a folder that lasts as long as the process."""
    return _own.enter_context(temporary_folder("reference"))


def _make(folder: Path, path: Path) -> None:
    """Builds the file beside its place and puts it there as a whole; of two processes that build it one is first."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parents[1]) as name:
        half = Path(name, "half.duckdb")
        unpack(folder, half)
        (whole := Path(name, "whole")).mkdir()
        half.rename(whole / path.name)
        try:
            whole.rename(path.parent)
        except OSError:
            if not path.exists():
                raise
