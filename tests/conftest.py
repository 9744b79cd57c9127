"""What every test shares."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

# A machine that only measures has none of what the pages need, and can run all the other tests.
_PAGES_NEED = ("playwright", "plotly", "streamlit")
collect_ignore = (
    []
    if all(map(find_spec, _PAGES_NEED))
    else [
        path.name
        for path in Path(__file__).parent.glob("test_*.py")
        if re.search(rf"^(from|import) (tests\.browser|{'|'.join(_PAGES_NEED)})\b", path.read_text(), re.MULTILINE)
    ]
)


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sweeps of the tests wait for one another, and not for a sweep that somebody runs on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        yield
