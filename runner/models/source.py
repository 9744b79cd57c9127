"""The code of a user's own, imported because somebody named it on the command line.

    attend = load_part("kernels/flash.py:attend@1a2b3c4d")

Whatever the code does at import, reading the command line, leaving the process, forking, becomes one error or nothing.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from runner.errors import BadModel
from runner.schema.own import OwnSpec, find_part, parse_spec

#: What is kept of an error that a model's own code raises (characters).
MAX_REASON = 2000
#: What an own model's function is.
SIGNATURE = "a function of one argument that returns a module and a batch, and, if wanted, a loss"


def load_part(value: str) -> Callable[..., Any]:
    """Returns the function that a row's attention, loss or optimizer names. Raises BadModel where it cannot be imported
    or its source is no longer that of the row."""
    spec = parse_spec(find_part(value).rpartition("@")[0])
    with as_a_program(spec, expected="a function"):
        module, _ = import_file(spec)
    function: Callable[..., Any] = getattr(module, spec.function)
    return function


def import_file(spec: OwnSpec) -> tuple[ModuleType, Path]:
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


def import_package(spec: OwnSpec) -> tuple[ModuleType, Path]:
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module(spec.where)
    top = sys.modules[spec.where.partition(".")[0]]
    file = getattr(top, "__file__", None) or module.__file__
    assert file is not None
    return module, Path(file).absolute().parent


def find_line(error: BaseException, spec: OwnSpec) -> str:
    """Returns the innermost line of the user's own file in an error's traceback, as `FILE:LINE`; the file without."""
    file = spec.where if spec.kind == "file" else getattr(sys.modules.get(spec.where), "__file__", None) or spec.where
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == Path(file).absolute()]
    return f"{file}:{lines[-1]}" if lines else file


@contextlib.contextmanager
def as_a_program(spec: OwnSpec, *, expected: str = SIGNATURE) -> Iterator[None]:
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
            f"{spec.text} raised {type(error).__name__}: {str(error)[:MAX_REASON].rstrip('.')}.",
            expected=expected,
            do=f"Look at {find_line(error, spec)}.",
        ) from error
    finally:
        sys.argv = before
        if os.getpid() != process:  # the user's code has forked, and this is the child
            os._exit(0)
