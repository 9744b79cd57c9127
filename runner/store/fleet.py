"""Several results files named together: a folder, or a list as `STEPSCOPE_DB` takes it.

    >>> list_files(Path("results/"))
    [PosixPath('results/node1.duckdb'), PosixPath('results/node2.duckdb')]
    >>> list_files(Path("a.duckdb:/srv/b.duckdb"))
    [PosixPath('a.duckdb'), PosixPath('/srv/b.duckdb')]

A folder stands for its files that end in `.duckdb`, and for those of which there is only a spool yet. The names of a
list stand with `:` between them, as in PATH; a file whose own name has one in it is still one file.
"""

import os
from collections.abc import Iterable
from pathlib import Path

_ENDING, _SPOOL = ".duckdb", ".spool"


def is_fleet(path: Path) -> bool:
    """Returns whether the path names several files: a folder, or a list."""
    return path.is_dir() or _is_list(path)


def list_files(path: Path) -> list[Path]:
    """Returns the results files that a path names, those of a folder in the order of their names; each once."""
    if _is_list(path):
        return list(dict.fromkeys(file for one in split(path) for file in list_files(one)))
    if not path.is_dir():
        return [path]
    names = {name.removesuffix(_SPOOL) for name in os.listdir(path)}
    return [path / name for name in sorted(names) if name.endswith(_ENDING) and not name.startswith(".")]


def split(path: Path) -> list[Path]:
    """Returns the files and folders of a list; of any other path, that one."""
    return [Path(name) for name in str(path).split(os.pathsep) if name] if _is_list(path) else [path]


def join(paths: Iterable[Path]) -> Path:
    """Returns the list of these paths."""
    return Path(os.pathsep.join(map(str, paths)))


def absolute(path: Path) -> Path:
    """Returns the path, or the list of paths, as from the root of the file system."""
    return join(one.absolute() for one in split(path))


def _is_list(path: Path) -> bool:
    return os.pathsep in str(path) and not path.exists() and not path.with_name(path.name + _SPOOL).exists()
