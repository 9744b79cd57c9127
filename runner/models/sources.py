"""The code of an own model: imported because somebody named it on the command line, and hashed, so that another version
is another model.

Whatever the code does at import, reading the command line, leaving the process, forking, becomes one error or nothing.
Limits: modules that are imported only when the model is built are no part of the key.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

from runner.errors import BadModel
from runner.schema.own import OwnSpec

#: What an own model's function is.
SIGNATURE = "a function of one argument that returns a module and a batch, and, if wanted, a loss"


def import_source(spec: OwnSpec) -> tuple[ModuleType, Path]:
    """Imports the file or the package, and returns it with the folder whose sources count. Raises BadModel."""
    with as_a_program(spec):
        return _import_file(spec) if spec.kind == "file" else _import_package(spec)


def _import_file(spec: OwnSpec) -> tuple[ModuleType, Path]:
    path = Path(spec.where).absolute()
    if not path.is_file():
        raise BadModel(f"There is no file {spec.where}.", expected="a Python file", do=f"Looked in {Path.cwd()}.")
    sys.path.insert(0, str(path.parent))
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    found.loader.exec_module(module)
    return module, path.parent


def _import_package(spec: OwnSpec) -> tuple[ModuleType, Path]:
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module(spec.where)
    top = sys.modules[spec.where.partition(".")[0]]
    file = getattr(top, "__file__", None) or module.__file__
    assert file is not None
    return module, Path(file).absolute().parent


@contextlib.contextmanager
def as_a_program(spec: OwnSpec) -> Iterator[None]:
    """Gives the user's code an empty command line, and turns whatever it raises into one clear error."""
    before, sys.argv, process = sys.argv, [spec.where], os.getpid()
    try:
        yield
    except BadModel:
        raise
    except SystemExit as error:
        raise BadModel(
            f"{spec.text} ended the process: sys.exit({error.code!r}).",
            expected="code that can be imported, and a function that returns",
            do="Read options with want.option(name, default) instead of the command line.",
        ) from error
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise BadModel(
            f"{spec.text} raised {type(error).__name__}: {error}",
            expected=SIGNATURE,
            do="Try it alone: python -m runner model check.",
        ) from error
    finally:
        sys.argv = before
        if os.getpid() != process:  # the user's code has forked, and this is the child
            os._exit(0)


def hash_sources(spec: OwnSpec, root: Path) -> str:
    """Returns 16 hex digits of the sources that were imported from the model's folder, of the function and the options.
    Installed packages are no part of it, unless the model is in one."""
    digest = hashlib.sha256(repr((spec.function, sorted(spec.options.items()))).encode())
    packages = ("site-packages", "dist-packages")
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    for path in sorted({Path(file) for file in files if file}):
        is_own = path.is_relative_to(root) and not any(part in packages for part in path.relative_to(root).parts)
        if is_own and path.suffix == ".py" and not _is_ours(path):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _is_ours(path: Path) -> bool:
    """Returns whether a file is part of Stepscope, which may lie in the model's folder."""
    return path.is_relative_to(Path(__file__).parents[1])
