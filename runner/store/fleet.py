"""Several results files named together: a folder, or a list as `STEPSCOPE_DB` takes it.

    >>> list_files(Path("results/"))
    [PosixPath('results/node1.duckdb'), PosixPath('results/node2.duckdb')]

A folder stands for its files that end in `.duckdb`, and for those of which there is only a spool yet. The files are
read as one: each is attached read-only, with one view a table over all of them and their spools. Nothing is copied or
merged. A file that cannot be read is left out and named (`survey_fleet`), and so is a damaged table of one file. A run
that several files have, as a merged file and its parts do, is taken whole from the one that has most of its cells.
Limits: a file that another program holds for writing is left out until it or another changes.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import DatabaseMissing, StoreError, UsageError
from runner.places import check_place, explain_error, is_list, split
from runner.store.attached import (
    busy_error,
    connect,
    foreign_error,
    format_reason,
    is_damage,
    missing_error,
    try_attach,
)
from runner.store.contract import Survey, survey
from runner.store.shared import mark, spilling
from runner.store.spool import Spool
from runner.store.views import Member, choose_files, make_views

_ENDING, _SPOOL = ".duckdb", ".spool"


def is_fleet(path: Path) -> bool:
    """Returns whether the path names several files: a folder, or a list."""
    return os.path.isdir(path) or is_list(path)


def list_files(path: Path) -> list[Path]:
    """Returns the results files that a path names, those of a folder in the order of their names; each once. Raises
    StoreError for a folder that cannot be read."""
    if is_list(path):
        return list(dict.fromkeys(file for one in split(path) for file in list_files(one)))
    if not os.path.isdir(path):
        return [path]
    try:
        names = {name.removesuffix(_SPOOL) for name in os.listdir(path)}
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {explain_error(error)}.", do="Get the right to read it.") from None
    return [path / name for name in sorted(names) if name.endswith(_ENDING) and not name.startswith(".")]


def join(paths: Iterable[Path]) -> Path:
    """Returns the list of these paths."""
    return Path(os.pathsep.join(map(str, paths)))


def absolute(path: Path) -> Path:
    """Returns the path, or the list of paths, as from the root of the file system."""
    return join(one.absolute() for one in split(path))


#: How many files are examined at once: most of an examination is waiting for DuckDB, which uses other cores.
_AT_ONCE = 4


@contextlib.contextmanager
def open_fleet(
    path: Path, *, patience_s: float, folder: Path | None = None, limits: Sequence[str] = ()
) -> Iterator[DuckDBPyConnection]:
    """Yields a connection as `runner.store.database.open_reader` does. Raises DatabaseMissing where there is no file,
    and what is wrong with the first of them where none can be read."""
    files = [file.absolute() for file in list_files(path)]
    with contextlib.ExitStack() as held:
        locked = [file for file in files if held.enter_context(Spool(file).lock("shared", patience_s=patience_s))]
        surveyed, broken = _survey_all(locked, patience_s=patience_s)
        broken |= {file: busy_error(file) for file in files if file not in locked}
        con = held.enter_context(connect(*surveyed, folder=folder, limits=limits or spilling()))
        members = []
        for number, (file, found) in enumerate(surveyed.items()):
            member = Member(path=file, survey=found.readable(), alias=f"file{number}")
            if not file.exists() or try_attach(con, file, access="READ_ONLY", alias=member.alias):
                members.append(member)
            else:
                broken[file] = busy_error(file)
        if not files:
            expected, do = "files *.duckdb", "Merge or copy some there."
            raise DatabaseMissing(f"{path} has no results file.", expected=expected, do=do)
        if not members:
            raise broken[files[0]]
        make_views(con, choose_files(con, members), {})
        mark(con, origin=" ".join(member.survey.origin for member in members))
        try:
            yield con
        except (duckdb.Error, UnicodeDecodeError) as error:
            if is_damage(error):
                raise foreign_error(path, format_reason(error)) from error
            raise


def survey_fleet(path: Path, *, patience_s: float) -> Survey:
    """Returns what is wrong with the files together; `broken` names each that is left out, and why."""
    files = [file.absolute() for file in list_files(path)]
    surveyed, refused = _survey_all(files, patience_s=patience_s)
    rows, left_out, broken = Counter[str](), Counter[str](), dict[str, str]()
    for file, error in refused.items():
        broken[_short(file, files)] = error.got
    stored: dict[str, frozenset[str]] = {}
    for file, found in surveyed.items():
        rows.update(found.rows)
        left_out.update(found.left_out)
        stored |= {name: columns | stored.get(name, frozenset()) for name, columns in found.stored.items()}
        broken |= {f"{_short(file, files)}, {name}": why for name, why in found.broken.items()}
        for name, why in found.damaged.items():
            broken[f"{_short(file, files)}, table {name}"] = why
    return Survey(stored=stored, rows=dict(rows), left_out=dict(left_out), broken=broken)


def _survey_all(files: Sequence[Path], *, patience_s: float) -> tuple[dict[Path, Survey], dict[Path, StoreError]]:
    """Returns what each file holds, and for the others why they cannot be read."""

    def examine(file: Path) -> Survey | StoreError:
        try:
            check_place(file)
            unread = Spool(file).find_unreadable()
            if file.exists():
                return replace(survey(file, patience_s=patience_s), broken=unread)
            if Spool(file).files() or Spool(file).plans() or unread:
                return Survey(broken=unread)
            return missing_error(file)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(files, pool.map(examine, files), strict=True))
    surveyed = {file: one for file, one in found.items() if isinstance(one, Survey)}
    return surveyed, {file: one for file, one in found.items() if isinstance(one, StoreError)}


def refuse_fleet(path: Path) -> None:
    """Raises UsageError for a fleet, which is for reading."""
    if is_fleet(path):
        raise UsageError(
            f"{path} names several results files, to which nothing can be added.",
            expected="one file",
            do="Name it with --db, such as --db results.duckdb.",
        )


def _short(file: Path, files: Sequence[Path]) -> str:
    """Returns the file's name; the whole path where another file has the same name."""
    return file.name if sum(other.name == file.name for other in files) == 1 else str(file)
