"""Published times beside own rows of the same shape."""

from pathlib import Path

import pytest

from runner.answers import ask
from runner.importers.files import import_file
from runner.store.read import read
from runner.store.read.selection import Selection
from tests.synthetic import rows

THEIRS = """\
## Their toy

| d_model | d_ff | layers | heads | vocab | batch | context | forward (ms) | backward (ms) |
|---|---|---|---|---|---|---|---|---|
| {d_model} | {d_ff} | {layers} | {heads} | {vocabulary} | {batch} | {context} | 1.5 | 6.0 |
| {d_model} | {d_ff} | {layers} | {heads} | {vocabulary} | {batch} | 7777 | 3.0 | 12.0 |
"""


def test_rows_of_one_shape_stand_beside_each_other(tmp_path: Path) -> None:
    db, of = tmp_path / "own.duckdb", rows.run()
    cell = rows.asked("toy-256")
    rows.store(db, of, [rows.ok(of, cell)])
    path = tmp_path / "theirs.md"
    path.write_text(THEIRS.format(**rows.key_of(cell)))
    import_file(path, db=db)
    known = read(db, Selection(), ("published", "steps", "attention"))
    own = known.steps[0].times["forward"].step.ms
    answer = ask("published", known)
    (view,) = answer.views
    assert [view.get(row, "published_ms") for row in view.rows] == [1.5, 6.0, 3.0, 12.0]
    first, _, third, _ = view.rows
    assert view.get(first, "own_ms") == own
    assert view.get(first, "ratio") == pytest.approx(1.5 / own)
    assert first.cells == (known.steps[0].cell_id,)
    assert (view.get(third, "own_ms"), third.cells) == (None, ())
    assert [getattr(one, "context", None) for one in third.wanted] == [7777]
    assert "**2** of 4 published times have an own row of the same shape" in answer.sentence
