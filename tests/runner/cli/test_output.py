"""What becomes of a command whose output is closed, full, ends or lacks characters; and the dashboard it starts."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.command import PATIENCE_S, ROOT, TINY, rows

RUNNER = f"{sys.executable} -m runner"


def shell(line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash that names the runner `$RUNNER`; the exit code is that of the first command of a pipe."""
    line = f"{line}; exit ${{PIPESTATUS[0]}}"
    names = {**os.environ, "RUNNER": RUNNER, "COLUMNS": "100", **env}
    command = ["bash", "-c", line]
    return subprocess.run(command, cwd=ROOT, env=names, capture_output=True, timeout=PATIENCE_S, encoding="latin-1")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("$RUNNER >&-", 0, ""),
        ("$RUNNER 2>&-", 0, ""),
        ("$RUNNER show presets >/dev/full", 74, "error: The output cannot be written: No space left on device."),
        ("$RUNNER show --nonsense >/dev/full", 2, ""),
        ("$RUNNER show --nonsense 2>/dev/full", 2, ""),
        ("$RUNNER show columns | true", 0, ""),
        ("$RUNNER --help >/dev/full", 74, "No space left"),
    ],
)
def test_an_output_that_fails_gives_no_traceback(line: str, code: int, said: str) -> None:
    done = shell(line)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.soak)])
def test_a_character_that_the_encoding_lacks_is_replaced(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "\u0127.csv").write_text("a,b")
    done = shell(f"$RUNNER import {tmp_path}/\u0127.csv --propose", PYTHONIOENCODING=encoding)
    assert "?.csv" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_a_sweep_keeps_its_rows_when_its_reader_ends(db: Path) -> None:
    words = shlex.join((*TINY, "--contexts", "16,32", "--no-ceilings", "--db", str(db)))
    assert shell(f"$RUNNER sweep {words} | true").returncode == 0
    found = rows(db, "SELECT context, status FROM steps ORDER BY context")
    assert found == [{"context": 16, "status": "ok"}, {"context": 32, "status": "ok"}]


@pytest.mark.soak
def test_app_serves_from_any_folder_and_ends_with_an_interrupt(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "runner", "app", "--port", str(port)]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health") as answer:
                assert answer.status == 200
            break
        except OSError:
            assert time.monotonic() < until
            assert process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, text
    assert f"localhost:{port}" in text
    assert "Traceback" not in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://localhost:{port}/_stcore/health")
