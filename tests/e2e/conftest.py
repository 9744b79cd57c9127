"""A server that has had no visitor yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.synthetic import memory_rows, rows, timelines


@pytest.fixture(scope="module")
def address(module_db: Path, asked: Path) -> Iterator[str]:
    """Yields the address of a server without visitors over a small finished sweep of every experiment."""
    from tests.browser import served  # not above: pytest also reads this file on machines without a browser

    rows.store(module_db, of := rows.run(label="first look"), rows.laptop(of))
    attention = [memory_rows.attention(of, seq_len=length) for length in (256, 1024)]
    parts = {"parameters": 2**20, "activations": 2**22}
    memory = [memory_rows.memory(of, parts, context=context) for context in (128, 256)]
    rows.store_tables(module_db, [*attention, *memory])
    timelines.write(module_db, of, timelines.step(allocations=300))
    with served(module_db) as found:
        yield found
    assert not asked.exists(), asked.read_text()
