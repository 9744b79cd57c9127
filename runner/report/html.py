"""A report as one HTML file with its charts: the page *Report* of the dashboard, saved.

    Path("report.html").write_text(render_html(rows))

Charts are drawn by the dashboard, of which the runner imports nothing: another process does it, where the packages of
the app are installed. Limits: 10 s or more, most of it drawing the page.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from runner.errors import StepscopeError, UsageError
from runner.report.rows import Rows
from runner.visible import visible

#: The packages that the dashboard needs beside the runner.
_PACKAGES = ("streamlit", "plotly", "pandas", "pyarrow", "markdown_it")
_SECONDS = 600
_ROOT = Path(__file__).parents[2]


def render_html(rows: Rows) -> str:
    """Returns the file's text. Raises UsageError where the packages of the app are missing, StepscopeError where the
    page could not be drawn."""
    if not rows.runs:
        raise UsageError("This file has no measured run, so there is nothing to draw.", do="python -m runner sweep")
    missing = [name for name in (*_PACKAGES, "pages") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"An HTML report is drawn by the dashboard, which lacks {', '.join(missing)}.",
            do="Install the app (pip install -c requirements.lock -e '.[app]'), or ask for --format markdown.",
        )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pages.export", "report", "--db", str(rows.path.absolute()), "--out", folder]
        command += _list_parameters(rows)
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_SECONDS, check=False)
        file = Path(folder) / "report.html"
        if done.returncode or not file.exists():
            last = visible(next(reversed(done.stderr.strip().splitlines()), "no message")).removeprefix("error: ")
            raise StepscopeError(
                f"The HTML report could not be drawn: {last}", do="--format markdown needs no dashboard."
            )
        return file.read_text(encoding="utf-8")


def _list_parameters(rows: Rows) -> list[str]:
    """Returns the parameters of the page's address."""
    scope = rows.scope
    run = [f"--run={found.name}" for found in rows.runs if found.run_id == scope.run]
    return [f"--machine={rows.machine}", *run, *([f"--edition={scope.edition}"] if scope.edition else [])]
