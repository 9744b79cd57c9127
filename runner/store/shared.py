"""One connection for many readers of one file: opening it and making its views is most of what a short reader takes.

    with share_connection(path):                       # whoever asks many questions at once, such as a report
        load_steps(path, chosen), load_attention(path, chosen)

Every reader within takes this connection in turn. It is attached to the file only while one of them reads, so that a
sweep gets its rows in between two of them, and the next one sees them. Limits: the readers of one thread; one within
another gets a connection of its own.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from duckdb import DuckDBPyConnection

from runner.store.attached import connect


@dataclass(kw_only=True)
class Taken:
    """A connection, and the state of the file that its views show; None as long as it has none."""

    con: DuckDBPyConnection
    shown: object = None


@dataclass(kw_only=True)
class _Shared:
    """The connection that the readers of one file share: there is one from the first of them on."""

    path: Path
    taken: Taken | None = None
    is_free: bool = True
    opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @contextlib.contextmanager
    def use(self) -> Iterator[Taken]:
        if self.taken is None:
            self.taken = Taken(con=self.opened.enter_context(connect(self.path)))
        self.is_free = False
        try:
            yield self.taken
        except BaseException:
            self.close()  # an error may have ended it
            raise
        finally:
            self.is_free = True

    def close(self) -> None:
        self.opened.close()
        self.taken = None


_shared: ContextVar[_Shared | None] = ContextVar("_shared", default=None)


@contextlib.contextmanager
def share_connection(db_path: Path | str) -> Iterator[None]:
    """Lets the readers of a file that are opened within share one connection. Opens nothing itself."""
    path, outer = Path(db_path).absolute(), _shared.get()
    if outer is not None and outer.path == path:
        yield
        return
    own = _Shared(path=path)
    token = _shared.set(own)
    try:
        yield
    finally:
        _shared.reset(token)
        own.close()


@contextlib.contextmanager
def take_connection(path: Path, *, folder: Path | None, limits: Sequence[str]) -> Iterator[Taken]:
    """Yields the connection that the readers of this file share just now, if it is free and reaches as far, else one of
    its own."""
    shared = _shared.get()
    if shared is not None and shared.path == path and shared.is_free and folder is None and not limits:
        with shared.use() as taken:
            yield taken
        return
    with connect(path, folder=folder, limits=limits) as con:
        yield Taken(con=con)
