"""What every test shares."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# A machine that only measures has none of what the pages need, and can run all the other tests.
collect_ignore = (
    []
    if find_spec("playwright") and find_spec("streamlit")
    else ["test_app.py", "test_charts.py", "test_memory_pages.py", "test_timeline_page.py"]
)


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sweeps of the tests wait for one another, and not for a sweep that somebody runs on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        yield
