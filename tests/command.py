"""Runs the command line as a person does, and reads the rows that it stored in the file.

    done = run("sweep", *TINY, "--contexts", "16,32", db=path)           # in this process; workers have their own
    done = run_apart("show", db=path, env={"COLUMNS": "80"})             # in its own process, like `start`
    cells = rows(path, "SELECT cell_key, status FROM steps")

With `TINY` every cell takes about a tenth of a second and is measured once. A test adds other values after it, because
the last value of an option counts.
Sweeps leave out the ceilings unless `--ceilings` is given: they take 2 s and most tests do not need them.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import psutil
import pytest
from typer.testing import CliRunner, Result

from runner.cli.main import app
from runner.job import Job
from runner.plan.planning import Request, plan
from runner.schema import Cell, StepCell, new_id
from runner.schema.sizes import size_named
from runner.store.database import open_reader
from runner.sweep.request import Settings, parse_request

ROOT = Path(__file__).parent.parent
Found = TypeVar("Found")
#: How long to wait for a command that takes seconds on an idle machine; less than the `timeout` of a test.
PATIENCE_S = 250.0
TINY = shlex.split(
    "--experiment benchmark --sizes toy-64 --contexts 16 --batch 1 --modes train --precisions fp32 --backends eager "
    "--rounds 1 --warmup 1 --steps 3 --max-steps 3 --device cpu"
)


def tiny(**asked: Any) -> StepCell:
    """Returns the cell that `TINY` asks for, with these values changed."""
    values: dict[str, Any] = {
        **size_named("toy-64").numbers, "context": 16, "batch": 1, "mode": "train", "precision": "fp32",
        "warmup_steps": 1, "min_steps": 3, "max_steps": 3,
    }  # fmt: skip
    return StepCell(**(values | asked))


def make_job(cell: Cell, **more: Any) -> Job:
    """Returns the job of measuring a cell on a CPU, of no experiment unless one is named."""
    usual: Any = {"run_id": new_id(), "cell_id": new_id(), "device": "cpu", "device_name": "", "experiment": ""}
    return Job(cell=cell, **(usual | more))


def run(*words: str, db: Path, code: int | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `python -m runner WORDS --db DB` to its end in this process; both outputs come as one. Fails with them where
    it must end with a `code` and ends with another.

    Sweeps share a fork server, so that torch is imported once and not by each of them.
    """
    return run_line(*_line(*words, db=db), code=code)


def run_line(*line: str, code: int | None = None, columns: int = 300) -> subprocess.CompletedProcess[str]:
    """Runs `python -m runner LINE` as it stands."""
    done = _invoke(line, code, columns)
    return subprocess.CompletedProcess(line, done.exit_code, stdout=done.output, stderr=done.stderr)


def run_json(*words: str, db: Path, code: int | None = 0) -> Any:
    """Returns what a command prints with --json, and nothing else on its standard output."""
    return json.loads(_invoke([*_line(*words, db=db), "--json"], code).stdout)


def _invoke(line: Sequence[str], code: int | None, columns: int = 300) -> Result:
    with patch.dict(os.environ), patch.object(sys, "argv", ["runner", *line]):
        done = CliRunner().invoke(app, line, env={"COLUMNS": str(columns)})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert code in (None, done.exit_code), done.output
    return done


def start(
    *words: str, db: Path, env: Mapping[str, str] | None = None, module: str = "runner", **more: Any
) -> subprocess.Popen[str]:
    """Starts the command in its own process. Its output can be read from the pipe at the end."""
    command = [sys.executable, "-m", module, *_line(*words, db=db)]
    known = {**os.environ, "COLUMNS": "300", **(env or {})}
    more = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **more}
    return subprocess.Popen(command, env=known, text=True, **more)


def run_apart(
    *words: str, db: Path, env: Mapping[str, str] | None = None, code: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end in its own process."""
    process = start(*words, db=db, env=env)
    output = ended(process)
    assert code in (None, process.returncode), output
    return subprocess.CompletedProcess(process.args, process.returncode, stdout=output)


def execute(
    *command: str, env: Mapping[str, str] | None = None, code: int | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Runs any program to its end, in the checkout unless `cwd` is another folder. Its two outputs are apart."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    more = {"cwd": ROOT, "timeout": PATIENCE_S, **more}
    done = subprocess.run(command, env=known, capture_output=True, text=True, **more)
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


def _line(*words: str, db: Path) -> list[str]:
    quick = ("--no-ceilings",) if words[0] == "sweep" and not {"--ceilings", "frontier"} & {*words} else ()
    return [*words, *quick, "--db", str(db)]


def ended(process: subprocess.Popen[str]) -> str:
    """Waits for a command to end and returns its output."""
    try:
        return process.communicate(timeout=PATIENCE_S)[0]
    finally:
        process.kill()


def awaited(process: subprocess.Popen[str], look: Callable[[], Found]) -> Found:
    """Returns the result of `look` as soon as it finds something. If the command ends first, fails with its output."""
    while not (found := look()):
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)
    return found


def received(terminal: int) -> Iterator[bytes]:
    """Yields what arrives at a pseudo-terminal until its other end is closed."""
    with contextlib.suppress(OSError):  # Linux raises it then
        while part := os.read(terminal, 65536):
            yield part


def rows(db: Path, sql: str) -> list[dict[str, Any]]:
    """Returns what a reader sees now, as one dictionary a row."""
    with open_reader(db) as connection:
        cursor = connection.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def parsed(*words: str) -> tuple[Request, Settings]:
    """Returns what the words of a `sweep` command ask for: the real command parses them and is stopped after that."""
    stops = patch("runner.sweep.request.parse_request", side_effect=_Parsed)
    with patch("runner.sweep.request.parse_frontier", return_value=None), stops as stopped, pytest.raises(_Parsed):
        app(["sweep", *words], standalone_mode=False)
    return parse_request(*stopped.call_args.args, **stopped.call_args.kwargs)


class _Parsed(Exception):
    """Raised to stop the command after parsing."""


#: The experiments whose cells are end-to-end steps.
STEPS = ("--experiment", "benchmark", "--experiment", "mixed-precision")


def planned(*words: str, device: str = "cpu", memory: int | None = None) -> list[Any]:
    """Returns the cells that a `sweep` command plans; if it names no experiment, those of the experiments on steps."""
    experiments = () if "--experiment" in words else STEPS
    return list(plan(parsed(*experiments, *words)[0], device=device, device_memory_bytes=memory))


def asked(commands: Sequence[str], flag: str) -> set[str]:
    """Returns all values that these commands give to an axis."""
    words = [shlex.split(command) for command in commands]
    return {value for each in words if flag in each for value in each[each.index(flag) + 1].split(",")}


def family(process: subprocess.Popen[str] | psutil.Process) -> list[psutil.Process]:
    """Returns all descendants of a running command: fork server, resource tracker, worker, compilers."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Returns the processes that measure: children of the fork server, each of which leads a process group."""
    found = []
    for child in family(process):
        try:
            parent = child.parent()
            if parent is not None and parent.pid != process.pid and os.getpgid(child.pid) == child.pid:
                found.append(child)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def gone(processes: Sequence[psutil.Process]) -> bool:
    """Returns whether all of them end within a minute. A zombie counts as ended, even before its parent collects it."""
    _, alive = psutil.wait_procs(list(processes), timeout=60.0)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive if process.is_running())
