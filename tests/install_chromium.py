"""Makes sure that the tests have a browser.

    python -m tests.install_chromium

Does nothing if Chromium already starts. Else apt-get installs Debian's headless shell, if this user may run it without
a password; else Playwright downloads its own. If neither starts, one line says why, and the exit code is 1.
"""

import os
import shutil
import subprocess
import sys

from playwright.sync_api import Error

from tests.browser import chromium

PACKAGE = "chromium-headless-shell"
#: How long an installation may take before it counts as failed.
PATIENCE_S = 900.0


def starts() -> bool:
    """Returns whether the browser that the tests use can be started."""
    try:
        with chromium():
            return True
    except Error:
        return False


def call(*command: str) -> str:
    """Runs a command without input. Returns "" if it succeeded, else the line that says what went wrong."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "Error:", "sudo:"))]
    return (errors or lines or [f"exit code {done.returncode}"])[-1]


def as_root() -> tuple[str, ...] | None:
    """Returns the words that run a command as root: () for root itself, sudo else; None if this user may not."""
    if os.geteuid() == 0:
        return ()
    return ("sudo", "-n") if shutil.which("sudo") and not call("sudo", "-n", "true") else None


def install_by_apt() -> str:
    """Returns "", or why Debian's package could not be installed."""
    if shutil.which("apt-get") is None:
        return "not here"
    if (root := as_root()) is None:
        return "needs root, or sudo without a password"
    apt = (*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q")
    return call(*apt, "update") or call(*apt, "install", "-y", "--no-install-recommends", PACKAGE)


def main() -> None:
    if starts():
        return
    failed = []
    download = (sys.executable, "-m", "playwright", "install", "--only-shell", "chromium")
    for name, install in (("apt-get", install_by_apt), ("Playwright's download", lambda: call(*download))):
        print(f"No Chromium starts here: trying {name}", flush=True)
        why = install()
        if starts():
            return
        failed.append(f"{name}: {why or 'installed, but it does not start'}")
    sys.exit(
        f"The tests need Chromium, and it could not be installed ({'; '.join(failed)}). Install {PACKAGE} or Chrome."
    )


if __name__ == "__main__":
    main()
