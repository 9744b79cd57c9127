"""Finding one's way on a page: contents, folded cards that a link opens, and active filters as chips."""

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages.navigation import OPEN
from pages.offline.visit import nodes
from pages.ui.markdown import plain
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import FILTERS
from tests.synthetic import rows

MAIN = Path(__file__).parents[3] / "pages/main.py"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    of, path = rows.run(), tmp_path_factory.mktemp("sections") / "results.duckdb"
    return rows.store(path, of, rows.laptop(of))


def opened(file: Path, address: str, monkeypatch: pytest.MonkeyPatch, **asked: list[str]) -> AppTest:
    monkeypatch.setenv("STEPSCOPE_DB", str(file))
    app = AppTest.from_file(str(MAIN), default_timeout=60)
    app.session_state[OPEN] = address
    app.query_params.update(asked)
    return app.run()


def keys(app: AppTest) -> set[str]:
    return {str(node.key) for node in nodes(app.main) if getattr(node, "key", None)}


def test_a_folded_card_is_drawn_when_it_is_opened_by_hand_or_by_a_link(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut = opened(file, "training-step", monkeypatch)
    assert "card-warmup" not in keys(shut)
    shut.session_state["show-warmup"] = True
    assert "card-warmup" in keys(shut.run())
    for asked in ({"show-warmup": ["true"]}, {"warmup-as": ["Table"]}):
        assert "card-warmup" in keys(opened(file, "training-step", monkeypatch, **asked)), asked


def test_the_contents_name_every_heading(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = opened(file, "roofline", monkeypatch)
    (contents,) = [
        str(node.proto.body) for node in nodes(page.main) if node.type == "html" and "<nav" in node.proto.body
    ]
    headings: list[Any] = [node for node in nodes(page.main) if node.type == "header"]
    assert len(headings) > 3
    assert [part.split('"')[1] for part in contents.split("<a ")[1:]] == [f"#{node.proto.anchor}" for node in headings]


def test_an_active_filter_is_a_chip_that_removes_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = opened(file, "training-step", monkeypatch, precision=["bf16"], context=["64", "128"])
    chips = {plain(button.label): button for button in page.main.button if str(button.key).startswith("_chip-")}
    assert list(chips) == ["Context: 64", "Context: 128", "Precision: bf16"]
    chips["Context: 64"].click().run()
    assert list(page.session_state["context"]) == ["128"]
    assert "Context: 64" not in [plain(button.label) for button in page.main.button]


def test_a_page_shows_the_filters_that_it_uses_and_keeps_the_others(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(file, "attention", monkeypatch, precision=["bf16"])
    (unseen,) = [node for node in nodes(page.sidebar) if getattr(node, "key", None) == "_unseen-filters"]
    labels = [node.label for node in nodes(unseen) if getattr(node, "label", None)]
    assert labels[:5] == ["Mode", "Size", "Context", "Precision", "Backend"]
    assert len(labels) == len(FILTERS)
    assert not [button for button in page.main.button if str(button.key).startswith("_chip-")]
    assert page.session_state["precision"] == ["bf16"]


def test_active_filters_can_be_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes those of the page's address, which a widget reads again when it has no state."""
    of = rows.run(label="one")
    file = rows.store(tmp_path / "r.duckdb", of, [rows.ok(of, rows.asked(context=length)) for length in (64, 128)])
    assert "Clear filters" not in labels(opened(file, "mixed-precision", monkeypatch))
    (run,) = load_contents(file).runs
    page = opened(file, "mixed-precision", monkeypatch, context=["64"], run=[run.name])
    assert [label for label in labels(page) if ":" in label] == [f"Run: {run.name}", "Context: 64"]
    next(button for button in page.main.button if button.label == "Clear filters").click().run()
    assert not [label for label in labels(page) if ":" in label or label == "Clear filters"]
    page = opened(file, "mixed-precision", monkeypatch, run=[run.name])
    next(button for button in page.main.button if str(button.key).startswith("_chip-")).click().run()
    assert f"Run: {run.name}" not in labels(page), "a chip removes the run, too"


def labels(page: AppTest) -> list[str]:
    return [plain(button.label) for button in page.main.button]
