"""Who may read a server with sign-in in its secrets: a real browser, a real server and a real OpenID provider.

The provider is a few lines of `http.server`. It signs its tokens and signs in the person that the test sets.
"""

import http.server
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from playwright.sync_api import Browser, expect

from pages.sign_in import may_read
from tests.browser import ROOT, opened, served, settled
from tests.synthetic import rows


class Provider(http.server.ThreadingHTTPServer):
    """Signs in `person` without asking."""

    key = RSAKey.generate_key(2048, {"kid": "one", "alg": "RS256", "use": "sig"})
    person: dict[str, Any]
    nonce = ""

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server_port}"


class Answers(http.server.BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        if path == "/authorize":
            self.server.nonce = asked["nonce"]
            back = urllib.parse.urlencode({"code": "code", "state": asked["state"]})
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri']}?{back}")
            self.end_headers()
        elif path == "/jwks":
            self._json({"keys": [self.server.key.as_dict(private=False)]})
        else:
            at = self.server.address
            self._json({"issuer": at, "authorization_endpoint": f"{at}/authorize", "token_endpoint": f"{at}/token",
                        "jwks_uri": f"{at}/jwks", "id_token_signing_alg_values_supported": ["RS256"]})  # fmt: skip

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        now = int(time.time())
        claims = {"iss": self.server.address, "aud": "stepscope", "sub": "1", "iat": now, "exp": now + 600,
                  "nonce": self.server.nonce, **self.server.person}  # fmt: skip
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.server.key)
        self._json({"access_token": "x", "token_type": "Bearer", "id_token": token})

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(("localhost", 0), Answers) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@contextmanager
def _served_with(folder: Path, secrets: str) -> Iterator[str]:
    """Yields the address of a server whose user's home folder has these secrets. `{address}` there becomes its own."""
    file = rows.store(folder / "results.duckdb", of := rows.run(label="secret"), [rows.ok(of, rows.asked())])
    (folder / ".streamlit").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        (folder / ".streamlit" / "secrets.toml").write_text(secrets)
        with served(file) as address:
            yield address


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[str]:
    example = (ROOT / ".streamlit" / "secrets.example.toml").read_text()
    for old, new in (
        ("https://stepscope.example.com/", "http://localhost:{port}/"),
        ('cookie_secret = ""', 'cookie_secret = "0123456789abcdef0123456789abcdef"'),
        ('client_id = ""', 'client_id = "stepscope"'),
        ('client_secret = ""', 'client_secret = "secret"'),
        ("https://accounts.google.com", provider.address),
    ):
        assert old in example
        example = example.replace(old, new)
    with _served_with(tmp_path_factory.mktemp("team"), example) as found:
        yield found


@pytest.mark.soak
def test_nobody_sees_anything_before_signing_in(browser: Browser, address: str) -> None:
    """Neither a page nor the API reveals anything, whatever the address."""
    frames: list[str | bytes] = []
    with opened(browser, "about:blank") as visit:
        visit.page.on("websocket", lambda socket: socket.on("framereceived", lambda data: frames.append(data)))
        visit.page.goto(f"{address}/training-step?mode=train")
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Sign in to read these results")
        expect(visit.page.get_by_role("button", name="Sign in")).to_be_visible()
        assert visit.page.get_by_test_id("stSidebarNavLink").count() == 0
        settled(visit.page)
    received = b"".join(data.encode() if isinstance(data, str) else data for data in frames)
    assert b"Sign in to read" in received, "the test must see the frames"
    assert b"toy-64" not in received
    assert b"Example CPU" not in received
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{address}/api/v1/rows.json?table=steps", timeout=60)


def test_signing_in_brings_back_to_the_link(browser: Browser, address: str, provider: Provider) -> None:
    """The visitor goes through the provider and back to the requested page; signed out, nothing is shown."""
    provider.person = {"email": "Ann@example.com", "email_verified": True, "name": "Ann"}
    with opened(browser, f"{address}/training-step?size=toy-64") as visit:
        visit.page.get_by_role("button", name="Sign in").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Step time")
        assert "size=toy-64" in visit.page.url
        expect(visit.page.get_by_test_id("stSidebar").get_by_text("Ann@example.com")).to_be_visible()
        with visit.page.expect_navigation():  # Chromium may never close a page that is between two documents
            visit.page.get_by_role("button", name="Sign out").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Sign in to read these results")


@pytest.mark.soak
def test_a_person_who_is_not_on_the_list_is_refused(browser: Browser, address: str, provider: Provider) -> None:
    provider.person = {"email": "eve@example.net", "email_verified": True}
    with opened(browser, address) as visit:
        visit.page.get_by_role("button", name="Sign in").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("You may not read these results")
        expect(visit.page.get_by_text("eve@example.net")).to_be_visible()
        assert visit.page.get_by_test_id("stSidebarNavLink").count() == 0


@pytest.mark.soak
def test_broken_secrets_admit_nobody(browser: Browser, tmp_path: Path) -> None:
    with _served_with(tmp_path, "[auth\nredirect_uri = ") as address, opened(browser, address) as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("The server's secrets cannot be read")
        assert visit.page.get_by_test_id("stSidebarNavLink").count() == 0
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{address}/api/v1/rows.json?table=steps", timeout=60)


@pytest.mark.parametrize(
    ("reader", "allow", "may"),
    [
        ({"email": "ann@example.com"}, None, True),
        ({"email": "ANN@Example.com"}, ["ann@example.com"], True),
        ({"email": "bob@example.org", "email_verified": True}, ["@example.org"], True),
        ({"email": "bob@example.org", "email_verified": False}, ["@example.org"], False),
        ({"email": "bob@sub.example.org"}, ["@example.org"], False),
        ({"email": "bob@notexample.org"}, ["@example.org", "example.org"], False),
        ({"email": "@example.org@example.net"}, ["@example.org"], False),
        ({"email": "", "name": "ann@example.com"}, ["ann@example.com", "@", ""], False),
        ({"email": "ann@example.com"}, [], False),
    ],
)
def test_who_is_on_the_list(reader: dict[str, Any], allow: list[str] | None, may: bool) -> None:
    assert may_read(reader, allow=allow) is may
