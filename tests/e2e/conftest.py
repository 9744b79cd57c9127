"""A server that has had no visitor yet, and a record of the addresses that it contacts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.synthetic import memory_rows, rows, timelines

#: Python runs this at the start of the server, before its imports, and reports to it every socket that it uses.
TELLS_WHOM_IT_ASKS = """
import sys
def told(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[0] if event.startswith("socket.get") else arguments[1]
        host = address[0] if isinstance(address, tuple) else address
        if host not in ("localhost", "127.0.0.1", "::1", "", None):
            with open({log!r}, "a") as log:
                print(event, host, file=log)
sys.addaudithook(told)
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields the file in which servers started from now on record every address they contact outside this machine."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "sitecustomize.py").write_text(TELLS_WHOM_IT_ASKS.format(log=str(folder / "log")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield folder / "log"


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
