"""The host names and websites that the server answers, its headers for browsers: real pages and WebSockets."""

import contextlib
import http.client
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pages.api.hosts import is_known, is_known_origin, list_known_names
from tests.browser import served
from tests.some import some
from tests.synthetic import rows

#: Paths, of which the last two go the way of another.
HOST_PATHS = ("/", "/api/v1", "/_stcore/health", "/training-step", "/healthz")
UPGRADE = {
    "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}  # fmt: skip


@pytest.fixture(scope="module")
def address(module_db: Path, asked: Path) -> Iterator[str]:
    """Yields the address of a server whose contacts are recorded (`asked`)."""
    rows.store(module_db, of := rows.run(), [rows.ok(of, rows.asked())])
    hosts = "stepscope.example.com, *.lab.example"
    with served(module_db, env={"STREAMLIT_SERVER_ADDRESS": "0.0.0.0", "STEPSCOPE_HOSTS": hosts}) as found:
        yield found


def ask(address: str, path: str, host: str, **more: str) -> tuple[int, str, http.client.HTTPMessage]:
    """Returns the status, body and headers of the answer to a request with this Host."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)) as connection:
        connection.request("GET", path, headers={"Host": host, **more})
        with connection.getresponse() as answer:
            body = "" if answer.status == 101 else answer.read().decode()
            return answer.status, body, answer.headers


@pytest.mark.parametrize("path", some(HOST_PATHS, HOST_PATHS[:3]))
def test_a_foreign_host_name_is_refused(address: str, path: str) -> None:
    """A foreign name may resolve to this server (DNS rebinding). Listed names and addresses are answered."""
    status, body, _ = ask(address, path, "attacker.example:8501")
    assert status == 421
    assert "STEPSCOPE_HOSTS" in body
    for host in ("stepscope.example.com", "gpu1.lab.example:443", "localhost:1", "127.0.0.1", "[::1]:8501"):
        assert ask(address, path, host)[0] == 200, host


def test_the_websocket_refuses_foreign_host_names_too(address: str) -> None:
    own = {**UPGRADE, "Origin": "http://attacker.example"}
    assert ask(address, "/_stcore/stream", "attacker.example", **own)[0] == 403
    own = {**UPGRADE, "Origin": "https://stepscope.example.com"}
    assert ask(address, "/_stcore/stream", "stepscope.example.com", **own)[0] == 101


PATHS = ["/", "/training-step", "/api/v1", "/healthz", "/_stcore/health", "/_stcore/host-config", "/_stcore/stream"]


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_website_is_refused(address: str, path: str) -> None:
    """A website that a reader visits can have their browser send requests to localhost."""
    upgrade = UPGRADE if path.endswith("stream") else {}
    known = "http://localhost:8501", "https://gpu1.lab.example"
    for origin in ("http://example.org", "http://203.0.113.9:8501", "null", "", "http://[", "localhost", "file://"):
        assert ask(address, path, "localhost", Origin=origin, **upgrade)[0] == 403, origin
    for origin in known:
        assert ask(address, path, origin.partition("//")[2], Origin=origin, **upgrade)[0] in (101, 200), origin
    assert ask(address, path, "10.0.0.3:8501", Origin="http://10.0.0.3:8501", **upgrade)[0] in (101, 200)


def test_no_origin_makes_the_server_ask_the_web(asked: Path, address: str) -> None:
    """Streamlit would look up its own address for the line that it prints, and for every origin that it does not know,
    and answers nobody meanwhile."""
    origins = [f"http://{number}.example.org" for number in range(10)]
    with ThreadPoolExecutor(10) as threads:
        answers = threads.map(
            lambda origin: ask(address, "/_stcore/stream", "localhost", **UPGRADE, Origin=origin)[0], origins
        )
        began = time.monotonic()
        assert ask(address, "/api/v1/state", "localhost")[0] == 200
        assert time.monotonic() - began < 5
        assert set(answers) == {403}
    # this website's name is known, but it asks another host, which Streamlit does not accept
    assert ask(address, "/_stcore/stream", "127.0.0.1", **UPGRADE, Origin="http://sub.localhost")[0] == 403
    events = asked.read_text().splitlines() if asked.exists() else []
    near = ("0.0.0.0", "8.8.8.8")  # the latter is no request: nothing is sent
    assert [event for event in events if event.split()[-1] not in near] == []


@pytest.mark.parametrize("path", ["/", "/api/v1", "/healthz", "/api/v2"])
def test_browsers_may_load_nothing_from_elsewhere(address: str, path: str) -> None:
    _, _, headers = ask(address, path, "localhost")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]
    assert "img-src 'self' data: blob:" in headers["Content-Security-Policy"]


def test_known_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_HOSTS", " Lab.Example ,")
    monkeypatch.setattr("socket.gethostname", lambda: "gpu1.inside")
    names = list_known_names()
    for host in ("lab.example", "LAB.example.:80", "gpu1", "gpu1.inside", "gpu1.local", "10.0.0.3:8501", "[fe80::1]"):
        assert is_known(host, names), host
    for host in ("", "lab.example.evil", "xlab.example", "10.0.0.3.evil.example", "[", "localhost.evil", "a@b.example"):
        assert not is_known(host, names), host
        assert not is_known_origin(f"http://{host}", "localhost", names), host
    for origin in ("http://lab.example", "https://GPU1:8501", "http://10.0.0.3"):
        assert is_known_origin(origin, "10.0.0.3:8501", names), origin
    assert not is_known_origin("http://10.0.0.3", "10.0.0.4", names)
    monkeypatch.setenv("STEPSCOPE_HOSTS", "*")
    assert is_known("anything.example", list_known_names())
