"""The filters explain their values, also for models whose samples have no length; unseen ones leave nothing out."""

from dataclasses import replace
from pathlib import Path

import pytest

from pages.api.parameters import parse_selection
from pages.navigation import PAGES
from pages.offline.visit import Visits, nodes
from pages.ui.markdown import plain
from runner.store.queries.overview import load_contents
from tests.command import run
from tests.runner.own.build import MLP, NANO


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with one step of a network without a length and one of a decoder at 16 tokens."""
    path = tmp_path_factory.mktemp("filters") / "results.duckdb"
    models = ("--model", MLP, "--model", f"{NANO},width=32,layers=2")
    done = run("sweep", "--experiment", "benchmark", *models, "--contexts", "16", "--modes", "train",
               "--precisions", "fp32", "--rounds", "1", "--max-steps", "4", "--device", "cpu", db=path)  # fmt: skip
    assert done.returncode == 0, done.stdout
    return path


def test_a_missing_length_has_a_name(file: Path) -> None:
    """It has one in the sidebar, in an address, in the chips and in the API, and selects the right cells."""
    visit = Visits(file).visit("training-step", {"context": ["no length"]})
    (filter_,) = [node for node in nodes(visit.sidebar) if getattr(node, "label", "") == "Context"]
    assert [str(getattr(option, "content", option)) for option in filter_.options] == ["no length", "16"]
    chips = [node.label for node in nodes(visit.main) if str(getattr(node, "key", "")).startswith("_chip-")]
    assert [plain(chip) for chip in chips] == ["Context: no length"]
    assert {str(size).split("@")[0] for size in visit.rows["card-phases"]["Size"]} == {"mlp"}
    contents = load_contents(file)
    for asked in ("no length", "0"):
        assert parse_selection({"context": [asked]}, contents).context == (0,)


def test_a_filter_that_a_page_does_not_show_leaves_nothing_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its value for pages that show it, but is not named as one in force."""
    asked = {"context": ["16"]}
    for address, card in (("explore", "card-explored"), ("training-step", "card-phases")):
        whole, narrowed = (Visits(file).visit(address, parameters) for parameters in ({}, asked))
        assert 0 < len(narrowed.rows[card]) < len(whole.rows[card])
        filters = tuple(name for name in PAGES[address].filters if name != "context")
        with monkeypatch.context() as patched:
            patched.setitem(PAGES, address, replace(PAGES[address], filters=filters))
            unseen = Visits(file).visit(address, asked)
        assert unseen.rows[card].equals(whole.rows[card])
        assert not [node for node in nodes(unseen.main) if str(getattr(node, "key", "")).startswith("_chip-")]
        (kept,) = [node for node in nodes(unseen.sidebar) if getattr(node, "label", "") == "Context"]
        assert kept.value == ["16"]
