"""A server that has had no visitor yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.synthetic import memory_rows, rows, timelines


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, asked: Path) -> Iterator[str]:
    """Yields the address of a server without visitors over a small finished sweep of every experiment."""
    from tests.browser import served  # not above: pytest also reads this file on machines without a browser

    of, path = rows.run(label="first look"), tmp_path_factory.mktemp("app") / "results.duckdb"
    rows.store(path, of, rows.laptop(of))
    attention = [memory_rows.attention(of, seq_len=length) for length in (256, 1024)]
    parts = {"parameters": 2**20, "activations": 2**22}
    rows.store_tables(path, [*attention, memory_rows.memory(of, parts), memory_rows.memory(of, parts, context=256)])
    timelines.write(path, of, timelines.step(allocations=300))
    with served(path) as found:
        yield found
    assert not asked.exists(), asked.read_text()
