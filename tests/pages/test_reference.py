"""Every page over reference rows says whose they are; over a reader's own rows, no page does."""

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.navigation import OPEN, PAGES
from pages.ui.markdown import plain
from tests.some import some
from tests.synthetic import rows
from tests.synthetic.reference import DEVICE, pack_reference

MAIN = Path(__file__).parents[2] / "pages/main.py"
NOTICE = f"rows of an {DEVICE} that come with Stepscope, not of your machine. Measure your own: python -m runner sweep"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_reference(tmp_path_factory.mktemp("reference") / "gpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def page(address: str) -> str:
    """Returns all words of a page as it opens."""
    found = AppTest.from_file(str(MAIN), default_timeout=120)
    found.session_state[OPEN] = address
    found.run()
    assert not found.exception
    return re.sub(r"\s+", " ", " ".join(plain(node.value) for node in (*found.markdown, *found.caption)))


@pytest.mark.parametrize("address", some(PAGES))
def test_every_page_is_marked(
    address: str, packed: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPSCOPE_DB", raising=False)
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(packed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert page(address).count(f"Reference {NOTICE}") == 1
    assert list(tmp_path.iterdir()) == []


def test_own_rows_are_not_marked(packed: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = rows.run()
    rows.store(tmp_path / "data/results.duckdb", of, [rows.ok(of, rows.asked())])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPSCOPE_DB", raising=False)
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(packed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for address in ("training-step", "data"):
        words = page(address)
        assert "come with Stepscope" not in words
        assert DEVICE not in words
