"""A results file is examined and read within little memory, and with more where that is not enough."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import duckdb
import pytest

from runner.store import contract, shared
from runner.store.attached import CONFIG, connect
from runner.store.database import look_through
from tests.synthetic import rows


def test_a_long_text_is_examined_with_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label of 8 MB, which breaks the contract, is read within 128 MB a thread and not within 1 MB."""
    file = rows.store(tmp_path / "results.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    with duckdb.connect(str(file)) as con:
        con.execute("UPDATE runs SET label = repeat('x', 8_000_000)")
    used: list[Sequence[str]] = []

    def recorded(*files: Path, limits: Sequence[str]) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        used.append(limits)
        return connect(*files, limits=limits)

    monkeypatch.setattr(contract, "connect", recorded)
    for memory, attempts in ((128, 1), (1, 2)):
        contract._known.clear()
        used.clear()
        monkeypatch.setattr(shared, "THREAD_MB", memory)
        assert look_through(file).left_out == {"runs": 1}
        assert [len(limits) for limits in used] == [2, 0][:attempts]


def test_a_query_beyond_a_readers_memory_continues_in_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two million texts of 32 bytes are sorted within 32 MB a thread, and nothing is left of it."""
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(shared, "THREAD_MB", 32)
    monkeypatch.setitem(CONFIG, "threads", 2)
    taken = shared.Taken(files=())
    with taken.opened:
        taken.con.execute(
            "CREATE TEMP TABLE texts AS SELECT md5(i::VARCHAR) AS text FROM range(2_000_000) t(i) ORDER BY 1"
        )
        assert taken.con.execute("SELECT count(*) FROM texts").fetchone() == (2_000_000,)
        assert [path.is_dir() for path in folder.iterdir()] == [True]
    assert list(folder.iterdir()) == []
