"""No page fails for a file that has only a user's own models."""

from collections.abc import Iterator

import pytest

from pages.navigation import PAGES
from pages.offline.visit import Visits, nodes
from tests.command import run
from tests.runner.own.build import MLP, NANO


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visits]:
    """Yields visits over a network without a length and a decoder, measured by the experiments that pages draw."""
    file = tmp_path_factory.mktemp("own") / "results.duckdb"
    experiments = ("benchmark", "memory", "kernels", "numerics", "counterfactuals")
    words = [word for name in experiments for word in ("--experiment", name)]
    models = ("--model", MLP, "--model", f"{NANO},width=32,layers=2")
    done = run("sweep", *words, *models, "--contexts", "16,32", "--rounds", "1", "--device", "cpu", db=file)
    assert "Measured:" in done.stdout, done.stdout
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_DB", str(file))
        yield Visits(file)


@pytest.mark.soak
@pytest.mark.parametrize("address", PAGES)
def test_a_page_of_own_models_alone(visits: Visits, address: str) -> None:
    """A page that fails raises."""
    visit = visits.visit(address, {})
    assert visit.title
    assert list(nodes(visit.main))
