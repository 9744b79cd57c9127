"""Several results files named together: a folder, or a list as `STEPSCOPE_DB` takes it.

    >>> list_files(Path("results/"))
    [PosixPath('results/node1.duckdb'), PosixPath('results/node2.duckdb')]
    >>> list_files(Path("a.duckdb:/srv/b.duckdb"))
    [PosixPath('a.duckdb'), PosixPath('/srv/b.duckdb')]

A folder stands for its files that end in `.duckdb`, and for those of which there is only a spool yet. The names of a
list stand with `:` between them, as in PATH; a file whose own name has one in it is still one file.
"""

import os
from pathlib import Path

_ENDING, _SPOOL = ".duckdb", ".spool"


def is_fleet(path: Path) -> bool:
    """Returns whether the path names several files: a folder, or a list."""
    return path.is_dir() or _is_list(path)


def list_files(path: Path) -> list[Path]:
    """Returns the results files that a path names, those of a folder in the order of their names; each once."""
    if _is_list(path):
        named = (Path(name) for name in str(path).split(os.pathsep) if name)
        return list(dict.fromkeys(file for one in named for file in list_files(one)))
    if not path.is_dir():
        return [path]
    names = {name.removesuffix(_SPOOL) for name in os.listdir(path)}
    return [path / name for name in sorted(names) if name.endswith(_ENDING) and not name.startswith(".")]


def absolute(path: Path) -> Path:
    """Returns the path, or the list of paths, as from the root of the file system."""
    if not _is_list(path):
        return path.absolute()
    return Path(os.pathsep.join(str(Path(name).absolute()) for name in str(path).split(os.pathsep) if name))


def _is_list(path: Path) -> bool:
    return os.pathsep in str(path) and not path.exists() and not path.with_name(path.name + _SPOOL).exists()
