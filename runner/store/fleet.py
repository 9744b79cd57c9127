"""Several results files named together: a folder, or a list as `STEPSCOPE_DB` takes it.

    >>> list_files(Path("results/"))
    [PosixPath('results/node1.duckdb'), PosixPath('results/node2.duckdb')]

A folder stands for its files that end in `.duckdb`, and for those of which there is only a spool yet. The files are
read as one: each is attached read-only, with one view a table over all of them and their spools. Nothing is copied or
merged. A file that cannot be read is left out and named (`survey_fleet`), and so is a damaged table of one file. A run
that several files have, as a merged file and its parts do, is taken whole from the one that has most of its cells.
Limits: a file that another program holds for writing is left out until it or another changes.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runner.errors import StoreError, UsageError
from runner.places import check_place, explained, is_list, split
from runner.store.attached import missing_error
from runner.store.contract import Survey, survey
from runner.store.shared import Taken
from runner.store.spool import Spool

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
    with explained(f"{path} cannot be read", do="Get the right to read it."):
        names = {name.removesuffix(_SPOOL) for name in os.listdir(path)}
    return [path / name for name in sorted(names) if name.endswith(_ENDING) and not name.startswith(".")]


def join(paths: Iterable[Path]) -> Path:
    """Returns the list of these paths."""
    return Path(os.pathsep.join(map(str, paths)))


def absolute(path: Path) -> Path:
    """Returns the path, or the list of paths, as from the root of the file system."""
    return join(one.absolute() for one in split(path))


#: How many files are examined at once: most of an examination is waiting for DuckDB, which uses other cores.
_AT_ONCE = 4


def survey_fleet(path: Path, *, patience_s: float) -> Survey:
    """Returns what is wrong with the files together; `broken` names each that is left out, and why."""
    files = [file.absolute() for file in list_files(path)]
    shared = {name for name, count in Counter(file.name for file in files).items() if count > 1}
    named = {file: str(file) if file.name in shared else file.name for file in files}
    surveyed, refused = survey_files(files, patience_s=patience_s)
    rows, left_out, stored = Counter[str](), Counter[str](), dict[str, frozenset[str]]()
    broken = {named[file]: error.got for file, error in refused.items()}
    for file, found in surveyed.items():
        rows.update(found.rows)
        left_out.update(found.left_out)
        stored |= {name: columns | stored.get(name, frozenset()) for name, columns in found.stored.items()}
        broken |= {f"{named[file]}, {name}": why for name, why in Spool(file).find_unreadable().items()}
        broken |= {f"{named[file]}, table {name}": why for name, why in found.damaged.items()}
    return Survey(stored=stored, rows=dict(rows), left_out=dict(left_out), broken=broken)


def survey_files(
    files: Sequence[Path], *, patience_s: float, taken: Taken | None = None
) -> tuple[dict[Path, Survey], dict[Path, StoreError]]:
    """Returns what each file holds, and for the others why they cannot be read. One is examined on `taken`."""

    def examine(file: Path) -> Survey | StoreError:
        try:
            check_place(file)
            if not file.exists():
                spool = Spool(file)
                if spool.files() or spool.plans() or spool.find_unreadable():
                    return Survey()
                if not file.exists():  # rows go from the spool to the file
                    return missing_error(file)
            return survey(file, patience_s=patience_s, taken=taken)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(files, (map if len(files) == 1 else pool.map)(examine, files), strict=True))
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
