"""Starts the dashboard and, if that is wanted, a sweep that fills it.

python -m runner app --port 8502 --db results.duckdb
"""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.cli.terminal import Terminal
from runner.errors import INTERRUPTED_CODE, UsageError

_APP = Path(__file__).parents[2] / "app.py"
#: How long a child may take to end (s), before it is killed.
_ENDING_S = 10.0


def serve(console: Terminal, *, port: int | None, db: Path | None, words: Sequence[str], measure: bool) -> int:
    """Runs the dashboard until it ends or is interrupted; with `measure` beside a sweep with the options `words`, which
    else are Streamlit's. Returns the exit code. Raises UsageError where Streamlit is not installed."""
    if importlib.util.find_spec("streamlit") is None:
        raise UsageError("The dashboard needs Streamlit, which is not installed.", do="pip install 'stepscope[app]'")
    command = [sys.executable, "-m", "streamlit", "run", str(_APP)]  # with the configuration beside it
    if port is not None:
        command.append(f"--server.port={port}")
    environment = {**os.environ, **({"STEPSCOPE_DB": str(db)} if db else {})}
    # Groups of their own: what the terminal sends reaches this process alone, which ends them.
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler)
    children = [subprocess.Popen([*command, *(() if measure else words)], env=environment, process_group=0)]
    try:
        if measure:
            console.say("The dashboard starts, and this machine is measured beside it; Ctrl-C ends both.")
            sweep = [sys.executable, "-m", "runner", "sweep", *words]
            children.append(subprocess.Popen(sweep, env=environment, process_group=0))
        return children[0].wait()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second one, while the children end
        return INTERRUPTED_CODE if measure and children[-1].poll() is None else 0
    finally:
        for child in reversed(children):
            if child.poll() is None:
                child.terminate()  # which keeps a sweep's finished cells
            try:
                child.wait(timeout=_ENDING_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
