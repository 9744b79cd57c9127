"""Where the tests get a browser on a machine without one: apt-get, else Playwright's download, else an error of one
line.

They run in `make soak` only: Playwright tries its download five times.
"""

import http.server
import io
import shlex
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import installed
from tests.command import execute

pytestmark = pytest.mark.soak


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Returns a folder for PATH with all programs of a simulated system without a browser."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("env", "ln", "sh"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    return folder


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def install(programs: Path, *, downloads: str = "http://localhost:1") -> subprocess.CompletedProcess[str]:
    """Runs the installation with `programs` as PATH and without an earlier download. Nothing listens on port 1."""
    env = {"PATH": str(programs), "PLAYWRIGHT_DOWNLOAD_HOST": downloads}
    env["PLAYWRIGHT_BROWSERS_PATH"] = str(programs.parent / "browsers")
    return execute(sys.executable, "-m", "tests.install_chromium", env=env, timeout=None)


@pytest.mark.skipif(installed() is None, reason="there is no Chromium that apt-get could have installed")
def test_apt_get_installs_it(programs: Path) -> None:
    link = shlex.join(["ln", "-sf", str(installed()), str(programs / "chromium-headless-shell")])
    write_program(programs / "apt-get", f'case "$*" in *" install "*) {link};; esac')
    write_program(programs / "sudo", 'shift; exec "$@"')
    first, second = install(programs), install(programs)
    assert (first.returncode, first.stdout, first.stderr) == (0, "No Chromium starts here: trying apt-get\n", "")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


class Archive(http.server.BaseHTTPRequestHandler):
    """Answers every request with an archive of a browser of the requested name, a script that starts the real one."""

    def do_GET(self) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for folder, name in (("chrome-headless-shell-linux64", "chrome-headless-shell"),
                                 ("chrome-linux", "headless_shell"), ("", "ffmpeg-linux")):  # fmt: skip
                entry = zipfile.ZipInfo(f"{folder}/{name}".lstrip("/"))
                entry.external_attr = 0o755 << 16
                archive.writestr(entry, f'#!/bin/sh\nexec {shlex.quote(str(installed()))} "$@"\n')
        self.send_response(200)
        self.send_header("Content-Length", str(len(packed.getvalue())))
        self.end_headers()
        self.wfile.write(packed.getvalue())

    def log_message(self, format: str, *words: object) -> None:
        pass


@pytest.fixture
def downloads() -> Iterator[str]:
    """Yields the address of a server that replaces Playwright's."""
    with http.server.ThreadingHTTPServer(("localhost", 0), Archive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(installed() is None, reason="there is no Chromium that could be downloaded from here")
def test_playwright_downloads_it_where_apt_get_fails(programs: Path, downloads: str) -> None:
    write_program(programs / "apt-get", "echo E: Unable to locate package >&2; exit 100")
    write_program(programs / "sudo", 'shift; exec "$@"')
    done = install(programs, downloads=downloads)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("trying apt-get\nNo Chromium starts here: trying Playwright's download\n")


def test_where_neither_can_one_line_says_so(programs: Path) -> None:
    done = install(programs)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("The tests need Chromium, and it could not be installed (apt-get: not here; Playwright's")
    assert "ECONNREFUSED" in line
    assert line.endswith("). Install chromium-headless-shell or Chrome.")
