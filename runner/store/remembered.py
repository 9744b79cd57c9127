"""What is worked out once for each state of a results file, however many queries need it.

    mark_state(con, fingerprint(path))                     # whoever makes the views of a connection
    noise = remember(con, "noise of steps", lambda: ...)   # a query on it

Of readers who need a result at the same moment one computes it, and the others wait. Limits: the last KEPT results of
this process.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from duckdb import DuckDBPyConnection

from runner.store.attached import quote

T = TypeVar("T")
KEPT = 32

_known: dict[tuple[str, str], Any] = {}
#: What is computed just now; whoever computes it holds the lock.
_computing: dict[tuple[str, str], threading.Lock] = {}


def mark_state(con: DuckDBPyConnection, state: str) -> None:
    """Says which state of which rows the views of a connection show."""
    con.execute(f"SET VARIABLE rows_state = {quote(state)}")


def remember(con: DuckDBPyConnection, name: str, compute: Callable[[], T]) -> T:
    """Returns the result that `compute` had for the same rows; computes it where there is none, and where nobody has
    marked the state."""
    (state,) = con.execute("SELECT getvariable('rows_state')").fetchone() or (None,)
    if state is None:
        return compute()
    key = (state, name)
    if key not in _known:
        try:
            with _computing.setdefault(key, threading.Lock()):
                if key not in _known:
                    _keep(key, compute())
        finally:
            _computing.pop(key, None)
    result: T = _known[key]
    return result


def _keep(key: tuple[str, str], found: object) -> None:
    while len(_known) >= KEPT:
        _known.pop(next(iter(_known)), None)
    _known[key] = found
