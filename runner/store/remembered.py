"""What is worked out once for each state of a results file, however many queries need it.

    mark_state(con, fingerprint(path))                     # whoever makes the views of a connection
    mark_origin(con, survey(path).origin)
    noise = remember(con, "noise of steps", lambda: ...)   # a query on it

Of readers who need a result at the same moment one computes it, and the others wait. What consists of results of runs
is computed anew for the runs alone that have got rows (`remember_runs`). Limits: the last KEPT results of this process.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

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


def mark_origin(con: DuckDBPyConnection, state: str) -> None:
    """Says since which earlier state rows have only been added."""
    con.execute(f"SET VARIABLE rows_origin = {quote(state)}")


def remember(con: DuckDBPyConnection, name: str, compute: Callable[[], T]) -> T:
    """Returns the result that `compute` had for the same rows; computes it where there is none, and where nobody has
    marked the state."""
    state = _get_variable(con, "rows_state")
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


def remember_runs(
    con: DuckDBPyConnection,
    name: str,
    states: Mapping[UUID, object],
    compute: Callable[[list[UUID]], Mapping[UUID, T]],
) -> dict[UUID, T]:
    """Returns a result for each of the runs in `states`, in their order. `compute` gets those whose state is another
    than the last time, and all where rows may have been changed in place since."""
    origin = _get_variable(con, "rows_origin")
    if origin is None:
        return dict(compute(list(states)))
    key = (origin, name)
    known: Mapping[UUID, tuple[object, T]] = _known.get(key, {})
    missing = [run for run, state in states.items() if run not in known or known[run][0] != state]
    computed = compute(missing) if missing else {}
    found = {run: (state, computed[run] if run in computed else known[run][1]) for run, state in states.items()}
    _keep(key, found)
    return {run: result for run, (_, result) in found.items()}


def _get_variable(con: DuckDBPyConnection, name: str) -> str | None:
    (value,) = con.execute(f"SELECT getvariable({quote(name)})").fetchone() or (None,)
    return None if value is None else str(value)


def _keep(key: tuple[str, str], found: object) -> None:
    _known.pop(key, None)
    while len(_known) >= KEPT:
        _known.pop(next(iter(_known)), None)
    _known[key] = found
