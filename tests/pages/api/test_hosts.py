"""The host names to which the server answers, and its headers for browsers: tested with real pages and WebSockets."""

import contextlib
import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from pages.api.hosts import is_known, list_known_names
from tests.browser import served
from tests.synthetic import rows

UPGRADE = {
    "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    of = rows.run()
    path = rows.store(tmp_path_factory.mktemp("hosts") / "results.duckdb", of, [rows.ok(of, rows.asked())])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_HOSTS", "stepscope.example.com, *.lab.example")
        with served(path) as found:
            yield found


def asked(address: str, path: str, host: str, **more: str) -> tuple[int, str, http.client.HTTPMessage]:
    """Returns the status, body and headers of the answer to a request with this Host."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)) as connection:
        connection.request("GET", path, headers={"Host": host, **more})
        with connection.getresponse() as answer:
            body = "" if answer.status == 101 else answer.read().decode()
            return answer.status, body, answer.headers


@pytest.mark.parametrize("path", ["/", "/training-step", "/api/v1", "/healthz", "/_stcore/health"])
def test_a_foreign_host_name_is_refused(address: str, path: str) -> None:
    """A foreign name may resolve to this server (DNS rebinding). Listed names and addresses are answered."""
    status, body, _ = asked(address, path, "attacker.example:8501")
    assert status == 421
    assert "STEPSCOPE_HOSTS" in body
    for host in ("stepscope.example.com", "gpu1.lab.example:443", "localhost:1", "127.0.0.1", "[::1]:8501"):
        assert asked(address, path, host)[0] == 200, host


def test_the_websocket_refuses_foreign_host_names_too(address: str) -> None:
    own = {**UPGRADE, "Origin": "http://attacker.example"}
    assert asked(address, "/_stcore/stream", "attacker.example", **own)[0] == 403
    own = {**UPGRADE, "Origin": "https://stepscope.example.com"}
    assert asked(address, "/_stcore/stream", "stepscope.example.com", **own)[0] == 101


@pytest.mark.parametrize("path", ["/", "/api/v1", "/healthz", "/api/v2"])
def test_browsers_may_load_nothing_from_elsewhere(address: str, path: str) -> None:
    _, _, headers = asked(address, path, "localhost")
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
    strangers = ("", "lab.example.evil", "xlab.example", "10.0.0.3.evil.example", "[", "localhost.evil", "a@b.example")
    for host in strangers:
        assert not is_known(host, names), host
    monkeypatch.setenv("STEPSCOPE_HOSTS", "*")
    assert is_known("anything.example", list_known_names())
