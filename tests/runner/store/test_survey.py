"""A results file is examined within little memory, and with more where that is not enough."""

import time
from pathlib import Path

import duckdb
import pytest

from runner.store import survey
from runner.store.database import look_through
from tests.synthetic import rows


def test_a_file_that_needs_more_memory_is_examined_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label of 8 MB, which breaks the contract, is read within 256 MB and not within 4 MB."""
    file = rows.store(tmp_path / "results.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    with duckdb.connect(str(file)) as con:
        con.execute("UPDATE runs SET label = repeat('x', 8_000_000)")
    first = survey._examine_frugally(file, {}, deadline=time.monotonic() + 5)
    assert first is not None
    assert first.left_out == {"runs": 1}
    monkeypatch.setattr(survey, "MEMORY", "SET memory_limit = '4MB'")
    assert survey._examine_frugally(file, {}, deadline=time.monotonic() + 5) is None
    assert look_through(file) == first
