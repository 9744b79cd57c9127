"""What is worked out once for each state of a results file, however many queries need it.

    mark_state(con, fingerprint(path))                     # whoever makes the views of a connection
    noise = remember(con, "noise of steps", lambda: ...)   # a query on it

Limits: the last KEPT results of this process.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from duckdb import DuckDBPyConnection

from runner.store.attached import quote

T = TypeVar("T")
KEPT = 32

_known: dict[tuple[str, str], Any] = {}


def mark_state(con: DuckDBPyConnection, state: str) -> None:
    """Says which state of which rows the views of a connection show."""
    con.execute(f"SET VARIABLE rows_state = {quote(state)}")


def remember(con: DuckDBPyConnection, name: str, compute: Callable[[], T]) -> T:
    """Returns the result that `compute` had for the same rows; computes it where there is none, and where nobody has
    marked the state."""
    (state,) = con.execute("SELECT getvariable('rows_state')").fetchone() or (None,)
    if state is None:
        return compute()
    if (state, name) not in _known:
        found = compute()
        while len(_known) >= KEPT:
            _known.pop(next(iter(_known)), None)
        _known[state, name] = found
    result: T = _known[state, name]
    return result
