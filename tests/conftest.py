"""What every test shares."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sweeps of the tests wait for one another, and not for a sweep that somebody runs on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        yield
