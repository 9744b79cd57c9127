"""Ctrl-C in a sweep's first seconds, while it imports, starts its fork server or describes the machine, is one line."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.errors import INTERRUPTED, INTERRUPTED_CODE
from tests.command import PATIENCE_S, TINY, family, gone, start


def imported(name: str) -> Callable[["subprocess.Popen[str]"], bool]:
    """Returns a function that tells whether the command has started to import a module."""

    def look(process: "subprocess.Popen[str]") -> bool:
        assert process.stderr is not None
        return name in process.stderr.readline()

    return look


def serving(process: "subprocess.Popen[str]") -> bool:
    """Returns whether the fork server is importing torch, or has: it takes 60 MB as soon as it does."""
    time.sleep(0.02)
    with contextlib.suppress(psutil.Error):
        return any(child.memory_info().rss > 60e6 for child in family(process))
    return False


@pytest.mark.parametrize(
    "moment",
    [imported("typer"), pytest.param(imported("duckdb"), marks=pytest.mark.soak), serving],
    ids=["typer", "duckdb", "server"],
)
def test_an_early_interrupt_is_one_line_and_leaves_no_process(
    tmp_path: Path, moment: Callable[["subprocess.Popen[str]"], bool]
) -> None:
    """The terminal sends the signal to the whole process group, which includes the fork server."""
    env = {"PYTHONPROFILEIMPORTTIME": "1"} if moment is not serving else {}
    apart: Any = {"stderr": subprocess.PIPE, "start_new_session": True}
    process = start("sweep", *TINY, db=tmp_path / "r.duckdb", env=env, **apart)
    while not moment(process):
        assert process.poll() is None
    everyone = family(process)
    os.killpg(process.pid, signal.SIGINT)
    lines = process.communicate(timeout=PATIENCE_S)[1].splitlines()
    first, *command = [line for line in lines if not line.startswith("import time:")]
    assert first == INTERRUPTED
    # If the command line had been parsed by then, the command that continues the sweep follows.
    assert len(command) <= 1
    assert all(line.startswith("  python -m runner sweep ") for line in command)
    # Python ends by the signal itself if it arrived while an extension ran Python code; a shell shows 130 then, too.
    assert process.returncode in (INTERRUPTED_CODE, -signal.SIGINT)
    assert gone(everyone)
    assert os.listdir(tmp_path) == []
